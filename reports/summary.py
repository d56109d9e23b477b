"""The summary: what each algorithm scored, and what it did after each drift.

Per run first, then over seeds: scores are interquartile means with a 95% bootstrap interval, recovery is the
Kaplan-Meier median. `summary.json` holds the value of every single run and the reason for everything undefined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Literal

import pandas as pd
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sao_bench.outcomes import DriftOutcome, Recovery, RunOutcome
from sao_bench.plotting import csv_bytes
from sao_bench.report import Comparison, Line, Report, json_bytes
from sao_bench.statistics import Interval, bootstrap, kaplan_meier

SHOWN_DRIFTS = 8
"""Most drifts in the terminal and in Markdown; the CSV has all."""

RUN_LEGEND = (
    "J: mean score; n: mean of (J - floor) / (oracle - floor), so 0 = best constant reply, 1 = best policy; "
    "regret: sum of oracle - J over episodes; staleness: policy versions between sampling and training; "
    "collapsed: the last 20 updates score under half of the best 20, or a loss is not finite; "
    "*: a run is not finished, and its numbers are of what it has."
)
FAILED_LEGEND = (
    " A failed run counts up to where it stopped; `x of y seeds` is of the y that reached the drift."
)
DRIFT_LEGEND = (
    "before: n in the {window} bins of {bin} episodes before the drift; dip: how far n fell below that; recovery: time "
    "until n is back at {rho:.0%} of it for {hold} bins, `> N (censored)` if not within N; AUAC: mean n after the "
    "drift; frozen: the same for the policy as it was at the drift; absorbed: no learning signal left; "
    "-: not measured; *: the phase is not complete."
)

Column = tuple[str, Literal["left", "right"]]


class Summary(Report):
    """One table over the whole run and one per drift: terminal, CSV, Markdown, JSON."""

    name = "summary"
    needs = "a finished episode"
    order = 0

    def files(self, comparison: Comparison) -> dict[str, bytes]:
        """Return `summary.csv`, `summary_drifts.csv`, `summary.md` and `summary.json`."""
        whole = [run_row(comparison, line) for line in comparison.lines]
        drifts = [row for group in drift_rows(comparison).values() for row in group]
        files = {
            "summary.csv": csv_bytes(pd.DataFrame(whole)),
            "summary.md": _markdown(comparison).encode(),
            "summary.json": json_bytes(
                {
                    **comparison.sidecar(),
                    "algorithms": whole,
                    "drifts": drifts,
                    "per_run": _per_run(comparison),
                }
            ),
        }
        return files | ({"summary_drifts.csv": csv_bytes(pd.DataFrame(drifts))} if drifts else {})

    def show(self, comparison: Comparison) -> RenderableType:
        """Return the tables for the terminal."""
        parts: list[RenderableType] = [Text("")]
        for title, columns, rows, legend in _tables(comparison):
            parts += [Text(title, style="bold"), _rich(columns, rows)]
            parts += [Padding(Text(legend, style="dim"), (0, 0, 1, 0))] if legend else [Text("")]
        return Group(*parts)


# -- rows: one dict per line of the CSV; None is undefined -----------------------------------------------


def run_row(comparison: Comparison, line: Line) -> dict[str, Any]:
    """Return a line's numbers over whole runs; a run without episodes counts as a seed and has no score."""
    outcomes = [comparison.outcomes[run.run.folder][0] for run in line.drawn]
    row: dict[str, Any] = {
        "algorithm": line.label,
        "seeds": len(line.runs),
        "status": line.state,
        "episodes": sum(outcome.episodes for outcome in outcomes),
        "updates": sum(outcome.updates for outcome in outcomes),
    }
    for name, get in _RUN_SCORES.items():
        row |= _estimate(name, [get(outcome) for outcome in outcomes])
    stale = [o.staleness_max for o in outcomes if o.staleness_max is not None]
    means = [o.staleness_mean for o in outcomes if o.staleness_mean is not None]
    row |= {
        "staleness_max_versions": max(stale, default=None),
        "staleness_mean_versions": sum(means) / len(means) if means else None,
        "collapsed_runs": sum(bool(outcome.collapsed) for outcome in outcomes),
        "failed_runs": sum(run.state == "failed" for run in line.runs),
        "masked_faults": sum(outcome.faults for outcome in outcomes),
    }
    return row


_RUN_SCORES: dict[str, Callable[[RunOutcome], float | None]] = {
    "prequential_score": lambda outcome: outcome.score,
    "prequential_normalised": lambda outcome: outcome.normalised,
    "dynamic_regret_score": lambda outcome: outcome.regret,
}

