"""What every shape of drift is: keys in a file, and a piece of a channel's timeline once compiled."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np

from sao_bench.drift.fields import Key
from sao_bench.drift.yaml12 import Node
from sao_bench.seeding import generator
from sao_bench.types import Channel, Value

Held: TypeAlias = Value | None
"""What a layer holds: a value, or None where a `set` overlay lets the layer below show through."""

Distance: TypeAlias = Callable[[Held, Held], float]
"""How far two values of a channel lie apart, in [0, 1] of its range."""

FOREVER = sys.maxsize
MAX_DRAWS = 10_000_000
"""Most entries that one event may precompute."""
MANY = 64
"""Switches from which on every tick is looked up."""


@dataclass(frozen=True, slots=True)
class Context:
    """What an event needs to know to become a piece.

    Attributes:
        channel: what the layer's values are read against.
        origin: what the layer held at the last tick before the event (None: transparent).
        start: first tick of the event.
        end: first tick of the next event, or the horizon.
        seed: drift seed of the schedule.
        stream: canonical content of the channel and the event's position in it: two events with
            different content draw independently, comments and the order of channels change nothing.
    """

    channel: Channel
    origin: Held
    start: int
    end: int
    seed: int
    stream: str

    def generator(self) -> np.random.Generator:
        """Return the event's own generator."""
        return generator(self.seed, "drift", self.stream)


