"""SAO without value pre-training: the critic starts from V = 0, without rollouts of the starting policy.

    V_0(s) = 0 (a zero head), then 2 fits per batch from the first batch on

Source: the ablation of arXiv 2607.07508, section 4, after VC-PPO (arXiv 2503.01491), which brought value
pre-training against collapse at the start of long trajectories. SAO fits its critic to 1,024 episodes of
the policy that it starts from, before the clock runs; here that is left out.

Departure: the critic-only batches at the start (`critic_warmup`) stay, as they are another part of SAO; set it to 0
to take both away.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from sao_bench.sao import SAO, SAOConfig


class SAONoPretrainingConfig(SAOConfig):
    """No rollouts for the critic."""

    value_pretrain_episodes: int = Field(0, ge=0)
    """Rollouts of the starting policy that the critic is fitted to before training, off the clock."""


class SAONoPretraining(SAO):
    """SAO without value pre-training."""

    name: ClassVar[str] = "sao_no_pretraining"
    Config = SAONoPretrainingConfig
