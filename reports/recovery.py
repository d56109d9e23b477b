"""Kaplan-Meier curves of recovery: the share of runs that have not yet recovered, by time since the drift.

A run that does not recover before the next drift (or its end) is right-censored: it counts as not recovered for
as long as it was followed and is marked by a tick.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from sao_bench import plotting
from sao_bench.outcomes import Recovery
from sao_bench.plotting import Figure
from sao_bench.report import Comparison, Line
from sao_bench.statistics import kaplan_meier

PANELS = 9
"""Most drifts drawn; the CSV has all."""


class RecoveryCurves(Figure):
    """A panel per drift: share not yet recovered against episodes since the drift."""

    name = "recovery"
    title = "Kaplan-Meier curves of recovery to the level before the drift"
    needs = "two seeds of an algorithm that have passed a real drift"
    order = 40

    def table(self, comparison: Comparison) -> pd.DataFrame:
        """Return the corners of each curve, and a row of kind `censored` per censored run."""
        rows: list[dict[str, Any]] = []
        for phase in comparison.schedule.phases[1:]:
            for line in comparison.lines:
                found = _recoveries(comparison, line, phase["index"])
                if len(found) > 1:
                    rows += _rows(line, phase["index"], found)
        return pd.DataFrame(rows)

    def draw(self, comparison: Comparison, table: pd.DataFrame) -> Canvas:
        """Draw a panel per drift."""
        phases = sorted(table["phase"].unique())[:PANELS]
        canvas = plotting.new_canvas(plotting.panel_height(len(phases)))
        panels = plotting.panels(canvas, len(phases), "episodes since the drift", "share not yet recovered")
        looks = plotting.looks(comparison.lines)
        handles = {}
        for axes, phase in zip(panels, phases, strict=True):
            axes.set_title(f"drift {phase}", loc="left")
            axes.axhline(0.5, color=plotting.GREY, linewidth=0.7, linestyle=":", zorder=0.5)
            for label, look in looks.items():
                mine = table[(table["phase"] == phase) & (table["line"] == label)]
                style: dict[str, Any] = {"color": look.colour, "linestyle": look.dash}
                corners, censored = mine[mine["kind"] == "curve"], mine[mine["kind"] == "censored"]
                axes.step(corners["episodes"], corners["not_recovered"], where="post", **style)
                axes.plot(
                    censored["episodes"], censored["not_recovered"], "|", color=look.colour, markersize=9
                )
                handles[label] = Line2D([], [], label=label, **style)
            axes.set_ylim(-0.04, 1.06)
            axes.set_xlim(left=0)
            plotting.counts(axes, most=3)
        tick = Line2D(
            [], [], color=plotting.GREY, marker="|", markersize=9, linestyle="", label="censored run"
        )
        plotting.legend_below(canvas, [*handles.values(), tick])
        plotting.note(canvas, comparison.note)
        return canvas


def _recoveries(comparison: Comparison, line: Line, phase: int) -> list[Recovery]:
    drifts = [drift for run in line.runs for drift in comparison.outcomes[run.run.folder][1]]
    return [d.recovery for d in drifts if d.phase == phase and d.recovery.episodes is not None]


def _rows(line: Line, phase: int, found: list[Recovery]) -> list[dict[str, Any]]:
    times = [float(recovery.episodes or 0) for recovery in found]
    curve = kaplan_meier(times, [recovery.observed for recovery in found])
    corners = [(0.0, 1.0), *zip(curve.times, curve.surviving, strict=True)]
    corners.append((max(times), corners[-1][1]))
    about = {"line": line.label, "phase": phase, "runs": len(found)}
    rows: list[dict[str, Any]] = [
        {"kind": "curve", **about, "episodes": time, "not_recovered": share} for time, share in corners
    ]
    for time in (t for t, recovery in zip(times, found, strict=True) if not recovery.observed):
        share = [share for corner, share in corners if corner <= time][-1]
        rows.append({"kind": "censored", **about, "episodes": time, "not_recovered": share})
    return rows
