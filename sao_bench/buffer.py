"""The buffer between rollouts and learner: arrival order, and staleness as a property of the buffer.

A *unit* is what is consumed together: one trajectory, or a whole group. Its staleness at consumption is the
trainer version minus the version of its oldest token, and must not pass S. Bounding what is dispatched does
not bound it: with a heavy tail, young units keep arriving before old ones. So before a batch is formed at
trainer version v the buffer looks ahead. A unit whose oldest token has version u can be consumed up to version
u + S, its deadline. All deadlines can be met as long as, for every k >= 0,

    trajectories of live units with deadline <= v + k   fit into   k + 1 batches,

so for each k at least (that number) - k * B of them must go into the present batch. If too few of those have
arrived, the learner waits. With at most (S + 1) * B trajectories outstanding (the admission rule) the demand
never exceeds one batch, so waiting always suffices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sao_bench.types import Trajectory, restore_trajectory, trajectory_state

OnStale = Literal["wait", "drop", "ignore"]


@dataclass(slots=True, eq=False)
class Unit:
    """One trajectory or one group, from dispatch to consumption.

    `oldest` is the version of its oldest token so far, or None before the first token; `arrived` is its place
    in the order of arrival, or None while a member is still out.
    """

    group: int
    size: int
    members: list[Trajectory] = field(default_factory=list)
    oldest: int | None = None
    arrived: int | None = None


class Buffer:
    """All outstanding units, and the rule that forms batches.

    Args:
        batch_size: trajectories per batch (B).
        max_staleness: S, in policy versions.
        on_stale: what happens to a unit that would pass S: the learner waits for it (default), it is dropped
            with a recorded reason, or it is only counted.
    """

    def __init__(self, batch_size: int, max_staleness: int, on_stale: OnStale = "wait"):
        self.batch_size = batch_size
        self.max_staleness = max_staleness
        self.on_stale = on_stale
        self.units: dict[int, Unit] = {}
        self.in_training = 0
        self._arrivals = 0
        self._waiting = 0
        """Trajectories of `units`."""
        self._ready = 0
        """Those of them whose unit is complete."""

    @property
    def outstanding(self) -> int:
        """Trajectories dispatched and not yet learned from; those of the batch in training count."""
        return self._waiting + self.in_training

    def admits(self, size: int) -> bool:
        """Whether a unit of `size` may be dispatched now: at most (S + 1) * B trajectories are outstanding."""
        return self.outstanding + size <= (self.max_staleness + 1) * self.batch_size

    def dispatch(self, group: int, size: int) -> None:
        """Note a dispatched unit."""
        self.units[group] = Unit(group, size)
        self._waiting += size

    def sampled(self, group: int, version: int) -> None:
        """Note that a unit has a token of `version`."""
        unit = self.units[group]
        if unit.oldest is None or version < unit.oldest:
            unit.oldest = version

    def arrive(self, trajectory: Trajectory) -> bool:
        """Add a finished trajectory; return whether its unit is complete now."""
        unit = self.units[trajectory.group]
        unit.members.append(trajectory)
        if len(unit.members) == unit.size:
            unit.arrived = self._arrivals
            self._arrivals += 1
            self._ready += unit.size
        return unit.arrived is not None

    def discard(self, group: int) -> None:
        """Forget a unit: it is consumed, or will not be trained on."""
        unit = self.units.pop(group)
        self._waiting -= unit.size
        self._ready -= unit.size if unit.arrived is not None else 0

    def overdue(self, version: int) -> list[Unit]:
        """Return the live units that a publish of `version + 1` would take past S, if they are not consumed first."""
        return [
            u
            for u in self.units.values()
            if u.oldest is not None and u.oldest + self.max_staleness < version + 1
        ]

    def take(self, version: int, last: bool = False) -> list[Trajectory] | None:
        """Form the batch for trainer version `version`, or return None where the learner has to wait.

        Args:
            version: the trainer version that consumes the batch.
            last: nothing more will be dispatched, so a batch of everything outstanding may be short.
        """
        size = min(self.batch_size, self._ready) if last and self._ready == self._waiting else self.batch_size
        if not self._ready or self._ready < size:
            return None
        arrived = sorted((u for u in self.units.values() if u.arrived is not None), key=_arrival)
        chosen = self._urgent(version, arrived) if self.on_stale == "wait" else []
        if chosen is None:
            return None
        taken = {unit.group for unit in chosen}
        room = size - sum(unit.size for unit in chosen)
        for unit in arrived:
            if unit.group not in taken and unit.size <= room:
                chosen.append(unit)
                room -= unit.size
        for unit in chosen:
            self.discard(unit.group)
        batch = [trajectory for unit in sorted(chosen, key=_arrival) for trajectory in unit.members]
        self.in_training = len(batch)
        return batch

    def trained(self) -> None:
        """Note that the batch in training has been learned from (its weights are published)."""
        self.in_training = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the outstanding units as plain data."""
        units = [
            {
                **{name: getattr(u, name) for name in Unit.__slots__},
                "members": [trajectory_state(t) for t in u.members],
            }
            for u in self.units.values()
        ]
        return {"units": units, "in_training": self.in_training, "arrivals": self._arrivals}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        restored = [
            Unit(**{**u, "members": [restore_trajectory(t) for t in u["members"]]}) for u in state["units"]
        ]
        self.units = {unit.group: unit for unit in restored}
        self._waiting = sum(unit.size for unit in restored)
        self._ready = sum(unit.size for unit in restored if unit.arrived is not None)
        self.in_training = state["in_training"]
        self._arrivals = state["arrivals"]

    def _urgent(self, version: int, arrived: Sequence[Unit]) -> list[Unit] | None:
        """Return the units that must go now (earliest arrivals among those eligible), or None to wait for more."""
        chosen: dict[int, Unit] = {}
        held: Counter[int] = Counter()
        for unit in self.units.values():
            if unit.oldest is not None:
                held[unit.oldest] += unit.size
        for k in range(self.max_staleness + 1):
            due = version + k - self.max_staleness
            pressing = sum(size for oldest, size in held.items() if oldest <= due)
            need = pressing - k * self.batch_size - sum(unit.size for unit in chosen.values())
            for unit in arrived:
                if need <= 0:
                    break
                if unit.group not in chosen and unit.oldest is not None and unit.oldest <= due:
                    chosen[unit.group] = unit
                    need -= unit.size
            if need > 0:
                return None
        return list(chosen.values())


def _arrival(unit: Unit) -> int:
    assert unit.arrived is not None
    return unit.arrived
