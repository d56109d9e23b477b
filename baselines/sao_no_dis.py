"""SAO without DIS: every token counts, loss `-sg(r) A log pi` with r = pi/mu and no band around it.

    L = -1/N sum_t sg(r_t) A_t log pi_t

Source: the ablation of arXiv 2607.07508, section 4, which reports that the critic method collapses without
double-sided masking (VAPO without it: 91.3 on AIME 2025, collapse near step 90; SAO: 97.3). A token whose
ratio has left (1 - eps_low, 1 + eps_high) pulls here with its full weight.

Departure: the paper leaves open what replaces DIS. Here nothing does: the importance weight stays and is not capped
(CISPO with its cap at infinity). With a clip in its place this would be `vapo`, but for the critic.
"""

from __future__ import annotations

import math
from typing import ClassVar

from torch import Tensor

from sao_bench.algorithm import over, policy_inputs
from sao_bench.batch import Batch
from sao_bench.losses import Denominator, LossOutput, cispo
from sao_bench.sao import SAO


class SAONoDIS(SAO):
    """SAO without the band: every token counts."""

    name: ClassVar[str] = "sao_no_dis"

    def loss(self, logp_BT: Tensor, batch: Batch, denominator: Denominator) -> LossOutput:
        """Importance-weighted REINFORCE; a cap at infinity is none."""
        return cispo(*policy_inputs(logp_BT, batch), eps_high=math.inf, **over(denominator))
