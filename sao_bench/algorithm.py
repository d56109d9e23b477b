"""The protocol every training algorithm follows, SAO and baselines alike.

The loop knows no algorithm by name: it asks how large a group is, what else has to be computed (`needs_critic`,
`needs_proximal`, ...), and for advantages and a loss. Defaults of a config are those of the algorithm's source; a
tier is a named preset over them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, TypedDict

import torch
from pydantic import ConfigDict, Field
from torch import Tensor

from sao_bench.batch import Batch
from sao_bench.config import Strict
from sao_bench.losses import Denominator, LossOutput
from sao_bench.types import Concept, Trajectory


class AlgorithmConfig(Strict):
    """What every algorithm has: group size and the policy's optimizer."""

    model_config = ConfigDict(validate_default=True)

    group_size: int = Field(1, ge=1)
    """Rollouts per prompt."""
    policy_lr: float = Field(1e-6, gt=0)
    """Learning rate of the policy (AdamW)."""
    weight_decay: float = Field(0.0, ge=0)
    """Decoupled weight decay of policy and critic."""
    betas: tuple[float, float] = (0.9, 0.95)
    """AdamW's moments."""
    adam_eps: float = Field(1e-8, gt=0)
    """AdamW's epsilon; one near the size of the gradients lets steps shrink as they vanish."""
    max_grad_norm: float = Field(1.0, gt=0)
    """The policy's gradient is clipped to this norm."""
    minibatches: int = Field(1, ge=1)
    """Optimizer steps per batch; more than one needs a proximal policy to stay on."""
    aggregate: Literal["token_mean", "seq_mean_token_mean", "seq_mean_token_sum_norm"] = "token_mean"
    """How per-token losses become one number; the denominator counts masked-out action tokens too."""
    aggregate_constant: float | None = Field(None, gt=0)
    """The constant of `seq_mean_token_sum_norm`."""


class GroupConfig(AlgorithmConfig):
    """Several rollouts of one prompt, judged against each other."""

    group_size: int = Field(8, ge=2)
    """Rollouts per prompt."""


class DISConfig(Strict):
    """A mixin: the band of double-sided importance sampling. Defaults are SAO's for maths (coding: 0.8 and 3.0)."""

    eps_low: float = Field(0.3, ge=0, le=1)
    """The open band's lower edge is 1 - eps_low."""
    eps_high: float = Field(5.0, ge=0)
    """The open band's upper edge is 1 + eps_high."""


class ClipConfig(Strict):
    """A mixin: the clipping range of a PPO-style loss. Defaults are PPO's (arXiv 1707.06347)."""

    eps_low: float = Field(0.2, ge=0, le=1)
    """Clip, lower edge 1 - eps_low."""
    eps_high: float = Field(0.2, ge=0)
    """Clip, upper edge 1 + eps_high."""
    dual_c: float | None = Field(None, gt=1)
    """Dual clip (arXiv 1912.09729): for A < 0 a token's objective is at least dual_c A. Its source uses 3."""


class ClipHigherConfig(ClipConfig):
    """A mixin: DAPO's asymmetric range (arXiv 2503.14476)."""

    eps_high: float = Field(0.28, ge=0)
    """Clip, upper edge 1 + eps_high."""


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
    needs_updated_logp: ClassVar[bool] = False
    """Call `updated` with the whole batch's log-probabilities under the weights after its last update."""
    clairvoyant: ClassVar[bool] = False
    """Hears of every phase, also where the schedule notifies nobody. For controls only."""

    def __init__(self, config: Any = None):
        self.config: Any = config or self.Config()
        self.batch_size = 0
        self.reply_tokens: int | None = None
        self.restart = False
        """Set it, and the learner starts the next update with fresh optimizers (and clears it)."""
        self.expert = ""
        """Name of the weights that the next update learns on; a new one starts as the run did. For controls only."""

    def bind(self, batch_size: int, reply_tokens: int) -> None:
        """Hear the run's trajectories per batch and token budget of one action, before the first episode."""
        self.batch_size = batch_size
        self.reply_tokens = reply_tokens

    @abstractmethod
    def advantages(self, batch: Batch) -> Tensor:
        """Return advantages (B, T), 0 outside the action mask; called once per batch."""

    @abstractmethod
    def loss(self, logp_BT: Tensor, batch: Batch, denominator: Denominator) -> LossOutput:
        """Return the loss of a batch or a part of it, over the whole batch's `denominator`."""

    def action_mask(self, batch: Batch) -> Tensor:
        """Return which tokens (B, T) are trained on and counted; called first, once per batch."""
        return batch.action_mask_BT

    def denominator(self, batch: Batch) -> Denominator:
        """Return what the token losses of a minibatch are divided by."""
        return Denominator.of(batch.action_mask_BT, self.config.aggregate, self.config.aggregate_constant)

    def prepare(self, logp_BT: Tensor, batch: Batch) -> None:
        """See a whole minibatch under the current weights, for losses that select over all its tokens."""

    def updated(self, logp_BT: Tensor, batch: Batch) -> None:
        """See a whole batch under the weights that its last update gave."""

    def value_mask(self, batch: Batch) -> Tensor:
        """Return the positions (B, T) whose value is read and trained: the action tokens by default."""
        return batch.action_mask_BT

    def value_targets(self, batch: Batch) -> Tensor:
        """Return the critic's targets (B, T); only for algorithms that need a critic."""
        raise NotImplementedError(f"{self.name} has no critic")

    def metrics(self) -> dict[str, float]:
        """Return what is recorded of this batch beside what the learner records; called once, at its end."""
        return {}

    def on_arrival(self, trajectory: Trajectory) -> None:
        """See a trajectory in order of arrival, before it is consumed."""

    def accept(self, group: Sequence[Trajectory]) -> str | None:
        """Return why a finished group is not trained on (recorded), or None to keep it."""
        return None

    def on_concept_change(self, concept: Concept) -> None:
        """Hear that the schedule has opened a phase (if it notifies, or the algorithm is clairvoyant)."""

    def state_dict(self) -> dict[str, Any]:
        """Return the algorithm's memory as plain data."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`."""


