"""`cycle`, `markov` and `poisson`: concepts that come back."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from sao_bench.drift.fields import Key, ticks
from sao_bench.drift.shapes.base import Context, Piece, Shape, Switching
from sao_bench.drift.yaml12 import Node
from sao_bench.types import Channel

_VALUES = Key("values", "values", "the values, beginning with the one held from `at` on")


def _switching(
    shape: str, context: Context, times: np.ndarray, states: np.ndarray, values: tuple[Any, ...]
) -> Piece:
    return Switching(shape, context.origin, context.end, times, states, values, opens=True)


def _distinct(node: Node, params: dict[str, Any]) -> None:
    values = params["values"]
    if any(a == b for i, a in enumerate(values) for b in values[:i]):
        raise node.value["values"].error("`values`: a value stands twice; allowed: each once")


class Cycle(Shape):
    """The values in turn, over and over."""

    name = "cycle"
    summary = "the values in turn, `period` ticks each (each switch moved by up to `jitter`), over and over"
    keys: ClassVar = (
        ticks("period", "ticks for which each value is held"),
        _VALUES,
        ticks(
            "jitter", "each switch moves by up to so many ticks either way", low=0, required=False, default=0
        ),
    )

    @classmethod
    def check(cls, params: dict[str, Any], node: Node, channel: Channel, *rest: Any) -> None:
        """Refuse neighbours that are equal and a jitter that could swap two switches."""
        values = params["values"]
        if any(a == b for a, b in zip(values, values[1:] + values[:1], strict=True)):
            raise node.value["values"].error("`values`: two neighbours are equal, so nothing would switch")
        if 2 * params["jitter"] >= params["period"]:
            raise node.value["jitter"].error(
                f"`jitter`: found {params['jitter']}; allowed: less than half the period of {params['period']}"
            )

    @classmethod
    def first(cls, params: dict[str, Any]) -> int:
        """Return the latest tick of the first switch."""
        return params["period"] + params["jitter"]

    @classmethod
    def scaled(cls, params: dict[str, Any], at: int, factor: float) -> dict[str, Any]:
        """Return the scaled keys; the jitter stays under half the period."""
        found = super().scaled(params, at, factor)
        found["jitter"] = min(found["jitter"], (found["period"] - 1) // 2)
        return found

    @classmethod
    def draws(cls, params: dict[str, Any], span: int) -> float:
        """Return the number of switches to precompute over `span` ticks."""
        return span / params["period"]

    @classmethod
    def compile(cls, params: dict[str, Any], context: Context) -> Piece:
        """Return the switches; the k-th one is at `at + k * period` plus its own jitter."""
        period, jitter = params["period"], params["jitter"]
        times = np.arange(context.start, context.end + jitter, period, dtype=np.int64)
        if jitter:
            times[1:] += context.generator().integers(-jitter, jitter + 1, len(times) - 1)
        times = times[times < context.end]
        states = np.arange(len(times)) % len(params["values"])
        return _switching(cls.name, context, times, states, params["values"])


class Markov(Shape):
    """A Markov chain over the values."""

    name = "markov"
    summary = "every `dwell` ticks the value stays with probability `stay`, else moves to any other one"
    keys: ClassVar = (
        _VALUES,
        Key("stay", "number", "probability of keeping the value after each dwell", low=0, high=1),
        ticks("dwell", "ticks between two draws"),
    )

    @classmethod
    def check(cls, params: dict[str, Any], node: Node, *rest: Any) -> None:
        """Refuse a value that stands twice, and a chain that never moves."""
        _distinct(node, params)
        if params["stay"] == 1:
            raise node.value["stay"].error("`stay`: found 1, so no switch can ever fire; allowed: below 1")

    @classmethod
    def first(cls, params: dict[str, Any]) -> int:
        """Return the tick of the first draw."""
        return params["dwell"]

    @classmethod
    def draws(cls, params: dict[str, Any], span: int) -> float:
        """Return the number of switches to precompute over `span` ticks."""
        return span / params["dwell"]

    @classmethod
    def compile(cls, params: dict[str, Any], context: Context) -> Piece:
        """Return the switches of one chain, drawn at compile."""
        rng = context.generator()
        times = np.arange(context.start, context.end, params["dwell"], dtype=np.int64)
        others = len(params["values"]) - 1
        moves = rng.random(len(times)) >= params["stay"]
        hops = rng.integers(1, others + 1, len(times)) * moves
        hops[0] = 0
        states = np.cumsum(hops) % (others + 1)
        return _switching(cls.name, context, times, states, params["values"])

    @classmethod
    def warning(cls, piece: Piece) -> str | None:
        """Say if no switch is realised."""
        return _silent(piece)


class Poisson(Shape):
    """Memoryless switching; the waiting time counts from `at`."""

    name = "poisson"
    summary = "at every tick after `at`, with probability rate / 1,000, the value moves to any other one"
    keys: ClassVar = (
        _VALUES,
        Key("rate", "number", "expected switches per 1,000 ticks", above=0, high=1000),
    )

    @classmethod
    def check(cls, params: dict[str, Any], node: Node, *rest: Any) -> None:
        """Refuse a value that stands twice."""
        _distinct(node, params)

    @classmethod
    def first(cls, params: dict[str, Any]) -> int:
        """Return 1: the first tick that can switch."""
        return 1

    @classmethod
    def scaled(cls, params: dict[str, Any], at: int, factor: float) -> dict[str, Any]:
        """Return the rate per 1,000 of the new ticks (at most one switch a tick)."""
        return params | {"rate": min(1000.0, params["rate"] / factor)}

    @classmethod
    def draws(cls, params: dict[str, Any], span: int) -> float:
        """Return the number of switches to precompute over `span` ticks."""
        return span

    @classmethod
    def compile(cls, params: dict[str, Any], context: Context) -> Piece:
        """Return the switches of one draw per tick."""
        rng = context.generator()
        fires = np.flatnonzero(rng.random(context.end - context.start - 1) < params["rate"] / 1000)
        times = np.concatenate([[0], fires + 1]) + context.start
        hops = rng.integers(1, len(params["values"]), len(times))
        hops[0] = 0
        states = np.cumsum(hops) % len(params["values"])
        return _switching(cls.name, context, times, states, params["values"])

    @classmethod
    def warning(cls, piece: Piece) -> str | None:
        """Say if no switch is realised."""
        return _silent(piece)


def _silent(piece: Piece) -> str | None:
    assert isinstance(piece, Switching)
    if len(piece.times) > 1:
        return None
    return "no switch is realised under this seed; make switches likelier or choose another seed"
