"""SPO (single-stream policy optimization, arXiv 2509.13232): a Beta tracker per prompt, clip-higher.

`A = R - alpha/(alpha + beta)` read before `alpha <- rho alpha + R`, `beta <- rho beta + 1 - R`, rho = 2^(-D/0.06)
in [0.875, 0.96], normalised over the batch. A prompt is the first observation's text. Departures: prompts come from
the schedule (no prioritised sampling); a new one starts from 8 pseudo-counts at 1/2, not 8 offline rollouts; rewards
enter clipped to [0, 1]; D, the divergence since the prompt was last acted on, is `PolicyPathTracker`'s proxy.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from sao_bench.algorithm import ArrivalBaseline, ClipHigherConfig, clip, over, policy_inputs, spread
from sao_bench.batch import Batch
from sao_bench.estimators import whiten
from sao_bench.losses import Denominator, LossOutput, ppo_clip
from sao_bench.policy_path import ForgettingConfig, PolicyPathTracker
from sao_bench.types import Trajectory


class SPOConfig(ForgettingConfig, ClipHigherConfig):
    """Forgetting and clip are inherited."""


class SPO(ArrivalBaseline):
    """Forgetting Beta tracker per prompt, clip-higher."""

    name: ClassVar[str] = "spo"
    Config = SPOConfig
    needs_proximal: ClassVar[bool] = True
    needs_updated_logp: ClassVar[bool] = True

    def __init__(self, config: SPOConfig | None = None):
        super().__init__(config)
        self.memory = PolicyPathTracker.of(self.config)

    def judge(self, trajectory: Trajectory) -> float:
        """Return the reward minus the prompt's tracked success rate, then forget and count."""
        return self.memory.judge(trajectory.prompt, trajectory.reward, trajectory.oldest_version)

    def advantages(self, batch: Batch) -> Tensor:
        """Return what was found at arrival, normalised over the trajectories with a valid reward."""
        return spread(whiten(self.judged(batch), batch.valid_B), batch)

    def loss(self, logp_BT: Tensor, batch: Batch, denominator: Denominator) -> LossOutput:
        """Clipped surrogate against the behaviour policy."""
        return ppo_clip(*policy_inputs(logp_BT, batch), **clip(self.config), **over(denominator))

    def updated(self, logp_BT: Tensor, batch: Batch) -> None:
        """Add the divergence of this update."""
        assert batch.proximal_logp_BT is not None
        self.memory.moved((logp_BT - batch.proximal_logp_BT)[batch.action_mask_BT])
