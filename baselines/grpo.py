"""GRPO: `A = (R - group mean) / (group std + 1e-6)` (ddof 1), clip 0.2 / 0.2, mean over tokens, then sequences.

Source: arXiv 2402.03300, equations 3 and 4. A group of equal rewards has no advantage. Departures: one update
per batch, so the ratio is to the behaviour policy that the engine recorded rather than to a snapshot; no KL
penalty to a reference policy.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from sao_bench.algorithm import (
    Algorithm,
    AlgorithmConfig,
    ClipConfig,
    GroupConfig,
    among_valid,
    clip,
    over,
    policy_inputs,
    spread,
)
from sao_bench.batch import Batch
from sao_bench.estimators import group_relative
from sao_bench.losses import Denominator, LossOutput, ppo_clip


class GRPOConfig(GroupConfig, ClipConfig):
    """Group size and clip are inherited."""

    aggregate: Literal["token_mean", "seq_mean_token_mean", "seq_mean_token_sum_norm"] = "seq_mean_token_mean"
    """How per-token losses become one number."""


class GRPO(Algorithm):
    """Group-relative advantage, symmetric clip, sequence means."""

    name: ClassVar[str] = "grpo"
    Config: ClassVar[type[AlgorithmConfig]] = GRPOConfig

    def advantages(self, batch: Batch) -> Tensor:
        """Return the reward's place in its group, the same for every token."""
        return spread(among_valid(group_relative, batch), batch)

    def loss(self, logp_BT: Tensor, batch: Batch, denominator: Denominator) -> LossOutput:
        """Clipped surrogate against the behaviour policy."""
        return ppo_clip(*policy_inputs(logp_BT, batch), **clip(self.config), **over(denominator))
