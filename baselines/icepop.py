"""IcePop: the clip loss on pi/pi_prox times pi_prox/mu where that lies in [0.5, 2], and 0 elsewhere.

Source: Ling team 2025 (Ring-1T, arXiv 2510.18855): tokens on which trainer and engine disagree in either
direction are dropped; they stay in the denominator. GRPO's advantage, 4 minibatch updates per batch, token
mean. Departure: mu is any earlier version, not only another engine's rounding of the same weights.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from sao_bench.baselines.grpo import GRPO
from torch import Tensor

from sao_bench.algorithm import ClipConfig, GroupConfig, clip, over, policy_inputs
from sao_bench.batch import Batch
from sao_bench.losses import Denominator, LossOutput
from sao_bench.losses import icepop as icepop_loss


class IcePopConfig(GroupConfig, ClipConfig):
    """The band; group size and clip are inherited."""

    band_low: float = Field(0.5, ge=0)
    """Lower edge of the closed band of pi_prox/mu."""
    band_high: float = Field(2.0, ge=0)
    """Upper edge of the closed band of pi_prox/mu."""
    minibatches: int = Field(4, ge=1)
    """Optimizer steps per batch."""


class IcePop(GRPO):
    """GRPO's advantage, tokens far from the behaviour dropped."""

    name: ClassVar[str] = "icepop"
    Config = IcePopConfig
    needs_proximal: ClassVar[bool] = True

    def loss(self, logp_BT: Tensor, batch: Batch, denominator: Denominator) -> LossOutput:
        """Clip loss inside the band."""
        c = self.config
        return icepop_loss(
            *policy_inputs(logp_BT, batch), proximal_logp_BT=batch.proximal_logp_BT,
            band_low=c.band_low, band_high=c.band_high, **clip(c), **over(denominator),
        )  # fmt: skip
