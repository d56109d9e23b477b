"""`ramp`: a number or a mixture slides."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, ClassVar

from sao_bench.drift.fields import Key, ticks
from sao_bench.drift.shapes.base import Context, Distance, Held, Piece, Shape, between

GROWTH = 5.0
"""Exponent of the exponential curve: slow at first, then fast."""


def progress(curve: str, u: float) -> float:
    """Return how far a ramp has come at the fraction `u` of its window: exactly 0 at 0 and 1 at 1.

    Rounded to 12 digits, so that the last bits of a platform's `cos` and `exp` do not change a concept.
    """
    if u <= 0 or u >= 1:
        return float(u >= 1)
    match curve:
        case "linear":
            return u
        case "cosine":
            return round((1 - math.cos(math.pi * u)) / 2, 12)
        case _:
            return round(math.expm1(GROWTH * u) / math.expm1(GROWTH), 12)


class Sliding(Piece):
    """A closed form in t; monotone, so that its ends bound it."""

    shape = "ramp"

    def __init__(self, context: Context, width: int, curve: str, to: Any) -> None:
        self.start, self.end = context.start, context.start + width
        self.width, self.curve = width, curve
        self.origin: Any = context.origin
        self.final: Any = to
        self.whole = context.channel.type == "int"
        self.simplex = context.channel.type == "simplex"

    def share(self, t: int) -> float:
        """Return the progress at t."""
        return progress(self.curve, (t - self.start) / self.width)

    def key(self, t: int) -> Hashable:
        """Return the number itself; t for a mixture."""
        return t if self.simplex else self._value(t)

    def decode(self, key: Any) -> Held:
        """Return the value of a key."""
        return self._value(key) if self.simplex else key

    def _value(self, t: int) -> Any:
        share = self.share(t)
        if share >= 1:
            return self.final
        if self.simplex:
            return {k: (1 - share) * v + share * self.final[k] for k, v in self.origin.items()}
        value = between(self.origin, self.final, share)
        return math.floor(value + 0.5) if self.whole else value

    def next_change(self, t: int) -> int:
        """Return the next tick."""
        return t + 1

    def openings(self) -> Sequence[int]:
        """Return the start of the window."""
        return (self.start,) if self.final != self.origin else ()

    def changes(self) -> Iterator[tuple[int, int, Held]]:
        """Yield the window."""
        yield self.start, self.end, self.final

    def variation(self, distance: Distance) -> float:
        """Return the distance between the ends."""
        return distance(self.origin, self.final)

    def extremes(self) -> tuple[Held, ...]:
        """Return both ends."""
        return self.origin, self.final


class Ramp(Shape):
    """The value slides from what it was to `to`."""

    name = "ramp"
    summary = "the value slides to `to`, from what it was at `at` to exactly `to` at `at + width`"
    types: ClassVar = ("float", "int", "simplex")
    needs_origin = True
    keys: ClassVar = (
        ticks("width", "length of the window in ticks"),
        Key("to", "value", "the value at the end"),
        Key("curve", "word", "how it slides", False, "linear", words=("linear", "cosine", "exponential")),
    )

    @classmethod
    def length(cls, params: dict[str, Any]) -> int:
        """Return the width."""
        return params["width"]

    @classmethod
    def compile(cls, params: dict[str, Any], context: Context) -> Piece:
        """Return the window."""
        return Sliding(context, params["width"], params["curve"], params["to"])
