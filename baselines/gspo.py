"""GSPO: GRPO's advantage; one ratio per sequence, the geometric mean of r over its tokens, clip 3e-4 / 4e-4.

Source: arXiv 2507.18071, equations 5 to 7. The ratio is shared by the sequence's tokens and the gradient flows
through it to all of them. Departures: as GRPO's; for a trajectory of several turns a sequence is all its action
tokens.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from sao_bench.baselines.grpo import GRPO, GRPOConfig
from torch import Tensor

from sao_bench.algorithm import clip, over, policy_inputs
from sao_bench.batch import Batch
from sao_bench.losses import Denominator, LossOutput
from sao_bench.losses import gspo as gspo_loss


class GSPOConfig(GRPOConfig):
    """The clip of a mean ratio is three orders narrower than that of a token's."""

    eps_low: float = Field(3e-4, ge=0, le=1)
    """Clip, lower edge 1 - eps_low."""
    eps_high: float = Field(4e-4, ge=0)
    """Clip, upper edge 1 + eps_high."""


class GSPO(GRPO):
    """GRPO's advantage, one clipped ratio per sequence."""

    name: ClassVar[str] = "gspo"
    Config = GSPOConfig

    def loss(self, logp_BT: Tensor, batch: Batch, denominator: Denominator) -> LossOutput:
        """Clipped surrogate of the sequence ratio."""
        return gspo_loss(*policy_inputs(logp_BT, batch), **clip(self.config), **over(denominator))
