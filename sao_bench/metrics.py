"""From episodes to numbers, one run at a time; nothing here imports torch.

Scores and curves are 1-D sequences, one entry an episode or a bin, in dispatch order; None and NaN mean "not
measured". Drifts and horizons are positions on the same axis, the horizon (the next drift or the end)
excluded. A metric that is undefined is None, never a number. Every constant is in `MetricOptions`.

J* is the oracle and b the floor of a concept; a normalised score is `(J - b) / (J* - b)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sao_bench.errors import UserError, unknown

Floats: TypeAlias = NDArray[np.float64]
Series: TypeAlias = Sequence[float | None] | NDArray[Any]

ROUNDING = 1e-12
"""Slack of comparisons that are exact on paper: a mean of 0.81 reaches 0.9 x 0.9."""


@dataclass(frozen=True, slots=True)
class MetricOptions:
    """Every constant of the metrics; written into every result."""

    bin: int = 128
    """Episodes per bin of the adaptation curve."""
    window: int = 10
    """W: bins of the pre-drift level and of the smoothing after the drift."""
    hold: int = 5
    """Bins that the mean must stay at the target for to count as recovered."""
    rho: float = 0.9
    """Share of the target that counts as recovered."""
    recovery_window: int = 50
    """Bins without any learning signal after a drift that count as absorbed."""
    prequential_window: int = 1280
    """Episodes of the windowed prequential score."""
    fading: float = 0.999
    """Fading factor of the prequential score, per episode (Gama et al. 2013)."""
    collapse_window: int = 20
    """Updates whose mean is compared with the running maximum."""
    collapse_share: float = 0.5
    """Share of the running maximum under which a run has collapsed."""

    def __post_init__(self) -> None:
        for name in ("bin", "window", "hold", "recovery_window", "prequential_window", "collapse_window"):
            if getattr(self, name) < 1:
                raise UserError(f"metric option {name} is {getattr(self, name)!r}; it must be at least 1")
        for name in ("rho", "fading", "collapse_share"):
            if not 0 < getattr(self, name) <= 1:
                raise UserError(f"metric option {name} is {getattr(self, name)!r}; it must be in (0, 1]")


DEFAULTS = MetricOptions()


def _floats(series: Any) -> Floats:
    return np.asarray(series, dtype=np.float64)


def _number(x: Any) -> float | None:
    return float(x) if np.isfinite(x) else None


def normalised(scores: Series, floor: Any, oracle: Any) -> Floats:
    """Return `(J - b) / (J* - b)` per entry, NaN where oracle and floor are equal.

    `floor` and `oracle` are numbers or one per entry (the concept of each episode).
    """
    span = _floats(oracle) - _floats(floor)
    return (_floats(scores) - _floats(floor)) / np.where(np.abs(span) > ROUNDING, span, np.nan)


def prequential(
    scores: Series,
    variant: Literal["cumulative", "window", "fading"] = "cumulative",
    options: MetricOptions = DEFAULTS,
) -> Floats:
    """Return the test-then-train mean after each episode (Gama et al. 2013).

    `cumulative` averages all episodes so far, `window` the last `prequential_window`, `fading` all with
    weights `fading^age`. Episodes without a score are left out; NaN before the first score.

    Raises:
        UserError: the variant is unknown.
    """
    x = _floats(scores)
    measured = np.isfinite(x)
    x, weight = np.where(measured, x, 0.0), measured.astype(np.float64)
    if variant == "cumulative":
        sums = [x.cumsum(), weight.cumsum()]
    elif variant == "window":
        sums = [_windowed(x, options.prequential_window), _windowed(weight, options.prequential_window)]
    elif variant == "fading":
        sums = [_faded(x, options.fading), _faded(weight, options.fading)]
    else:
        raise unknown("prequential variant", variant, ("cumulative", "window", "fading"))
    return sums[0] / np.where(sums[1] > 0, sums[1], np.nan)


def _windowed(x: Floats, window: int) -> Floats:
    padded = np.concatenate([np.zeros(window - 1), x])
    return np.lib.stride_tricks.sliding_window_view(padded, window).sum(1) if len(x) else x


def _faded(x: Floats, fading: float) -> Floats:
    return np.array(list(accumulate(x, lambda total, new: fading * total + new)), dtype=np.float64)


def binned_curve(
    scores: Series, floor: Any = 0.0, oracle: Any = 1.0, options: MetricOptions = DEFAULTS
) -> Floats:
    """Return the adaptation curve: the mean normalised score per bin of `bin` episodes in dispatch order.

    Episodes without a score (a fault of the machinery) are left out of their bin; a bin without any is
    NaN. The last bin may be short.
    """
    x = normalised(scores, floor, oracle)
    edges = np.arange(0, len(x), options.bin)
    measured = np.isfinite(x)
    total = np.add.reduceat(np.where(measured, x, 0.0), edges) if len(x) else x
    count = np.add.reduceat(measured.astype(float), edges) if len(x) else x
    return total / np.where(count > 0, count, np.nan)


def dynamic_regret(scores: Series, oracle: Any) -> float | None:
    """Return the sum over episodes of oracle minus score; negative values stay negative.

    `oracle` is a number or one per episode. None if any episode is without a score.
    """
    return _number(np.sum(_floats(oracle) - _floats(scores)))


def pre_drift_level(curve: Series, drift: int, options: MetricOptions = DEFAULTS) -> float | None:
    """Return the mean of the last `window` bins before the drift, of fewer where fewer exist."""
    before = _floats(curve)[max(drift - options.window, 0) : drift]
    return _number(before.mean()) if len(before) else None


def dip_depth(
    curve: Series, drift: int, horizon: int | None = None, options: MetricOptions = DEFAULTS
) -> float | None:
    """Return the pre-drift level minus the smallest moving mean of `window` bins after the drift.

    The moving means lie wholly between drift and horizon; with fewer bins than `window` there, their mean.
    """
    after = _floats(curve)[drift:horizon]
    level = pre_drift_level(curve, drift, options)
    if level is None or not len(after):
        return None
    width = min(options.window, len(after))
    return _number(level - np.lib.stride_tricks.sliding_window_view(after, width).mean(1).min())


def resilience(frozen: float, pre_drift: float, oracle: float) -> dict[str, float | None]:
    """Return the score on the new concept of the policy frozen at the drift, over two references.

    `over_pre_drift` divides by the score before the drift, `over_oracle` by the new concept's oracle.
    """
    return {
        "over_pre_drift": frozen / pre_drift if pre_drift else None,
        "over_oracle": frozen / oracle if oracle else None,
    }


def recovery_time(
    curve: Series, drift: int, target: float, horizon: int | None = None, options: MetricOptions = DEFAULTS
) -> int | None:
    """Return the first delta with `mean(curve[drift+delta : drift+delta+hold]) >= rho target`.

    The whole hold window must fit before the horizon; None means right-censored. A window with an
    unmeasured bin does not count as recovered.
    """
    after = _floats(curve)[drift:horizon]
    if len(after) < options.hold:
        return None
    held = np.lib.stride_tricks.sliding_window_view(after, options.hold).mean(1)
    reached = np.flatnonzero(held >= options.rho * target - ROUNDING)
    return int(reached[0]) if len(reached) else None


def recovery_observation(
    curve: Series, drift: int, target: float, horizon: int, options: MetricOptions = DEFAULTS
) -> tuple[int, bool]:
    """Return (time, observed) for a survival curve: the recovery time, or the last delta tried and False."""
    time = recovery_time(curve, drift, target, horizon, options)
    return (max(horizon - drift - options.hold, 0), False) if time is None else (time, True)


def auac(curve: Series, floor: Any = 0.0, oracle: Any = 1.0) -> float | None:
    """Return the area under the normalised post-drift curve (trapezoid) over its span.

    None for fewer than two bins or an unmeasured one.
    """
    x = normalised(curve, floor, oracle)
    return _number(np.trapezoid(x) / (len(x) - 1)) if len(x) > 1 else None


def adaptation_gain(curve: Series, frozen: Series, floor: Any = 0.0, oracle: Any = 1.0) -> float | None:
    """Return the AUAC of the learner minus that of the policy frozen at the drift."""
    return _difference(auac(curve, floor, oracle), auac(frozen, floor, oracle))


def plasticity_loss(fresh: Series, continued: Series, floor: Any = 0.0, oracle: Any = 1.0) -> float | None:
    """Return the AUAC of a fresh learner minus that of the continued one."""
    return _difference(auac(fresh, floor, oracle), auac(continued, floor, oracle))


def _difference(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


def forgetting(matrix: Any, variant: Literal["end", "max", "bwt"] = "end") -> float | None:
    """Return forgetting or backward transfer, averaged over the concepts k before the last phase T.

    `matrix[i][k]` is the score on concept k after phase i. `end`: R[k][k] - R[T][k]. `max`: the largest
    R[l][k] over l < T (unmeasured ones left out) minus R[T][k]. `bwt`: R[T][k] - R[k][k]
    (Lopez-Paz and Ranzato 2017). None with fewer than two phases.

    Raises:
        UserError: the variant is unknown.
    """
    if variant not in ("end", "max", "bwt"):
        raise unknown("forgetting variant", variant, ("end", "max", "bwt"))
    R = _matrix(matrix)
    concepts = min(len(R) - 1, R.shape[1])
    if concepts < 1:
        return None
    last, own = R[-1, :concepts], np.diagonal(R)[:concepts]
    if variant == "max":
        own = np.where(np.isnan(R[:-1]), -np.inf, R[:-1]).max(0)[:concepts]
    return _number(np.mean(last - own if variant == "bwt" else own - last))


def _matrix(matrix: Any) -> Floats:
    R = _floats(matrix)
    if R.ndim != 2:
        raise UserError(f"a score matrix has 2 axes (phase, concept), this one has {R.ndim}")
    return R


def forward_transfer_zeroshot(matrix: Any, baseline: Any = 0.0) -> float | None:
    """Return the mean over concepts k >= 1 of R[k-1][k] minus `baseline` (a number or one per concept).

    How much training on the phases before helps on a concept not yet met (Lopez-Paz and Ranzato 2017); the
    baseline is the starting policy's score.
    """
    R = _matrix(matrix)
    concepts = min(R.shape)
    if concepts < 2:
        return None
    untrained = np.broadcast_to(_floats(baseline), R.shape[1])[1:concepts]
    return _number(np.mean(np.diagonal(R, 1)[: concepts - 1] - untrained))


def forward_transfer_auc(curve: Series, fresh: Series, floor: Any = 0.0, oracle: Any = 1.0) -> float | None:
    """Return `(AUAC - fresh AUAC) / (1 - fresh AUAC)`, the transfer of Wolczyk et al. (2021)."""
    mine, other = auac(curve, floor, oracle), auac(fresh, floor, oracle)
    return None if mine is None or other is None or other == 1 else (mine - other) / (1 - other)


def stability_gap(probes: Any, phase_ends: Sequence[int]) -> dict[str, float | None]:
    """Return `min_acc` and `wc_acc` after the last phase from dense probes (De Lange et al. 2023).

    `probes[n][k]` is the score on concept k at probe n; `phase_ends[k]` is the probe at which phase k (on
    concept k) ended. min-ACC is the mean over earlier concepts of their smallest score since their phase
    ended; WC-ACC weighs the last concept's final score by 1/phases and min-ACC by the rest.
    """
    A, phases = _matrix(probes), len(phase_ends)
    if phases < 2:
        return {"min_acc": None, "wc_acc": None}
    end = phase_ends[-1]
    lowest = [A[start + 1 : end + 1, k].min(initial=np.inf) for k, start in enumerate(phase_ends[:-1])]
    min_acc = float(np.mean(lowest))
    wc_acc = A[end, phases - 1] / phases + (1 - 1 / phases) * min_acc
    return {"min_acc": _number(min_acc), "wc_acc": _number(wc_acc)}


def perseveration(right_under_old: Series, right_under_new: Series) -> float | None:
    """Return the share of post-drift episodes right under the old concept and wrong under the new."""
    old, new = _floats(right_under_old) > 0.5, _floats(right_under_new) > 0.5
    return float(np.mean(old & ~new)) if len(old) else None


def absorbed(
    zero_advantage_share: Series,
    best_score: Series,
    drift: int,
    horizon: int | None = None,
    options: MetricOptions = DEFAULTS,
) -> bool | None:
    """Return whether no learning signal is left for some whole recovery window after the drift.

    Per bin: the share of zero advantages (1 throughout the window) and the best normalised score (never
    above the floor, 0). None if no whole window fits between drift and horizon.
    """
    silent = (_floats(zero_advantage_share) >= 1) & ~(_floats(best_score) > ROUNDING)
    after = silent[drift:horizon]
    if len(after) < options.recovery_window:
        return None
    return bool(np.lib.stride_tricks.sliding_window_view(after, options.recovery_window).all(1).any())


def detection(alarms: Sequence[float], drifts: Sequence[float], horizon: int) -> dict[str, Any]:
    """Score the alarms of a drift detector, beside a detector that fires at every tick.

    The first alarm at or after a drift and before the next one detects it; every other alarm is false.
    Delay is the mean over detected drifts; false alarms are counted per 1,000 ticks of the horizon.
    """
    return {
        **_detection(alarms, drifts, horizon),
        "always_fire": _detection(range(horizon), drifts, horizon),
    }


def _detection(alarms: Sequence[float], drifts: Sequence[float], horizon: int) -> dict[str, float | None]:
    fired, drifted = np.sort(_floats(alarms)), np.sort(_floats(drifts))
    ends = np.append(drifted[1:], horizon)
    first = np.append(fired, np.inf)[np.searchsorted(fired, drifted)] if len(drifted) else drifted
    hit = first < ends
    hits, false = int(hit.sum()), len(fired) - int(hit.sum())
    recall = hits / len(drifted) if len(drifted) else None
    return {
        "precision": hits / len(fired) if len(fired) else None,
        "recall": recall,
        "miss_rate": None if recall is None else 1 - recall,
        "delay": float(np.mean(first[hit] - drifted[hit])) if hits else None,
        "false_alarms_per_1000": 1000 * false / horizon if horizon else None,
    }


def explained_variance(values: Series, returns: Series, mask: Series | None = None) -> float | None:
    """Return `1 - Var(returns - values) / Var(returns)`; None on constant returns or on none at all."""
    V, R = _floats(values), _floats(returns)
    if mask is not None:
        V, R = V[_floats(mask) > 0.5], R[_floats(mask) > 0.5]
    if not R.size or np.ptp(R) <= ROUNDING * max(1.0, float(np.abs(R).max())):
        return None
    return _number(1 - np.var(R - V) / np.var(R))


def collapsed(series: Series, options: MetricOptions = DEFAULTS) -> bool:
    """Return whether the mean of the last updates is under half of its running maximum, or not finite.

    One entry an update. Like is compared with like: the maximum is over the moving means of
    `collapse_window` updates, so that one lucky batch does not make a collapse. A shorter series is judged
    by its finiteness alone.
    """
    x = _floats(series)
    if not np.isfinite(x).all():
        return True
    if len(x) < options.collapse_window:
        return False
    means = np.lib.stride_tricks.sliding_window_view(x, options.collapse_window).mean(1)
    return bool(means[-1] < options.collapse_share * means.max() - ROUNDING)
