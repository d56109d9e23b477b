"""Trajectories as tensors.

Shape legend: B = trajectory, T = token. Sequences are padded on the right; masks come from the lengths kept
at sampling time, never from token ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from sao_bench.types import Trajectory


@dataclass
class Batch:
    """One batch of finished trajectories, in order of arrival.

    `rewards_BT` holds each turn's reward at the turn's last action token. `action_mask_BT` is False on every
    token of a trajectory whose reward is not valid (a fault). Filled in later: `value_mask_BT` (where V is read
    and trained), `values_BT`, `final_values_B` (the state after the last token), `proximal_logp_BT` and
    `advantages_BT` by the learner where an algorithm needs them; `keep_BT` by an algorithm that selects tokens
    over a whole minibatch.
    """

    trajectories: Sequence[Trajectory]
    token_ids_BT: Tensor
    action_mask_BT: Tensor
    behavior_logp_BT: Tensor
    rewards_BT: Tensor
    turn_ids_BT: Tensor
    rewards_B: Tensor
    lengths_B: Tensor
    group_ids_B: Tensor
    truncated_B: Tensor
    valid_B: Tensor
    value_mask_BT: Tensor | None = None
    values_BT: Tensor | None = None
    final_values_B: Tensor | None = None
    proximal_logp_BT: Tensor | None = None
    advantages_BT: Tensor | None = None
    keep_BT: Tensor | None = None

    @classmethod
    def of(cls, trajectories: Sequence[Trajectory]) -> Batch:
        """Lay trajectories out as tensors (float32)."""
        rows = [_Row(trajectory) for trajectory in trajectories]
        width = max(len(row.ids) for row in rows)

        def pad(name: str, dtype: torch.dtype) -> Tensor:
            values = [getattr(row, name) for row in rows]
            return torch.tensor([v + [0] * (width - len(v)) for v in values], dtype=dtype)

        return cls(
            trajectories=trajectories,
            token_ids_BT=pad("ids", torch.long),
            action_mask_BT=pad("mask", torch.bool),
            behavior_logp_BT=pad("logp", torch.float32),
            rewards_BT=pad("rewards", torch.float32),
            turn_ids_BT=pad("turns", torch.long),
            rewards_B=torch.tensor([t.reward for t in trajectories], dtype=torch.float32),
            lengths_B=torch.tensor([len(row.ids) for row in rows]),
            group_ids_B=torch.tensor([t.group for t in trajectories]),
            truncated_B=torch.tensor([t.truncated for t in trajectories]),
            valid_B=torch.tensor([t.reward_valid for t in trajectories]),
        )

    @property
    def action_tokens_B(self) -> Tensor:
        """Action tokens of each trajectory, (B,)."""
        return self.action_mask_BT.sum(1)

    def rows(self, index: Tensor) -> Batch:
        """Return some trajectories (by position) as a batch that is as wide as its longest."""
        width = int(self.lengths_B[index].max())
        tensors = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, Tensor):
                tensors[f.name] = value[index, :width] if value.ndim == 2 else value[index]
        return replace(self, trajectories=[self.trajectories[i] for i in index.tolist()], **tensors)

    def parts(self, size: int, tokens: int) -> Iterator[tuple[Tensor, Batch]]:
        """Cut into parts, sorted by length so that little is padded.

        Args:
            size: most trajectories of a part.
            tokens: most tokens of a part, padding counted; a trajectory that is longer is a part of its own.

        Yields (positions, part).
        """
        order = self.lengths_B.argsort(stable=True)
        lengths = self.lengths_B[order].tolist()
        start = 0
        for end in range(1, len(lengths) + 1):
            count = end + 1 - start
            if end == len(lengths) or count > size or count * lengths[end] > tokens:
                yield order[start:end], self.rows(order[start:end])
                start = end

    def put(self, whole_BT: Tensor, index: Tensor, part_BT: Tensor) -> None:
        """Write a part's result into the whole batch's tensor, in place."""
        whole_BT[index, : part_BT.shape[1]] = part_BT


class _Row:
    """One trajectory's tokens, laid end to end."""

    def __init__(self, trajectory: Trajectory):
        self.ids: list[int] = []
        self.mask: list[int] = []
        self.logp: list[float] = []
        self.rewards: list[float] = []
        self.turns: list[int] = []
        for number, turn in enumerate(trajectory.turns):
            before, after = len(turn.prompt_ids), len(turn.action_ids)
            self.ids += [*turn.prompt_ids, *turn.action_ids]
            self.mask += [0] * before + [int(trajectory.reward_valid)] * after
            self.logp += [0.0] * before + turn.behavior_logprobs
            self.rewards += [0.0] * (before + after)
            self.turns += [number] * (before + after)
            if after:
                self.rewards[-1] = turn.reward
        tail = len(trajectory.tail_ids)
        self.ids += trajectory.tail_ids
        self.mask += [0] * tail
        self.logp += [0.0] * tail
        self.rewards += [0.0] * tail
        self.turns += [len(trajectory.turns)] * tail
