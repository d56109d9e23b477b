"""`mix`: old and new are met side by side, the new one ever more often."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from sao_bench.drift.fields import Key, ticks
from sao_bench.drift.shapes.base import Context, Distance, Held, Piece, Shape

STEEPNESS = 10.0
"""Slope of the logistic curve over the window (before it is stretched to reach 0 and 1)."""

_EDGE = 1 / (1 + math.exp(STEEPNESS / 2))


def mix_share(curve: str, u: np.ndarray) -> np.ndarray:
    """Return the share of the new concept at fractions `u` of the window: exactly 0 at 0 and 1 at 1.

    A bare logistic curve is 0.007 and 0.993 at the edges and would leak the old concept for ever; it is
    shifted and stretched to meet both.
    """
    u = np.clip(u, 0.0, 1.0)
    if curve == "linear":
        return u
    inner = (1 / (1 + np.exp(STEEPNESS * (0.5 - u))) - _EDGE) / (1 - 2 * _EDGE)
    return np.where(u <= 0, 0.0, np.where(u >= 1, 1.0, inner))


class Mixing(Piece):
    """A Bernoulli draw for every tick of the window.

    The draw of tick t is the counter-based hash (Philox) of t - at under a key that hashes the drift seed and
    the channel's content: a function of t, laid out once as one byte per tick.
    """

    shape = "mix"

    def __init__(self, context: Context, width: int, curve: str, to: Held) -> None:
        self.start, self.end = context.start, context.start + width
        self.width, self.curve = width, curve
        self.origin, self.final = context.origin, to
        self.table = (context.origin, to)
        shares = mix_share(curve, np.arange(width) / width)
        self.column = (context.generator().random(width) < shares).tobytes()

    def share(self, t: int) -> float:
        """Return the probability of the new value at t."""
        return float(mix_share(self.curve, np.array((t - self.start) / self.width)))

    def decode(self, key: Any) -> Held:
        """Return the new value if the tick drew it (key 1), else the old one."""
        return self.final if key else self.origin

    def next_change(self, t: int) -> int:
        """Return the next tick: each draws anew."""
        return t + 1

    def openings(self) -> Sequence[int]:
        """Return the start of the window."""
        return (self.start,) if self.final != self.origin else ()

    def changes(self) -> Iterator[tuple[int, int, Held]]:
        """Yield the window."""
        yield self.start, self.end, self.final

    def variation(self, distance: Distance) -> float:
        """Return the distance between old and new: the expectation moves once, however often draws flip."""
        return distance(self.origin, self.final)

    def extremes(self) -> tuple[Held, ...]:
        """Return old and new."""
        return self.origin, self.final


class Mix(Shape):
    """The probability of the new value rises over the window."""

    name = "mix"
    summary = "each tick draws old or new; the share of `to` is 0 up to `at` and 1 from `at + width` on"
    keys: ClassVar = (
        ticks("width", "length of the window in ticks"),
        Key("to", "value", "the new value"),
        Key("curve", "word", "how the share rises", False, "linear", words=("linear", "sigmoid")),
    )

    @classmethod
    def length(cls, params: dict[str, Any]) -> int:
        """Return the width."""
        return params["width"]

    @classmethod
    def draws(cls, params: dict[str, Any], span: int) -> float:
        """Return the width: one draw per tick."""
        return params["width"]

    @classmethod
    def compile(cls, params: dict[str, Any], context: Context) -> Piece:
        """Return the window."""
        return Mixing(context, params["width"], params["curve"], params["to"])
