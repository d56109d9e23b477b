"""From numbers of runs to estimates with intervals; the unit of replication is the seed.

A functional is computed per run first and aggregated here (resampling checkpoints on their own makes
intervals far too narrow). Scores are (seeds,) or (seeds, tasks). A run without a score is never dropped:
the result is undefined (None with a reason) until the caller states what it counts as.

Sources: rliable (Agarwal et al. 2021) for the stratified bootstrap and the probability of improvement;
Kaplan and Meier (1958).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sao_bench.errors import UserError, unknown
from sao_bench.seeding import generator

Floats: TypeAlias = NDArray[np.float64]

RANKED_SEEDS = 5
"""With fewer seeds a result is indicative and never ranked."""

RESAMPLES = 10_000
CONFIDENCE = 0.95
CHUNK = 500
"""Resamples held in memory at once."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A point estimate with a percentile bootstrap interval; all None, with a reason, if undefined."""

    point: float | None
    low: float | None
    high: float | None
    seeds: int
    reason: str = ""

    @property
    def indicative(self) -> bool:
        """True for fewer than 5 seeds: shown, but never ranked."""
        return self.seeds < RANKED_SEEDS


@dataclass(frozen=True, slots=True)
class Survival:
    """A Kaplan-Meier curve: at each time with an event, the share not yet recovered after it."""

    times: list[float]
    surviving: list[float]
    at_risk: list[int]
    median: float | None
    """First time with a share of at most one half; None if it stays above."""
    recovered: float | None
    """Share of runs whose recovery was observed."""


def _middle_half_weights(n: int) -> Floats:
    edges = np.arange(n + 1, dtype=np.float64)
    return np.diff(np.clip(edges, n / 4, 3 * n / 4)) / (n / 2)


def _iqm_rows(rows: Floats) -> Floats:
    return np.sort(rows, axis=-1) @ _middle_half_weights(rows.shape[-1])


def _trimmed_rows(rows: Floats) -> Floats:
    cut = rows.shape[-1] // 4
    return np.sort(rows, axis=-1)[..., cut : rows.shape[-1] - cut].mean(-1)


STATISTICS: Mapping[str, Callable[[Floats], Floats]] = {
    "iqm": _iqm_rows,
    "trimmed_mean": _trimmed_rows,
    "mean": lambda rows: rows.mean(-1),
    "median": lambda rows: np.median(rows, axis=-1),
}
"""Statistics of the last axis by name."""


def _statistic(name: str) -> Callable[[Floats], Floats]:
    if name not in STATISTICS:
        raise unknown("statistic", name, STATISTICS)
    return STATISTICS[name]


def _scores(scores: Any) -> Floats:
    return np.asarray(scores, dtype=np.float64)


def _point(scores: Any, name: str) -> float | None:
    x = _scores(scores).ravel()
    return float(STATISTICS[name](x)) if x.size and np.isfinite(x).all() else None


def iqm(scores: Any) -> float | None:
    """Return the mean of the middle half, the scores at its boundaries weighted by fraction.

    None for no scores, or if one of them is not a number.
    """
    return _point(scores, "iqm")


def trimmed_mean(scores: Any) -> float | None:
    """Return rliable's form of the IQM: floor(n/4) scores cut at each end (differs unless 4 divides n)."""
    return _point(scores, "trimmed_mean")


