"""VAPO: GAE with a critic, lambda of the policy `1 - 1/(0.05 l)`, clip 0.2 / 0.28, token mean; no DIS.

Source: arXiv 2504.05118: value pre-training, targets with lambda 1, length-adaptive lambda for the policy.
What SAO is when its loss and its partly frozen critic are taken away. Departures: one rollout per prompt
instead of 16; no imitation loss on right answers; observations are skipped, as in SAO (the source is single-turn);
one critic update per policy update. For trajectories of at most 20 tokens this lambda is 0.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from sao_bench.algorithm import AlgorithmConfig, ClipHigherConfig, clip, over, policy_inputs
from sao_bench.batch import Batch
from sao_bench.losses import Denominator, LossOutput, ppo_clip
from sao_bench.sao import SAO, SAOConfig


class VAPOConfig(ClipHigherConfig, SAOConfig):
    """Lambda and critic; GAE's other options are SAO's."""

    alpha: float = Field(0.05, gt=0)
    """Of the policy's lambda, 1 - 1 / (alpha l), clamped to [0, 1]."""
    critic_lr: float = Field(2e-6, gt=0)
    """Learning rate of the critic; the source's is 2x the policy's."""
    critic_updates: int = Field(1, ge=0)
    """K: critic updates per policy update."""
    critic_freeze: Literal["attention", "none", "backbone"] = "none"
    """What of the critic does not train."""


class MinibatchCriticConfig(VAPOConfig):
    """A critic that is fitted once to each of 4 minibatches, as PPO does."""

    critic_updates: int = Field(4, ge=0)
    """K: critic updates per batch."""
    critic_fits: Literal["same", "minibatches"] = "minibatches"
    """Whether the K updates see the whole batch each, or K disjoint parts of it."""


class VAPO(SAO):
    """GAE with a critic, short lambda, clip-higher, no DIS."""

    name: ClassVar[str] = "vapo"
    Config: ClassVar[type[AlgorithmConfig]] = VAPOConfig

    def loss(self, logp_BT: Tensor, batch: Batch, denominator: Denominator) -> LossOutput:
        """Clipped surrogate against the behaviour policy."""
        return ppo_clip(*policy_inputs(logp_BT, batch), **clip(self.config), **over(denominator))
