"""One channel over the whole horizon: its base layer and the overlays that join it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import numpy as np

from sao_bench.drift.layers import Layer
from sao_bench.drift.shapes.base import Constant, Held, Piece, merged
from sao_bench.types import Channel, Value


@dataclass(frozen=True, slots=True)
class Change:
    """One window of one event, for drawing: `start == end` for a jump.

    `kind` is the channel's (`real` or `virtual`); `to` is the value it leads to, None for a walk or a trace.
    `returns` says that the channel comes back by itself, so that no phase opens.
    """

    channel: str
    shape: str
    start: int
    end: int
    kind: str
    to: Held
    returns: bool = False


class Joined:
    """The pieces of all layers of a channel, seen as one."""

    table = None
    column = None
    bare = False

    def __init__(self, track: Track, pieces: Sequence[Piece]) -> None:
        self.track = track
        self.pieces = pieces

    def key(self, t: int) -> Hashable:
        """Return the keys of the layers."""
        return tuple(piece.key(t) for piece in self.pieces)

    def decode(self, key: Any) -> Value:
        """Return the channel's value."""
        return self.track.combine([piece.decode(k) for piece, k in zip(self.pieces, key, strict=True)])

    def next_change(self, t: int) -> int:
        """Return the first tick after t at which a layer may change."""
        return min(piece.next_change(t) for piece in self.pieces)


class Track:
    """The layers of one channel, in the order in which they are applied: base, then rising priority."""

    def __init__(self, channel: Channel, layers: Sequence[Layer], horizon: int) -> None:
        self.channel = channel
        self.layers = sorted(layers, key=lambda layer: (layer.op != "base", layer.priority))
        self.horizon = horizon
        self.starts = sorted({start for layer in self.layers for start in layer.starts})

    @property
    def moves(self) -> bool:
        """Whether any event writes the channel."""
        first = [layer.pieces[0] for layer in self.layers]
        one = all(len(layer.pieces) == 1 for layer in self.layers)
        return not one or any(not isinstance(piece, Constant) or piece.event for piece in first)

    def pieces(self, t: int) -> tuple[Piece, ...]:
        """Return the piece in force at t of every layer."""
        return tuple(layer.piece(t) for layer in self.layers)

    def combine(self, held: Sequence[Held]) -> Value:
        """Join what the layers hold into the channel's value."""
        value: Any = held[0]
        for layer, other in zip(self.layers[1:], held[1:], strict=True):
            if layer.op == "set":
                value = value if other is None else other
            else:
                value = value + other if layer.op == "add" else value * other
        if len(held) > 1 and self.channel.type == "int":
            return math.floor(value + 0.5)
        return value + 0.0 if type(value) is float else value  # 0.0 and -0.0 are one concept

    def value(self, t: int) -> Value:
        """Return the channel's value at t."""
        return self.combine([layer.value(t) for layer in self.layers])

    def share(self, t: int) -> float:
        """Return how far the topmost layer's event in force has come (see `DriftSchedule.share`)."""
        for layer in reversed(self.layers):
            piece = layer.piece(t)
            if piece.start > 0 or not isinstance(piece, Constant) or piece.event:
                return piece.share(t)
        return 0.0

    def moving(self, t: int) -> Piece | Joined:
        """Return what holds the channel's value from t to the next start of a piece."""
        pieces = self.pieces(t)
        return pieces[0] if len(pieces) == 1 else Joined(self, pieces)

    def runs(self, until: int) -> Iterator[tuple[int, int, Value]]:
        """Yield stretches (first tick, first tick after it, value) that cover 0 to `until`."""
        t = 0
        while t < until:
            pieces = self.pieces(t)
            i = bisect_right(self.starts, t)
            ends = [piece.next_change(t) for piece in pieces]
            end = min([until, *ends, *self.starts[i : i + 1]])
            yield t, end, self.combine([piece.decode(piece.key(t)) for piece in pieces])
            t = end

    def openings(self) -> np.ndarray:
        """Return the ticks at which the channel opens a phase, if it is real."""
        found = [np.empty(0, dtype=np.int64)]
        for i, layer in enumerate(self.layers):
            covers = [other for other in self.layers[i + 1 :] if other.op == "set"]
            for piece in layer.pieces:
                ticks = np.asarray(piece.openings(), dtype=np.int64)
                if covers:
                    ticks = np.array([self._uncovered(int(t), covers) for t in ticks], dtype=np.int64)
                found.append(ticks)
        ticks = merged(found)
        return ticks[ticks < self.horizon]

    def _uncovered(self, t: int, covers: Sequence[Layer]) -> int:
        """Return the first tick from t on at which no `set` layer above hides this one."""
        while t < self.horizon:
            hiding = next((layer for layer in covers if layer.value(t) is not None), None)
            if hiding is None:
                break
            piece = hiding.piece(t)
            i = bisect_right(hiding.starts, t)
            t = min([piece.next_change(t), self.horizon, *hiding.starts[i : i + 1]])
        return t

    def changes(self) -> Iterator[Change]:
        """Yield every window of every event."""
        name, kind = self.channel.name, self.channel.kind
        for layer in self.layers:
            for piece in layer.pieces:
                returns = piece.shape in ("blip", "burst")
                for start, end, to in piece.changes():
                    yield Change(name, piece.shape, start, end, kind, to, returns)

    def distance(self, a: Any, b: Any) -> float:
        """Return how far two values lie apart.

        Numbers: difference over the channel's range (bare, without bounds); simplex: total variation;
        choice and bool: 0 or 1.
        """
        channel = self.channel
        if channel.type in ("float", "int"):
            span = 1.0 if channel.low is None or channel.high is None else channel.high - channel.low
            return abs(b - a) / span
        if channel.type == "simplex":
            return sum(abs(b[name] - share) for name, share in a.items()) / 2
        return float(a != b)

    def variation(self) -> float:
        """Return the length of the channel's path (of the realised one, where overlays join)."""
        if len(self.layers) == 1:
            return sum(piece.variation(self.distance) for piece in self.layers[0].pieces)
        values = [value for _, _, value in self.runs(self.horizon + 1)]
        return sum(self.distance(a, b) for a, b in pairwise(values))

    def check_bounds(self) -> None:
        """Refuse a value that the channel cannot hold, at any tick.

        Raises:
            UserError: layers join into a value out of bounds; the first such tick is named.
        """
        if not any(layer.op in ("add", "mul") for layer in self.layers):
            return
        for start, end in zip(self.starts, [*self.starts[1:], self.horizon + 1], strict=True):
            corners = product(*(piece.extremes() for piece in self.pieces(start)))
            if any(self.channel.problem(self.combine(held)) for held in corners):
                self._check_ticks(start, min(end, self.horizon + 1))

    def _check_ticks(self, start: int, end: int) -> None:
        for t in range(start, end):
            held = [layer.value(t) for layer in self.layers]
            if problem := self.channel.problem(self.combine(held)):
                layer = next(layer for layer in reversed(self.layers) if layer.op in ("add", "mul"))
                below = ", ".join(f"{layer.op} {h}" for layer, h in zip(self.layers, held, strict=True))
                raise layer.place.error(
                    f"channel `{self.channel.name}` at t = {t}: {problem} ({below}); change the overlay"
                )
