"""`DriftSchedule`: a compiled schedule, a pure function from a tick to a concept."""

from __future__ import annotations

import hashlib
import json
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from sao_bench.drift.reading import SCHEMA, Header, Probe
from sao_bench.drift.shapes.base import Constant, Piece, merged
from sao_bench.drift.track import Change, Joined, Track
from sao_bench.errors import unknown
from sao_bench.types import Channel, Concept

CACHE = 4096
"""Most stretches, and most concepts, that are kept."""


@dataclass(frozen=True, slots=True)
class Phase:
    """The stretch between two openings of a real drift: ticks `start` to `end` (not included)."""

    index: int
    start: int
    end: int
    label: str
    channels: tuple[str, ...]


@dataclass(slots=True)
class _Stretch:
    """Ticks between two neighbouring starts of pieces: what is constant, and what moves.

    `tabled` channels hold few values, laid out by tick: (keys, first tick) and (name, values by key); `bare` ones
    numbers laid out by tick: (numbers, first tick, ticks per number) and a name; the `rest` is asked: (what moves)
    and a name. `few` says that concepts are worth keeping.
    """

    values: dict[str, Any]
    tabled: list[tuple[Sequence[Any], int]] = field(default_factory=list)
    tables: list[tuple[str, Sequence[Any]]] = field(default_factory=list)
    bare: list[tuple[Sequence[Any], int, int]] = field(default_factory=list)
    numbers: list[str] = field(default_factory=list)
    rest: list[Piece | Joined] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    few: bool = True

    def add(self, name: str, moving: Piece | Joined) -> None:
        """Put a channel that moves where it belongs."""
        column = moving.column
        if column is None or isinstance(moving, Joined):
            self.rest.append(moving)
            self.others.append(name)
            self.few = self.few and moving.table is not None
        elif moving.table is not None:
            self.tabled.append((column, moving.start))
            self.tables.append((name, moving.table))
        else:
            self.bare.append((column, moving.start, moving.every))
            self.numbers.append(name)
            self.few = False


