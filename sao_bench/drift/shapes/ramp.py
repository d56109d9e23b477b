"""`ramp`: a number or a mixture slides."""

from __future__ import annotations

from array import array
from collections.abc import Hashable
from typing import Any, ClassVar

import numpy as np

from sao_bench.drift.fields import Key
from sao_bench.drift.shapes.base import Context, Held, Piece
from sao_bench.drift.shapes.window import WIDTH, Window, WindowShape

GROWTH = 5.0
"""Exponent of the exponential curve: slow at first, then fast."""
DIGITS = 12
"""Decimals of a curve, so that the last bits of a platform's `cos` and `exp` do not change a concept."""


def progress(curve: str, u: np.ndarray) -> np.ndarray:
    """Return how far a ramp has come at fractions `u` of its window: exactly 0 at 0 and 1 at 1."""
    match curve:
        case "linear":
            return u
        case "cosine":
            return np.round((1 - np.cos(np.pi * u)) / 2, DIGITS)
        case _:
            return np.round(np.expm1(GROWTH * u) / np.expm1(GROWTH), DIGITS)


class Sliding(Window):
    """A closed form in t, laid out once per tick of the window; monotone, so that its ends bound it."""

    shape = "ramp"

    def __init__(self, context: Context, width: int, curve: str, to: Any) -> None:
        super().__init__(context, width, to)
        shares = progress(curve, np.arange(width) / width)
        self.shares = array("d", shares.tobytes())
        self.bare = context.channel.type != "simplex"
        if self.bare:
            path = np.clip(self.origin + (to - self.origin) * shares, *sorted((self.origin, to)))
            if context.channel.type == "int":
                self.column = array("q", np.floor(path + 0.5).astype(np.int64).tobytes())
            else:
                self.column = array("d", path.tobytes())

    def share(self, t: int) -> float:
        """Return the progress at t."""
        return self.shares[t - self.start]

    def key(self, t: int) -> Hashable:
        """Return the number itself; t for a mixture."""
        return super().key(t) if self.bare else t

    def decode(self, key: Any) -> Held:
        """Return the value of a key."""
        if self.bare:
            return key
        share = self.share(key)
        return {k: (1 - share) * v + share * self.final[k] for k, v in self.origin.items()}


class Ramp(WindowShape):
    """The value slides from what it was to `to`."""

    name = "ramp"
    summary = "the value slides to `to`, from what it was at `at` to exactly `to` at `at + width`"
    types: ClassVar = ("float", "int", "simplex")
    needs_origin = True
    keys: ClassVar = (
        WIDTH,
        Key("to", "value", "the value at the end"),
        Key("curve", "word", "how it slides", False, "linear", words=("linear", "cosine", "exponential")),
    )

    @classmethod
    def compile(cls, params: dict[str, Any], context: Context) -> Piece:
        """Return the window."""
        return Sliding(context, params["width"], params["curve"], params["to"])
