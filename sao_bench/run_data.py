"""A run folder as arrays: one entry per dispatched episode, in dispatch order.

Read while the run is going, some episodes are still in flight. The fast ones have arrived and the slow ones
have not, so a curve through what is there would favour the fast; the arrays end before the first episode
that has neither arrived nor been dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sao_bench import metrics
from sao_bench.errors import UserError
from sao_bench.metrics import MetricOptions
from sao_bench.records import Run

Floats: TypeAlias = NDArray[np.float64]
COLUMNS = ("score", "oracle", "floor", "t", "phase", "arrived_s", "version", "sample")
"""Per episode: score (NaN after a fault), J*, b, tick of the schedule's clock, phase, virtual seconds of its
arrival, and at its dispatch the policy version and the number of tokens sampled."""


@dataclass(frozen=True)
class Schedule:
    """A compiled schedule as the run folder keeps it; ticks are of `clock`."""

    id: str
    hash: str
    env: str
    clock: str
    horizon: int
    phases: list[dict[str, Any]]
    changes: list[dict[str, Any]]

    @classmethod
    def of(cls, run: Run) -> Schedule | None:
        """Read `drift.compiled.jsonl`; None if the run failed before it was written."""
        lines = list(run.lines("drift.compiled"))
        if not lines:
            return None
        header = lines[0]
        return cls(
            header["id"],
            header["hash"],
            header["env"],
            header["clock"],
            header["horizon"],
            [line for line in lines if line["kind"] == "phase"],
            [line for line in lines if line["kind"] == "change"],
        )


@dataclass(frozen=True)
class Bounds:
    """A concept by its hash, with its oracle and floor."""

    concept: str
    oracle: float
    floor: float

    def normalise(self, score: float | None) -> float | None:
        """Return `(J - b) / (J* - b)`, None where it is undefined."""
        value = metrics.normalised([score], self.floor, self.oracle)[0]
        return float(value) if np.isfinite(value) else None


@dataclass(frozen=True)
class RunData:
    """One run.

    `columns` holds the arrays of `COLUMNS`, NaN where an episode was dropped before it arrived.
    `consumed_by` is the position in `updates` of the batch that an episode was consumed in, or -1.
    """

    run: Run
    schedule: Schedule | None
    columns: dict[str, Floats]
    consumed_by: NDArray[np.int64]
    updates: list[dict[str, Any]]
    probes: list[dict[str, Any]]
    concepts: dict[int, Bounds]
    """The concept of each phase where its drift is complete, as far as probes or episodes show it."""

    @classmethod
    def load(cls, run: Run) -> RunData:
        """Read a run folder.

        Raises:
            UserError: a file is damaged: no JSON, a key that is missing, a value of another kind.
        """
        try:
            return cls._load(run)
        except UserError:
            raise
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            # The folder may come from anybody; what is wrong with a value shows where it is used.
            raise UserError(
                f"{run.folder}: a record holds a value of another kind: {type(error).__name__}: {error}"
            ) from error

    @classmethod
    def _load(cls, run: Run) -> RunData:
        updates = list(run.lines("updates"))
        dropped = [entry["index"] for update in updates for entry in update.get("dropped", ())]
        columns, concepts = _episodes(run.lines("episodes"), dropped)
        consumed_by = np.full(len(columns["score"]), -1)
        for position, update in enumerate(updates):
            indices = [index for index in update.pop("consumed") if index < len(consumed_by)]
            consumed_by[indices] = position
        probes = list(run.lines("probes"))
        concepts |= {
            p["phase"]: Bounds(p["concept"], p["oracle"], p["floor"])
            for p in probes
            if p["role"] != "current"
        }
        return cls(run, Schedule.of(run), columns, consumed_by, updates, probes, concepts)

    # -- who it is --------------------------------------------------------------------------------

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The run's manifest."""
        return self.run.manifest

    @property
    def algorithm(self) -> str:
        """Name of the algorithm."""
        return str(self.manifest["algorithm"])

    @property
    def seed(self) -> int:
        """Training seed."""
        return int(self.manifest["seed"])

    @cached_property
    def state(self) -> str:
        """Running, interrupted, failed, finished or unknown."""
        return str(self.run.status["state"])

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return self.state == "finished"

    # -- curves -----------------------------------------------------------------------------------

    @property
    def episodes(self) -> int:
        """Episodes in the arrays."""
        return len(self.columns["score"])

    def curve(
        self, options: MetricOptions, start: int = 0, end: int | None = None, *, raw: bool = False
    ) -> Floats:
        """Return the mean score per bin of the episodes `start` to `end` (not included).

        Normalised with each episode's own oracle and floor unless `raw`.
        """
        cut = slice(start, end)
        score, floor, oracle = (self.columns[name][cut] for name in ("score", "floor", "oracle"))
        return metrics.binned_curve(score, 0.0 if raw else floor, 1.0 if raw else oracle, options)

    def binned(self, name: str, options: MetricOptions) -> Floats:
        """Return the mean of a column per bin."""
        return metrics.binned_curve(self.columns[name], options=options)

    def shown_bins(self, options: MetricOptions) -> int:
        """Return how many bins of the curve are fit to be drawn: of an unfinished run only whole ones."""
        whole, rest = divmod(self.episodes, options.bin)
        return whole + int(rest > 0 and (self.finished or whole == 0))

    # -- drifts -----------------------------------------------------------------------------------

    def opening(self, phase: int) -> int | None:
        """Return the first episode of a phase (or of a later one); None if the run did not get there.

        A group binds the concept of its first member, so that its run may enter a phase some episodes late.
        """
        later = np.flatnonzero(self.columns["phase"] >= phase)
        return int(later[0]) if len(later) else None

    def frozen_at_drift(self, phase: int) -> float | None:
        """Return the normalised score on a phase's concept of the policy as it was when the phase opened.

        From the last probe, at the opening or before it, of that concept.
        """
        assert self.schedule is not None
        start = self.schedule.phases[phase]["start"]
        found = [p for p in self.probes if p["phase"] == phase and p["t"] <= start and p["role"] != "current"]
        if not found:
            return None
        last = max(found, key=lambda p: p["t"])
        return Bounds(last["concept"], last["oracle"], last["floor"]).normalise(last["score"])

    def frozen_start(self, phase: int, raw: bool = False) -> float | None:
        """Return the score of the starting policy on a phase's concept, None if it was not measured."""
        bounds = self.concepts.get(phase)
        score = self.manifest.get("start_score", {}).get(bounds.concept) if bounds else None
        return score if raw or bounds is None else bounds.normalise(score)


