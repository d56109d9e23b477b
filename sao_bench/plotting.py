"""How figures look and how they are saved: the same colours, dashes and markers, and the same bytes, each time."""

from __future__ import annotations

import io
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from sao_bench.report import Report, json_bytes
from sao_bench.statistics import bootstrap, iqm

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from sao_bench.report import Comparison, Line
    from sao_bench.run_data import RunData

WIDTH = 6.75
"""Inches: two columns of a paper."""

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.labelsize": 8.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.axisbelow": True,
    "lines.linewidth": 1.4,
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.hashsalt": "sao_bench",
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "figure.facecolor": "white",
    "path.simplify": True,
}


@dataclass(frozen=True)
class Look:
    """Colour (Okabe and Ito 2008), dash and marker of one line."""

    colour: str
    dash: Any
    marker: str

    @property
    def drawn(self) -> dict[str, Any]:
        """Keyword arguments of `Axes.plot`."""
        return {"color": self.colour, "linestyle": self.dash, "marker": self.marker, "markersize": 4}


LOOKS: dict[str, Look] = {
    "sao": Look("#0072B2", "-", "o"),
    "running_mean": Look("#E69F00", (0, (5, 1.5)), "s"),
    "grpo_dis": Look("#009E73", (0, (5, 1.5, 1, 1.5)), "^"),
    "grpo_clip_higher": Look("#D55E00", (0, (1.5, 1)), "D"),
    "grpo": Look("#CC79A7", (0, (3, 1, 1, 1, 1, 1)), "v"),
    "ppo_critic": Look("#56B4E9", (0, (8, 2)), "P"),
    "reinforce": Look("#000000", (0, (1, 2)), "X"),
}
"""Fixed by name, so that an algorithm looks the same in every figure of every report."""

OTHERS = (
    Look("#CC79A7", (0, (3, 1, 1, 1, 1, 1)), "v"),
    Look("#56B4E9", (0, (8, 2)), "P"),
    Look("#000000", (0, (1, 2)), "X"),
    Look("#D55E00", (0, (6, 1, 1, 1)), "<"),
    Look("#009E73", "-", ">"),
    Look("#0072B2", (0, (2, 2)), "h"),
    Look("#E69F00", "-", "d"),
)
"""For all other names, in alphabetical order."""

GREY = "#6E6E6E"
REAL = "#444444"
VIRTUAL = "#B5B5B5"


def looks(lines: Sequence[Line]) -> dict[str, Look]:
    """Return the look of every line by its label."""
    taken = {LOOKS[line.label] for line in lines if line.label in LOOKS}
    free = [look for look in OTHERS if look not in taken] or list(OTHERS)
    rest = sorted(line.label for line in lines if line.label not in LOOKS)
    found = {**LOOKS, **{label: _other(i, free) for i, label in enumerate(rest)}}
    return {line.label: found[line.label] for line in lines}


def _other(i: int, free: Sequence[Look]) -> Look:
    """Return the i-th look; after one round of colours they meet other dashes and markers."""
    count = len(free)
    turn, place = divmod(i, count)
    dash, marker = free[(place + 2 * turn) % count].dash, free[(place + turn) % count].marker
    return Look(free[place].colour, dash, marker)


class Figure(Report):
    """A figure: PDF, PNG, the CSV that it is drawn from, and a JSON sidecar naming runs and command."""

    title: ClassVar[str] = ""
    """What it shows, in a few words."""

    @abstractmethod
    def table(self, comparison: Comparison) -> pd.DataFrame:
        """Return the data in long form; no rows if it does not suffice."""

    @abstractmethod
    def draw(self, comparison: Comparison, table: pd.DataFrame) -> Canvas:
        """Draw the table."""

    def files(self, comparison: Comparison) -> dict[str, bytes]:
        """Return the four files."""
        table = self.table(comparison)
        if table.empty:
            return {}
        sidecar = {"figure": self.name, "title": self.title, **comparison.sidecar()}
        return figure_files(self.name, lambda: self.draw(comparison, table), table, sidecar)


def figure_files(
    name: str, draw: Callable[[], Canvas], table: pd.DataFrame, sidecar: Mapping[str, Any]
) -> dict[str, bytes]:
    """Return the four files of a figure: PNG, PDF, the CSV that it is drawn from, the JSON sidecar."""
    with matplotlib.rc_context(STYLE):  # type: ignore[arg-type]
        canvas = draw()
        png = _rendered(canvas, "png")
        canvas.set_layout_engine("none")  # Laid out already; once more takes as long as the drawing.
        pdf = _rendered(canvas, "pdf")
    return {
        f"{name}.png": png,
        f"{name}.pdf": pdf,
        f"{name}.csv": csv_bytes(table),
        f"{name}.json": json_bytes(sidecar),
    }


def csv_bytes(table: pd.DataFrame) -> bytes:
    """Return a table as CSV with nine significant digits."""
    return bytes(table.to_csv(index=False, float_format="%.9g", lineterminator="\n").encode())


