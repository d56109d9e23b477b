"""CISPO: GRPO's advantage, loss `-sg(min(r, 1 + eps_high)) A log pi`, eps_high 5; token mean.

Source: MiniMax-M1, arXiv 2506.13585, equations 4 and 5: no token is dropped, the weight is capped. Like SAO's
loss but for what happens above the band (the cap's weight instead of none) and below it (no lower edge).
Departures: as GRPO's.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from sao_bench.baselines.grpo import GRPO
from torch import Tensor

from sao_bench.algorithm import GroupConfig, over, policy_inputs
from sao_bench.batch import Batch
from sao_bench.losses import Denominator, LossOutput
from sao_bench.losses import cispo as cispo_loss


class CISPOConfig(GroupConfig):
    """The cap; the group size is inherited."""

    eps_high: float = Field(5.0, ge=0)
    """The weight is capped at 1 + eps_high."""


class CISPO(GRPO):
    """GRPO's advantage, importance weight capped and detached."""

    name: ClassVar[str] = "cispo"
    Config = CISPOConfig

    def loss(self, logp_BT: Tensor, batch: Batch, denominator: Denominator) -> LossOutput:
        """Importance-weighted REINFORCE with a capped weight."""
        return cispo_loss(*policy_inputs(logp_BT, batch), eps_high=self.config.eps_high, **over(denominator))
