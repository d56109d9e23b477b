"""RLOO: `A = R - mean of the other rewards of the group`, REINFORCE on the sequence's log-probability.

Source: Ahmadian et al. 2024 (arXiv 2402.14740), equation 7; groups of 4, as in its best setting. Departures:
no KL penalty in the reward; one update per batch and no importance ratio, so staleness is not corrected.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from sao_bench.baselines.reinforce import Reinforce, ReinforceConfig
from torch import Tensor

from sao_bench.algorithm import GroupConfig, among_valid, spread
from sao_bench.batch import Batch
from sao_bench.estimators import leave_one_out


class RLOOConfig(ReinforceConfig, GroupConfig):
    """Group size; the aggregation is REINFORCE's."""

    group_size: int = Field(4, ge=2)
    """Rollouts per prompt."""


class RLOO(Reinforce):
    """REINFORCE with the group's leave-one-out mean as baseline."""

    name: ClassVar[str] = "rloo"
    Config = RLOOConfig

    def advantages(self, batch: Batch) -> Tensor:
        """Return the reward minus the mean of the others in its group, the same for every token."""
        return spread(among_valid(leave_one_out, batch), batch)
