"""What a run did: the metrics of one run, and of each of its drifts, from its arrays.

A drift is the opening of a phase other than the first. Around a drift the bins are counted from the drift
itself, backwards and forwards, so that no bin mixes two phases; where the drift falls on a bin's edge these
are the bins of the adaptation curve. After a drift only whole bins count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sao_bench import metrics
from sao_bench.metrics import MetricOptions
from sao_bench.run_data import Floats, RunData


@dataclass(frozen=True)
class Recovery:
    """Time from a drift to recovery, in bins, episodes and policy updates.

    Where `observed` is false the run was followed for that long without recovering (right-censored). All
    times are None, with a reason, where there was nothing to recover.
    """

    bins: int | None
    episodes: int | None
    updates: int | None
    observed: bool
    reason: str = ""


@dataclass(frozen=True)
class DriftOutcome:
    """What one run did after one drift; scores are normalised, None is undefined or not measured.

    `complete` says that the run was followed up to the next drift or the end of the schedule.
    """

    phase: int
    label: str
    start: int
    end: int
    complete: bool
    before: float | None
    dip: float | None
    recovery: Recovery
    recovery_oracle: Recovery
    auac: float | None
    auac_frozen: float | None
    absorbed: bool | None

    @property
    def gain(self) -> float | None:
        """AUAC minus that of the policy frozen at the drift."""
        return None if self.auac is None or self.auac_frozen is None else self.auac - self.auac_frozen


@dataclass(frozen=True)
class RunOutcome:
    """What one run did as a whole."""

    episodes: int
    updates: int
    faults: int
    score: float | None
    normalised: float | None
    regret: float | None
    staleness_max: int | None
    staleness_mean: float | None
    collapsed: bool | None


def run_outcome(run: RunData, options: MetricOptions = metrics.DEFAULTS) -> RunOutcome:
    """Measure a whole run (so far); a fault of the machinery is left out and counted."""
    score = run.columns["score"]
    measured = np.isfinite(score)
    policy = [update for update in run.updates if update["kind"] == "policy"]
    sizes = [sum(u["staleness"]["hist"].values()) for u in run.updates]
    means = [u["staleness"]["mean"] for u in run.updates]
    value = metrics.normalised(score, run.columns["floor"], run.columns["oracle"])
    return RunOutcome(
        episodes=run.episodes,
        updates=len(policy),
        faults=int((~measured).sum()),
        score=_last(metrics.prequential(score)),
        normalised=_last(metrics.prequential(value)),
        regret=metrics.dynamic_regret(score[measured], run.columns["oracle"][measured])
        if measured.any()
        else None,
        staleness_max=max((u["staleness"]["max"] for u in run.updates), default=None),
        staleness_mean=float(np.average(means, weights=sizes)) if run.updates else None,
        collapsed=_collapsed(policy, options),
    )


def _collapsed(updates: list[dict[str, Any]], options: MetricOptions) -> bool | None:
    """Return whether the score of the policy updates collapsed, None if there is none.

    A loss or a gradient that is not finite (kept as null) is a collapse; a batch of faults alone has no score and
    is left out.
    """
    series = []
    for update in updates:
        found = update["metrics"]
        broken = None in [found.get(name, 0.0) for name in ("policy_loss", "policy_grad_norm", "value_loss")]
        if broken or update["score_mean"] is not None:
            series.append(float("nan") if broken else float(update["score_mean"]))
    return metrics.collapsed(series, options) if series else None


def _last(series: Floats) -> float | None:
    return float(series[-1]) if len(series) and np.isfinite(series[-1]) else None


def drift_outcomes(run: RunData, options: MetricOptions) -> list[DriftOutcome]:
    """Measure every drift that the run has reached."""
    if run.schedule is None:
        return []
    phases = run.schedule.phases
    found = []
    for phase in phases[1:]:
        start, end = run.opening(phase["index"]), run.opening(phase["index"] + 1)
        if start is not None and start != end:
            found.append(_drift(run, phase, start, end, options))
    return found


def _drift(
    run: RunData, phase: dict[str, Any], start: int, end: int | None, options: MetricOptions
) -> DriftOutcome:
    complete = end is not None or run.finished
    end = run.episodes if end is None else end
    before, curve = aligned(run, start, end, options)
    last = start + (len(curve) - before) * options.bin
    level = metrics.pre_drift_level(curve, before, options)

    def recovery(target: float | None, what: str) -> Recovery:
        return _recovery(target, what, run, curve, before, start, options)

    return DriftOutcome(
        phase=phase["index"],
        label=phase["label"],
        start=start,
        end=end,
        complete=complete,
        before=level,
        dip=metrics.dip_depth(curve, before, None, options),
        recovery=recovery(level, "the level before the drift"),
        recovery_oracle=recovery(1.0, "the oracle"),
        auac=metrics.auac(curve[before:]),
        auac_frozen=run.frozen_at_drift(phase["index"]),
        absorbed=_absorbed(run, start, last, options),
    )


def aligned(run: RunData, start: int, end: int, options: MetricOptions) -> tuple[int, Floats]:
    """Return (bins before the drift, curve): up to `window` bins before `start`, all whole ones up to `end`."""
    before = min(options.window, start // options.bin)
    after = (end - start) // options.bin
    return before, run.curve(options, start - before * options.bin, start + after * options.bin)


def _recovery(
    target: float | None,
    what: str,
    run: RunData,
    curve: Floats,
    drift: int,
    start: int,
    options: MetricOptions,
) -> Recovery:
    """Time the recovery to a target (a normalised score)."""
    if target is None:
        return Recovery(None, None, None, False, "no whole bin before the drift")
    if target <= 0:
        return Recovery(None, None, None, False, f"{what} is not above the floor: nothing to recover")
    bins, observed = metrics.recovery_observation(curve, drift, target, len(curve), options)
    episodes = bins * options.bin
    version = run.columns["version"]
    updates = _at(version, start + episodes) - _at(version, start)
    return Recovery(bins, episodes, int(updates), observed)


def _at(series: Floats, index: int) -> float:
    """Return the last known entry up to an index."""
    known = series[: index + 1]
    return float(known[np.isfinite(known)][-1])


def _absorbed(run: RunData, start: int, end: int, options: MetricOptions) -> bool | None:
    """Return whether all learning signal was gone for a whole recovery window after a drift.

    A bin is silent if every update that consumed one of its episodes had a zero-advantage share of 1.
    """
    shares = np.array([u["metrics"].get("zero_advantage_share") for u in run.updates], dtype=np.float64)
    by_episode = np.append(shares, np.nan)[run.consumed_by[start:end]]
    value = metrics.normalised(*(run.columns[name][start:end] for name in ("score", "floor", "oracle")))
    rows = (-1, options.bin)
    silent = np.where(np.isfinite(by_episode), by_episode, np.inf).reshape(rows).min(1, initial=np.inf)
    best = np.where(np.isfinite(value), value, -np.inf).reshape(rows).max(1, initial=-np.inf)
    return metrics.absorbed(np.where(np.isfinite(silent), silent, np.nan), best, 0, None, options)
