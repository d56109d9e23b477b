"""SAO without observation skipping: standard GAE over every position of the trajectory.

    delta_t = R_t + gamma V_{t+1} - V_t,   A_t = delta_t + gamma lambda A_{t+1}    t over actions and observations

Source: the ablation of arXiv 2607.07508, section 4. What the environment wrote between two actions counts as steps:
each of its tokens costs a gamma and a lambda, and V is read and fitted there too. The advantages used are those of
the action tokens. With a single turn there is nothing between actions and this is SAO.

Departure: the paper does not say which length goes into lambda = 1 - 1/(alpha l); l stays the number of action
tokens, so that one thing changes.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from sao_bench.batch import Batch
from sao_bench.estimators import skip_observation_gae
from sao_bench.sao import SAO


class SAONoSkip(SAO):
    """SAO with standard GAE: observations count as steps."""

    name: ClassVar[str] = "sao_no_skip"

    def value_mask(self, batch: Batch) -> Tensor:
        """Return everything from the first to the last action token."""
        mask_BT = batch.action_mask_BT
        return (mask_BT.cumsum(1) > 0) & (mask_BT.flip(1).cumsum(1).flip(1) > 0)

    def gae(self, batch: Batch, lam: float | Tensor, bootstrap_B: Tensor | None) -> tuple[Tensor, Tensor]:
        """GAE over every position of `value_mask`; the advantages are those of the action tokens."""
        assert batch.values_BT is not None and batch.value_mask_BT is not None
        advantages_BT, returns_BT = skip_observation_gae(
            batch.values_BT, batch.rewards_BT, batch.value_mask_BT, self.config.gamma, lam, bootstrap_B
        )
        return advantages_BT * batch.action_mask_BT, returns_BT
