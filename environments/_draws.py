"""What environments do alike: draw a name from shares, declare a channel in a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

import numpy as np

from sao_bench.types import Channel, Value


def pick(shares: Value, names: tuple[str, ...], draw: float) -> str:
    """Return the name whose stretch of the cumulative shares holds `draw` in [0, 1)."""
    total = 0.0
    given = cast(Mapping[str, float], shares)
    held = [(name, share) for name in names if (share := given.get(name, 0.0)) > 0]
    for name, share in held:
        total += share
        if draw < total:
            return name
    return held[-1][0]


def any_of(rng: np.random.Generator, names: tuple[str, ...]) -> str:
    """Draw one of some names, all alike."""
    return names[int(rng.integers(len(names)))]


def pick_of(rng: np.random.Generator, shares: Mapping[str, float]) -> str:
    """Draw a name by its share."""
    return pick(shares, tuple(shares), rng.random())


def channel(
    name: str, kind: Literal["real", "virtual"], default: Value, description: str, *bounds: Any
) -> Channel:
    """Return a channel whose type is told by its default; `bounds` are its choices, or low and high."""
    if isinstance(default, str):
        return Channel(name, "choice", kind, default, description, choices=bounds)
    if isinstance(default, Mapping):
        return Channel(name, "simplex", kind, default, description, choices=bounds)
    return Channel(name, "int" if isinstance(default, int) else "float", kind, default, description, *bounds)
