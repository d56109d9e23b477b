"""SAO over turns, a turn valued by V at its last action token.

    V_k = V_t at the last action token t of turn k
    delta_k = R_k + gamma V_{k+1} - V_k
    A_k = delta_k + gamma lambda A_{k+1}

Source: the ablation of arXiv 2607.07508, section 4, beside `sao_step_average`, whose GAE it shares. At its last
token a turn is decided: V has seen the whole action, so that delta_k says little about the choice that was made in
it. That is the reason to expect less of it than of values token by token.

Every action token of a turn gets that turn's advantage and return; the critic is trained at each of them and read
at one. Reported after 400 steps: 87.3 on AIME 2025, against 89.8 with values token by token.

Departure: as `sao_step_average`'s: the paper does not say which lambda goes with turns; l in 1 - 1/(alpha l) stays
the number of action tokens of the trajectory, so that one thing changes. With one token per turn this is SAO.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from sao_bench.baselines.sao_step_average import SAOStepAverage


class SAOLastToken(SAOStepAverage):
    """SAO over turns, valued by V at their last token."""

    name: ClassVar[str] = "sao_last_token"
    value: ClassVar[Literal["mean", "last"]] = "last"
    """Which V stands for a turn."""
