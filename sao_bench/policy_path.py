"""Success rates per prompt that are forgotten as fast as the policy moves, without keeping old weights (for SPO).

SPO's D (arXiv 2509.13232) is the KL between the policy that last acted on a prompt and the one that acts now, which
would need both. The proxy: the sum, over the updates in between, of each update's mean KL per action token of its
batch (k3 estimator, before against after). It is 0 while the policy stands still and grows with every move; where
moves cancel it is too large, where they agree too small.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from sao_bench.algorithm import AlgorithmConfig
from sao_bench.estimators import BetaTracker


class ForgettingConfig(AlgorithmConfig):
    """How fast the tracker forgets."""

    half_life: float = Field(0.06, gt=0)
    """Divergence that halves the weight of what is remembered."""
    rho_min: float = Field(0.875, ge=0, le=1)
    """Lower bound of the forgetting factor."""
    rho_max: float = Field(0.96, ge=0, le=1)
    """Upper bound of the forgetting factor."""


class PolicyPathTracker(BetaTracker):
    """A Beta tracker that knows which version acted on each prompt last, and how far the policy went since."""

    def __init__(self, **options: float) -> None:
        super().__init__(**options)
        self._path = [0.0]
        """Divergence (nats per token) that the policy has moved through, at each version."""
        self._acted: dict[Hashable, int] = {}

    @classmethod
    def of(cls, config: ForgettingConfig) -> PolicyPathTracker:
        """Return a fresh tracker that forgets as `config` says."""
        return cls(half_life=config.half_life, rho_min=config.rho_min, rho_max=config.rho_max)

    def moved(self, log_r_N: Tensor) -> None:
        """Add an update's divergence from its log-ratios after / before over N action tokens; 0 if there are none."""
        log_r = log_r_N.double()
        self._path.append(self._path[-1] + float(torch.expm1(log_r).sub(log_r).sum()) / max(len(log_r), 1))

    def divergence(self, prompt: Hashable, version: int) -> float:
        """Return how far `version` is from the one that acted on `prompt` last, 0 if none did, and note it."""
        now = min(version, len(self._path) - 1)
        found = abs(self._path[now] - self._path[self._acted.get(prompt, now)])
        self._acted[prompt] = now
        return found

    def judge(self, prompt: Hashable, reward: float, version: int) -> float:
        """Return the reward minus the tracked rate, then forget and count it, clipped to [0, 1]."""
        advantage = reward - self.baseline(prompt)
        self.update(prompt, min(max(reward, 0.0), 1.0), self.divergence(prompt, version))
        return advantage

    def state_dict(self) -> dict[str, Any]:
        """Return counts, path and versions as plain data."""
        return {**super().state_dict(), "path": list(self._path), "acted": dict(self._acted)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`."""
        super().load_state_dict(state)
        self._path, self._acted = list(state["path"]), dict(state["acted"])
