"""What environments draw alike: a name from shares, a log-normal latency."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from sao_bench.types import Value


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
