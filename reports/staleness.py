"""Staleness of what was trained on, and how long batches hold episodes of the phase before.

Staleness is the trainer's version at consumption minus the version of the trajectory's oldest token. Right: the
share of a batch that was dispatched in an earlier phase, from the first batch with an episode of the new phase;
the mean over drifts and seeds.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Canvas

from sao_bench import plotting
from sao_bench.plotting import Figure
from sao_bench.report import Comparison, Line

AFTER = 8
"""Batches followed after a drift."""


class Staleness(Figure):
    """Histogram of staleness beside the phase mix of batches after a drift."""

    name = "staleness"
    title = "Staleness at consumption, and old-phase episodes in the batches after a drift"
    needs = "an update"
    order = 60

    def table(self, comparison: Comparison) -> pd.DataFrame:
        """Return rows of kind `staleness` (share of trajectories) and `old_phase` (share of a batch)."""
        rows: list[dict[str, Any]] = []
        for line in comparison.lines:
            rows += [*_histogram(line), *_old_phase(line)]
        return pd.DataFrame(rows)

    def draw(self, comparison: Comparison, table: pd.DataFrame) -> Canvas:
        """Draw both panels."""
        canvas = plotting.new_canvas(2.6)
        left, right = canvas.subplots(1, 2)
        looks = plotting.looks(comparison.lines)
        width = 0.8 / len(comparison.lines)
        handles = []
        for place, line in enumerate(comparison.lines):
            look, mine = looks[line.label], table[table["line"] == line.label]
            bars = mine[mine["kind"] == "staleness"]
            shift = (place - (len(comparison.lines) - 1) / 2) * width
            drawn = left.bar(bars["x"] + shift, bars["value"], width, color=look.colour, label=line.label)
            handles.append(drawn)
            mix = mine[mine["kind"] == "old_phase"]
            right.plot(mix["x"], mix["value"], **look.drawn)
        left.set_xlabel("staleness (policy versions)")
        left.set_ylabel("share of trajectories")
        left.xaxis.get_major_locator().set_params(integer=True)
        right.set_xlabel("batches since the first of the new phase")
        right.set_ylabel("share of batch\nfrom earlier phases")
        right.set_ylim(-0.03, 1.03)
        if not (table["kind"] == "old_phase").any():
            right.text(0.5, 0.5, "no drift reached yet", ha="center", transform=right.transAxes)
        plotting.legend_below(canvas, handles)
        return canvas


def _histogram(line: Line) -> list[dict[str, Any]]:
    total: Counter[int] = Counter()
    for run in line.runs:
        for update in run.updates:
            total.update({int(value): count for value, count in update["staleness"]["hist"].items()})
    return [
        {"kind": "staleness", "line": line.label, "x": value, "value": count / total.total(), "n": count}
        for value, count in sorted(total.items())
    ]


def _old_phase(line: Line) -> list[dict[str, Any]]:
    shares: dict[int, list[float]] = {}
    for run in line.runs:
        mixes = [{int(p): n for p, n in update["phase_mix"].items()} for update in run.updates]
        newest = np.maximum.accumulate([max(mix) for mix in mixes]) if mixes else np.empty(0, int)
        for first in (i for i in range(1, len(mixes)) if newest[i] > newest[i - 1]):
            for since, mix in enumerate(mixes[first : first + AFTER]):
                old = sum(count for phase, count in mix.items() if phase < newest[first])
                shares.setdefault(since, []).append(old / sum(mix.values()))
    return [
        {
            "kind": "old_phase",
            "line": line.label,
            "x": since,
            "value": float(np.mean(values)),
            "n": len(values),
        }
        for since, values in sorted(shares.items())
    ]
