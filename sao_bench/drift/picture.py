"""The picture of a schedule: every channel over the horizon, phases, probes, real and virtual drift."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from sao_bench.drift.bins import Binned, binned
from sao_bench.drift.schedule import DriftSchedule
from sao_bench.drift.track import Track

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
"""The palette of Okabe and Ito (2008), with grey for black, which the marks have."""

KINDS = {"real": ("#D55E00", ""), "virtual": ("#56B4E9", "////")}
"""Colour and hatch of the bar beside a channel."""

STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.linewidth": 0.6,
    "hatch.linewidth": 0.8,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
}
WIDTH, ROW, STILL_ROW, PHASE_ROW, MARGIN = 6.75, 0.72, 0.42, 0.3, 1.05
BINS = 480
MAX_LABELLED = 40
"""Most phases that are drawn as labelled blocks; more are drawn as lines."""


def draw(schedule: DriftSchedule, path: Path) -> None:
    """Write the picture of a schedule as a PNG of 6.75 inches; equal schedules give equal bytes."""
    heights = [PHASE_ROW, *(ROW if track.moves else STILL_ROW for track in schedule.tracks)]
    height = MARGIN + sum(heights)
    colours: dict[str, str] = {}
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            len(heights),
            1,
            figsize=(WIDTH, height),
            sharex=True,
            squeeze=False,
            gridspec_kw={"height_ratios": heights, "hspace": 0.22},
        )
        figure.subplots_adjust(left=0.24, right=0.84, top=1 - 0.3 / height, bottom=0.72 / height)
        _phases(axes[0, 0], schedule)
        for ax, track in zip(axes[1:, 0], schedule.tracks, strict=True):
            _channel(ax, schedule, track, colours)
        _probes(axes[-1, 0], schedule)
        axes[-1, 0].set_xlabel(f"t [{schedule.clock}]", labelpad=1)
        axes[-1, 0].set_xlim(0, schedule.horizon)
        budget = schedule.variation_budget()
        axes[0, 0].set_title(
            f"{schedule.id}: {len(schedule.phases())} phases, variation budget {budget['real']:.3g} real + "
            f"{budget['virtual']:.3g} virtual",
            loc="left",
        )
        _legend(figure, schedule)
        figure.savefig(path, dpi=200, metadata={"Software": None})
        plt.close(figure)


def _phases(ax: Any, schedule: DriftSchedule) -> None:
    ax.set_yticks([])
    ax.set_ylim(0, 1)
    _side(ax, "phase", None)
    phases = schedule.phases()
    if len(phases) > MAX_LABELLED:
        ax.vlines([phase.start for phase in phases], 0, 1, color="black", linewidth=0.3)
        return
    for phase in phases:
        shade = "#D9D9D9" if phase.index % 2 else "#F2F2F2"
        ax.axvspan(phase.start, phase.end, color=shade, linewidth=0)
        if phase.end - phase.start > 0.02 * schedule.horizon:
            ax.text((phase.start + phase.end) / 2, 0.46, str(phase.index), ha="center", va="center")


def _channel(ax: Any, schedule: DriftSchedule, track: Track, colours: dict[str, str]) -> None:
    found = binned(schedule, track, BINS)
    _side(ax, track.channel.name.replace("reward.preference.", "…preference."), track.channel.kind)
    if found.names:
        for name in found.names:  # a value has one colour in all rows
            colours.setdefault(name, OKABE_ITO[len(colours) % len(OKABE_ITO)])
        _shares(ax, found, [colours[name] for name in found.names])
    else:
        _numbers(ax, found, track)
    if track.channel.kind == "real":
        ticks = track.openings()
        if len(ticks) <= MAX_LABELLED:
            for tick in ticks[ticks > 0]:
                ax.axvline(tick, color="black", linewidth=0.9)


def _shares(ax: Any, found: Binned, colours: list[str]) -> None:
    edges = np.repeat(found.edges, 2)[1:-1]
    layers = ax.stackplot(edges, np.repeat(found.shares, 2, axis=1), colors=colours, linewidth=0)
    ax.set_ylim(0, 1)
    ax.set_yticks([])
    ax.legend(
        layers[::-1],
        found.names[::-1],
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        frameon=False,
        handlelength=0.8,
        handleheight=0.8,
        labelspacing=0.1,
        borderpad=0,
    )


def _numbers(ax: Any, found: Binned, track: Track) -> None:
    edges = np.repeat(found.edges, 2)[1:-1]
    dashes = "-" if track.channel.kind == "real" else (0, (4, 1.5))
    ax.fill_between(
        edges, np.repeat(found.low, 2), np.repeat(found.high, 2), color=OKABE_ITO[0], alpha=0.3, linewidth=0
    )
    ax.plot(edges, np.repeat(found.mean, 2), color=OKABE_ITO[0], linewidth=1.1, linestyle=dashes)
    low, high = float(found.low.min()), float(found.high.max())
    pad = 0.12 * (high - low) or 0.5 * abs(high) or 0.5
    ax.set_ylim(low - pad, high + pad)
    ax.yaxis.tick_right()
    ax.set_yticks([low, high] if high > low else [low])
    ax.set_yticklabels([f"{tick:.3g}" for tick in ax.get_yticks()])


def _side(ax: Any, name: str, kind: str | None) -> None:
    ax.set_ylabel(name, rotation=0, ha="right", va="center", labelpad=12)
    ax.tick_params(axis="x", length=0)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    if kind:
        colour, hatch = KINDS[kind]
        bar = Rectangle(
            (-0.022, 0), 0.014, 1, transform=ax.transAxes, clip_on=False, facecolor=colour, hatch=hatch,
            edgecolor="white" if hatch else colour, linewidth=0,
        )  # fmt: skip
        ax.add_patch(bar)


def _probes(ax: Any, schedule: DriftSchedule) -> None:
    ax.tick_params(axis="x", length=3)
    if schedule.probe:
        ticks = np.arange(schedule.probe.every, schedule.horizon + 1, schedule.probe.every)
        ax.plot(
            ticks, np.zeros(len(ticks)), "^", color="black", markersize=4, clip_on=False,
            transform=ax.get_xaxis_transform(), zorder=5,
        )  # fmt: skip


def _legend(figure: Any, schedule: DriftSchedule) -> None:
    handles: list[Any] = [
        Patch(facecolor=KINDS["real"][0], label="real: the right answer changes"),
        Patch(
            facecolor=KINDS["virtual"][0],
            hatch=KINDS["virtual"][1],
            edgecolor="white",
            label="virtual: only what is seen changes",
        ),
        Line2D([], [], color="black", linewidth=0.9, label="a phase opens"),
    ]
    if schedule.probe:
        handles.append(Line2D([], [], color="black", marker="^", markersize=4, linestyle="", label="probe"))
    figure.legend(
        handles=handles, loc="lower center", ncols=len(handles), frameon=False, handlelength=1.4,
        columnspacing=1.2, borderaxespad=0.2,
    )  # fmt: skip