class ArrivalBaseline(Algorithm):
    """Base of the single-rollout algorithms that judge a reward by those that arrived before it.

    Subclasses set `memory` and write `judge`. What waits to be consumed is kept with the memory, so that a
    resumed run goes on as it would have.
    """

    memory: Any
    """Has `state_dict` and `load_state_dict`."""

    def __init__(self, config: Any = None):
        super().__init__(config)
        self._waiting: dict[int, float] = {}

    @abstractmethod
    def judge(self, trajectory: Trajectory) -> float:
        """Return the advantage of a trajectory against the memory, then remember it."""

    def on_arrival(self, trajectory: Trajectory) -> None:
        """Judge and remember; a fault has no reward to judge."""
        if trajectory.reward_valid:
            self._waiting[trajectory.index] = self.judge(trajectory)

    def judged(self, batch: Batch) -> Tensor:
        """Return what was found at arrival (B,), and forget it; 0 for a fault."""
        return torch.tensor([self._waiting.pop(t.index, 0.0) for t in batch.trajectories])

    def advantages(self, batch: Batch) -> Tensor:
        """Return what was found at arrival, the same for every token."""
        return spread(self.judged(batch), batch)

    def state_dict(self) -> dict[str, Any]:
        """Return the memory and the advantages of trajectories that wait to be consumed."""
        return {"memory": self.memory.state_dict(), "waiting": dict(self._waiting)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`."""
        self.memory.load_state_dict(state["memory"])
        self._waiting = dict(state["waiting"])


def spread(advantages_B: Tensor, batch: Batch) -> Tensor:
    """Give every action token of a trajectory the trajectory's advantage, (B,) -> (B, T)."""
    return torch.where(batch.action_mask_BT, advantages_B[:, None].to(torch.float32), 0.0)


def among_valid(estimator: Callable[..., Tensor], batch: Batch, **options: Any) -> Tensor:
    """Return a group estimator's advantages (B,) over the trajectories whose reward is valid; 0 for the rest.

    A fault has no reward: counted as 0 it would move its group's mean. A member whose whole group failed
    beside it has nothing to be compared with: 0.
    """
    valid_B, advantages_B = batch.valid_B, torch.zeros_like(batch.rewards_B)
    rewards, groups = batch.rewards_B[valid_B], batch.group_ids_B[valid_B]
    advantages_B[valid_B] = estimator(rewards, groups, allow_singletons=True, **options)
    return advantages_B


def policy_inputs(logp_BT: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return what every policy loss takes first: log pi, log mu, advantages, action mask; all (B, T)."""
    assert batch.advantages_BT is not None
    return logp_BT, batch.behavior_logp_BT, batch.advantages_BT, batch.action_mask_BT


class _Over(TypedDict):
    aggregate: str
    denominator: Denominator


class _Band(TypedDict):
    eps_low: float
    eps_high: float


class _Clip(_Band):
    dual_c: float | None


def over(denominator: Denominator) -> _Over:
    """Return how a loss aggregates, as its keyword arguments."""
    return {"aggregate": denominator.how, "denominator": denominator}


def band(config: DISConfig) -> _Band:
    """Return the band of a config as keyword arguments of `dis`."""
    return {"eps_low": config.eps_low, "eps_high": config.eps_high}


def clip(config: ClipConfig) -> _Clip:
    """Return the clipping range of a config as keyword arguments of the clip losses."""
    return {"eps_low": config.eps_low, "eps_high": config.eps_high, "dual_c": config.dual_c}