_DRIFT_SCORES: dict[str, Callable[[DriftOutcome], float | None]] = {
    "before_normalised": lambda outcome: outcome.before,
    "dip_normalised": lambda outcome: outcome.dip,
    "auac_normalised": lambda outcome: outcome.auac,
    "auac_frozen_normalised": lambda outcome: outcome.auac_frozen,
    "adaptation_gain_normalised": lambda outcome: outcome.gain,
}


def drift_rows(comparison: Comparison) -> dict[int, list[dict[str, Any]]]:
    """Return, per drift that any run has reached, a row per line."""
    rows = {
        phase["index"]: [drift_row(comparison, line, phase) for line in comparison.lines]
        for phase in comparison.schedule.phases[1:]
    }
    return {phase: group for phase, group in rows.items() if any(row["seeds"] for row in group)}


def drift_row(comparison: Comparison, line: Line, phase: dict[str, Any]) -> dict[str, Any]:
    """Return a line's numbers after one drift."""
    found = [
        outcome
        for run in line.runs
        for outcome in comparison.outcomes[run.run.folder][1]
        if outcome.phase == phase["index"]
    ]
    row: dict[str, Any] = {
        "phase": phase["index"],
        "drift": phase["label"],
        "start": phase["start"],
        "algorithm": line.label,
        "seeds": len(found),
        "complete_seeds": sum(outcome.complete for outcome in found),
    }
    for name, get in _DRIFT_SCORES.items():
        row |= _estimate(name, [get(outcome) for outcome in found])
    row |= _recovery_columns("recovery", [outcome.recovery for outcome in found])
    row |= _recovery_columns("recovery_to_oracle", [outcome.recovery_oracle for outcome in found])
    known = [outcome.absorbed for outcome in found if outcome.absorbed is not None]
    return row | {"absorbed_runs": sum(known) if known else None, "absorbed_known_runs": len(known)}


def _estimate(name: str, values: Sequence[float | None]) -> dict[str, Any]:
    """Return the interquartile mean over seeds and, for two or more, its interval."""
    interval = bootstrap(values) if len(values) > 1 else None
    point = interval.point if interval else next(iter(values), None)
    low, high = (interval.low, interval.high) if isinstance(interval, Interval) else (None, None)
    return {name: point, f"{name}_low": low, f"{name}_high": high}


def _recovery_columns(name: str, recoveries: Sequence[Recovery]) -> dict[str, Any]:
    """Return the Kaplan-Meier median in episodes and in updates, or how long nothing was seen to recover.

    A run with nothing to recover is counted apart and takes no part in the median.
    """
    timed = [r for r in recoveries if r.episodes is not None and r.updates is not None]
    row: dict[str, Any] = {}
    for unit in ("episodes", "updates"):
        times = [getattr(r, unit) for r in timed]
        median = kaplan_meier(times, [r.observed for r in timed]).median if timed else None
        row[f"{name}_{unit}"] = median
        row[f"{name}_{unit}_followed"] = max(times, default=None)
    return row | {
        f"{name}_observed_seeds": sum(r.observed for r in timed),
        f"{name}_censored_seeds": sum(not r.observed for r in timed),
        f"{name}_undefined_seeds": len(recoveries) - len(timed),
        f"{name}_reason": next((r.reason for r in recoveries if r.reason), None),
    }


def _per_run(comparison: Comparison) -> list[dict[str, Any]]:
    rows = []
    for run in comparison.runs:
        whole, drifts = comparison.outcomes[run.run.folder]
        error = run.run.status.get("error")
        rows.append(
            {
                "folder": run.run.folder.as_posix(),
                "algorithm": run.algorithm,
                "seed": run.seed,
                "state": run.state,
                "error": error,
                "whole": asdict(whole),
                "drifts": [{**asdict(drift), "gain": drift.gain} for drift in drifts],
            }
        )
    return rows


# -- tables: the same cells for the terminal and for Markdown --------------------------------------------


