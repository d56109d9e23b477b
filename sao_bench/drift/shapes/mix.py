"""`mix`: old and new are met side by side, the new one ever more often."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from sao_bench.drift.fields import Key
from sao_bench.drift.shapes.base import Context, Held, Piece
from sao_bench.drift.shapes.window import WIDTH, Window, WindowShape

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


class Mixing(Window):
    """A Bernoulli draw for every tick of the window.

    The draw of tick t is the counter-based hash (Philox) of t - at under a key that hashes the drift seed and
    the channel's content: a function of t, laid out once as one byte per tick.
    """

    shape = "mix"

    def __init__(self, context: Context, width: int, curve: str, to: Held) -> None:
        super().__init__(context, width, to)
        self.curve = curve
        self.table = (context.origin, to)
        shares = mix_share(curve, np.arange(width) / width)
        self.column = (context.generator().random(width) < shares).tobytes()

    def share(self, t: int) -> float:
        """Return the probability of the new value at t."""
        return float(mix_share(self.curve, np.array((t - self.start) / self.width)))

    def decode(self, key: Any) -> Held:
        """Return the new value if the tick drew it (key 1), else the old one."""
        return self.final if key else self.origin


class Mix(WindowShape):
    """The probability of the new value rises over the window."""

    name = "mix"
    summary = "each tick draws old or new; the share of `to` is 0 up to `at` and 1 from `at + width` on"
    keys: ClassVar = (
        WIDTH,
        Key("to", "value", "the new value"),
        Key("curve", "word", "how the share rises", False, "linear", words=("linear", "sigmoid")),
    )

    @classmethod
    def compile(cls, params: dict[str, Any], context: Context) -> Piece:
        """Return the window."""
        return Mixing(context, params["width"], params["curve"], params["to"])
