"""Cumulative dynamic regret: the score that the best policy of each concept would have had more, so far.

The oracle is analytic, per concept. A flat line is an algorithm that has caught up; the steps after the drifts
are what the drifts cost. A fault of the machinery costs nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Canvas

from sao_bench import plotting
from sao_bench.plotting import Figure
from sao_bench.report import Comparison, Line


class CumulativeRegret(Figure):
    """Summed oracle minus score against episodes."""

    name = "cumulative_regret"
    title = "Cumulative dynamic regret against the analytic oracle"
    needs = "a finished episode"
    order = 30

    def table(self, comparison: Comparison) -> pd.DataFrame:
        """Return rows of kind `seed` and `iqm`; `value` is the regret at the end of the bin."""
        rows = [row for line in comparison.lines for row in _rows(comparison, line)]
        return pd.DataFrame([*rows, *plotting.iqm_rows(comparison.lines, rows)])

    def draw(self, comparison: Comparison, table: pd.DataFrame) -> Canvas:
        """Draw the phase strip over the curves."""
        canvas = plotting.new_canvas(3.0)
        strip, axes = canvas.subplots(2, 1, height_ratios=(1, 9))
        plotting.phase_strip(strip, comparison)
        plotting.remark(strip, comparison.note)
        handles = plotting.draw_lines(axes, comparison.lines, table)
        handles += plotting.mark_drifts(axes, comparison)
        axes.set_xlim(0, plotting.horizon(comparison))
        axes.set_ylim(bottom=min(0.0, table["value"].min()))
        plotting.counts(axes)
        plotting.counts(axes, "y")
        axes.set_xlabel(plotting.x_label(comparison))
        axes.set_ylabel("cumulative regret\n(score)")
        plotting.legend_below(canvas, handles)
        return canvas


def _rows(comparison: Comparison, line: Line) -> list[dict[str, Any]]:
    rows = []
    for run in line.drawn:
        lost = run.columns["oracle"] - run.columns["score"]
        total = np.where(np.isfinite(lost), lost, 0.0).cumsum()
        x = plotting.positions(comparison, run)
        for place in range(run.shown_bins(comparison.options)):
            last = min((place + 1) * comparison.options.bin, run.episodes) - 1
            rows.append(
                {"kind": "seed", "line": line.label, "seed": run.seed, "bin": place, "x": float(x[place]),
                 "value": float(total[last])}
            )  # fmt: skip
    return rows