def _tables(comparison: Comparison) -> list[tuple[str, list[Column], list[list[str]], str]]:
    """Return (title, columns with their alignment, cells, legend) of each table."""
    schedule = comparison.schedule
    title = f"{schedule.id}: {schedule.env}, {schedule.horizon:,} {schedule.clock} ticks"
    note = f"{comparison.note[0].upper()}{comparison.note[1:]}. " if comparison.note else ""
    whole = [_run_cells(run_row(comparison, line)) for line in comparison.lines]
    tables = [(title, _RUN_COLUMNS, whole, note + RUN_LEGEND)]
    groups = list(drift_rows(comparison).items())
    for phase, rows in groups[:SHOWN_DRIFTS]:
        heading = f"Drift {phase}: {rows[0]['drift']}, at {schedule.clock} {rows[0]['start']:,}"
        tables.append((heading, _DRIFT_COLUMNS, [_drift_cells(row) for row in rows], ""))
    if groups:
        legend = DRIFT_LEGEND.format(**asdict(comparison.options))
        legend += FAILED_LEGEND if any(run.state == "failed" for run in comparison.runs) else ""
        more = len(groups) - SHOWN_DRIFTS
        left = f" {more} more drifts are in summary_drifts.csv." if more > 0 else ""
        tables[-1] = (*tables[-1][:3], legend + left)
    return tables


_RUN_COLUMNS: list[Column] = [
    ("algorithm", "left"),
    ("seeds", "right"),
    ("status", "left"),
    ("score\nJ", "right"),
    ("score\nn", "right"),
    ("regret\n(score)", "right"),
    ("staleness\nmax/mean", "right"),
    ("collapsed", "right"),
]
_DRIFT_COLUMNS: list[Column] = [
    ("algorithm", "left"),
    ("before\n(n)", "right"),
    ("dip\n(n)", "right"),
    ("recovery\n(episodes / updates)", "right"),
    ("AUAC\n(n)", "right"),
    ("frozen\n(n)", "right"),
    ("absorbed", "right"),
]


def _run_cells(row: dict[str, Any]) -> list[str]:
    stale = f"{row['staleness_max_versions']}/{_number(row['staleness_mean_versions'], 1)}"
    return [
        row["algorithm"] + ("*" if row["status"] != "finished" else ""),
        str(row["seeds"]),
        row["status"],
        _number(row["prequential_score"], 3),
        _number(row["prequential_normalised"], 3),
        _number(row["dynamic_regret_score"], 0),
        "-" if row["staleness_max_versions"] is None else stale,
        _share(row["collapsed_runs"] if row["episodes"] else None, row["seeds"]),
    ]


def _drift_cells(row: dict[str, Any]) -> list[str]:
    return [
        row["algorithm"] + ("*" if row["complete_seeds"] < row["seeds"] else ""),
        _number(row["before_normalised"], 2),
        _number(row["dip_normalised"], 2),
        recovery_text(row),
        _number(row["auac_normalised"], 2),
        _number(row["auac_frozen_normalised"], 2),
        _share(row["absorbed_runs"], row["absorbed_known_runs"]),
    ]


def recovery_text(row: dict[str, Any], name: str = "recovery") -> str:
    """Return `1408 / 11`, or `> 6144 / 48 (censored)`, with the number of seeds if there are several."""
    seen, censored = row[f"{name}_observed_seeds"], row[f"{name}_censored_seeds"]
    if not row["seeds"]:
        return "not reached"
    if not seen + censored:
        return "undefined"
    pair = [row[f"{name}_{unit}"] for unit in ("episodes", "updates")]
    if None in pair:
        followed = [row[f"{name}_{unit}_followed"] for unit in ("episodes", "updates")]
        text = f"> {followed[0]} / {followed[1]} (censored)"
    else:
        text = f"{pair[0]} / {pair[1]}"
    return text if row["seeds"] == 1 else f"{text}\n{seen} of {row['seeds']} seeds"


def _number(value: float | None, digits: int) -> str:
    # Adding 0.0 turns a rounded -0.0 into 0.0.
    return "-" if value is None else f"{round(value, digits) + 0.0:.{digits}f}"


def _share(count: int | None, seeds: int) -> str:
    if count is None:
        return "-"
    return ("yes" if count else "no") if seeds == 1 else f"{count} of {seeds}"


def _rich(columns: list[Column], rows: list[list[str]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name, side in columns:
        whole = name.startswith(("algorithm", "recovery"))
        table.add_column(Text(name), justify=side, overflow="fold", no_wrap=whole)
    for cells in rows:
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _markdown(comparison: Comparison) -> str:
    parts = [f"# {comparison.schedule.id}\n"]
    for title, columns, rows, legend in _tables(comparison):
        head = "| " + " | ".join(name.replace("\n", " ") for name, _ in columns) + " |"
        rule = "|" + "|".join("---:" if side == "right" else "---" for _, side in columns) + "|"
        body = ["| " + " | ".join(cell.replace("\n", ", ") for cell in cells) + " |" for cells in rows]
        parts += [
            f"## {title}\n",
            "\n".join([head, rule, *body]) + "\n",
            *([f"{legend}\n"] if legend else []),
        ]
    return "\n".join(parts)
