"""DAPO: GRPO's advantage, clip 0.2 / 0.28, token mean; groups of equal rewards are dropped and refilled.

Source: arXiv 2503.14476. The reward gets the soft over-long penalty, 0 up to L - C tokens and then linear to
-1 at L [C = L/5]; truncated trajectories are masked. Groups are dropped by their rewards before the penalty,
until 10 batches of trajectories have been seen for one: then equal groups fill it up, their tokens masked, so
that it trains on what there is; `unfilled_groups` counts them. Departures: one update per batch, ratio to the
behaviour policy; L is the token budget of one action and the length is that of the longest action.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from pydantic import Field
from sao_bench.baselines.grpo import GRPO
from torch import Tensor

from sao_bench.algorithm import ClipHigherConfig, GroupConfig, among_valid, spread
from sao_bench.batch import Batch
from sao_bench.estimators import group_relative, has_signal, overlong_penalty
from sao_bench.types import Trajectory


class DAPOConfig(GroupConfig, ClipHigherConfig):
    """Filter and length; group size and clip are inherited."""

    refill_limit: int = Field(10, ge=1)
    """Batches' worth of trajectories that are seen at most for one batch."""
    overlong_cache: float | None = Field(None, gt=0)
    """C: the penalty starts this many tokens below the budget; None is a fifth of it."""
    mask_truncated: bool = True
    """Whether truncated trajectories are left out of the loss."""


class DAPO(GRPO):
    """GRPO's advantage, clip-higher, equal groups refilled."""

    name: ClassVar[str] = "dapo"
    Config = DAPOConfig

    def __init__(self, config: DAPOConfig | None = None):
        super().__init__(config)
        self._seen = 0
        self._dropped = 0
        self._filled_up = 0
        self._unfilled: set[int] = set()

    def bind(self, batch_size: int, reply_tokens: int) -> None:
        """Check the cache against the budget.

        Raises:
            UserError: the cache is longer than the budget.
        """
        super().bind(batch_size, reply_tokens)
        overlong_penalty(0, reply_tokens, self.config.overlong_cache)

    def accept(self, group: Sequence[Trajectory]) -> str | None:
        """Refuse a group of equal rewards while the batch may still be refilled."""
        self._seen += len(group)
        if _differ(group):
            return None
        if self._seen <= self.config.refill_limit * max(self.batch_size, len(group)):
            self._dropped += 1
            return "equal rewards"
        self._unfilled.add(group[0].group)
        return None

    def action_mask(self, batch: Batch) -> Tensor:
        """Leave out truncated trajectories and the groups that only fill up the batch."""
        filler_B = torch.tensor([t.group in self._unfilled for t in batch.trajectories])
        self._filled_up = len({t.group for t in batch.trajectories} & self._unfilled)
        self._unfilled -= {t.group for t in batch.trajectories}
        left_out_B = filler_B | batch.truncated_B if self.config.mask_truncated else filler_B
        return batch.action_mask_BT & ~left_out_B[:, None]

    def advantages(self, batch: Batch) -> Tensor:
        """Return the penalised reward's place in its group, the same for every token."""
        penalised = replace(batch, rewards_B=batch.rewards_B + self._penalties(batch))
        return spread(among_valid(group_relative, penalised), batch)

    def _penalties(self, batch: Batch) -> Tensor:
        """Return the over-long penalty (B,); none without a known budget."""
        limit, cache = self.reply_tokens, self.config.overlong_cache
        longest = [max(len(turn.action_ids) for turn in t.turns) for t in batch.trajectories]
        return torch.tensor([overlong_penalty(n, limit, cache) if limit else 0.0 for n in longest])

    def metrics(self) -> dict[str, float]:
        """Return the groups dropped for this batch and those that filled it up; starts the next count."""
        found = {"dropped_groups": float(self._dropped), "unfilled_groups": float(self._filled_up)}
        self._seen = self._dropped = self._filled_up = 0
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return the counts for the present batch."""
        return {"seen": self._seen, "dropped": self._dropped, "unfilled": sorted(self._unfilled)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`."""
        self._seen, self._dropped, self._unfilled = state["seen"], state["dropped"], set(state["unfilled"])


def _differ(group: Sequence[Trajectory]) -> bool:
    rewards = torch.tensor([t.reward for t in group if t.reward_valid], dtype=torch.float64)
    return bool(has_signal(rewards, torch.zeros_like(rewards)).any())
