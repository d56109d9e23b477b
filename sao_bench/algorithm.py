"""The protocol every training algorithm follows, SAO and baselines alike.

The loop knows no algorithm by name: it asks how large a group is, what else has to be computed (`needs_critic`,
`needs_proximal`), and for advantages and a loss. Defaults of a config are those of the algorithm's source; a
tier is a named preset over them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from sao_bench.batch import Batch
from sao_bench.losses import Denominator, LossOutput
from sao_bench.types import Concept, Trajectory


class AlgorithmConfig(BaseModel):
    """What every algorithm has: group size and the policy's optimizer."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    group_size: int = Field(1, ge=1)
    """Rollouts per prompt."""
    policy_lr: float = Field(1e-6, gt=0)
    """Learning rate of the policy (AdamW)."""
    weight_decay: float = Field(0.0, ge=0)
    """Decoupled weight decay of policy and critic."""
    betas: tuple[float, float] = (0.9, 0.95)
    """AdamW's moments."""
    max_grad_norm: float = Field(1.0, gt=0)
    """The policy's gradient is clipped to this norm."""
    minibatches: int = Field(1, ge=1)
    """Optimizer steps per batch; more than one needs a proximal policy to stay on."""
    aggregate: Literal["token_mean", "seq_mean_token_mean", "seq_mean_token_sum_norm"] = "token_mean"
    """How per-token losses become one number; the denominator counts masked-out action tokens too."""
    aggregate_constant: float | None = Field(None, gt=0)
    """The constant of `seq_mean_token_sum_norm`."""


class CriticConfig(AlgorithmConfig):
    """What an algorithm with a critic has in addition. Defaults are SAO's (arXiv 2607.07508)."""

    critic_lr: float = Field(5e-6, gt=0)
    """Learning rate of the critic; the paper's is 5x the policy's."""
    critic_updates: int = Field(2, ge=0)
    """K: critic updates per policy update."""
    critic_freeze: Literal["attention", "none", "backbone"] = "attention"
    """What of the critic does not train: attention (paper), nothing, or all but the head."""
    critic_fits: Literal["same", "minibatches"] = "same"
    """Whether the K updates see the whole batch each, or K disjoint parts of it. (Open in the paper.)"""
    critic_warmup: int = Field(10, ge=0)
    """Batches at the start that train only the critic; they count as episodes, not as updates."""
    critic_max_grad_norm: float = Field(1.0, gt=0)
    """The critic's gradient is clipped to this norm."""
    critic_lambda: float = Field(1.0, ge=0, le=1)
    """Lambda of the critic's targets; 1 is the Monte-Carlo return."""
    value_clip: float | None = Field(None, gt=0)
    """PPO's value clipping range around the values read for the advantages; off by default. (Open.)"""
    value_half: bool = True
    """Whether the squared error is halved. (Open in the paper.)"""
    value_pretrain_episodes: int = Field(1024, ge=0)
    """Rollouts of the starting policy that the critic is fitted to before training, off the clock. (Open.)"""
    value_pretrain_epochs: int = Field(4, ge=1)
    """Passes over those rollouts, in batches of the run's size."""
    values_read: Literal["before", "after"] = "before"
    """Whether V is read for the advantages before or after the K updates; after can collapse the advantage."""
    truncation: Literal["terminal", "bootstrap"] = "terminal"
    """A truncated trajectory ends with value 0, or with the critic's value of its last state. (Open.)"""


class Algorithm(ABC):
    """One training algorithm. Subclasses set `name` and `Config` and write `advantages` and `loss`."""

    name: ClassVar[str] = ""
    Config: ClassVar[type[AlgorithmConfig]] = AlgorithmConfig
    needs_critic: ClassVar[bool] = False
    needs_proximal: ClassVar[bool] = False
    """Log-probabilities of the weights that the batch was formed under, kept over its minibatches."""
    needs_current_logp: ClassVar[bool] = False
    """Call `prepare` with the whole minibatch's log-probabilities before its (micro-batched) loss."""

    def __init__(self, config: Any = None):
        self.config: Any = config or self.Config()

    @abstractmethod
    def advantages(self, batch: Batch) -> Tensor:
        """Return advantages (B, T), 0 outside the action mask; called once per batch."""

    @abstractmethod
    def loss(self, logp_BT: Tensor, batch: Batch, denominator: Denominator) -> LossOutput:
        """Return the loss of a batch or a part of it, over the whole batch's `denominator`."""

    def prepare(self, logp_BT: Tensor, batch: Batch) -> None:
        """See a whole minibatch under the current weights, for losses that select over all its tokens."""

    def value_targets(self, batch: Batch) -> Tensor:
        """Return the critic's targets (B, T); only for algorithms that need a critic."""
        raise NotImplementedError(f"{self.name} has no critic")

    def on_arrival(self, trajectory: Trajectory) -> None:
        """See a trajectory in order of arrival, before it is consumed."""

    def accept(self, group: Sequence[Trajectory]) -> str | None:
        """Return why a finished group is not trained on (recorded), or None to keep it."""
        return None

    def on_concept_change(self, concept: Concept) -> None:
        """Hear that the schedule has opened a phase (clairvoyant controls only)."""

    def state_dict(self) -> dict[str, Any]:
        """Return the algorithm's memory as plain data."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`."""


def spread(advantages_B: Tensor, batch: Batch) -> Tensor:
    """Give every action token of a trajectory the trajectory's advantage, (B,) -> (B, T)."""
    return torch.where(batch.action_mask_BT, advantages_B[:, None].to(torch.float32), 0.0)


def policy_inputs(logp_BT: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return what every policy loss takes first: log pi, log mu, advantages, action mask; all (B, T)."""
    assert batch.advantages_BT is not None
    return logp_BT, batch.behavior_logp_BT, batch.advantages_BT, batch.action_mask_BT


def over(denominator: Denominator) -> dict[str, Any]:
    """Return how a loss aggregates, as its keyword arguments."""
    return {"aggregate": denominator.how, "denominator": denominator}
