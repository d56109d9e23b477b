"""TIS: the clip loss on pi/pi_prox times the truncated importance weight `min(pi_prox/mu, 2)`.

Source: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training". pi_prox is
the learner when the batch was formed; the batch is used for 4 minibatch updates. GRPO's advantage, token mean.
Departure: mu is any earlier version, not only another engine's rounding of the same weights.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from sao_bench.baselines.grpo import GRPO
from torch import Tensor

from sao_bench.algorithm import ClipConfig, GroupConfig, clip, over, policy_inputs
from sao_bench.batch import Batch
from sao_bench.losses import Denominator, LossOutput
from sao_bench.losses import tis as tis_loss


class TISConfig(GroupConfig, ClipConfig):
    """The cap; group size and clip are inherited."""

    cap: float = Field(2.0, gt=0)
    """pi_prox/mu counts at most this much."""
    minibatches: int = Field(4, ge=1)
    """Optimizer steps per batch."""


class TIS(GRPO):
    """GRPO's advantage, weight to the behaviour truncated at 2."""

    name: ClassVar[str] = "tis"
    Config = TISConfig
    needs_proximal: ClassVar[bool] = True

    def loss(self, logp_BT: Tensor, batch: Batch, denominator: Denominator) -> LossOutput:
        """Truncated importance sampling."""
        return tis_loss(
            *policy_inputs(logp_BT, batch),
            proximal_logp_BT=batch.proximal_logp_BT,
            cap=self.config.cap,
            **clip(self.config),
            **over(denominator),
        )
