"""Dr. GRPO: `A = R - group mean`, clip 0.2 / 0.2, token sum over a constant, mean over all trajectories.

Source: arXiv 2503.20783, which takes out of GRPO its two biases: dividing by the group's std (easy and hard
prompts weigh more) and by the response's length (long wrong answers weigh less). The constant is the token
budget of one action, as in its code. Departures: as GRPO's.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from sao_bench.baselines.grpo import GRPO
from torch import Tensor

from sao_bench.algorithm import ClipConfig, GroupConfig, among_valid, spread
from sao_bench.batch import Batch
from sao_bench.estimators import group_relative
from sao_bench.losses import Denominator


class DrGRPOConfig(GroupConfig, ClipConfig):
    """Group size and clip are inherited."""

    aggregate: Literal["token_mean", "seq_mean_token_mean", "seq_mean_token_sum_norm"] = (
        "seq_mean_token_sum_norm"
    )
    """How per-token losses become one number."""
    aggregate_constant: float | None = Field(None, gt=0)
    """What token sums are divided by; None is the run's token budget of one action."""


class DrGRPO(GRPO):
    """Group-mean advantage, no division by spread or length."""

    name: ClassVar[str] = "dr_grpo"
    Config = DrGRPOConfig

    def advantages(self, batch: Batch) -> Tensor:
        """Return the reward minus its group's mean, the same for every token."""
        return spread(among_valid(group_relative, batch, scale="none"), batch)

    def denominator(self, batch: Batch) -> Denominator:
        """Return the constant times the number of trajectories."""
        constant = self.config.aggregate_constant or self.reply_tokens
        return Denominator.of(batch.action_mask_BT, self.config.aggregate, constant)
