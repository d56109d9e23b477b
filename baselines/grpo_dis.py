"""GRPO with SAO's loss: group-relative advantages (16 prompts x 8 rollouts), double-sided masking.

The ablation of arXiv 2607.07508 that keeps the group barrier and takes away the clip: what is left of SAO's
lead over it is due to single rollouts and the critic. Departures: as `grpo_clip_higher`'s.
"""

from __future__ import annotations

from typing import ClassVar

from sao_bench.baselines.grpo import GRPO
from torch import Tensor

from sao_bench.algorithm import DISConfig, GroupConfig, band, over, policy_inputs
from sao_bench.batch import Batch
from sao_bench.losses import Denominator, LossOutput, dis


class GRPODISConfig(GroupConfig, DISConfig):
    """Group size and band are inherited."""


class GRPODIS(GRPO):
    """GRPO's advantage, DIS loss."""

    name: ClassVar[str] = "grpo_dis"
    Config = GRPODISConfig

    def loss(self, logp_BT: Tensor, batch: Batch, denominator: Denominator) -> LossOutput:
        """DIS loss against the behaviour policy."""
        return dis(*policy_inputs(logp_BT, batch), **band(self.config), **over(denominator))
