"""The adaptation curve over what it cost: tokens sampled, and virtual time.

An algorithm with a critic updates for longer; one with groups waits for the slowest member. Over episodes
neither shows. A drift comes at an episode, so each line has its own mark where it met the drift.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from sao_bench import plotting
from sao_bench.plotting import GREY, Figure
from sao_bench.report import Comparison, Line

AXES = {"sample": "sampled tokens", "arrived_s": "virtual time (seconds)"}
"""Columns drawn over, and their labels."""


class AdaptationCost(Figure):
    """Two panels: score against tokens, score against virtual time."""

    name = "adaptation_cost"
    title = "Adaptation curve over sampled tokens and over virtual time"
    needs = "a finished episode"
    order = 15

    def table(self, comparison: Comparison) -> pd.DataFrame:
        """Return rows of kind `seed`, `iqm` and `drift` for each cost axis."""
        rows = [row for line in comparison.lines for row in _rows(comparison, line)]
        curves = [row for row in rows if row["kind"] == "seed"]
        return pd.DataFrame([*rows, *plotting.iqm_rows(comparison.lines, curves, "cost", band=False)])

    def draw(self, comparison: Comparison, table: pd.DataFrame) -> Canvas:
        """Draw a panel per cost."""
        canvas = plotting.new_canvas(2.7)
        handles: list[Any] = []
        looks = plotting.looks(comparison.lines)
        for axes, (cost, label) in zip(canvas.subplots(1, 2, sharey=True), AXES.items(), strict=True):
            mine = table[table["cost"] == cost]
            handles = plotting.draw_lines(axes, comparison.lines, mine)
            drifts = mine[mine["kind"] == "drift"]
            for name, points in drifts.groupby("line"):
                axes.vlines(points["x"], -0.12, -0.03, color=looks[str(name)].colour, linewidth=1.6)
            if not comparison.raw:
                for level, dash in ((0.0, "--"), (1.0, "-")):
                    axes.axhline(level, color=GREY, linewidth=0.7, linestyle=dash, zorder=0.5)
            axes.set_xlim(left=0)
            axes.set_xlabel(label)
            plotting.counts(axes, most=4)
        canvas.axes[0].set_ylabel("mean score J" if comparison.raw else "normalised score n")
        tick = Line2D(
            [], [], color=GREY, marker="|", markersize=9, linestyle="", label="where a line meets a drift"
        )
        plotting.legend_below(canvas, [*handles, tick])
        plotting.note(canvas, comparison.note)
        return canvas


def _rows(comparison: Comparison, line: Line) -> list[dict[str, Any]]:
    rows = []
    for run in line.drawn:
        value = run.curve(comparison.options, raw=comparison.raw)
        for cost in AXES:
            about = {"line": line.label, "seed": run.seed, "cost": cost}
            x = run.binned(cost, comparison.options)
            rows += [
                {"kind": "seed", **about, "bin": place, "x": float(x[place]), "value": float(value[place])}
                for place in range(run.shown_bins(comparison.options))
            ]
            rows += [
                {
                    "kind": "drift",
                    **about,
                    "bin": drift.phase,
                    "x": float(run.columns[cost][drift.start]),
                }
                for drift in comparison.outcomes[run.run.folder][1]
            ]
    return rows
