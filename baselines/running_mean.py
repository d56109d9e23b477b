"""Running mean: `A = R - mean of the last W rewards` in order of arrival, 0 while there are none; DIS loss.

The baseline that arXiv 2607.07508 compares SAO with in online learning (W = 128). It needs no critic and no
group, and it remembers: after a drift its baseline is W rewards behind.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from sao_bench.algorithm import Algorithm, AlgorithmConfig, over, policy_inputs, spread
from sao_bench.batch import Batch
from sao_bench.estimators import RunningMean
from sao_bench.losses import Denominator, LossOutput, dis
from sao_bench.types import Trajectory


class RunningMeanConfig(AlgorithmConfig):
    """Window and band."""

    window: int = Field(128, ge=1)
    """Rewards that the mean is over (W)."""
    eps_low: float = Field(0.3, ge=0, le=1)
    """DIS band, lower edge 1 - eps_low."""
    eps_high: float = Field(5.0, ge=0)
    """DIS band, upper edge 1 + eps_high."""


class RunningMeanBaseline(Algorithm):
    """One rollout per prompt, judged against the recent past."""

    name: ClassVar[str] = "running_mean"
    Config = RunningMeanConfig

    def __init__(self, config: RunningMeanConfig | None = None):
        super().__init__(config)
        self._mean = RunningMean(self.config.window)
        self._advantage: dict[int, float] = {}

    def on_arrival(self, trajectory: Trajectory) -> None:
        """Judge the reward against those that arrived before it, then remember it."""
        if trajectory.reward_valid:
            self._advantage[trajectory.index] = self._mean.update(trajectory.reward)

    def advantages(self, batch: Batch) -> Tensor:
        """Return what was found at arrival, the same for every token."""
        values = [self._advantage.pop(t.index, 0.0) for t in batch.trajectories]
        return spread(torch.tensor(values), batch)

    def loss(self, logp_BT: Tensor, batch: Batch, denominator: Denominator) -> LossOutput:
        """DIS loss against the behaviour policy."""
        return dis(
            *policy_inputs(logp_BT, batch),
            eps_low=self.config.eps_low,
            eps_high=self.config.eps_high,
            **over(denominator),
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the window and the advantages of trajectories that wait to be consumed."""
        return {"mean": self._mean.state_dict(), "advantage": dict(self._advantage)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`."""
        self._mean.load_state_dict(state["mean"])
        self._advantage = dict(state["advantage"])
