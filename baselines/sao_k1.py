"""SAO with K = 1: one critic update per policy update instead of two.

    for each batch: read V; fit the critic K times to the returns; one policy step

Source: the ablation of arXiv 2607.07508, section 4, for its claim that the critic should be trained faster than the
policy. Here it gets half the fits, each with the same learning rate; everything else is SAO's. Where it should show
is the explained variance after a drift, when V still promises what used to be paid. Reported: 95.0 on AIME 2025,
against 97.3 with K = 2.

Departure: the paper does not say whether its two updates see one batch twice or two halves of it; SAO's default
here is the same batch, so K = 1 sees every trajectory once.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from sao_bench.sao import SAO, SAOConfig


class SAOK1Config(SAOConfig):
    """K = 1."""

    critic_updates: int = Field(1, ge=0)
    """K: critic updates per policy update."""


class SAOK1(SAO):
    """SAO with one critic update per policy update."""

    name: ClassVar[str] = "sao_k1"
    Config = SAOK1Config
