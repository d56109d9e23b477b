"""Controls: what a method has to beat, or cannot be expected to.

- `frozen`: never learns. The score of the starting policy under the same drift, batches and clocks.
- `random_reward`: `running_mean` paid by a fair coin. What formatting, length and the optimizer alone do.
- `clairvoyant_restart`: SAO told of every phase, with fresh optimizers at the first update after it. What
  knowing the moment of a drift is worth to the optimizer; weights and critic stay.
- `concept_expert`: SAO with weights, critic and optimizers of their own for each concept, told of every phase. A
  new concept begins with the run's start, one that comes back goes on where its expert stopped. What remains if
  nothing learned elsewhere can help or hurt; under a recurring drift, learning without forgetting.

Concepts are told apart by their values when a phase opens. An expert takes over at the first update after that, so
that its first rollouts are still the one before's; episodes of other phases are masked.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from pydantic import Field
from sao_bench.baselines.running_mean import RunningMeanBaseline, RunningMeanConfig
from torch import Tensor

from sao_bench.algorithm import Algorithm, AlgorithmConfig, over, policy_inputs
from sao_bench.batch import Batch
from sao_bench.losses import Denominator, LossOutput, reinforce
from sao_bench.sao import SAO
from sao_bench.seeding import generator
from sao_bench.types import Concept, Trajectory


class Frozen(Algorithm):
    """Control: the starting policy, never updated."""

    name: ClassVar[str] = "frozen"
    Config = AlgorithmConfig

    def advantages(self, batch: Batch) -> Tensor:
        """Return 0 for every token: the gradient is exactly 0, and the learner takes no step on that."""
        return torch.zeros_like(batch.behavior_logp_BT)

    def loss(self, logp_BT: Tensor, batch: Batch, denominator: Denominator) -> LossOutput:
        """Nothing but the statistics."""
        return reinforce(*policy_inputs(logp_BT, batch), **over(denominator))


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


class ClairvoyantRestart(SAO):
    """Control: SAO with fresh optimizers at every new phase."""

    name: ClassVar[str] = "clairvoyant_restart"
    clairvoyant: ClassVar[bool] = True

    def on_concept_change(self, concept: Concept) -> None:
        """Ask for fresh optimizers, except at the start."""
        self.restart = self.restart or concept.phase > 0

    def state_dict(self) -> dict[str, Any]:
        """Return whether a restart is due."""
        return {"restart": self.restart}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`."""
        self.restart = state["restart"]


class ConceptExpert(SAO):
    """Control: SAO with an expert per concept, told which."""

    name: ClassVar[str] = "concept_expert"
    clairvoyant: ClassVar[bool] = True

    def __init__(self, config: Any = None):
        super().__init__(config)
        self._phase = 0

    def on_concept_change(self, concept: Concept) -> None:
        """Name the expert after the concept's values; the first one begins with the run's own weights."""
        self.expert, self._phase = concept.hash, concept.phase

    def action_mask(self, batch: Batch) -> Tensor:
        """Return the action tokens of the phase in force: what belongs to another concept is not learned from."""
        current_B = torch.tensor([t.concept.phase == self._phase for t in batch.trajectories])
        return batch.action_mask_BT & current_B[:, None]

    def state_dict(self) -> dict[str, Any]:
        """Return which expert is at work."""
        return {"expert": self.expert, "phase": self._phase}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`."""
        self.expert, self._phase = state["expert"], state["phase"]
