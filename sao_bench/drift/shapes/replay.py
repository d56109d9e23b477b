"""`replay`: a recorded trace."""

from __future__ import annotations

import csv
import math
from array import array
from bisect import bisect_right
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from sao_bench.drift.fields import MAX_TICKS, Key, canonical_value
from sao_bench.drift.shapes.base import FOREVER, Context, Distance, Held, Piece, Shape, Switching
from sao_bench.drift.yaml12 import Node, Place, resolve
from sao_bench.errors import UserError, did_you_mean
from sao_bench.files import read_text
from sao_bench.types import Channel, Value

Trace = tuple[tuple[int, Value], ...]


def read_trace(path: Path, node: Node, channel: Channel) -> Trace:
    """Read a CSV file with the header `t,value`; t counts ticks from the event's `at`, from 0, ascending.

    Raises:
        UserError: the file cannot be read, or a row is not what the channel can hold.
    """
    try:
        lines = read_text(path).splitlines()
    except UserError as error:
        raise node.error(f"trace: {error}") from error
    rows: list[tuple[int, Value]] = []
    reader = csv.reader(lines)
    if next(reader, None) != ["t", "value"]:
        raise Place(str(path), 1, 1).error("the first line of a trace must be `t,value`")
    for row in reader:
        place = Place(str(path), reader.line_num, 1)
        if len(row) != 2:
            raise place.error(f"found {len(row)} columns; allowed: two (t, value)")
        last = rows[-1][0] if rows else None
        rows.append((_tick(row[0].strip(), last, place), _value(row[1].strip(), channel, place)))
    if not rows or rows[0][0] != 0:
        raise Place(str(path), 2, 1).error("the first row of a trace must have t = 0 (ticks count from `at`)")
    return tuple(rows)


def _tick(text: str, last: int | None, place: Place) -> int:
    t = resolve(text)
    low = 0 if last is None else last + 1
    if not isinstance(t, int) or isinstance(t, bool) or not low <= t <= MAX_TICKS:
        raise place.error(f"t: found {text!r}; allowed: a whole number of at least {low} (ascending)")
    return t


def _value(text: str, channel: Channel, place: Place) -> Value:
    value: Any = text if channel.type == "choice" else resolve(text)
    if problem := channel.problem(value):
        raise place.error(f"channel `{channel.name}`: {problem}{did_you_mean(text, channel.choices)}")
    return canonical_value(value, channel)


class Traced(Piece):
    """Numbers of a trace, held or joined by straight lines."""

    shape = "replay"
    bare = True

    def __init__(self, context: Context, trace: Trace, linear: bool) -> None:
        self.start, self.end = context.start, context.start + trace[-1][0] + 1
        self.times = array("q", [context.start + t for t, _ in trace])
        self.path: list[Any] = [value for _, value in trace]
        self.linear = linear
        self.whole = context.channel.type == "int"
        self.origin = context.origin
        self.final = self.path[-1]

    def key(self, t: int) -> Hashable:
        """Return the number itself."""
        i = bisect_right(self.times, t) - 1
        if not self.linear or i + 1 == len(self.times):
            return self.path[i]
        u = (t - self.times[i]) / (self.times[i + 1] - self.times[i])
        value = between(self.path[i], self.path[i + 1], u)
        return math.floor(value + 0.5) if self.whole else value

    def decode(self, key: Any) -> Held:
        """Return the number."""
        return key

    def next_change(self, t: int) -> int:
        """Return the next tick, or the next row where rows are held."""
        after = bisect_right(self.times, t)
        if after == len(self.times):
            return FOREVER
        return t + 1 if self.linear else self.times[after]

    def openings(self) -> Sequence[int]:
        """Return the start: from there on the world follows the trace."""
        return (self.start,)

    def changes(self) -> Iterator[tuple[int, int, Held]]:
        """Yield the whole trace; it leads nowhere in particular."""
        yield self.start, self.end, None

    def variation(self, distance: Distance) -> float:
        """Return the length of the path."""
        return sum(distance(a, b) for a, b in zip([self.origin, *self.path], self.path, strict=False))

    def extremes(self) -> tuple[Held, ...]:
        """Return the smallest and the largest value."""
        return min(self.path), max(self.path)


def between(a: float, b: float, u: float) -> float:
    """Return the number at the fraction `u` of the way from a to b, never outside them."""
    value = a + (b - a) * u
    if a <= b:
        return b if value > b else value
    return b if value < b else value


class Replay(Shape):
    """The values of a CSV file."""

    name = "replay"
    summary = "the values of a CSV file (t, value), t counted from `at`; held or interpolated between rows"
    types: ClassVar = ("float", "int", "choice", "bool")
    keys: ClassVar = (
        Key("file", "text", "CSV file with the header t,value, beside the schedule"),
        Key("interpolate", "word", "between two rows", False, "hold", words=("hold", "linear")),
    )

    @classmethod
    def check(cls, params: dict[str, Any], node: Node, channel: Channel, folder: Path) -> None:
        """Read the trace; its content, not its name, is what the event is."""
        if params["interpolate"] == "linear" and channel.type not in ("float", "int"):
            raise node.value["interpolate"].error(
                f"`interpolate`: found linear; allowed: hold (channel `{channel.name}` is a {channel.type})"
            )
        params["trace"] = read_trace(folder / params.pop("file"), node.value["file"], channel)

    @classmethod
    def length(cls, params: dict[str, Any]) -> int:
        """Return the ticks up to and with the last row."""
        return params["trace"][-1][0] + 1

    @classmethod
    def scaled(cls, params: dict[str, Any], at: int, factor: float) -> dict[str, Any]:
        """Return the trace with its ticks scaled; of rows that fall together the last one counts."""
        rows = {round((at + t) * factor) - round(at * factor): value for t, value in params["trace"]}
        return params | {"trace": tuple(rows.items())}

    @classmethod
    def compile(cls, params: dict[str, Any], context: Context) -> Piece:
        """Return the trace."""
        trace: Trace = params["trace"]
        if context.channel.type in ("float", "int"):
            return Traced(context, trace, params["interpolate"] == "linear")
        values: Any = tuple(dict.fromkeys(value for _, value in trace))
        index = {value: i for i, value in enumerate(values)}
        states = np.array([index[value] for _, value in trace])
        times = context.start + np.array([t for t, _ in trace], dtype=np.int64)
        return Switching(cls.name, context.origin, int(times[-1]) + 1, times, states, values, opens=True)
