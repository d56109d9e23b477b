"""The adaptation curve: normalised prequential score over dispatched episodes, with the drifts marked.

One point is the mean over a bin of 128 episodes, in dispatch order, of `n = (J - b) / (J* - b)`: 1 is the best
policy of the concept then in force, 0 the best constant reply. Over several seeds the line is the interquartile
mean with a 95% bootstrap band, drawn as far as every run has come; thin lines are the seeds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from sao_bench import plotting
from sao_bench.plotting import GREY, Figure
from sao_bench.report import Comparison, Line

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes


class AdaptationCurve(Figure):
    """Score against episodes, one line per algorithm."""

    name = "adaptation_curve"
    title = "Adaptation curve: mean prequential score per bin, in dispatch order"
    needs = "a finished episode"
    order = 10

    def table(self, comparison: Comparison) -> pd.DataFrame:
        """Return rows of kind `seed`, `iqm` and `frozen_start`; `value` is what is drawn."""
        rows = [row for line in comparison.lines for row in _seed_rows(comparison, line)]
        return pd.DataFrame([*rows, *plotting.iqm_rows(comparison.lines, rows), *_frozen_rows(comparison)])

    def draw(self, comparison: Comparison, table: pd.DataFrame) -> Canvas:
        """Draw the phase strip over the curves."""
        canvas = plotting.new_canvas(3.5)
        strip, axes = canvas.subplots(2, 1, height_ratios=(1, 11))
        plotting.phase_strip(strip, comparison)
        handles = [*plotting.draw_lines(axes, comparison.lines, table), *_references(axes, comparison, table)]
        handles += plotting.mark_drifts(axes, comparison)
        axes.set_xlim(0, plotting.horizon(comparison))
        plotting.counts(axes)
        axes.set_xlabel(plotting.x_label(comparison))
        axes.set_ylabel(y_label(comparison))
        plotting.legend_below(canvas, handles)
        plotting.remark(strip, comparison.note)
        return canvas


def y_label(comparison: Comparison) -> str:
    """Return the label of the score axis."""
    size = comparison.options.bin
    if comparison.raw:
        return f"mean score J\nper {size} episodes"
    return f"normalised score n\nper {size} episodes"


def _seed_rows(comparison: Comparison, line: Line) -> list[dict[str, Any]]:
    """Return a row per run and bin."""
    options, rows = comparison.options, []
    for run in line.drawn:
        value = run.curve(options, raw=comparison.raw)
        columns = [plotting.positions(comparison, run), value, run.curve(options, raw=True)]
        columns += [run.binned(name, options) for name in ("oracle", "floor")]
        names = ("x", "value", "score", "oracle", "floor")
        for place in range(run.shown_bins(options)):
            point = {name: float(column[place]) for name, column in zip(names, columns, strict=True)}
            rows.append({"kind": "seed", "line": line.label, "seed": run.seed, "bin": place, **point})
    return rows


def _frozen_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """Return, per phase, the mean score of the starting policies on the phase's concept."""
    rows = []
    for phase in comparison.schedule.phases:
        measured = [run.frozen_start(phase["index"], comparison.raw) for run in comparison.runs]
        known = [value for value in measured if value is not None]
        if known:
            rows.append({"kind": "frozen_start", "x": phase["start"], "x_end": phase["end"],
                         "value": float(np.mean(known))})  # fmt: skip
    return rows


def _references(axes: Axes, comparison: Comparison, table: pd.DataFrame) -> list[Artist]:
    """Draw oracle, floor and the frozen starting policy; returns handles."""
    styles: dict[str, dict[str, Any]] = {
        "oracle J*": {"color": GREY, "linestyle": "-", "linewidth": 0.9},
        "floor b (best constant reply)": {"color": GREY, "linestyle": "--", "linewidth": 0.9},
    }
    seeds = table[table["kind"] == "seed"]
    bounds = seeds.groupby("bin")[["x", "oracle", "floor"]].mean()
    for (_, style), name, level in zip(styles.items(), ("oracle", "floor"), (1.0, 0.0), strict=True):
        if comparison.raw:
            axes.plot(bounds["x"], bounds[name], drawstyle="steps-mid", zorder=1, **style)
        else:
            axes.axhline(level, zorder=1, **style)
    frozen = table[table["kind"] == "frozen_start"]
    if len(frozen):
        label = "starting policy, frozen"
        styles[label] = {"color": "#9A6FB0", "linestyle": "-", "linewidth": 1.2}
        axes.hlines(frozen["value"], frozen["x"], frozen["x_end"], zorder=1.1, color="#9A6FB0", linewidth=1.2)
    return [Line2D([], [], label=label, **style) for label, style in styles.items()]