class DriftSchedule:
    """A compiled schedule.

    Attributes:
        id, env, clock, horizon, seed, notify, description, shows, version: as in the file (scaled).
        probe: when and on what to evaluate, or None.
        channels: every channel that the schedule names, by name.
        source: text of the file.
        hash: SHA-256 of everything that decides what the schedule does (not of id and descriptions).
        time_scale: factor by which the file's ticks were multiplied.
        warnings: what a reader should know, one line each.
    """

    def __init__(
        self,
        header: Header,
        horizon: int,
        probe: Probe | None,
        tracks: Sequence[Track],
        content: Any,
        time_scale: float = 1.0,
        source: str = "",
    ) -> None:
        self.id, self.env, self.clock = header.id, header.env, header.clock
        self.horizon, self.seed, self.notify = horizon, header.seed, header.notify
        self.version, self.description, self.shows = header.version, header.description, header.shows
        self.probe = probe
        self.time_scale = time_scale
        self.source = source
        self.tracks = sorted(tracks, key=lambda track: track.channel.name)
        self.channels: tuple[Channel, ...] = tuple(track.channel for track in self.tracks)
        self.hash = self._hash(content)
        self.warnings: list[str] = []
        self._starts = array("q", sorted({0}.union(*(track.starts for track in self.tracks))))
        self._openings = self._real_openings()
        self._stretches: dict[int, _Stretch] = {}
        self._concepts: dict[Hashable, Concept] = {}
        self._phases: tuple[Phase, ...] | None = None

    def _hash(self, content: Any) -> str:
        whole = {
            "schema": SCHEMA,
            "env": self.env,
            "clock": self.clock,
            "horizon": self.horizon,
            "seed": self.seed,
            "notify": self.notify,
            "probe": asdict(self.probe) if self.probe else None,
            "layers": content,
        }
        text = json.dumps(whole, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def _real_openings(self) -> array[int]:
        found = np.zeros(1, dtype=np.int64)
        for track in self.tracks:
            if track.channel.kind == "real":
                found = merged([found, track.openings()])
        return array("q", found.tobytes())

    @property
    def phase_starts(self) -> Sequence[int]:
        """First tick of every phase."""
        return self._openings

    # -- the function -----------------------------------------------------------------------------

    def at(self, t: float) -> Concept:
        """Return the concept at a tick of the schedule's clock.

        Pure: no call changes another. Between two ticks the earlier one holds; from the horizon on the
        state at the horizon. The values hold every channel that the schedule names (treat them as read-only).

        Raises:
            ValueError: t is negative.
        """
        if t < 0:
            raise ValueError(f"t = {t} is before the start of the schedule")
        tick = self.horizon if t >= self.horizon else int(t)
        index = bisect_right(self._starts, tick) - 1
        stretch = self._stretches.get(index) or self._stretch(index)
        phase = bisect_right(self._openings, tick) - 1
        keys = [column[tick - start] for column, start in stretch.tabled]
        rest = [moving.key(tick) for moving in stretch.rest]
        if not stretch.few:
            numbers = [column[(tick - start) // every] for column, start, every in stretch.bare]
            return self._concept(stretch, phase, keys, numbers, rest)
        name = (index, phase, *keys, *rest)
        concept = self._concepts.get(name)
        if concept is None:
            concept = self._concept(stretch, phase, keys, [], rest)
            if len(self._concepts) >= CACHE:
                self._concepts.clear()
            self._concepts[name] = concept
        return concept

    def _stretch(self, index: int) -> _Stretch:
        tick = self._starts[index]
        stretch = _Stretch({})
        for track in self.tracks:
            moving = track.moving(tick)
            stretch.values[track.channel.name] = moving.decode(moving.key(tick))
            if not all(isinstance(piece, Constant) for piece in track.pieces(tick)):
                stretch.add(track.channel.name, moving)
        if len(self._stretches) >= CACHE:
            self._stretches.clear()
        self._stretches[index] = stretch
        return stretch

    def _concept(
        self, stretch: _Stretch, phase: int, keys: list[Any], numbers: list[Any], rest: list[Any]
    ) -> Concept:
        """Build the concept of one combination of keys."""
        values = stretch.values.copy()
        for (name, table), key in zip(stretch.tables, keys, strict=True):
            values[name] = table[key]
        values.update(zip(stretch.numbers, numbers, strict=True))
        for name, moving, key in zip(stretch.others, stretch.rest, rest, strict=True):
            values[name] = moving.decode(key)
        return Concept(phase, values)

    def share(self, channel: str, t: float) -> float:
        """Return how far the channel's event in force has come at t.

        For a mix the probability of the new value: exactly 0 up to the start of its window and 1 from its
        end on; for a ramp its progress; 0 before the first event, 1 after one.

        Raises:
            UserError: the schedule does not name the channel.
        """
        track = next((track for track in self.tracks if track.channel.name == channel), None)
        if track is None:
            raise unknown("channel", channel, (c.name for c in self.channels))
        return track.share(min(int(t), self.horizon))

    # -- what happens when ------------------------------------------------------------------------

    def phases(self) -> tuple[Phase, ...]:
        """Return the phases in order; they cover 0 to the horizon.

        A phase opens at each event of a real channel that is not a blip or a burst: a mix, a ramp, a walk
        and a trace of numbers at their start, a cycle, a Markov or Poisson chain and a trace of choices at
        each realised switch. What a `set` overlay hides opens its phase when the overlay lets go of it.
        """
        if self._phases is None:
            self._phases = self._named_phases()
        return self._phases

    def _named_phases(self) -> tuple[Phase, ...]:
        labels: dict[int, list[tuple[str, str]]] = {}
        for track in self.tracks:
            if track.channel.kind == "real":
                for tick in track.openings().tolist():
                    labels.setdefault(tick, []).append((track.channel.name, self._label(track, tick)))
        labels[0] = [
            (track.channel.name, self._label(track, 0))
            for track in self.tracks
            if track.channel.kind == "real" and track.moves
        ]
        ends = [*self._openings[1:], self.horizon]
        return tuple(
            Phase(
                index,
                start,
                end,
                ", ".join(text for _, text in labels[start]) or "stationary",
                tuple(name for name, _ in labels[start]),
            )
            for index, (start, end) in enumerate(zip(self._openings, ends, strict=True))
        )

    def _label(self, track: Track, tick: int) -> str:
        piece = next((p for p in reversed(track.pieces(tick)) if p.start == tick), track.pieces(tick)[-1])
        name = track.channel.name
        if piece.shape in ("mix", "ramp") and tick == piece.start:
            return f"{name} → {show(piece.final)} ({piece.shape})"
        if piece.shape == "walk" or (piece.shape == "replay" and track.channel.type in ("float", "int")):
            return f"{name} ({piece.shape})"
        return f"{name} = {show(track.value(tick))}"

    def changes(self) -> tuple[Change, ...]:
        """Return every window of every event, real and virtual, by start."""
        found = [change for track in self.tracks for change in track.changes()]
        return tuple(sorted(found, key=lambda c: (c.start, c.channel, c.end)))

    def runs(self, until: int | None = None) -> Iterator[tuple[int, int, Concept]]:
        """Yield stretches (first tick, first tick after it, concept) that cover 0 to `until` (the horizon)."""
        until = self.horizon if until is None else min(until, self.horizon)
        t = 0
        while t < until:
            index = bisect_right(self._starts, t)
            after = bisect_right(self._openings, t)
            ends = [until, *self._starts[index : index + 1], *self._openings[after : after + 1]]
            ends += [track.moving(t).next_change(t) for track in self.tracks]
            end = min(ends)
            yield t, end, self.at(t)
            t = end

    def describe(self, until: int | None = None) -> dict[str, Any]:
        """Return exact counts of ticks: per concept (by hash) and per phase, from 0 to `until` (the horizon)."""
        phases: dict[int, Counter[str]] = {}
        concepts: dict[str, Concept] = {}
        for start, end, concept in self.runs(until):
            phases.setdefault(concept.phase, Counter())[concept.hash] += end - start
            concepts.setdefault(concept.hash, concept)
        total: Counter[str] = sum(phases.values(), Counter())
        named = self.phases()
        return {
            "id": self.id,
            "hash": self.hash,
            "clock": self.clock,
            "ticks": sum(total.values()),
            "phases": [
                asdict(named[i]) | {"ticks": sum(counts.values()), "concepts": dict(counts)}
                for i, counts in sorted(phases.items())
            ],
            "concepts": [
                {"hash": name, "ticks": total[name], "values": dict(concept.values)}
                for name, concept in concepts.items()
            ],
        }

    def variation_budget(self) -> dict[str, Any]:
        """Return how much the world moves over the horizon: `total`, `real`, `virtual` and per channel.

        The path length of each channel over its range (total variation for a mixture, 1 per switch of a
        choice): the budget V_T of Besbes et al. 2014 with values in the place of rewards. A mix counts once,
        by its expectation; where overlays join, the realised path is measured.
        """
        channels = {track.channel.name: round(track.variation(), 9) for track in self.tracks}
        kinds = {
            kind: round(sum(channels[c.name] for c in self.channels if c.kind == kind), 9)
            for kind in ("real", "virtual")
        }
        return {"total": round(sum(kinds.values()), 9), **kinds, "channels": channels}

    def compiled_lines(self) -> list[dict[str, Any]]:
        """Return the lines of `drift.compiled.jsonl`: header, channels, segments, phases, changes."""
        from sao_bench.drift.compiled import lines

        return lines(self)


def show(value: Any) -> str:
    """Return a value in a few characters, for labels."""
    if isinstance(value, dict):
        return " ".join(f"{name}:{share:.3g}" for name, share in value.items() if share)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.4g}" if isinstance(value, float) else str(value)
