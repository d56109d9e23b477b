"""What leads from one value to another over a window of ticks: the common part of `mix` and `ramp`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sao_bench.drift.fields import ticks
from sao_bench.drift.shapes.base import Context, Distance, Held, Piece, Shape

WIDTH = ticks("width", "length of the window in ticks")


class Window(Piece):
    """A way from `origin` to `final` over `width` ticks; one phase opens, at its start."""

    def __init__(self, context: Context, width: int, to: Any) -> None:
        self.start, self.end = context.start, context.start + width
        self.width = width
        self.origin: Any = context.origin
        self.final: Any = to

    def next_change(self, t: int) -> int:
        """Return the next tick: each may differ."""
        return t + 1

    def openings(self) -> Sequence[int]:
        """Return the start of the window."""
        return (self.start,) if self.final != self.origin else ()

    def changes(self) -> Iterator[tuple[int, int, Held]]:
        """Yield the window."""
        yield self.start, self.end, self.final

    def variation(self, distance: Distance) -> float:
        """Return the distance between the ends; of a mix the expectation moves once, however often draws flip."""
        return distance(self.origin, self.final)

    def extremes(self) -> tuple[Held, ...]:
        """Return both ends."""
        return self.origin, self.final


class WindowShape(Shape):
    """A shape that takes `width` ticks and lays out one entry for each."""

    @classmethod
    def length(cls, params: dict[str, Any]) -> int:
        """Return the width."""
        return params["width"]

    @classmethod
    def draws(cls, params: dict[str, Any], span: int) -> float:
        """Return the width."""
        return params["width"]
