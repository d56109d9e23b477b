"""Control: SAO told of every phase, with fresh optimizers at the first update after it begins.

    at a new phase:  Adam's moments of policy and critic <- 0;   weights, critic and its values stay

What knowing the moment of a drift is worth to the optimizer. It hears of phases also where the schedule notifies
nobody, which no method may: a control, not a competitor.

Source: none; a control of this benchmark, after the restarts that non-stationary optimisation proves bounds for
(Besbes, Gur, Zeevi 2015). Departure from those: the policy is not started anew, as a fine-tuned model would not be.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sao_bench.sao import SAO
from sao_bench.types import Concept


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
