"""Replication card: a row per comparison, its effect and interval in units of the smallest effect of interest.

Right of 0 is the claimed direction; the dotted rule is the smallest effect of interest. Not a `Report`: it is drawn
from a card (`python -m sao_bench replicate`), not from the runs of one schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from sao_bench import plotting

COLOURS = {"reproduced": "#009E73", "not reproduced": "#D55E00", "inconclusive": plotting.GREY}
MARKERS = {"reproduced": "o", "not reproduced": "X", "inconclusive": "s"}
LIMIT = 12.0
"""Effects beyond this many smallest effects of interest are drawn at the edge, as an arrow with the number."""


def figure(table: pd.DataFrame, sidecar: Mapping[str, Any], mark: str) -> dict[str, bytes]:
    """Return the figure's four files, `card.csv` (the card as a table) among them."""
    return plotting.figure_files("card", lambda: draw(table, mark), table, {"figure": "card", **sidecar})


def draw(table: pd.DataFrame, mark: str) -> Canvas:
    """Draw a row per comparison, claims from top to bottom."""
    canvas = plotting.new_canvas(0.9 + 0.3 * len(table))
    axes = canvas.subplots()
    places = np.arange(len(table))[::-1]
    axes.axvline(0, color=plotting.REAL, linewidth=0.8)
    axes.axvline(1, color=plotting.GREY, linewidth=0.8, linestyle=":")
    for y, row in zip(places, table.to_dict("records"), strict=True):
        _row(axes, float(y), row)
    axes.set_yticks(places, [_label(row) for row in table.to_dict("records")])
    axes.set_ylim(-0.7, len(table) - 0.3)
    axes.set_xlim(-LIMIT * 1.08, LIMIT * 1.08)
    axes.set_xlabel("effect in the claimed direction, in smallest effects of interest")
    handles = [
        Line2D([], [], color=COLOURS[name], marker=MARKERS[name], linestyle="-", label=name)
        for name in COLOURS
    ]
    plotting.legend_below(canvas, handles)
    plotting.note(canvas, mark)
    return canvas


def _row(axes: Any, y: float, row: Mapping[str, Any]) -> None:
    if row["effect"] is None or not np.isfinite(row["effect"]):
        axes.text(1.4, y, "not measured", va="center", color=plotting.GREY, fontsize=7.5)
        return
    colour = COLOURS[row["comparison_verdict"]]
    low, point, high = (float(row[name]) / row["least"] for name in ("low", "effect", "high"))
    axes.plot(np.clip([low, high], -LIMIT, LIMIT), [y, y], color=colour, linewidth=1.6)
    beyond = abs(point) > LIMIT
    marker = (">" if point > 0 else "<") if beyond else MARKERS[row["comparison_verdict"]]
    place = float(np.clip(point, -LIMIT, LIMIT))
    axes.plot(place, y, color=colour, marker=marker, markersize=5)
    if beyond:
        label: dict[str, Any] = {"ha": "right" if point > 0 else "left", "fontsize": 7, "color": colour}
        axes.text(place - np.sign(point) * 0.4, y + 0.12, f"{point:.0f}", va="bottom", **label)


def _label(row: Mapping[str, Any]) -> str:
    sides = [str(row["better"]), str(row["other"])]
    stage = next(side.partition("/")[0] for side in sides if "/" in side)
    better, other = (side.removeprefix(f"{stage}/") for side in sides)
    return f"({row['claim']})  {stage}: {better} over {other}, {row['metric']}"
