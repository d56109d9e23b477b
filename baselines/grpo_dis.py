"""GRPO with SAO's loss: group-relative advantages (16 prompts x 8 rollouts), double-sided masking.

The ablation of arXiv 2607.07508 that keeps the group barrier and takes away the clip: what is left of SAO's
lead over it is due to single rollouts and the critic.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from sao_bench.algorithm import Algorithm, AlgorithmConfig, over, policy_inputs, spread
from sao_bench.batch import Batch
from sao_bench.estimators import group_relative
from sao_bench.losses import Denominator, LossOutput, dis


class GRPODISConfig(AlgorithmConfig):
    """Group and band."""

    group_size: int = Field(8, ge=2)
    """Rollouts per prompt."""
    eps_low: float = Field(0.3, ge=0, le=1)
    """DIS band, lower edge 1 - eps_low."""
    eps_high: float = Field(5.0, ge=0)
    """DIS band, upper edge 1 + eps_high."""


class GRPODIS(Algorithm):
    """Group-relative advantages, DIS loss."""

    name: ClassVar[str] = "grpo_dis"
    Config = GRPODISConfig

    def advantages(self, batch: Batch) -> Tensor:
        """Return the reward's place in its group, the same for every token."""
        return spread(group_relative(batch.rewards_B, batch.group_ids_B), batch)

    def loss(self, logp_BT: Tensor, batch: Batch, denominator: Denominator) -> LossOutput:
        """DIS loss against the behaviour policy."""
        return dis(
            *policy_inputs(logp_BT, batch),
            eps_low=self.config.eps_low,
            eps_high=self.config.eps_high,
            **over(denominator),
        )
