"""A schedule in the terminal: one line of Unicode per channel, and its tables."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Any

import numpy as np
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from sao_bench.drift.bins import Binned, binned
from sao_bench.drift.schedule import DriftSchedule, show

BARS = "▁▂▃▄▅▆▇█"
COLOURS = ("blue", "yellow", "green", "magenta", "cyan", "red", "white", "bright_black")
MAX_VALUES = 8
"""Most values of a channel that are told apart in a table; with more the channel slides."""
MAX_RUNS = 300_000
"""Most stretches of equal concepts that are counted for a table."""
MAX_ROWS = 30
"""Most lines of a table; more are summed up in one."""


def strip(schedule: DriftSchedule, width: int) -> Group:
    """Return one line per channel over `width` cells, with lines for phases and probes.

    A choice or a mixture shows the letter of what is met most in a cell, a number a bar between its smallest
    and largest value. `●` marks a real channel, `○` a virtual one.
    """
    names = [track.channel.name for track in schedule.tracks]
    label = max([len(name) for name in names] + [6]) + 3
    cells = max(20, min(width - label - 2, schedule.horizon))
    lines = [Text("phase".ljust(label)) + _phase_line(schedule, cells)]
    for track in schedule.tracks:
        mark = "●" if track.channel.kind == "real" else "○"
        line, key = _channel_line(binned(schedule, track, cells))
        lines.append(Text(f"{mark} {track.channel.name}".ljust(label)) + line)
        lines.append(Text(" " * label) + Text(key, style="dim"))
    if schedule.probe:
        every = schedule.probe.every
        row = [" "] * cells
        for t in range(every, schedule.horizon + 1, every):
            row[min(cells - 1, t * cells // schedule.horizon)] = "▲"
        lines.append(Text("probe".ljust(label) + "".join(row)))
    lines.append(Text("● real: the right answer changes   ○ virtual: only what is seen changes", style="dim"))
    return Group(*lines)


def _phase_line(schedule: DriftSchedule, cells: int) -> Text:
    row = ["─"] * cells
    for phase in schedule.phases():
        i = min(cells - 1, phase.start * cells // schedule.horizon)
        for j, character in enumerate(f"│{phase.index}"):
            if i + j < cells:
                row[i + j] = character
    return Text("".join(row))


def _channel_line(found: Binned) -> tuple[Text, str]:
    if not found.names:
        low, high = float(found.low.min()), float(found.high.max())
        scale = (found.mean - low) / (high - low) if high > low else np.zeros(len(found.mean))
        line = "".join(BARS[min(7, int(8 * share))] for share in scale)
        return Text(line, style=COLOURS[0]), f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
    letters = _letters(found.names)
    text = Text()
    for i in np.argmax(found.shares, axis=0):
        text.append(letters[i], style=f"{COLOURS[i % len(COLOURS)]} reverse")
    return text, "  ".join(f"{letter} {name}" for letter, name in zip(letters, found.names, strict=True))


def _letters(names: tuple[str, ...]) -> list[str]:
    """Return a letter of its own for each name: one that the name contains, if any is left."""
    letters: list[str] = []
    for name in names:
        wanted = [*name.lower(), *name.upper(), *"abcdefghijklmnopqrstuvwxyz0123456789"]
        letters.append(next(c for c in wanted if c.isalnum() and c not in letters))
    return letters


def tables(schedule: DriftSchedule) -> Group:
    """Return the tables of phases and of concepts with their exact counts, and the variation budget.

    Concepts that differ only in channels that slide or wander are counted together.
    """
    if sum(1 for _ in islice(schedule.runs(), MAX_RUNS)) == MAX_RUNS:
        note = f"Concepts change more than {MAX_RUNS:,} times: too many to count here (describe() does)."
        return Group(_phases(schedule, {}), Text(note), _budget(schedule))
    about = schedule.describe()
    groups = _groups(schedule, about["concepts"])
    name_of = {entry["hash"]: name for name, (entries, _) in groups.items() for entry in entries}
    counts: dict[int, Counter[str]] = {}
    for phase in about["phases"]:
        own = counts[phase["index"]] = Counter()
        for concept, ticks in phase["concepts"].items():
            own[name_of[concept]] += ticks
    concepts = Table("concept", "episodes", "values of what moves", title="Concepts")
    for name, (entries, held) in list(groups.items())[:MAX_ROWS]:
        concepts.add_row(name, str(sum(entry["ticks"] for entry in entries)), held)
    if others := list(groups.values())[MAX_ROWS:]:
        ticks = sum(entry["ticks"] for entries, _ in others for entry in entries)
        concepts.add_row("…", str(ticks), f"{len(others)} more concepts")
    return Group(_phases(schedule, counts), concepts, _budget(schedule))


def _phases(schedule: DriftSchedule, counts: dict[int, Counter[str]]) -> Table:
    phases = schedule.phases()
    table = Table(
        "phase",
        "from",
        "to",
        "episodes" if schedule.clock == "episode" else f"ticks of {schedule.clock}",
        "opened by",
        "concepts",
        title="Phases",
    )
    for phase in phases[:MAX_ROWS]:
        own = list(counts.get(phase.index, {}).items())
        shown = ", ".join(f"{name} {count}" for name, count in own[:4])
        more = f" and {len(own) - 4} more" if len(own) > 4 else ""
        length = phase.end - phase.start
        table.add_row(*map(str, (phase.index, phase.start, phase.end, length, phase.label, shown + more)))
    if (rest := len(phases) - MAX_ROWS) > 0:
        table.add_row("…", "", "", "", f"{rest} more phases", "")
    return table


def _groups(schedule: DriftSchedule, concepts: list[dict[str, Any]]) -> dict[str, tuple[list, str]]:
    """Return groups of concepts that differ only in what slides: name to (concepts, values in words)."""
    moving = [track.channel.name for track in schedule.tracks if track.moves]
    distinct = {name: {show(entry["values"][name]) for entry in concepts} for name in moving}
    still = [name for name in moving if len(distinct[name]) <= MAX_VALUES]
    groups: dict[str, list[dict[str, Any]]] = {}
    for entry in concepts:
        held = ", ".join(f"{name} = {show(entry['values'][name])}" for name in still)
        groups.setdefault(held, []).append(entry)
    named = {}
    for i, (held, entries) in enumerate(groups.items()):
        sliding = [f"{name} slides" for name in moving if name not in still]
        named[f"c{i}"] = (entries, ", ".join([held, *sliding] if held else sliding) or "as started")
    return named


def _budget(schedule: DriftSchedule) -> Table:
    budget = schedule.variation_budget()
    table = Table("channel", "drift", "variation", title="Variation budget")
    for channel in schedule.channels:
        table.add_row(channel.name, channel.kind, f"{budget['channels'][channel.name]:.4g}")
    table.add_section()
    total = f"{budget['total']:.4g}"
    table.add_row("all", f"real {budget['real']:.4g}, virtual {budget['virtual']:.4g}", total)
    return table


def print_preview(schedule: DriftSchedule, console: Console) -> None:
    """Print the strip and the tables."""
    console.print(strip(schedule, console.width))
    console.print(tables(schedule))
