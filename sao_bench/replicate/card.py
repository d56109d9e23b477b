"""Verdicts: what the paired differences over seeds say about each claim, as text and as tables.

Reproduced: the paired 95% interval lies above 0, the claimed direction. Not reproduced: it lies below the
smallest effect of interest. Otherwise (and where runs are missing) inconclusive. A claim of several comparisons is
reproduced if all are, and not reproduced if any is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sao_bench.replicate.claims import Arm, Claim, Comparison
from sao_bench.replicate.measures import METRICS, Values
from sao_bench.statistics import CONFIDENCE, Interval, iqm, paired_difference

REPRODUCED, NOT_REPRODUCED, INCONCLUSIVE = "reproduced", "not reproduced", "inconclusive"
INDICATIVE = "INDICATIVE"

Runs = Mapping[Arm, Mapping[int, Values]]
"""The metrics of finished runs, by arm and seed."""


@dataclass(frozen=True)
class Finding:
    """One comparison, decided. Values are IQMs over the seeds that both arms have."""

    comparison: Comparison
    better: float | None
    other: float | None
    effect: Interval
    verdict: str
    seeds: tuple[int, ...]
    missing: int
    """Seeds of the plan without a finished run in one of the arms."""


@dataclass(frozen=True)
class Judged:
    """A claim with its verdict; `why` is empty where it is reproduced."""

    claim: Claim
    findings: tuple[Finding, ...]
    verdict: str
    why: str


def decide(interval: Interval, least: float) -> str:
    """Return the verdict on an effect, positive in the claimed direction; one seed has no interval to speak of."""
    if interval.low is None or interval.high is None or interval.seeds < 2:
        return INCONCLUSIVE
    if interval.low > 0:
        return REPRODUCED
    return NOT_REPRODUCED if interval.high < least else INCONCLUSIVE


def combine(verdicts: Sequence[str]) -> str:
    """Return the verdict on a claim whose comparisons must all hold."""
    if NOT_REPRODUCED in verdicts:
        return NOT_REPRODUCED
    return REPRODUCED if set(verdicts) == {REPRODUCED} else INCONCLUSIVE


def judge(claim: Claim, runs: Runs, seeds: Sequence[int]) -> Judged:
    """Decide a claim from the runs that are there."""
    findings = tuple(_find(comparison, runs, seeds) for comparison in claim.comparisons)
    verdict = combine([finding.verdict for finding in findings])
    why = "" if verdict == REPRODUCED else _why(claim, findings, runs)
    return Judged(claim, findings, verdict, why)


def measured(side: Arm | float, metric: str, runs: Runs, seeds: Sequence[int]) -> list[float]:
    """Return a metric per seed, NaN where it is undefined; a constant is itself for every seed."""
    if isinstance(side, float):
        return [side] * len(seeds)
    found = [runs[side][seed][metric] for seed in seeds]
    return [float("nan") if value is None else value for value in found]


def _find(comparison: Comparison, runs: Runs, seeds: Sequence[int]) -> Finding:
    sides = [side for side in (comparison.better, comparison.other) if isinstance(side, Arm)]
    both = tuple(seed for seed in seeds if all(seed in runs.get(side, {}) for side in sides))
    better, other = (
        measured(side, comparison.metric, runs, both) for side in (comparison.better, comparison.other)
    )
    effect = paired_difference(better, other, seed=0)
    missing = len(seeds) - len(both)
    # A run that failed or was not run is shown, and keeps the claim open: what it would have shown is not known.
    verdict = INCONCLUSIVE if missing else decide(effect, comparison.least)
    return Finding(comparison, iqm(better), iqm(other), effect, verdict, both, missing)


# -- why a claim does not hold: measured facts and rules that anyone can check -----------------------------------


def _why(claim: Claim, findings: Sequence[Finding], runs: Runs) -> str:
    said = [text for finding in findings for text in (*_readings(finding), *_late(finding, runs))]
    facts = [text for arm in claim.arms if (text := _facts(arm, claim.facts, runs))]
    return " ".join([*dict.fromkeys(said), *(["Measured: " + "; ".join(facts) + "."] if facts else [])])


def _readings(finding: Finding) -> list[str]:
    """Return what the numbers of a comparison that does not hold say, in sentences."""
    effect, least = finding.effect, finding.comparison.least
    if finding.verdict == REPRODUCED:
        return []
    if finding.missing:
        return [f"Seeds without a finished run of both arms: {finding.missing}."]
    if effect.low is None or effect.high is None or effect.point is None:
        return [f"{METRICS[finding.comparison.metric].about} is undefined: {effect.reason}."]
    said = []
    if effect.high < 0:
        said.append("The effect points the other way.")
    elif finding.verdict == INCONCLUSIVE:
        said.append(
            f"The interval is {effect.high - effect.low:.3g} wide, the smallest effect of interest {least:g}: these "
            "seeds cannot tell it from nothing."
        )
    else:
        said.append(f"If there is an effect, it is smaller than {least:g}.")
    values = [value for value in (finding.better, finding.other) if value is not None]
    if finding.comparison.metric in ("score", "late_score"):
        if min(values) > 0.9:
            said.append(
                "Both arms are within a tenth of the oracle, which leaves little room for a difference."
            )
        if max(values) < 0.1:
            said.append("Neither arm got a tenth of the way from the floor to the oracle in these updates.")
    if finding.comparison.metric == "retained" and finding.other is not None and finding.other > 0.9:
        said.append("The arm that is claimed to collapse ended within a tenth of its best.")
    return said


def _late(finding: Finding, runs: Runs) -> list[str]:
    """Return how a difference of scores over all episodes stands at their end, where it does not hold."""
    comparison = finding.comparison
    if comparison.metric != "score" or finding.verdict == REPRODUCED or not finding.seeds:
        return []
    better, other = (
        measured(side, "late_score", runs, finding.seeds) for side in (comparison.better, comparison.other)
    )
    difference = iqm(np.subtract(better, other))
    if difference is None:
        return []
    return [
        f"Over the last quarter of the episodes {comparison.better} is {difference:+.3g} against {comparison.other}."
    ]


def _facts(arm: Arm, names: Sequence[str], runs: Runs) -> str:
    mine = list(runs.get(arm, {}).values())
    told = []
    for name in names:
        values = [value for run in mine if (value := run[name]) is not None]
        if values:
            told.append(f"{METRICS[name].about} {float(np.mean(values)):.3g}")
    return f"{arm}: {', '.join(told)}" if told else ""


# -- output ------------------------------------------------------------------------------------------------------


def rows(judged: Sequence[Judged], indicative: bool) -> list[dict[str, Any]]:
    """Return the card as a table: a row per comparison."""
    return [
        {
            "claim": one.claim.id,
            "verdict": one.verdict,
            "comparison_verdict": finding.verdict,
            "indicative": indicative,
            "better": str(finding.comparison.better),
            "other": str(finding.comparison.other),
            "metric": finding.comparison.metric,
            "better_iqm": finding.better,
            "other_iqm": finding.other,
            "effect": finding.effect.point,
            "low": finding.effect.low,
            "high": finding.effect.high,
            "least": finding.comparison.least,
            "seeds": len(finding.seeds),
            "missing": finding.missing,
        }
        for one in judged
        for finding in one.findings
    ]


def text(judged: Sequence[Judged], title: str, lines: Sequence[str], indicative: bool) -> str:
    """Return the card as Markdown; every verdict line of an indicative card says so."""
    mark = f" {INDICATIVE}" if indicative else ""
    out = [f"# {title}", "", *lines, ""]
    for one in judged:
        out += [f"## ({one.claim.id}) {one.verdict}{mark}", "", one.claim.sentence, ""]
        out += [f"- {_line(finding)}{mark}" for finding in one.findings]
        out += ["", one.why + mark, ""] if one.why else [""]
    return "\n".join(out).rstrip() + "\n"


def _line(finding: Finding) -> str:
    comparison, effect = finding.comparison, finding.effect
    about = f"{METRICS[comparison.metric].about}: {comparison.better} over {comparison.other}"
    count = f"{len(finding.seeds)} seed{'s' * (len(finding.seeds) != 1)}"
    if effect.point is None:
        return f"{about}: undefined ({effect.reason}; {count}); {finding.verdict}"
    small = effect.high is not None and effect.high < comparison.least and finding.verdict == REPRODUCED
    return (
        f"{about}: effect {effect.point:+.3g}, {CONFIDENCE:.0%} interval [{effect.low:+.3g}, {effect.high:+.3g}] "
        f"({finding.better:.3g} against {finding.other:.3g}, {count}, smallest effect of interest "
        f"{comparison.least:g}); {finding.verdict}{', though smaller than that' if small else ''}"
    )
