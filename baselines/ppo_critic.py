"""PPO with a critic: VAPO's advantages and clip, in 4 minibatch updates around the proximal policy.

Source: arXiv 1707.06347, equation 7: the old policy is the learner when the batch was formed, scored again, as
most LLM trainers do; what the engine recorded is only monitored. So staleness is not corrected at all: the
reference for what `decoupled_ppo_critic` adds. The critic trains whole, one fit per minibatch. Departures: VAPO's
length-adaptive lambda, clip-higher range and value pre-training; no entropy bonus, no value clip.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from sao_bench.baselines.vapo import VAPO, MinibatchCriticConfig
from torch import Tensor

from sao_bench.algorithm import clip, over, policy_inputs
from sao_bench.batch import Batch
from sao_bench.losses import Denominator, LossOutput, ppo_clip, reinforce


class PPOCriticConfig(MinibatchCriticConfig):
    """Minibatches; the rest is inherited."""

    minibatches: int = Field(4, ge=1)
    """Optimizer steps per batch."""


class PPOCritic(VAPO):
    """PPO: critic and 4 minibatches, staleness uncorrected."""

    name: ClassVar[str] = "ppo_critic"
    Config = PPOCriticConfig
    needs_proximal: ClassVar[bool] = True

    def loss(self, logp_BT: Tensor, batch: Batch, denominator: Denominator) -> LossOutput:
        """Clipped surrogate against the proximal policy; the statistics stay those of pi/mu."""
        logp_BT, _, advantages_BT, mask_BT = inputs = policy_inputs(logp_BT, batch)
        assert batch.proximal_logp_BT is not None
        output = ppo_clip(
            logp_BT, batch.proximal_logp_BT, advantages_BT, mask_BT, **clip(self.config), **over(denominator)
        )
        with torch.no_grad():
            stats = reinforce(*inputs, **over(denominator)).stats
        return LossOutput(output.loss, {**stats, "clipped_sum": output.stats["clipped_sum"]})