def bootstrap(
    scores: Any,
    seed: int = 0,
    *,
    statistic: str = "iqm",
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Interval:
    """Return a statistic of scores (seeds,) or (seeds, tasks) with its stratified bootstrap interval.

    Seeds are drawn with replacement, separately for each task (the strata); the statistic is over all
    drawn scores. The interval holds the middle `confidence` of the resamples.

    Raises:
        UserError: the statistic is unknown.
    """
    rows_of = _statistic(statistic)
    x = _scores(scores)
    x = x[:, None] if x.ndim == 1 else x
    if reason := _undefined(x):
        return Interval(None, None, None, len(x), reason)
    strata = np.arange(x.shape[1])
    draws = _resampled(
        lambda rng, k: rows_of(x[rng.integers(len(x), size=(k, *x.shape)), strata].reshape(k, -1)),
        seed, "bootstrap", resamples,
    )  # fmt: skip
    return _interval(float(rows_of(x.ravel())), draws, len(x), confidence)


def paired_difference(
    x: Any,
    y: Any,
    seed: int = 0,
    *,
    statistic: str = "iqm",
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Interval:
    """Return `statistic(x - y)` per seed with a bootstrap interval; row i of both is the same seed.

    Raises:
        UserError: the shapes differ, or the statistic is unknown.
    """
    a, b = _scores(x), _scores(y)
    if a.shape != b.shape:
        raise UserError(f"paired scores have different shapes: {a.shape} and {b.shape}")
    return bootstrap(a - b, seed, statistic=statistic, resamples=resamples, confidence=confidence)


def _improvement(x: Floats, y: Floats) -> Floats:
    """Return P(x > y) + P(x = y)/2 over the last axes of (..., n) and (..., m)."""
    return ((np.sign(x[..., :, None] - y[..., None, :]) + 1) / 2).mean((-2, -1))


def probability_of_improvement(x: Any, y: Any) -> float | None:
    """Return the probability that a run of x scores above one of y, ties at one half.

    None if either has no scores, or one is not a number.
    """
    a, b = _scores(x).ravel(), _scores(y).ravel()
    defined = a.size and b.size and np.isfinite(a).all() and np.isfinite(b).all()
    return float(_improvement(a, b)) if defined else None


def improvement_interval(
    x: Any,
    y: Any,
    seed: int = 0,
    *,
    paired: bool = True,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Interval:
    """Return the probability of improvement of (seeds,) scores with its bootstrap interval.

    `paired` draws the same seeds for both (row i is the same seed); else each side is drawn on its own.

    Raises:
        UserError: paired scores differ in length.
    """
    a, b = _scores(x).ravel(), _scores(y).ravel()
    if paired and len(a) != len(b):
        raise UserError(f"paired scores have different lengths: {len(a)} and {len(b)}")
    seeds = min(len(a), len(b))
    if reason := _undefined(a) or _undefined(b):
        return Interval(None, None, None, seeds, reason)

    def draw(rng: np.random.Generator, k: int) -> Floats:
        rows = rng.integers(len(a), size=(k, len(a)))
        return _improvement(a[rows], b[rows if paired else rng.integers(len(b), size=(k, len(b)))])

    draws = _resampled(draw, seed, "improvement", resamples)
    return _interval(float(_improvement(a, b)), draws, seeds, confidence)


def _undefined(x: Floats) -> str:
    if not x.size:
        return "no runs"
    missing = int((~np.isfinite(x)).sum())
    return f"{missing} of {x.size} scores are missing" if missing else ""


def _resampled(
    draw: Callable[[np.random.Generator, int], Floats], seed: int, stream: str, resamples: int
) -> Floats:
    rng = generator(seed, f"statistics.{stream}")
    return np.concatenate([draw(rng, min(CHUNK, resamples - i)) for i in range(0, resamples, CHUNK)])


def _interval(point: float, draws: Floats, seeds: int, confidence: float) -> Interval:
    tail = (1 - confidence) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    return Interval(point, float(low), float(high), seeds)


def kaplan_meier(times: Sequence[float], observed: Sequence[Any] | None = None) -> Survival:
    """Return the Kaplan-Meier curve of recovery times, some right-censored.

    `observed` is false where a time is only a lower bound (default: all observed). A run censored at t is
    still at risk at t. Shares are exact fractions until the end, so that a survival of one half is one.

    Raises:
        UserError: the lengths differ, or a time is not a number.
    """
    seen = [True] * len(times) if observed is None else [bool(x) for x in observed]
    if len(seen) != len(times):
        raise UserError(f"{len(times)} times but {len(seen)} marks of whether they were observed")
    if any(t is None or t != t for t in times):
        raise UserError("a survival time is missing; a censored run has the time it was followed until")
    moments = sorted({t for t, event in zip(times, seen, strict=True) if event})
    at_risk = [sum(t >= moment for t in times) for moment in moments]
    share, shares = Fraction(1), []
    for moment, n in zip(moments, at_risk, strict=True):
        share *= 1 - Fraction(sum(e and t == moment for t, e in zip(times, seen, strict=True)), n)
        shares.append(share)
    median = next((t for t, share in zip(moments, shares, strict=True) if share <= Fraction(1, 2)), None)
    recovered = sum(seen) / len(seen) if seen else None
    return Survival(moments, [float(share) for share in shares], at_risk, median, recovered)


def kaplan_meier_median(times: Sequence[float], observed: Sequence[Any] | None = None) -> float | None:
    """Return the first time with survival of at most one half; None if it stays above."""
    return kaplan_meier(times, observed).median


def performance_profile(scores: Any, thresholds: Any) -> Floats:
    """Return the share of runs that score above each threshold; a missing score is above none."""
    return (_scores(scores).ravel()[None, :] > _scores(thresholds)[:, None]).mean(1)
