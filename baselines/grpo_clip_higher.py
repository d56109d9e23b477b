"""GRPO with clip-higher: `A = (R - group mean) / (group std + 1e-6)`, clip 0.2 / 0.28 against the behaviour policy.

    L = -1/N sum_t min(r_t A_t, clip(r_t, 0.8, 1.28) A_t),   r = pi/mu,   N the batch's action tokens

Groups of 8 rollouts of one prompt; a group of equal rewards has no advantage. Source: GRPO (arXiv 2402.03300)
with DAPO's asymmetric clip (arXiv 2503.14476), which leaves more room to what was unlikely; token mean over the
batch, as in the comparison of arXiv 2607.07508. There it is what asynchronous training is compared with.

Departures: one update per batch, so the ratio is to the behaviour policy that the engine recorded rather than to a
snapshot; none of DAPO's other parts (dynamic sampling, over-long penalty: see `dapo`).
"""

from __future__ import annotations

from typing import ClassVar

from sao_bench.baselines.grpo import GRPO

from sao_bench.algorithm import ClipHigherConfig, GroupConfig


class GRPOClipHigherConfig(GroupConfig, ClipHigherConfig):
    """Group size and clip are inherited."""


class GRPOClipHigher(GRPO):
    """GRPO's advantage, asymmetric clip, token mean."""

    name: ClassVar[str] = "grpo_clip_higher"
    Config = GRPOClipHigherConfig