def _episodes(
    lines: Iterable[dict[str, Any]], dropped: Iterable[int]
) -> tuple[dict[str, Floats], dict[int, Bounds]]:
    """Return the columns in dispatch order, and the last concept of each phase."""
    rows = {line["index"]: _row(line) for line in lines}
    known = rows.keys() | set(dropped)
    count = next(index for index in range(len(known) + 1) if index not in known)
    missing = ("", (np.nan,) * len(COLUMNS))
    ordered = [rows.get(index, missing) for index in range(count)]
    table = np.array([row for _, row in ordered], dtype=np.float64).reshape(count, len(COLUMNS))
    columns = dict(zip(COLUMNS, table.T, strict=True))
    concepts = {
        int(row[COLUMNS.index("phase")]): Bounds(
            concept, row[COLUMNS.index("oracle")], row[COLUMNS.index("floor")]
        )
        for concept, row in ordered
        if concept
    }
    return columns, concepts


def _row(line: dict[str, Any]) -> tuple[str, tuple[float, ...]]:
    score = np.nan if line["fault"] or line["score"] is None else line["score"]
    clocks = line["clocks"]
    numbers = (line["oracle"], line["floor"], line["t"], line["phase"], line["arrived_s"],
               clocks["policy_version"], clocks["sample"])  # fmt: skip
    return line["concept"], (score, *numbers)
