"""Running mean: `A = R - mean of the last W rewards` in order of arrival, 0 while there are none; DIS loss.

The baseline that arXiv 2607.07508 compares SAO with in online learning (W = 128). It needs no critic and no
group, and it remembers: after a drift its baseline is W rewards behind. Departure: a fault, which has no reward,
does not enter the mean. The loss is SAO's, so that only the baseline differs.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from sao_bench.algorithm import AlgorithmConfig, ArrivalBaseline, DISConfig, band, over, policy_inputs
from sao_bench.batch import Batch
from sao_bench.estimators import RunningMean
from sao_bench.losses import Denominator, LossOutput, dis
from sao_bench.types import Trajectory


class RunningMeanConfig(AlgorithmConfig, DISConfig):
    """Window; the band is inherited."""

    window: int = Field(128, ge=1)
    """Rewards that the mean is over (W)."""


class RunningMeanBaseline(ArrivalBaseline):
    """Mean of the last 128 rewards as baseline, DIS loss."""

    name: ClassVar[str] = "running_mean"
    Config = RunningMeanConfig

    def __init__(self, config: RunningMeanConfig | None = None):
        super().__init__(config)
        self.memory = RunningMean(self.config.window)

    def judge(self, trajectory: Trajectory) -> float:
        """Return the reward minus the mean of those that arrived before it."""
        return self.memory.update(trajectory.reward)

    def loss(self, logp_BT: Tensor, batch: Batch, denominator: Denominator) -> LossOutput:
        """DIS loss against the behaviour policy."""
        return dis(*policy_inputs(logp_BT, batch), **band(self.config), **over(denominator))
