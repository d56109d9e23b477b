"""Batch mean (FlashREINFORCE): `A = R - batch mean`, loss `-sg(r) A log pi` over trajectories near the policy.

A trajectory counts if the mean over its action tokens of the binary divergence
`mu log(mu/pi) + (1-mu) log((1-mu)/(1-pi))` (probabilities of the sampled token) is at most delta; divisors keep
the counts from before the filter. Mean over a trajectory's tokens, then over trajectories. One rollout per
prompt, no memory: after a drift the baseline is already right. Source: FlashREINFORCE. Departure: faults are left
out of the mean.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from sao_bench.algorithm import Algorithm, AlgorithmConfig, over, policy_inputs, spread
from sao_bench.batch import Batch
from sao_bench.estimators import batch_mean
from sao_bench.losses import Denominator, LossOutput, batch_mean_is


class BatchMeanConfig(AlgorithmConfig):
    """The trust region and the aggregation."""

    delta: float = Field(5e-3, ge=0)
    """Largest mean divergence (nats per token) of a trajectory that is learned from."""
    aggregate: Literal["token_mean", "seq_mean_token_mean", "seq_mean_token_sum_norm"] = "seq_mean_token_mean"
    """How per-token losses become one number."""


class BatchMean(Algorithm):
    """Batch mean reward as baseline, trust region by trajectory."""

    name: ClassVar[str] = "batch_mean"
    Config = BatchMeanConfig

    def advantages(self, batch: Batch) -> Tensor:
        """Return the reward minus the mean over the batch's valid rewards, the same for every token."""
        advantages_B = torch.zeros_like(batch.rewards_B)
        if batch.valid_B.any():
            advantages_B[batch.valid_B] = batch_mean(batch.rewards_B[batch.valid_B])
        return spread(advantages_B, batch)

    def loss(self, logp_BT: Tensor, batch: Batch, denominator: Denominator) -> LossOutput:
        """Importance-weighted REINFORCE inside the trust region."""
        return batch_mean_is(*policy_inputs(logp_BT, batch), delta=self.config.delta, **over(denominator))
