"""Exponential moving average: `A = R - b`, b read before `b <- 0.95 b + 0.05 R`, starting at 0; DIS loss.

Source: the classical baseline of REINFORCE (Williams 1992; Sutton & Barto, section 2.8, on tracking a moving target),
here with SAO's loss so that only the baseline differs from `running_mean`. Its memory is 1/0.05 = 20 rewards long.
Departure: rewards enter in order of arrival, whatever version of the policy they came from; faults do not.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from sao_bench.algorithm import AlgorithmConfig, ArrivalBaseline, DISConfig, band, over, policy_inputs
from sao_bench.batch import Batch
from sao_bench.estimators import ExponentialMean
from sao_bench.losses import Denominator, LossOutput, dis
from sao_bench.types import Trajectory


class EMAConfig(AlgorithmConfig, DISConfig):
    """Decay; the band is inherited."""

    decay: float = Field(0.95, ge=0, lt=1)
    """Weight of the old baseline at each reward."""


class EMA(ArrivalBaseline):
    """Moving average of rewards as baseline, DIS loss."""

    name: ClassVar[str] = "ema"
    Config = EMAConfig

    def __init__(self, config: EMAConfig | None = None):
        super().__init__(config)
        self.memory = ExponentialMean(self.config.decay)

    def judge(self, trajectory: Trajectory) -> float:
        """Return the reward minus the average before it."""
        return self.memory.update(trajectory.reward)

    def loss(self, logp_BT: Tensor, batch: Batch, denominator: Denominator) -> LossOutput:
        """DIS loss against the behaviour policy."""
        return dis(*policy_inputs(logp_BT, batch), **band(self.config), **over(denominator))