def _rendered(canvas: Canvas, kind: str) -> bytes:
    buffer = io.BytesIO()
    dates_off = {"CreationDate": None} if kind == "pdf" else {"Software": None}
    canvas.savefig(buffer, format=kind, metadata=dates_off, bbox_inches=None)
    return buffer.getvalue()


def new_canvas(height: float, width: float = WIDTH) -> Canvas:
    """Return an empty figure of a size in inches."""
    canvas = Canvas(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(canvas)
    return canvas


def counts(axes: Axes, which: str = "x", most: int = 6) -> None:
    """Write an axis' ticks as whole numbers with thousands set apart."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(most, integer=True))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def mark_every(points: int, place: int = 0) -> tuple[int, int]:
    """Return `markevery` for about eight markers, shifted so that lines on one another stay legible."""
    every = max(1, points // 8)
    return (place * every // 4 % every, every)


def horizon(comparison: Comparison) -> float:
    """Return where the x axis ends: the schedule's end, or where all runs were told to stop."""
    untils = [run.manifest.get("config", {}).get("until") for run in comparison.runs]
    if comparison.by_episode and all(untils):
        return float(min(max(untils), comparison.schedule.horizon))
    return float(comparison.schedule.horizon)


def mark_drifts(axes: Axes, comparison: Comparison) -> list[Artist]:
    """Draw a rule per jump and a span per window, virtual ones lighter; returns handles for a legend."""
    changes = [change for change in comparison.schedule.changes if change["start"] < horizon(comparison)]
    handles: dict[str, Artist] = {}
    faint = 0.35 if len(changes) > 60 else 1.0
    for change in sorted(changes, key=lambda change: change["drift"] == "real"):
        real = change["drift"] == "real"
        colour = REAL if real else VIRTUAL
        kind = "real drift" if real else "virtual drift"
        if change["start"] == change["end"]:
            rule: dict[str, Any] = {
                "color": colour,
                "linestyle": "-" if real else ":",
                "linewidth": 0.9 if real else 1.1,
            }
            axes.axvline(change["start"], alpha=faint, zorder=0.5, **rule)
            handles.setdefault(f"{kind} (jump)", Line2D([], [], **rule))
        else:
            span: dict[str, Any] = {"facecolor": colour, "alpha": 0.16 * faint, "linewidth": 0}
            axes.axvspan(change["start"], change["end"], zorder=0.4, **span)
            handles.setdefault(f"{kind} (gradual)", Patch(**span))
    for label, handle in handles.items():
        handle.set_label(label)
    return list(handles.values())


def phase_strip(axes: Axes, comparison: Comparison) -> None:
    """Draw the phases as a strip of boxes with as much of their labels as fits."""
    end = horizon(comparison)
    phases = [phase for phase in comparison.schedule.phases if phase["start"] < end]
    axes.set_xlim(0, end)
    axes.set_ylim(0, 1)
    axes.axis("off")
    shared = _shared_channel([phase["label"] for phase in phases])
    title = f"{comparison.schedule.id}, phases" + (f": {shared}" if shared else "")
    axes.set_title(title, loc="left", fontsize=8, color=GREY, pad=2)
    for phase in phases:
        left, right = phase["start"], min(phase["end"], end)
        colour = ("#E4E4E4", "#F6F6F6")[phase["index"] % 2]
        axes.axvspan(left, right, facecolor=colour, edgecolor="white", linewidth=0.8)
        label = phase["label"]
        short = label.replace(f"{shared} = ", "").replace(f"{shared} ", "") if shared else label
        room = int((right - left) / end * WIDTH * 0.85 / CHARACTER)
        text = next((t for t in (short, f"{phase['index']}") if len(t) <= room), "")
        if len(short) > room >= 8:
            text = short[: room - 1] + "…"
        axes.text((left + right) / 2, 0.47, text, ha="center", va="center", fontsize=8, clip_on=True)


def _shared_channel(labels: Iterable[str]) -> str:
    """Return the channel that all labels begin with, if there is one."""
    channels = {label.partition(" ")[0] for label in labels}
    return channels.pop() if len(channels) == 1 and "stationary" not in channels else ""


def line_name(line: Line) -> str:
    """Return a line's name in a legend, with what is unfinished about it."""
    name = line.label if len(line.runs) == 1 else f"{line.label} ({len(line.runs)} seeds)"
    return name if all(run.finished for run in line.runs) else f"{name}: {line.state}"


CHARACTER = 0.064
"""Inches that a character takes at 8 points, about."""


def legend_below(canvas: Canvas, handles: Sequence[Artist]) -> None:
    """Put the legend under the axes, where it covers nothing; the figure grows by its rows."""
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = max(1, min(4, len(handles), int(WIDTH / (CHARACTER * longest + 0.55))))
    canvas.set_figheight(canvas.get_figheight() + 0.17 * (-(-len(handles) // columns) - 1))
    # A legend is filled column by column; this order reads row by row.
    by_row = [handle for column in range(columns) for handle in handles[column::columns]]
    canvas.legend(handles=by_row, loc="outside lower center", ncols=columns)


def panels(canvas: Canvas, count: int, x_label: str, y_label: str) -> list[Axes]:
    """Return `count` axes, up to three a row, that share their scales; labels stand at the outer edges."""
    columns = min(3, count)
    rows = -(-count // columns)
    grid = canvas.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for place, axes in enumerate(grid.flat):
        axes.set_visible(place < count)
        if place + columns >= count:
            axes.set_xlabel(x_label)
            axes.tick_params(labelbottom=True)
    for axes in grid[:, 0]:
        axes.set_ylabel(y_label)
    return list(grid.flat[:count])


def panel_height(count: int) -> float:
    """Return the height in inches of a figure of `panels`."""
    return 0.8 + 1.9 * -(-count // 3)


def note(canvas: Canvas, text: str) -> None:
    """Write a remark in the figure's upper right corner."""
    if text:
        canvas.suptitle(text, x=0.99, ha="right", fontsize=8, color=GREY, style="italic")


def remark(axes: Axes, text: str) -> None:
    """Write a remark over the axes' right edge."""
    axes.set_title(text, loc="right", fontsize=8, color=GREY, style="italic", pad=2)


def positions(comparison: Comparison, run: RunData) -> NDArray[np.float64]:
    """Return the x of each bin of a run's curve: its middle in episodes, or its mean tick of another clock."""
    if not comparison.by_episode:
        return run.binned("t", comparison.options)
    starts = np.arange(0, run.episodes, comparison.options.bin)
    return (starts + np.minimum(starts + comparison.options.bin, run.episodes)) / 2


def x_label(comparison: Comparison) -> str:
    """Return the label of the time axis."""
    return (
        "dispatched episodes"
        if comparison.by_episode
        else f"clock of the schedule: {comparison.schedule.clock}"
    )


def iqm_rows(
    lines: Sequence[Line], rows: Sequence[dict[str, Any]], *by: str, band: bool = True
) -> list[dict[str, Any]]:
    """Aggregate rows of kind `seed` over seeds: one row of kind `iqm` per place that every run has reached.

    A place is a `bin` (and the other columns of `by`); a line of a single run has none. `band` adds the 95%
    bootstrap interval as `low` and `high`.
    """
    found = []
    for line in lines:
        mine = pd.DataFrame([row for row in rows if row["line"] == line.label])
        if len(line.drawn) < 2 or mine.empty:
            continue
        for place, points in mine.groupby([*by, "bin"]):
            if len(points) == len(line.drawn):
                values = points["value"].to_numpy()
                interval = bootstrap(values) if band else None
                found.append(
                    {
                        "kind": "iqm",
                        "line": line.label,
                        **dict(zip((*by, "bin"), place, strict=True)),
                        "x": points["x"].mean(),
                        "value": interval.point if interval else iqm(values),
                        **({"low": interval.low, "high": interval.high} if interval else {}),
                    }
                )
    return found


def draw_lines(axes: Axes, lines: Sequence[Line], table: pd.DataFrame, stops: bool = True) -> list[Artist]:
    """Draw the rows `seed` and `iqm`, a cross where an unfinished run stops; returns handles for a legend.

    Of several seeds the single ones and the band are drawn if there is a band.
    """
    by_label = looks(lines)
    handles: list[Artist] = []
    for place, line in enumerate(lines):
        mine, look = table[table["line"] == line.label], by_label[line.label]
        seeds = mine[mine["kind"] == "seed"]
        main = mine[mine["kind"] == "iqm"] if len(line.drawn) > 1 else seeds
        if len(line.drawn) > 1 and "low" in table:
            for _, one in seeds.groupby("seed"):
                axes.plot(one["x"], one["value"], color=look.colour, linewidth=0.5, alpha=0.45, zorder=1.5)
            axes.fill_between(main["x"], main["low"].astype(float), main["high"].astype(float),
                              color=look.colour, alpha=0.18, linewidth=0, zorder=1.4)  # fmt: skip
        axes.plot(main["x"], main["value"], markevery=mark_every(len(main), place), **look.drawn)
        if stops:
            _mark_stops(axes, line, seeds, look.colour)
        handles.append(Line2D([], [], label=line_name(line), **look.drawn))
    return handles


def _mark_stops(axes: Axes, line: Line, seeds: pd.DataFrame, colour: str) -> None:
    """Put a cross where an unfinished run stops."""
    for run in line.drawn:
        if not run.finished:
            last = seeds[seeds["seed"] == run.seed].iloc[-1]
            axes.plot(
                last["x"], last["value"], "x", color=colour, markersize=8, markeredgewidth=1.8, zorder=4
            )
