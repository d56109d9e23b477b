"""M2PO: the tokens with the largest (log r)^2 are dropped until the mean of the rest is below 0.04; then `-r A`.

Source: arXiv 2510.01161: the second moment of log r is what stale data breaks, so it is bounded over the
whole minibatch and nothing is clipped. At least one token stays; the denominator counts all action tokens.
GRPO's advantage. Departure: one update per batch.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from sao_bench.baselines.grpo import GRPO
from torch import Tensor

from sao_bench.algorithm import GroupConfig, over, policy_inputs
from sao_bench.batch import Batch
from sao_bench.losses import Denominator, LossOutput, m2po_keep
from sao_bench.losses import m2po as m2po_loss


class M2POConfig(GroupConfig):
    """The bound; the group size is inherited."""

    tau: float = Field(0.04, gt=0)
    """Bound on the mean of (log r)^2 over the tokens that stay."""


class M2PO(GRPO):
    """GRPO's advantage, second moment of log r bounded, no clip."""

    name: ClassVar[str] = "m2po"
    Config = M2POConfig
    needs_current_logp: ClassVar[bool] = True

    def prepare(self, logp_BT: Tensor, batch: Batch) -> None:
        """Choose the tokens over the whole minibatch."""
        batch.keep_BT = m2po_keep(logp_BT, batch.behavior_logp_BT, batch.action_mask_BT, self.config.tau)

    def loss(self, logp_BT: Tensor, batch: Batch, denominator: Denominator) -> LossOutput:
        """Unclipped surrogate over the tokens that stay."""
        return m2po_loss(*policy_inputs(logp_BT, batch), keep_BT=batch.keep_BT, **over(denominator))
