"""`walk`: a number wanders, with bounds, or is pulled back (Ornstein-Uhlenbeck)."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from sao_bench.drift.fields import Key, ticks
from sao_bench.drift.shapes.base import FOREVER, Context, Distance, Held, Piece, Shape
from sao_bench.drift.yaml12 import Node
from sao_bench.types import Channel

DIGITS = 9
"""Decimals kept, so that the last bits of a platform's arithmetic do not change a concept."""


def walk_path(
    rng: np.random.Generator, origin: float, steps: int, step: float, pull: float, low: float, high: float
) -> np.ndarray:
    """Return `steps + 1` values from `origin` on, all inside [low, high].

    Before reflection the path is x[k + 1] = x[k] + pull * (origin - x[k]) + step * normal: a random walk for
    pull 0, the Euler step of an Ornstein-Uhlenbeck process around the origin else. It is folded at the bounds,
    which for pull 0 is the walk with mirrors there.
    """
    noise = step * rng.standard_normal(steps)
    if pull == 0:
        offset = np.concatenate([[0.0], np.cumsum(noise)])
    else:
        offset = np.array(list(accumulate(noise.tolist(), lambda x, e: (1 - pull) * x + e, initial=0.0)))
    span = high - low
    above = origin + offset - low
    above -= np.floor(above / (2 * span)) * (2 * span)
    path = np.clip(np.round(low + span - np.abs(above - span), DIGITS), low, high)
    path[0] = origin
    return path


class Wandering(Piece):
    """Values precomputed at compile, one for every `every` ticks."""

    shape = "walk"
    bare = True

    def __init__(self, context: Context, every: int, path: np.ndarray) -> None:
        self.start, self.end = context.start, context.end
        self.every = every
        if context.channel.type == "int":
            self.path: Any = array("q", np.floor(path + 0.5).astype(np.int64).tobytes())
        else:
            self.path = array("d", path.astype(np.float64).tobytes())
        self.steps = len(self.path) - 1
        self.origin: Any = context.origin
        self.final = self.path[-1]
        self.path.append(self.final)  # held at the horizon, where the next step would be due
        self.column = self.path

    def decode(self, key: Any) -> Held:
        """Return the number."""
        return key

    def next_change(self, t: int) -> int:
        """Return the tick of the next value."""
        k = (t - self.start) // self.every + 1
        return self.start + k * self.every if k <= self.steps else FOREVER

    def openings(self) -> Sequence[int]:
        """Return the start: from there on the world wanders."""
        return (self.start,)

    def changes(self) -> Iterator[tuple[int, int, Held]]:
        """Yield the whole stretch; it leads nowhere in particular."""
        yield self.start, self.end, None

    def variation(self, distance: Distance) -> float:
        """Return the length of the path."""
        return float(np.abs(np.diff(np.array(self.path))).sum()) * distance(0, 1)

    def extremes(self) -> tuple[Held, ...]:
        """Return the smallest and the largest value."""
        return min(self.path), max(self.path)


class Walk(Shape):
    """A bounded random walk, or an Ornstein-Uhlenbeck process if it is pulled back."""

    name = "walk"
    summary = (
        "every `every` ticks a normal step of sd `step`, mirrored at `low` and `high`, pulled back by `pull`"
    )
    types: ClassVar = ("float", "int")
    needs_origin = True
    keys: ClassVar = (
        Key("step", "number", "standard deviation of one step", above=0),
        ticks("every", "ticks between two steps"),
        Key("low", "number", "lower mirror (default: the channel's bound)", required=False),
        Key("high", "number", "upper mirror (default: the channel's bound)", required=False),
        Key("pull", "number", "share of the way back to the start per step", False, 0.0, low=0, high=1),
    )

    @classmethod
    def check(cls, params: dict[str, Any], node: Node, channel: Channel, folder: Path) -> None:
        """Fill in the bounds and refuse ones that the channel cannot hold."""
        for side, bound in (("low", channel.low), ("high", channel.high)):
            if params[side] is None:
                if bound is None:
                    raise node.error(f"this walk lacks `{side}`, and channel `{channel.name}` has no bound")
                params[side] = float(bound)
            elif problem := _outside(channel, params[side]):
                raise node.value[side].error(f"`{side}`: {problem}")
        if params["low"] >= params["high"]:
            raise node.error(
                f"`low` is {params['low']:g}; allowed: below `high`, which is {params['high']:g}"
            )

    @classmethod
    def first(cls, params: dict[str, Any]) -> int:
        """Return the tick of the first step."""
        return params["every"]

    @classmethod
    def draws(cls, params: dict[str, Any], span: int) -> float:
        """Return the number of steps over `span` ticks."""
        return span / params["every"]

    @classmethod
    def compile(cls, params: dict[str, Any], context: Context) -> Piece:
        """Return the path."""
        steps = (context.end - context.start - 1) // params["every"]
        origin: Any = context.origin
        path = walk_path(
            context.generator(),
            origin,
            steps,
            params["step"],
            params["pull"],
            params["low"],
            params["high"],
        )
        return Wandering(context, params["every"], path)

    @classmethod
    def origin_problem(cls, params: dict[str, Any], origin: Held) -> str | None:
        """Return why the walk cannot begin where the channel stands, or None."""
        if isinstance(origin, int | float) and params["low"] <= origin <= params["high"]:
            return None
        return f"the walk begins at {origin}, outside its own [{params['low']:g}, {params['high']:g}]"


def _outside(channel: Channel, value: float) -> str | None:
    return channel.problem(int(value) if channel.type == "int" and value == int(value) else value)