class Piece(ABC):
    """A stretch of one layer: a pure function of t, from `start` on.

    `key(t)` is a hashable name of what is held at t and `decode(key)` the value itself. Where only a few
    values are ever held, `table` lists them by key (an index), so that a concept is built once for every
    combination of keys.
    """

    shape: ClassVar[str]
    start: int
    end: int
    """First tick after the event's own window; `final` is held from there on."""
    table: tuple[Held, ...] | None = None
    """The values by key, if they are few."""
    bare: bool = False
    """Whether a key is the value itself."""
    column: Sequence[Any] | None = None
    """The keys laid out by tick, one for every `every` ticks from `start` on, where that pays."""
    every: int = 1
    final: Held
    """What is held once the event is over (at the last tick in force, for shapes without a window)."""

    def key(self, t: int) -> Hashable:
        """Return what names the value held at t."""
        assert self.column is not None, "a piece without a column has a key of its own"
        return self.column[(t - self.start) // self.every]

    @abstractmethod
    def decode(self, key: Any) -> Held:
        """Return the value that a key names."""

    @abstractmethod
    def next_change(self, t: int) -> int:
        """Return the first tick after t at which the key may differ."""

    def share(self, t: int) -> float:
        """Return how far the event has come at t: the probability of a mix, the progress of a ramp."""
        return 1.0

    def openings(self) -> Sequence[int]:
        """Return the ticks at which a phase opens if the channel is real, in order."""
        return ()

    def changes(self) -> Iterator[tuple[int, int, Held]]:
        """Yield each window of the event: first tick, first tick after it, value it leads to or None."""
        yield from ()

    @abstractmethod
    def variation(self, distance: Distance) -> float:
        """Return the path length of what is held, from the origin on (expected, for a mix)."""

    @abstractmethod
    def extremes(self) -> tuple[Held, ...]:
        """Return values between which everything held lies (for numbers: smallest and largest)."""


class Constant(Piece):
    """One value from `start` on: the beginning of a layer, a step, and what follows a window."""

    shape = "step"

    def __init__(self, start: int, value: Held, origin: Held, event: bool = False) -> None:
        self.start = self.end = start
        self.final = value
        self.table = (value,)
        self.origin = origin
        self.event = event

    def key(self, t: int) -> Hashable:
        """Return 0: there is one value."""
        return 0

    def decode(self, key: Any) -> Held:
        """Return the value."""
        return self.final

    def next_change(self, t: int) -> int:
        """Return the end of time."""
        return FOREVER

    def share(self, t: int) -> float:
        """Return 1 after an event and 0 before the first one."""
        return float(self.start > 0 or self.event)

    def openings(self) -> Sequence[int]:
        """Return the step's tick, if the value changes there."""
        return (self.start,) if self.event and self.final != self.origin else ()

    def changes(self) -> Iterator[tuple[int, int, Held]]:
        """Yield the step."""
        if self.event:
            yield self.start, self.start, self.final

    def variation(self, distance: Distance) -> float:
        """Return the distance that the step covers."""
        return distance(self.origin, self.final) if self.event else 0.0

    def extremes(self) -> tuple[Held, ...]:
        """Return the value."""
        return (self.final,)


class Switching(Piece):
    """Values that switch at given ticks: `values[states[i]]` is held from `times[i]` to `times[i + 1]`.

    A tick at which the state is drawn again and stays is no switch.
    """

    def __init__(
        self,
        shape: str,
        origin: Held,
        end: int,
        times: np.ndarray,
        states: np.ndarray,
        values: tuple[Held, ...],
        opens: bool,
    ) -> None:
        self.shape = shape  # type: ignore[misc]
        self.origin = origin
        real = np.diff(states, prepend=-1) != 0
        times, states = times[real], states[real]
        self.times = array("q", np.ascontiguousarray(times, np.int64).tobytes())
        self.states = array("I", np.ascontiguousarray(states, np.uint32).tobytes())
        self.table = self.values = values
        self.opens = opens
        self.start = self.times[0]
        self.end = end
        self.column = _column(times, states, end)
        self.final = values[self.states[-1]]

    def key(self, t: int) -> Hashable:
        """Return the index of the value in force."""
        if self.column is not None:
            return self.column[t - self.start]
        return self.states[bisect_right(self.times, t) - 1]

    def decode(self, key: Any) -> Held:
        """Return the value of an index."""
        return self.values[key]

    def next_change(self, t: int) -> int:
        """Return the next switch."""
        after = bisect_right(self.times, t)
        return self.times[after] if after < len(self.times) else FOREVER

    def openings(self) -> Sequence[int]:
        """Return the realised switches, the entry included if it changes the value."""
        if not self.opens:
            return ()
        entry = self.values[self.states[0]] != self.origin
        return self.times if entry else self.times[1:]

    def changes(self) -> Iterator[tuple[int, int, Held]]:
        """Yield each realised switch; for a blip or a burst each stay away from the origin."""
        for i, (start, state) in enumerate(zip(self.times, self.states, strict=True)):
            if self.opens:
                yield start, start, self.values[state]
            elif state:
                yield start, self.times[i + 1], self.values[state]

    def variation(self, distance: Distance) -> float:
        """Return the sum of the distances of all switches."""
        table = np.array([[distance(a, b) for b in self.values] for a in self.values])
        states = np.frombuffer(self.states, np.uint32)
        inner = float(table[states[:-1], states[1:]].sum()) if len(states) > 1 else 0.0
        return distance(self.origin, self.values[self.states[0]]) + inner

    def extremes(self) -> tuple[Held, ...]:
        """Return the values that are realised."""
        return tuple(self.values[i] for i in sorted(set(self.states)))


def _column(times: np.ndarray, states: np.ndarray, end: int) -> bytes | None:
    """Return the state of every tick up to and with `end`, where switches are many (else None)."""
    if len(times) < MANY or end - times[0] > MAX_DRAWS or states.max() > 255:
        return None
    return np.repeat(states.astype(np.uint8), np.diff(times, append=max(end, times[-1]) + 1)).tobytes()


class Shape(ABC):
    """One shape of the language: its keys and how an event of it compiles.

    A shape with a window (`width` or its like) gives `length`; one without runs until the channel's
    next event or the horizon.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    keys: ClassVar[tuple[Key, ...]]
    types: ClassVar[tuple[str, ...]] = ("float", "int", "choice", "simplex", "bool")
    returns: ClassVar[bool] = False
    """Whether the channel comes back by itself to what it held before."""
    needs_origin: ClassVar[bool] = False
    """Whether the event moves away from what was held, so that a `set` overlay must say its `start`."""

    @classmethod
    def check(cls, params: dict[str, Any], node: Node, channel: Channel, folder: Path) -> None:
        """Check how keys go together; may add what later steps need.

        Raises:
            UserError: they do not.
        """

    @classmethod
    def length(cls, params: dict[str, Any]) -> int | None:
        """Return the ticks from `at` to the end of the window, or None if the shape has no window."""
        return None

    @classmethod
    def first(cls, params: dict[str, Any]) -> int:
        """Return the ticks from `at` to the first sign of the event (must lie inside what it is given)."""
        return 0

    @classmethod
    def scaled(cls, params: dict[str, Any], at: int, factor: float) -> dict[str, Any]:
        """Return the keys on a clock that runs `factor` times as long."""
        found = dict(params)
        for key in cls.keys:
            if key.kind == "ticks" and found.get(key.name) is not None:
                found[key.name] = max(int(key.low or 0), round(found[key.name] * factor))
        if "width" in found:
            found["width"] = max(1, round((at + params["width"]) * factor) - round(at * factor))
        return found

    @classmethod
    def origin_problem(cls, params: dict[str, Any], origin: Held) -> str | None:
        """Return why the event cannot begin at what the layer holds then, or None."""
        return None

    @classmethod
    def draws(cls, params: dict[str, Any], span: int) -> float:
        """Return how many entries the event precomputes over `span` ticks."""
        return 0

    @classmethod
    @abstractmethod
    def compile(cls, params: dict[str, Any], context: Context) -> Piece:
        """Return the event as a piece of its layer's timeline."""

    @classmethod
    def warning(cls, piece: Piece) -> str | None:
        """Return what a reader should know about the realised event, or None."""
        return None


def merged(parts: Sequence[Any]) -> np.ndarray:
    """Return the distinct entries of sorted integer arrays, sorted."""
    found = np.sort(np.concatenate([np.asarray(part, dtype=np.int64) for part in parts]), kind="stable")
    return found[np.diff(found, prepend=-1) != 0]
