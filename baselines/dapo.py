"""DAPO: GRPO's advantage, clip 0.2 / 0.28, token mean; groups of equal rewards are dropped and refilled.

Source: arXiv 2503.14476. The reward gets the soft over-long penalty, 0 up to L - C tokens and then linear to -1 at
L [C = L/5]; truncated trajectories are masked. Groups are dropped by their rewards before the penalty. Departures:
at most 10 batches of trajectories are seen for one, then equal groups fill it up, masked (`unfilled_groups`); one
update per batch, ratio to the behaviour policy; L is the budget of one action, the length that of the longest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import torch
from pydantic import Field
from sao_bench.baselines.grpo import GRPO
from torch import Tensor

from sao_bench.algorithm import ClipHigherConfig, among_valid, spread
from sao_bench.batch import Batch
from sao_bench.dynamic_sampling import DynamicSampling, DynamicSamplingConfig
from sao_bench.estimators import group_relative, overlong_penalty


class DAPOConfig(DynamicSamplingConfig, ClipHigherConfig):
    """Length; group size, refilling and clip are inherited."""

    overlong_cache: float | None = Field(None, gt=0)
    """C: the penalty starts this many tokens below the budget; None is a fifth of it."""
    mask_truncated: bool = True
    """Whether truncated trajectories are left out of the loss."""


class DAPO(DynamicSampling, GRPO):
    """GRPO's advantage, clip-higher, equal groups refilled."""

    name: ClassVar[str] = "dapo"
    Config = DAPOConfig

    def bind(self, batch_size: int, reply_tokens: int) -> None:
        """Check the cache against the budget; raises UserError if it is longer."""
        super().bind(batch_size, reply_tokens)
        overlong_penalty(0, reply_tokens, self.config.overlong_cache)

    def action_mask(self, batch: Batch) -> Tensor:
        """Leave out truncated trajectories beside the groups that only fill up the batch."""
        mask_BT = super().action_mask(batch)
        return mask_BT & ~batch.truncated_B[:, None] if self.config.mask_truncated else mask_BT

    def advantages(self, batch: Batch) -> Tensor:
        """Return the penalised reward's place in its group, the same for every token."""
        longest = [max(len(turn.action_ids) for turn in t.turns) for t in batch.trajectories]
        limit, cache = self.reply_tokens, self.config.overlong_cache
        penalty_B = torch.tensor([overlong_penalty(n, limit, cache) if limit else 0.0 for n in longest])
        penalised = replace(batch, rewards_B=batch.rewards_B + penalty_B)
        return spread(among_valid(group_relative, penalised), batch)
