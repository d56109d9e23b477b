"""REINFORCE++: the reward to go at each token, whitened over the batch's action tokens; clip 0.2 / 0.2.

Source: arXiv 2501.03262 (global advantage normalisation, one rollout per prompt, no critic). Whitening uses
the population standard deviation. Departures: no per-token KL reward (there is no reference policy); one update
per batch, so the ratio is to the behaviour policy.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from sao_bench.algorithm import Algorithm, AlgorithmConfig, ClipConfig, clip, over, policy_inputs
from sao_bench.batch import Batch
from sao_bench.estimators import token_return, whiten
from sao_bench.losses import Denominator, LossOutput, ppo_clip


class ReinforcePPConfig(AlgorithmConfig, ClipConfig):
    """Discount; the clip is inherited."""

    gamma: float = Field(1.0, ge=0, le=1)
    """Discount per action token."""


class ReinforcePP(Algorithm):
    """Token returns whitened over the batch, symmetric clip."""

    name: ClassVar[str] = "reinforce_pp"
    Config = ReinforcePPConfig

    def advantages(self, batch: Batch) -> Tensor:
        """Return the whitened reward to go of every action token."""
        returns_BT = token_return(batch.rewards_BT, batch.action_mask_BT, self.config.gamma)
        return whiten(returns_BT, batch.action_mask_BT)

    def loss(self, logp_BT: Tensor, batch: Batch, denominator: Denominator) -> LossOutput:
        """Clipped surrogate against the behaviour policy."""
        return ppo_clip(*policy_inputs(logp_BT, batch), **clip(self.config), **over(denominator))
