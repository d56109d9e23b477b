"""SAO's ablations, one change each (arXiv 2607.07508, section 4): what each part of SAO is worth.

| name | what changes |
|---|---|
| sao_k1 | one critic update per policy update instead of two |
| sao_full_critic | the critic's attention trains too |
| sao_no_dis | every token counts: loss `-sg(r) A log pi` without a band |
| sao_no_skip | standard GAE: observations between actions cost a gamma and a lambda, V is read and fitted there |
| sao_step_average | GAE over turns; V of a turn is the mean over its action tokens |
| sao_last_token | GAE over turns; V of a turn is V at its last action token |
| sao_no_pretraining | the critic starts at 0, without rollouts of the starting policy |
| sao_values_after | V is read after the K fits instead of before |

The paper leaves open what replaces DIS (here nothing does: with a clip instead it is `vapo`, but for the critic)
and which lambda goes with steps; here l stays the action tokens, so that one thing changes at a time.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor
from torch.nn.functional import pad

from sao_bench.algorithm import over, policy_inputs
from sao_bench.batch import Batch
from sao_bench.estimators import skip_observation_gae, step_gae
from sao_bench.losses import Denominator, LossOutput, cispo
from sao_bench.sao import SAO, SAOConfig


class SAOK1Config(SAOConfig):
    """K = 1."""

    critic_updates: int = Field(1, ge=0)
    """K: critic updates per policy update."""


class SAOK1(SAO):
    """SAO with one critic update per policy update."""

    name: ClassVar[str] = "sao_k1"
    Config = SAOK1Config


class SAOFullCriticConfig(SAOConfig):
    """Nothing frozen."""

    critic_freeze: Literal["attention", "none", "backbone"] = "none"
    """What of the critic does not train."""


class SAOFullCritic(SAO):
    """SAO whose critic trains its attention too."""

    name: ClassVar[str] = "sao_full_critic"
    Config = SAOFullCriticConfig


class SAONoDIS(SAO):
    """SAO without the band: every token counts."""

    name: ClassVar[str] = "sao_no_dis"

    def loss(self, logp_BT: Tensor, batch: Batch, denominator: Denominator) -> LossOutput:
        """Importance-weighted REINFORCE; a cap at infinity is none."""
        return cispo(*policy_inputs(logp_BT, batch), eps_high=math.inf, **over(denominator))


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


class _Steps(SAO):
    value: ClassVar[Literal["mean", "last"]]

    def gae(self, batch: Batch, lam: float | Tensor, bootstrap_B: Tensor | None) -> tuple[Tensor, Tensor]:
        """GAE over turns; all action tokens of a turn get its advantage and its return."""
        assert batch.values_BT is not None
        mask_BT, turn_BT = batch.action_mask_BT, batch.turn_ids_BT
        goes_on_BT = pad(mask_BT, (1, -1)) & (turn_BT == pad(turn_BT, (1, -1)))
        return step_gae(
            batch.values_BT, batch.rewards_BT, mask_BT, self.config.gamma, lam, bootstrap_B,
            value=self.value, turn_start_BT=mask_BT & ~goes_on_BT,
        )  # fmt: skip


class SAOStepAverage(_Steps):
    """SAO over turns, valued by the mean of V."""

    name: ClassVar[str] = "sao_step_average"
    value = "mean"


class SAOLastToken(_Steps):
    """SAO over turns, valued by V at their last token."""

    name: ClassVar[str] = "sao_last_token"
    value = "last"


class SAONoPretrainingConfig(SAOConfig):
    """No rollouts for the critic."""

    value_pretrain_episodes: int = Field(0, ge=0)
    """Rollouts of the starting policy that the critic is fitted to before training, off the clock."""


class SAONoPretraining(SAO):
    """SAO without value pre-training."""

    name: ClassVar[str] = "sao_no_pretraining"
    Config = SAONoPretrainingConfig


class SAOValuesAfterConfig(SAOConfig):
    """Read late."""

    values_read: Literal["before", "after"] = "after"
    """Whether V is read for the advantages before or after the K updates."""


class SAOValuesAfter(SAO):
    """SAO that reads V after the critic's fits."""

    name: ClassVar[str] = "sao_values_after"
    Config = SAOValuesAfterConfig
