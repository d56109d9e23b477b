"""SAO: single-rollout asynchronous optimization (arXiv 2607.07508). The reference algorithm.

One rollout per prompt; a batch is whatever arrived, from whatever weight versions.

- Policy: maximise `mean_t sg(f(r)) A log pi`, r = pi / mu against the log-probabilities that the rollout engine
  recorded, f(r) = r inside the open band (1 - eps_low, 1 + eps_high) and 0 outside, for both signs of A
  (double-sided masking, DIS). The mean is over all action tokens, the masked ones included.
- Advantage: token-level GAE over action tokens only (skip-observation), gamma 1, with lambda adapted to the
  length l of the trajectory: 1 - 1 / (alpha l).
- Critic: the policy's architecture and start, a zero head, attention frozen, K = 2 updates per policy update
  on targets with lambda 1, a learning rate of its own, critic-only batches first.

Every question that the paper leaves open is an option of `SAOConfig` with its default.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from sao_bench.algorithm import Algorithm, AlgorithmConfig, CriticConfig, DISConfig, band, over, policy_inputs
from sao_bench.batch import Batch
from sao_bench.estimators import length_adaptive_lambda, skip_observation_gae, whiten
from sao_bench.losses import Denominator, LossOutput, dis


class SAOConfig(CriticConfig, DISConfig):
    """SAO's own options; optimizer, critic, band and aggregation are inherited."""

    gamma: float = Field(1.0, ge=0, le=1)
    """Discount per action token."""
    alpha: float = Field(1.5, gt=0)
    """Of the policy's lambda, 1 - 1 / (alpha l), clamped to [0, 1]."""
    lambda_length: Literal["trajectory", "turn"] = "trajectory"
    """What l counts: all action tokens of the trajectory, or their mean per turn. (Open.)"""
    whiten: bool = False
    """Whether advantages are whitened over the batch's action tokens. (Open.)"""


class SAO(Algorithm):
    """Single-rollout asynchronous optimization."""

    name: ClassVar[str] = "sao"
    Config: ClassVar[type[AlgorithmConfig]] = SAOConfig
    needs_critic: ClassVar[bool] = True

    def advantages(self, batch: Batch) -> Tensor:
        """Skip-observation GAE with the length-adaptive lambda, from V as it was read."""
        lam_B = length_adaptive_lambda(self._lengths(batch), self.config.alpha)
        advantages_BT, _ = self._gae(batch, lam_B)
        return whiten(advantages_BT, batch.action_mask_BT) if self.config.whiten else advantages_BT

    def value_targets(self, batch: Batch) -> Tensor:
        """Returns with the critic's lambda (1: Monte Carlo)."""
        return self._gae(batch, self.config.critic_lambda)[1]

    def loss(self, logp_BT: Tensor, batch: Batch, denominator: Denominator) -> LossOutput:
        """DIS loss against the behaviour policy."""
        return dis(*policy_inputs(logp_BT, batch), **band(self.config), **over(denominator))

    def gae(self, batch: Batch, lam: float | Tensor, bootstrap_B: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return advantages and returns (B, T): here token by token, past the observations."""
        assert batch.values_BT is not None
        return skip_observation_gae(
            batch.values_BT, batch.rewards_BT, batch.action_mask_BT, self.config.gamma, lam, bootstrap_B
        )

    def _gae(self, batch: Batch, lam: float | Tensor) -> tuple[Tensor, Tensor]:
        if self.config.truncation == "terminal":
            return self.gae(batch, lam, None)
        assert batch.final_values_B is not None
        return self.gae(batch, lam, torch.where(batch.truncated_B, batch.final_values_B, 0.0))

    def _lengths(self, batch: Batch) -> Tensor:
        if self.config.lambda_length == "trajectory":
            return batch.action_tokens_B
        turns_B = torch.tensor([max(len(t.turns), 1) for t in batch.trajectories])
        return batch.action_tokens_B / turns_B
