"""Dynamic sampling (DAPO, arXiv 2503.14476, section 3.2): groups of equal rewards are dropped and sampled again.

Without a limit a batch whose every group is solved (or hopeless) would never fill. So once `refill_limit` batches'
worth of trajectories has been seen for one batch, equal groups fill it up with their tokens masked, and the update
trains on what there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from sao_bench.algorithm import Algorithm, GroupConfig
from sao_bench.batch import Batch
from sao_bench.estimators import has_signal
from sao_bench.types import Trajectory


class DynamicSamplingConfig(GroupConfig):
    """Group size and the limit of the refilling."""

    refill_limit: int = Field(10, ge=1)
    """Batches' worth of trajectories that are seen at most for one batch."""


class DynamicSampling(Algorithm):
    """A mixin: refuses groups of equal rewards while the batch may still be refilled."""

    def __init__(self, config: Any = None):
        super().__init__(config)
        self._seen = 0
        self._dropped = 0
        self._filled_up = 0
        self._unfilled: set[int] = set()

    def accept(self, group: Sequence[Trajectory]) -> str | None:
        """Return "equal rewards" for a group without signal, None once the limit is reached."""
        self._seen += len(group)
        if _differ(group):
            return None
        if self._seen <= self.config.refill_limit * max(self.batch_size, len(group)):
            self._dropped += 1
            return "equal rewards"
        self._unfilled.add(group[0].group)
        return None

    def action_mask(self, batch: Batch) -> Tensor:
        """Return the action tokens (B, T) without those of groups that only fill up the batch."""
        filler_B = torch.tensor([t.group in self._unfilled for t in batch.trajectories])
        self._filled_up = len({t.group for t in batch.trajectories} & self._unfilled)
        self._unfilled -= {t.group for t in batch.trajectories}
        return batch.action_mask_BT & ~filler_B[:, None]

    def metrics(self) -> dict[str, float]:
        """Return the groups dropped for this batch and those that filled it up; starts the next count."""
        found = {"dropped_groups": float(self._dropped), "unfilled_groups": float(self._filled_up)}
        self._seen = self._dropped = self._filled_up = 0
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return the counts for the present batch."""
        return {"seen": self._seen, "dropped": self._dropped, "unfilled": sorted(self._unfilled)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`."""
        self._seen, self._dropped, self._unfilled = state["seen"], state["dropped"], set(state["unfilled"])


def _differ(group: Sequence[Trajectory]) -> bool:
    rewards = torch.tensor([t.reward for t in group if t.reward_valid], dtype=torch.float64)
    return bool(has_signal(rewards, torch.zeros_like(rewards)).any())
