"""One number per run: what the claims compare, and what is told beside a claim that does not hold.

Scores are normalised: 0 is the floor, 1 the oracle of each episode's concept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sao_bench import metrics
from sao_bench.metrics import DEFAULTS
from sao_bench.outcomes import DriftOutcome, drift_outcomes, run_outcome
from sao_bench.run_data import Floats, RunData

Measure = Callable[[RunData], float | None]
Values = Mapping[str, float | None]
"""Every metric of one run, by name."""


@dataclass(frozen=True)
class Metric:
    """A number of a run; None where it is undefined."""

    about: str
    measure: Measure


def _normalised(run: RunData) -> Floats:
    return metrics.normalised(run.columns["score"], run.columns["floor"], run.columns["oracle"])


def _mean(values: Any) -> float | None:
    x = np.asarray([v for v in values if v is not None], dtype=np.float64)
    x = x[np.isfinite(x)]
    return float(x.mean()) if len(x) else None


def _policy(run: RunData, name: str) -> list[float | None]:
    """Return a metric of every policy update (None where it was undefined)."""
    return [update["metrics"].get(name) for update in run.updates if update["kind"] == "policy"]


def _score(run: RunData) -> float | None:
    return _mean(_normalised(run))


def _late_score(run: RunData) -> float | None:
    values = _normalised(run)
    return _mean(values[len(values) * 3 // 4 :])


def _retained(run: RunData) -> float | None:
    """Return the last moving mean of 20 updates over the largest one; 0 after anything that is not finite."""
    updates = [update for update in run.updates if update["kind"] == "policy"]
    names = ("policy_loss", "policy_grad_norm", "value_loss")
    if any(update["metrics"].get(name, 0.0) is None for update in updates for name in names):
        return 0.0
    scores = np.array([update["score_mean"] for update in updates], dtype=np.float64)
    width = DEFAULTS.collapse_window
    if len(scores) < width or not np.isfinite(scores).all():
        return None
    means = np.lib.stride_tricks.sliding_window_view(scores, width).mean(1)
    return float(means[-1] / means.max()) if means.max() > 0 else None


def _median_explained_variance(run: RunData) -> float | None:
    known = [value for value in _policy(run, "explained_variance") if value is not None]
    return float(np.median(known)) if known else None


def _log_critic_norm(run: RunData) -> float | None:
    mean = _mean(_policy(run, "critic_grad_norm"))
    return math.log(mean) if mean else None


def _drifts(run: RunData) -> list[DriftOutcome]:
    """Return the drifts of a run, with a bin as long as a batch."""
    size = run.manifest["config"]["batch_size"]
    return drift_outcomes(run, replace(DEFAULTS, bin=size))


def _recovery(run: RunData) -> float | None:
    """Return the mean time to recovery over the drifts, in updates.

    A drift that was not recovered from counts with the time that it was followed for: the mean is one
    restricted to the phase (a lower bound). None if a drift had nothing to recover.
    """
    times = [drift.recovery.updates for drift in _drifts(run)]
    return None if None in times else _mean(times)


def _recovered(run: RunData) -> float | None:
    return _mean([float(drift.recovery.observed) for drift in _drifts(run)])


def _collapsed(run: RunData) -> float | None:
    found = run_outcome(run).collapsed
    return None if found is None else float(found)


def _critic_only(run: RunData) -> float | None:
    alone = [sum(u["staleness"]["hist"].values()) for u in run.updates if u["kind"] == "critic"]
    return sum(alone) / run.episodes if run.episodes else None


def _average(name: str) -> Measure:
    return lambda run: _mean(_policy(run, name))


METRICS: Mapping[str, Metric] = {
    "score": Metric("mean normalised score over all episodes", _score),
    "late_score": Metric("mean normalised score of the last quarter of the episodes", _late_score),
    "retained": Metric("last over largest moving mean of 20 updates", _retained),
    "recovery": Metric("updates to 90% of the level before a switch, restricted to the phase", _recovery),
    "explained_variance": Metric("median explained variance", _median_explained_variance),
    "log_critic_norm": Metric("log of the critic's mean gradient norm", _log_critic_norm),
    "recovered": Metric("share of switches recovered from", _recovered),
    "collapsed": Metric("share of runs that collapsed", _collapsed),
    "masked": Metric("mean share of masked tokens", _average("mask_ratio")),
    "clipped": Metric("mean share of clipped tokens", _average("clip_fraction")),
    "value_loss": Metric("mean value loss", _average("value_loss")),
    "critic_only": Metric("share of the episodes that trained only the critic", _critic_only),
    "staleness": Metric("mean staleness in versions", lambda run: run_outcome(run).staleness_mean),
}
"""By name."""


def measure(run: RunData) -> Values:
    """Return every metric of a run; what is not finite is None."""
    values = {name: metric.measure(run) for name, metric in METRICS.items()}
    return {name: value if value is None or math.isfinite(value) else None for name, value in values.items()}
