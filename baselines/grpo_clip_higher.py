"""GRPO with clip-higher: `A = (R - group mean) / (group std + 1e-6)`, clip 0.2 / 0.28 against the behaviour policy.

Groups of 8 rollouts of one prompt; a group of equal rewards has no advantage. Source: GRPO (arXiv 2402.03300)
with DAPO's asymmetric clip (arXiv 2503.14476); token mean over the batch, as in the comparison of
arXiv 2607.07508. Departure: one update per batch, so the ratio is to the behaviour policy that the engine
recorded rather than to a snapshot.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from sao_bench.algorithm import Algorithm, AlgorithmConfig, over, policy_inputs, spread
from sao_bench.batch import Batch
from sao_bench.estimators import group_relative
from sao_bench.losses import Denominator, LossOutput, ppo_clip


class GRPOClipHigherConfig(AlgorithmConfig):
    """Group and clip."""

    group_size: int = Field(8, ge=2)
    """Rollouts per prompt."""
    eps_low: float = Field(0.2, ge=0, le=1)
    """Clip, lower edge 1 - eps_low."""
    eps_high: float = Field(0.28, ge=0)
    """Clip, upper edge 1 + eps_high."""


class GRPOClipHigher(Algorithm):
    """Group-relative advantages, clipped ratio."""

    name: ClassVar[str] = "grpo_clip_higher"
    Config = GRPOClipHigherConfig

    def advantages(self, batch: Batch) -> Tensor:
        """Return the reward's place in its group, the same for every token."""
        return spread(group_relative(batch.rewards_B, batch.group_ids_B), batch)

    def loss(self, logp_BT: Tensor, batch: Batch, denominator: Denominator) -> LossOutput:
        """Clipped surrogate."""
        return ppo_clip(
            *policy_inputs(logp_BT, batch),
            eps_low=self.config.eps_low,
            eps_high=self.config.eps_high,
            **over(denominator),
        )
