"""The words of formulas."""

from __future__ import annotations


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


FUNCTIONS = word_set(
    "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh ln log exp lg sqrt abs floor ceil"
)
LISTED = frozenset(["max", "min", "gcd", "lcm"])
"""Functions of a list of arguments."""
ALIASES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan"}
CONSTANTS = frozenset({"pi", "e", "i"})
GREEK = word_set(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau "
    "phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega ell partial"
)
INFIX = {"over": "/", "choose": "binom", "bmod": "mod", "mod": "mod"}
ACCENTS = frozenset(["vec", "overline", "bar", "hat", "widehat", "tilde", "dot", "ddot", "overrightarrow"])
"""Commands that make another name out of a name."""
ENDINGS = frozenset(["rfloor", "rceil", *INFIX])
"""Commands that end what stands before them."""
