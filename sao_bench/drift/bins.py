"""Channels in bins of ticks: what both previews (picture and terminal) are drawn from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sao_bench.drift.schedule import DriftSchedule, show
from sao_bench.drift.track import Track
from sao_bench.types import Value

EXACT = 200_000
"""Longest horizon of which every tick is read; a longer one is sampled, change by change."""
SAMPLES = 20_000
MAX_NAMES = 8
"""Most values of a choice that are told apart; the others are drawn together."""


@dataclass(frozen=True, slots=True)
class Binned:
    """One channel in bins.

    `edges` (bins + 1) are ticks. For a number: `low`, `mean`, `high` per bin. Else `names` and `shares`
    (names x bins): the mean share of each value or of each part of the mixture.
    """

    edges: np.ndarray
    names: tuple[str, ...]
    shares: np.ndarray
    low: np.ndarray
    mean: np.ndarray
    high: np.ndarray


def binned(schedule: DriftSchedule, track: Track, bins: int) -> Binned:
    """Return a channel of a schedule in (at most) so many bins of equal length."""
    bins = min(bins, schedule.horizon)
    edges = np.linspace(0, schedule.horizon, bins + 1).round().astype(np.int64)
    if track.channel.type in ("float", "int"):
        return _numbers(schedule, track, edges)
    weights: dict[str, np.ndarray] = {}
    for i, ticks, value in _parts(schedule, track, edges):
        held = value if isinstance(value, dict) else {show(value): 1.0}
        for name, share in held.items():
            if share:
                weights.setdefault(name, np.zeros(bins))[i] += share * ticks
    order = list(dict.fromkeys([*map(show, track.channel.choices), *weights]))
    names = [name for name in order if name in weights]
    shares = np.stack([weights[name] for name in names])
    if len(names) > MAX_NAMES:
        names = [*names[: MAX_NAMES - 1], "others"]
        shares = np.vstack([shares[: MAX_NAMES - 1], shares[MAX_NAMES - 1 :].sum(axis=0)])
    nothing = np.empty(0)
    return Binned(edges, tuple(names), shares / shares.sum(axis=0), nothing, nothing, nothing)


def _numbers(schedule: DriftSchedule, track: Track, edges: np.ndarray) -> Binned:
    bins = len(edges) - 1
    low, high = np.full(bins, np.inf), np.full(bins, -np.inf)
    total, weight = np.zeros(bins), np.zeros(bins)
    for i, ticks, held in _parts(schedule, track, edges):
        assert isinstance(held, int | float)
        low[i], high[i] = min(low[i], held), max(high[i], held)
        total[i] += held * ticks
        weight[i] += ticks
    return Binned(edges, (), np.empty((0, bins)), low, total / weight, high)


def _parts(schedule: DriftSchedule, track: Track, edges: np.ndarray) -> Iterator[tuple[int, float, Value]]:
    """Yield (bin, ticks, value) that cover the horizon."""
    if schedule.horizon > EXACT:
        yield from _samples(schedule, track, edges)
        return
    for start, end, value in track.runs(schedule.horizon):
        first = int(np.searchsorted(edges, start, "right")) - 1
        while start < end:
            cut = min(end, int(edges[first + 1]))
            yield first, cut - start, value
            start, first = cut, first + 1


def _samples(schedule: DriftSchedule, track: Track, edges: np.ndarray) -> Iterator[tuple[int, float, Value]]:
    marks = [c.start for c in track.changes()][:SAMPLES]
    ticks = np.unique(
        np.concatenate([np.linspace(0, schedule.horizon - 1, SAMPLES).astype(int), marks, edges[:-1]])
    )
    weights = np.diff([*ticks, schedule.horizon])
    for t, weight in zip(ticks.astype(int).tolist(), weights.tolist(), strict=True):
        yield int(np.searchsorted(edges, t, "right")) - 1, weight, track.value(t)
