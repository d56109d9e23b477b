"""Control: a frozen policy, `A = 0` for every token. It never learns.

    L = -1/N sum_t A_t log pi_t = 0,   theta stays as it is

The score of the starting policy under the same drift, batches and clocks: what drift alone does to a score, with no
learning to answer it. A method that does not beat it has learned nothing; in a phase that the start happens to
suit, one that falls below it has been harmed.

Source: none; a control of this benchmark. Departure from a method that learns: the gradient is exactly 0, and the
learner takes no step on that, so that neither Adam's moments nor weight decay move the weights.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from sao_bench.algorithm import Algorithm, AlgorithmConfig, over, policy_inputs
from sao_bench.batch import Batch
from sao_bench.losses import Denominator, LossOutput, reinforce


class Frozen(Algorithm):
    """Control: the starting policy, never updated."""

    name: ClassVar[str] = "frozen"
    Config = AlgorithmConfig

    def advantages(self, batch: Batch) -> Tensor:
        """Return 0 for every token."""
        return torch.zeros_like(batch.behavior_logp_BT)

    def loss(self, logp_BT: Tensor, batch: Batch, denominator: Denominator) -> LossOutput:
        """Nothing but the statistics."""
        return reinforce(*policy_inputs(logp_BT, batch), **over(denominator))
