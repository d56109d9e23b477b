"""SAO that reads V after the critic's fits instead of before.

    SAO:   V = V_phi;  phi <- K fits;  A = GAE(R, V)
    here:  phi <- K fits;  V = V_phi;  A = GAE(R, V)

Source: a question that arXiv 2607.07508 leaves open, which fits the critic and uses it in the same update. A critic
that has just been fitted to a batch's own returns knows part of what it is asked to judge: the better the fit, the
nearer A = G - V comes to 0, whatever the action was worth. That the advantage shrinks can be read off
`advantage_std`.

Departure: none beside SAO's own.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from sao_bench.sao import SAO, SAOConfig


class SAOValuesAfterConfig(SAOConfig):
    """Read late."""

    values_read: Literal["before", "after"] = "after"
    """Whether V is read for the advantages before or after the K updates."""


class SAOValuesAfter(SAO):
    """SAO that reads V after the critic's fits."""

    name: ClassVar[str] = "sao_values_after"
    Config = SAOValuesAfterConfig
