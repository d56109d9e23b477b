"""Decoupled PPO (AReaL) with a critic: GAE's advantages, `pi_prox/mu` times the clip loss on pi/pi_prox.

    L = -1/N sum_t sg(w_t) min(r_t A_t, clip(r_t, 0.6, 1.4) A_t),   w = pi_prox/mu (dropped above 5),   r = pi/pi_prox

Source: arXiv 2505.24298, section 5.2 (the loss is `decoupled_ppo`'s), with PPO's critic (arXiv 1707.06347) in the
form of VAPO (arXiv 2504.05118): GAE with the length-adaptive lambda 1 - 1/(0.05 l), targets with lambda 1, value
pre-training. The critic trains whole, one fit per minibatch. What it is better than `ppo_critic` by is what
decoupling the trust region from the stale behaviour policy is worth.

Departures: one rollout per prompt; observations are skipped, as in SAO; no entropy bonus, no value clip; the
gradient of the critic is clipped as SAO's is.
"""

from __future__ import annotations

from typing import ClassVar

from sao_bench.baselines.decoupled_ppo import Decoupled, DecoupledConfig
from sao_bench.baselines.vapo import VAPO, MinibatchCriticConfig


class DecoupledPPOCriticConfig(DecoupledConfig, MinibatchCriticConfig):
    """Critic, clip and cap."""


class DecoupledPPOCritic(Decoupled, VAPO):
    """GAE with a critic, decoupled clip loss."""

    name: ClassVar[str] = "decoupled_ppo_critic"
    Config = DecoupledPPOCriticConfig
