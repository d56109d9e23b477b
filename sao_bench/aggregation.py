"""From per-token losses to one scalar, and from micro-batches to the batch.

Shape legend: B = trajectory, T = token position. The denominator is counted once over the whole batch, so
that loss and gradient do not depend on the micro-batch size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from sao_bench.errors import UserError, unknown

AGGREGATIONS = ("token_mean", "seq_mean_token_mean", "seq_mean_token_sum_norm")


class LossOutput(NamedTuple):
    """A scalar loss and its detached statistics.

    Statistics named `*_sum` and `tokens` add up across micro-batches; `log_ratios` (one entry an action
    token) is concatenated; `merge_stats` does both and `summarise` turns the result into rates.
    """

    loss: Tensor
    stats: dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Denominator:
    """What the token sums of a whole batch are divided by; one value for all its micro-batches."""

    how: str
    value: float

    @classmethod
    def of(cls, mask_BT: Tensor, how: str = "token_mean", constant: float | None = None) -> Denominator:
        """Count over the whole batch: action tokens; trajectories with one; or `constant` times B.

        Raises:
            UserError: the aggregation is unknown or lacks its positive constant.
        """
        if how not in AGGREGATIONS:
            raise unknown("aggregation", how, AGGREGATIONS)
        if how == "token_mean":
            return cls(how, float(mask_BT.bool().sum()))
        if how == "seq_mean_token_mean":
            return cls(how, float(mask_BT.bool().any(1).sum()))
        if constant is None or not constant > 0:
            raise UserError(f"aggregation {how!r} needs a positive norm_constant, got {constant!r}")
        return cls(how, constant * mask_BT.shape[0])


def aggregate_tokens(per_token_BT: Tensor, mask_BT: Tensor, denominator: Denominator) -> Tensor:
    """Return the masked sum over the denominator; for `seq_mean_token_mean` of per-trajectory means.

    Nothing masked in gives 0 with a zero gradient.
    """
    mask_BT = mask_BT.bool()
    kept_BT = torch.where(mask_BT, per_token_BT, torch.zeros_like(per_token_BT))
    if denominator.how == "seq_mean_token_mean":
        kept_BT = kept_BT / mask_BT.sum(1, keepdim=True).clamp(min=1)
    return kept_BT.sum() / (denominator.value or 1.0)


def merge_stats(parts: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the statistics of a batch from those of its micro-batches."""
    parts = list(parts)
    return {
        key: torch.cat([p[key] for p in parts]) if key == "log_ratios" else sum(p[key] for p in parts)  # type: ignore[misc]
        for key in (parts[0] if parts else ())
    }


def summarise(
    stats: Mapping[str, Tensor], quantiles: Iterable[float] = (0.01, 0.5, 0.99)
) -> dict[str, float]:
    """Return rates per action token (`clipped_sum` -> `clipped`) and quantiles of r; empty without tokens."""
    tokens = float(stats["tokens"])
    if not tokens:
        return {}
    means = {k.removesuffix("_sum"): float(v) / tokens for k, v in stats.items() if k.endswith("_sum")}
    if "log_ratios" in stats:
        ordered = stats["log_ratios"].double().sort().values
        for q in quantiles:
            means[f"ratio_q{q * 100:g}"] = math.exp(min(float(ordered[round(q * (len(ordered) - 1))]), 700.0))
    return means
