"""Stability dashboard: what the updates looked like from the inside.

One point is the mean over 10 updates (`window`); over several seeds the line is the mean of the runs, drawn as
far as all of them have come. docs/GLOSSARY.md defines each metric.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from sao_bench import plotting
from sao_bench.plotting import Figure
from sao_bench.report import Comparison, Line

PANELS = {
    "mask_ratio": "masked tokens (share)",
    "entropy": "entropy (nats / token)",
    "kl_behavior": "KL(μ‖π) (nats / token)",
    "explained_variance": "explained variance",
    "policy_grad_norm": "policy gradient norm",
    "staleness": "staleness (versions)",
}
"""Metrics drawn, and the titles of their panels."""


class Stability(Figure):
    """Six panels over consumed episodes."""

    name = "stability"
    title = "Stability of the updates"
    needs = "a policy update"
    order = 50

    def table(self, comparison: Comparison) -> pd.DataFrame:
        """Return a row per policy update and metric: `value` and its moving mean, `smooth`."""
        rows = [row for line in comparison.lines for row in _rows(line)]
        if not rows:
            return pd.DataFrame()
        table = pd.DataFrame(rows).sort_values(["line", "seed", "metric", "update"], kind="stable")
        groups = table.groupby(["line", "seed", "metric"])["value"]
        window = comparison.options.window
        table["smooth"] = groups.transform(lambda values: values.rolling(window, min_periods=1).mean())
        return table

    def draw(self, comparison: Comparison, table: pd.DataFrame) -> Canvas:
        """Draw two rows of three panels."""
        canvas = plotting.new_canvas(3.9)
        looks = plotting.looks(comparison.lines)
        marks: list[Any] = []
        grid = canvas.subplots(2, 3, sharex=True)
        for axes in grid[-1]:
            axes.set_xlabel("consumed episodes")
        for axes, (metric, title) in zip(grid.flat, PANELS.items(), strict=True):
            axes.set_title(title, loc="left", fontsize=8)
            if comparison.by_episode:
                marks = plotting.mark_drifts(axes, comparison)
                axes.set_xlim(0, plotting.horizon(comparison))
            mine = table[(table["metric"] == metric) & table["value"].notna()]
            if mine.empty:
                axes.text(
                    0.5, 0.5, "not measured", ha="center", transform=axes.transAxes, color=plotting.GREY
                )
            for line in comparison.lines:
                look, one = looks[line.label], mine[mine["line"] == line.label]
                points = one.groupby("update").agg(
                    x=("episodes", "mean"), y=("smooth", "mean"), n=("seed", "count")
                )
                points = points[points["n"] == one["seed"].nunique()]
                axes.plot(points["x"], points["y"], color=look.colour, linestyle=look.dash, linewidth=1.1)
            if metric == "explained_variance" and len(mine):
                # A critic can be worse than any constant without bound; below -1 that is all there is to see.
                axes.set_ylim(max(-1.0, mine["smooth"].min() - 0.05), 1.02)
            plotting.counts(axes, most=3)
        lines = [
            Line2D([], [], color=looks[line.label].colour, linestyle=looks[line.label].dash,
                   label=plotting.line_name(line))
            for line in comparison.lines
        ]  # fmt: skip
        plotting.legend_below(canvas, [*lines, *marks])
        return canvas


def _rows(line: Line) -> list[dict[str, Any]]:
    rows = []
    for run in line.runs:
        for update in (u for u in run.updates if u["kind"] == "policy"):
            values = {**update["metrics"], "staleness": update["staleness"]["mean"]}
            about = {
                "line": line.label,
                "seed": run.seed,
                "update": update["update"],
                "episodes": update["episodes"],
            }
            rows += [{**about, "metric": name, "value": values.get(name)} for name in PANELS]
    return [{**row, "value": None if row["value"] is None else float(row["value"])} for row in rows]
