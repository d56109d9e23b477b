"""Control: `running_mean` paid by a coin, `A = C - mean of the last W coins` with C = 1 with probability 1/2, else 0.

What sampling noise and the optimizer do with rewards that say nothing: a rise of this control's score is no
learning of the task. (With some models it does rise, through what clipping and the sampler favour: Shao et al.,
arXiv 2506.10947, whose random-reward control this is.)

Departures from that source: a running mean and DIS in place of GRPO and its clip, so that only the reward differs
from `running_mean`; the coin of an episode is drawn from the episode's own seed, so that equal runs are equal.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from sao_bench.baselines.running_mean import RunningMeanBaseline, RunningMeanConfig

from sao_bench.seeding import generator
from sao_bench.types import Trajectory


class RandomRewardConfig(RunningMeanConfig):
    """The coin; window and band are inherited."""

    probability: float = Field(0.5, ge=0, le=1)
    """Of a reward of 1; else it is 0."""


class RandomReward(RunningMeanBaseline):
    """Control: running_mean, paid by a coin."""

    name: ClassVar[str] = "random_reward"
    Config = RandomRewardConfig

    def judge(self, trajectory: Trajectory) -> float:
        """Throw the coin of this episode (from its seed) and judge that."""
        draw = generator(trajectory.seed, "random_reward").random()
        return self.memory.update(float(draw < self.config.probability))
