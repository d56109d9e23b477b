"""SPO (single-stream policy optimization, arXiv 2509.13232): a Beta tracker per prompt, clip-higher.

`A = R - alpha/(alpha + beta)` read before the update `alpha <- rho alpha + R`, `beta <- rho beta + 1 - R`, with
`rho = 2^(-D/0.06)` in [0.875, 0.96]; then A is normalised over the batch. A prompt is the text of the first
observation. Departures: prompts come from the schedule (no prioritised sampling); a new prompt starts from 8
pseudo-counts at 1/2 instead of 8 offline rollouts; rewards enter the tracker clipped to [0, 1].

D, the paper's KL between the policy that last acted on the prompt and the one that acts now, would need old
weights. Its proxy here: the sum, over the updates in between, of each update's mean KL per action token of
its batch (k3 estimator, before against after). It is 0 while the policy stands still and grows with every
move; where moves cancel it is too large, where they agree too small.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from sao_bench.algorithm import (
    AlgorithmConfig,
    ArrivalBaseline,
    ClipHigherConfig,
    clip,
    over,
    policy_inputs,
    spread,
)
from sao_bench.batch import Batch
from sao_bench.estimators import BetaTracker, whiten
from sao_bench.losses import Denominator, LossOutput, ppo_clip
from sao_bench.types import Trajectory


class SPOConfig(AlgorithmConfig, ClipHigherConfig):
    """How fast the tracker forgets; the clip is inherited."""

    half_life: float = Field(0.06, gt=0)
    """Divergence that halves the weight of what is remembered."""
    rho_min: float = Field(0.875, ge=0, le=1)
    """Lower bound of the forgetting factor."""
    rho_max: float = Field(0.96, ge=0, le=1)
    """Upper bound of the forgetting factor."""


class SPO(ArrivalBaseline):
    """Forgetting Beta tracker per prompt, clip-higher."""

    name: ClassVar[str] = "spo"
    Config = SPOConfig
    needs_proximal: ClassVar[bool] = True
    needs_updated_logp: ClassVar[bool] = True

    def __init__(self, config: SPOConfig | None = None):
        super().__init__(config)
        c = self.config
        self.memory = BetaTracker(half_life=c.half_life, rho_min=c.rho_min, rho_max=c.rho_max)
        self._path = [0.0]
        """Divergence that the policy has moved through, at each version."""
        self._acted: dict[str, int] = {}
        """The version that acted on each prompt last."""

    def judge(self, trajectory: Trajectory) -> float:
        """Return the reward minus the prompt's tracked success rate, then forget and count."""
        prompt, now = trajectory.prompt, min(trajectory.oldest_version, len(self._path) - 1)
        moved = abs(self._path[now] - self._path[self._acted.get(prompt, now)])
        self._acted[prompt] = now
        advantage = trajectory.reward - self.memory.baseline(prompt)
        self.memory.update(prompt, min(max(trajectory.reward, 0.0), 1.0), moved)
        return advantage

    def advantages(self, batch: Batch) -> Tensor:
        """Return what was found at arrival, normalised over the trajectories with a valid reward."""
        return spread(whiten(self.judged(batch), batch.valid_B), batch)

    def loss(self, logp_BT: Tensor, batch: Batch, denominator: Denominator) -> LossOutput:
        """Clipped surrogate against the behaviour policy."""
        return ppo_clip(*policy_inputs(logp_BT, batch), **clip(self.config), **over(denominator))

    def updated(self, logp_BT: Tensor, batch: Batch) -> None:
        """Add the divergence of this update."""
        assert batch.proximal_logp_BT is not None
        log_r = (logp_BT - batch.proximal_logp_BT)[batch.action_mask_BT].double()
        self._path.append(self._path[-1] + float(torch.expm1(log_r).sub(log_r).sum()) / max(len(log_r), 1))

    def state_dict(self) -> dict[str, Any]:
        """Return the tracker, what waits, and where the policy has been."""
        return {**super().state_dict(), "path": list(self._path), "acted": dict(self._acted)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`."""
        super().load_state_dict(state)
        self._path, self._acted = list(state["path"]), dict(state["acted"])
