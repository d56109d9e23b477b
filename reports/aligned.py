"""Curves aligned on the drift: every drift at zero, so that depth and speed can be compared.

Bins are counted from the drift itself, backwards and forwards, as for recovery time and dip.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure as Canvas

from sao_bench import plotting
from sao_bench.outcomes import aligned
from sao_bench.plotting import GREY, Figure
from sao_bench.report import Comparison, Line

PANELS = 9
"""Most drifts drawn; the CSV has all."""


class Aligned(Figure):
    """A panel per drift: normalised score against episodes since the drift."""

    name = "aligned"
    title = "Adaptation curves aligned on the drift"
    needs = "a run that has passed a real drift"
    order = 20

    def table(self, comparison: Comparison) -> pd.DataFrame:
        """Return rows of kind `seed` and `iqm`; x is episodes since the drift."""
        rows = [row for line in comparison.lines for row in _rows(comparison, line)]
        return pd.DataFrame([*rows, *plotting.iqm_rows(comparison.lines, rows, "phase")])

    def draw(self, comparison: Comparison, table: pd.DataFrame) -> Canvas:
        """Draw a panel per drift."""
        phases = sorted(table["phase"].unique())[:PANELS]
        canvas = plotting.new_canvas(plotting.panel_height(len(phases)))
        panels = plotting.panels(canvas, len(phases), "episodes since the drift", "normalised score n")
        handles: list[Any] = []
        for axes, phase in zip(panels, phases, strict=True):
            label = comparison.schedule.phases[int(phase)]["label"].partition(" ")[2].removeprefix("= ")
            axes.set_title(f"drift {phase:.0f}" + (f": {label}" if 0 < len(label) < 24 else ""), loc="left")
            axes.axvline(0, color=plotting.REAL, linewidth=0.9, zorder=0.5)
            for level, dash in ((0.0, "--"), (1.0, "-")):
                axes.axhline(level, color=GREY, linewidth=0.7, linestyle=dash, zorder=0.5)
            handles = plotting.draw_lines(axes, comparison.lines, table[table["phase"] == phase], stops=False)
            plotting.counts(axes, most=3)
        plotting.legend_below(canvas, handles)
        plotting.note(canvas, comparison.note)
        return canvas


def _rows(comparison: Comparison, line: Line) -> list[dict[str, Any]]:
    options, rows = comparison.options, []
    for run in line.drawn:
        for drift in comparison.outcomes[run.run.folder][1]:
            before, curve = aligned(run, drift.start, drift.end, options)
            rows += [
                {
                    "kind": "seed",
                    "line": line.label,
                    "seed": run.seed,
                    "phase": drift.phase,
                    "bin": place - before,
                    "x": (place - before + 0.5) * options.bin,
                    "value": float(value),
                }
                for place, value in enumerate(curve)
            ]
    return rows
