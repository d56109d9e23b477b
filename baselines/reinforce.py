"""REINFORCE: loss `-R log pi`, summed over the action tokens of a trajectory, mean over trajectories.

Source: Williams 1992. No baseline and no importance ratio, so stale trajectories are learned from as if they
were the present policy's: the reference for what the corrections of all others are worth. Departure: one
reward per trajectory, given to all its action tokens (no reward to go).
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from sao_bench.algorithm import Algorithm, AlgorithmConfig, over, policy_inputs, spread
from sao_bench.batch import Batch
from sao_bench.losses import Denominator, LossOutput
from sao_bench.losses import reinforce as reinforce_loss


class ReinforceConfig(AlgorithmConfig):
    """The sequence log-probability: a sum over tokens."""

    aggregate: Literal["token_mean", "seq_mean_token_mean", "seq_mean_token_sum_norm"] = (
        "seq_mean_token_sum_norm"
    )
    """How per-token losses become one number."""
    aggregate_constant: float | None = Field(1.0, gt=0)
    """The constant that token sums are divided by."""


class Reinforce(Algorithm):
    """The reward times log pi: no baseline, no ratio."""

    name: ClassVar[str] = "reinforce"
    Config: ClassVar[type[AlgorithmConfig]] = ReinforceConfig

    def advantages(self, batch: Batch) -> Tensor:
        """Return the trajectory's reward for every token."""
        return spread(batch.rewards_B, batch)

    def loss(self, logp_BT: Tensor, batch: Batch, denominator: Denominator) -> LossOutput:
        """Score-function loss."""
        return reinforce_loss(*policy_inputs(logp_BT, batch), **over(denominator))
