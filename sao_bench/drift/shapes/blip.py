"""`blip` and `burst`: short visits that end by themselves and open no new concept."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from sao_bench.drift.fields import Key, ticks
from sao_bench.drift.shapes.base import Context, Piece, Shape, Switching
from sao_bench.drift.yaml12 import Node


def _visits(shape: str, context: Context, params: dict[str, Any], every: int, count: int) -> Piece:
    starts = context.start + every * np.arange(count)
    times = np.stack([starts, starts + params["width"]], axis=1).ravel()
    values = (context.origin, params["to"])
    end = int(times[-1])
    return Switching(shape, context.origin, end, times, np.tile([1, 0], count), values, opens=False)


class Blip(Shape):
    """One short visit to another value."""

    name = "blip"
    summary = "the value is `to` for `width` ticks, then what it was; opens no phase"
    returns = True
    keys: ClassVar = (
        ticks("width", "length of the visit in ticks"),
        Key("to", "value", "the value during the visit"),
    )

    @classmethod
    def length(cls, params: dict[str, Any]) -> int:
        """Return the width."""
        return params["width"]

    @classmethod
    def compile(cls, params: dict[str, Any], context: Context) -> Piece:
        """Return the visit."""
        return _visits(cls.name, context, params, params["width"], 1)


class Burst(Shape):
    """A train of blips."""

    name = "burst"
    summary = "`count` blips of `width` ticks, one `every` so many; opens no phase"
    returns = True
    keys: ClassVar = (
        ticks("width", "length of each visit in ticks"),
        ticks("every", "ticks from the start of one visit to the start of the next", low=2),
        Key("count", "count", "number of visits", low=1, high=1_000_000),
        Key("to", "value", "the value during each visit"),
    )

    @classmethod
    def check(cls, params: dict[str, Any], node: Node, *rest: Any) -> None:
        """Refuse visits that touch each other."""
        if params["width"] >= params["every"]:
            place = node.value["every"]
            raise place.error(
                f"`every`: found {params['every']}; allowed: more than the width of {params['width']}, "
                "so that the value returns between two visits"
            )

    @classmethod
    def length(cls, params: dict[str, Any]) -> int:
        """Return the ticks up to the end of the last visit."""
        return (params["count"] - 1) * params["every"] + params["width"]

    @classmethod
    def scaled(cls, params: dict[str, Any], at: int, factor: float) -> dict[str, Any]:
        """Return the scaled keys; a visit stays shorter than the gap."""
        found = super().scaled(params, at, factor)
        found["every"] = max(found["every"], found["width"] + 1)
        return found

    @classmethod
    def compile(cls, params: dict[str, Any], context: Context) -> Piece:
        """Return the visits."""
        return _visits(cls.name, context, params, params["every"], params["count"])
