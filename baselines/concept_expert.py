"""Control: SAO with weights, critic and optimizers of their own for each concept, told of every phase.

    at a new phase:  (theta, phi, moments) <- those of the concept's expert, or the run's start if it is new

What remains if nothing learned elsewhere can help or hurt; under a recurring drift, learning without forgetting.
Concepts are told apart by their values when a phase opens; one that comes back goes on where its expert stopped.

Source: none; a control of this benchmark (one model per task, as in continual learning). Departures from a run per
concept: an expert takes over at the first update after its phase begins, so that its first rollouts are still the
one before's; episodes of other phases are masked.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from sao_bench.batch import Batch
from sao_bench.sao import SAO
from sao_bench.types import Concept


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
