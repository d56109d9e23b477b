"""Decoupled PPO (AReaL): `pi_prox/mu` times the clip loss on pi/pi_prox, clip 0.4, weights above 5 dropped.

Source: arXiv 2505.24298, section 5.2, after Hilton et al. 2022: the trust region is around the learner when
the batch was formed, not around the stale behaviour policy. 4 minibatch updates per batch; dropped tokens stay
in the denominator. Departure: the advantage is GRPO's (no critic); `decoupled_ppo_critic` has a critic's.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from sao_bench.baselines.grpo import GRPO
from torch import Tensor

from sao_bench.algorithm import Algorithm, ClipConfig, GroupConfig, clip, over, policy_inputs
from sao_bench.batch import Batch
from sao_bench.losses import Denominator, LossOutput
from sao_bench.losses import decoupled_ppo as decoupled_loss


class DecoupledConfig(ClipConfig):
    """A mixin: clip, cap and minibatches."""

    eps_low: float = Field(0.4, ge=0, le=1)
    """Clip of pi/pi_prox, lower edge 1 - eps_low."""
    eps_high: float = Field(0.4, ge=0)
    """Clip of pi/pi_prox, upper edge 1 + eps_high."""
    behavior_cap: float = Field(5.0, gt=0)
    """Tokens with pi_prox/mu above this are dropped."""
    minibatches: int = Field(4, ge=1)
    """Optimizer steps per batch."""


class Decoupled(Algorithm):
    """A mixin: the loss, whatever the advantage."""

    needs_proximal: ClassVar[bool] = True

    def loss(self, logp_BT: Tensor, batch: Batch, denominator: Denominator) -> LossOutput:
        """Decoupled clipped surrogate."""
        inputs, prox_BT = policy_inputs(logp_BT, batch), batch.proximal_logp_BT
        options = {"behavior_cap": self.config.behavior_cap, **clip(self.config), **over(denominator)}
        return decoupled_loss(*inputs, proximal_logp_BT=prox_BT, **options)


class DecoupledPPOConfig(DecoupledConfig, GroupConfig):
    """Group size, clip and cap."""


class DecoupledPPO(Decoupled, GRPO):
    """GRPO's advantage, decoupled clip loss."""

    name: ClassVar[str] = "decoupled_ppo"
    Config = DecoupledPPOConfig
