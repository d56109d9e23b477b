"""Values of formula trees, and whether two formulas are the same function.

Exact over the rationals wherever the formula allows it (so 1/2^99 is not 1/2^98), else at 400 digits.
Guards bound every intermediate number, so that no nested power can run away.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import mpmath

from sao_bench.grading.answers.formula import TooLargeError, Tree, names
from sao_bench.seeding import generator

MAX_BITS = 20_000
MAX_MAGNITUDE = 1e5
DIGITS = 400
SAME = mpmath.mpf(10) ** -350
POINTS = 12
ENOUGH_POINTS = 3

ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul}


class InexactError(ValueError):
    """The value is not a rational number, or not known to be one."""


class UndefinedError(ValueError):
    """The formula has no value at this point (division by zero, logarithm of zero)."""


def exact(tree: Tree, at: Mapping[str, Fraction] | None = None) -> Fraction:
    """Return the rational value of a tree, with its variables bound to `at`.

    Raises:
        InexactError: a part of it is not rational, or a variable is not bound.
        UndefinedError: a division by zero.
        TooLargeError: a number of more than 20,000 bits.
    """
    kind = tree[0]
    if kind == "number":
        return tree[1]
    if kind == "name":
        if at is None or tree[1] not in at:
            raise InexactError(tree[1])
        return at[tree[1]]
    values = [exact(child, at) for child in tree[1:]]
    if kind in ARITHMETIC:
        return _bounded(ARITHMETIC[kind](*values))
    if kind not in _EXACT:
        raise InexactError(kind)
    return _bounded(_EXACT[kind](*values))


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise TooLargeError("more than 20,000 bits")
    return value


def _divide(a: Fraction, b: Fraction) -> Fraction:
    if not b:
        raise UndefinedError("division by zero")
    return a / b


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        return _power(_root(base, Fraction(exponent.denominator)), Fraction(exponent.numerator))
    if base == 0 and exponent < 0:
        raise UndefinedError("division by zero")
    bits = max(abs(base.numerator).bit_length(), base.denominator.bit_length()) - 1
    if bits and abs(exponent) * bits > MAX_BITS:
        raise TooLargeError("power")
    if base in (0, 1, -1):
        exponent = Fraction(exponent.numerator % 2 or 2 * (exponent != 0))
    return Fraction(base ** int(exponent))


def _root(value: Fraction, degree: Fraction) -> Fraction:
    if degree.denominator != 1 or not 1 <= degree <= 64 or value < 0:
        raise InexactError("root")
    return Fraction(*(_integer_root(part, int(degree)) for part in (value.numerator, value.denominator)))


def _integer_root(value: int, degree: int) -> int:
    low, high = 0, 1 << (value.bit_length() // degree + 1)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if middle**degree < value else (low, middle)
    if low**degree != value:
        raise InexactError("root")
    return low


def _factorial(n: Fraction) -> Fraction:
    if n.denominator != 1 or n < 0:
        raise InexactError("factorial")
    if n > 1500:
        raise TooLargeError("factorial")
    return Fraction(math.factorial(int(n)))


def _binomial(n: Fraction, k: Fraction) -> Fraction:
    if n.denominator != 1 or k.denominator != 1 or n < 0 or k < 0:
        raise InexactError("binomial")
    if n > MAX_BITS:
        raise TooLargeError("binomial")
    return Fraction(math.comb(int(n), int(k)))


_EXACT: dict[str, Any] = {
    "/": _divide,
    "^": _power,
    "root": _root,
    "neg": operator.neg,
    "abs": abs,
    "floor": lambda x: Fraction(math.floor(x)),
    "ceil": lambda x: Fraction(math.ceil(x)),
    "factorial": _factorial,
    "binom": _binomial,
}


def numeric(tree: Tree, at: Mapping[str, Any] | None = None) -> Any:
    """Return the value of a tree as an mpmath number of 400 digits (complex where it is).

    Raises:
        InexactError: a variable is not bound.
        UndefinedError: no finite value here.
        TooLargeError: a magnitude beyond e^100000.
    """
    with mpmath.workdps(DIGITS):
        try:
            return _numeric(tree, at or {})
        except (ZeroDivisionError, ValueError, OverflowError) as error:
            if isinstance(error, InexactError | TooLargeError):
                raise
            raise UndefinedError(str(error)) from error


def _numeric(tree: Tree, at: Mapping[str, Any]) -> Any:
    kind = tree[0]
    if kind == "number":
        return mpmath.mpf(tree[1].numerator) / tree[1].denominator
    if kind == "name":
        if tree[1] in at:
            return at[tree[1]]
        if tree[1] not in _CONSTANTS:
            raise InexactError(tree[1])
        return +_CONSTANTS[tree[1]]
    value = _NUMERIC[kind](*(_numeric(child, at) for child in tree[1:]))
    if not mpmath.isfinite(value):
        raise UndefinedError(kind)
    return value


def _guarded_power(base: Any, exponent: Any) -> Any:
    if base and abs(exponent * mpmath.log(abs(base))) > MAX_MAGNITUDE:
        raise TooLargeError("power")
    return mpmath.power(base, exponent)


def _guarded(function: Any) -> Any:
    """Refuse arguments for which the function's cost or value grows without bound."""

    def call(x: Any) -> Any:
        if abs(x) > MAX_MAGNITUDE:
            raise TooLargeError("argument")
        return function(x)

    return call


def _numeric_root(value: Any, degree: Any) -> Any:
    odd = mpmath.isint(degree) and int(degree.real) % 2
    if odd and mpmath.im(value) == 0 and mpmath.re(value) < 0:
        return -_guarded_power(-value, 1 / degree)
    return _guarded_power(value, 1 / degree)


_CONSTANTS = {"pi": mpmath.pi, "e": mpmath.e, "i": mpmath.mpc(0, 1)}
_NUMERIC: dict[str, Any] = {
    **ARITHMETIC,
    "/": operator.truediv,
    "^": _guarded_power,
    "root": _numeric_root,
    "neg": operator.neg,
    "abs": abs,
    "factorial": _guarded(mpmath.factorial),
    "binom": mpmath.binomial,
    "ln": mpmath.log,
    "log": lambda x, base=None: mpmath.log(x) if base is None else mpmath.log(x) / mpmath.log(base),
    "arcsin": mpmath.asin,
    "arccos": mpmath.acos,
    "arctan": mpmath.atan,
    **{
        name: _guarded(getattr(mpmath, name))
        for name in ["sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "exp", "floor", "ceil"]
    },
}


def same(a: Tree, b: Tree) -> bool | None:
    """Return whether two trees are the same function of their variables; None if that stayed open.

    Rational functions are compared exactly at random rational points (Schwartz-Zippel), others to
    350 digits. Points at which either side is undefined, or not real, are left out while others
    remain.
    """
    results = [_compare(a, b, point) for point in _points(names(a) | names(b))]
    decided = [equal for equal, real in results if equal is not None and real]
    if len(decided) < min(ENOUGH_POINTS, len(results)):
        decided = [equal for equal, _ in results if equal is not None]
    return all(decided) if decided else None


def proportional(a: Tree, b: Tree) -> bool | None:
    """Return whether a = k b for a number k that is not zero; None if that stayed open."""
    variables = names(a) | names(b)
    ratios = []
    for point in _points(variables):
        try:
            top, bottom = _value(a, point), _value(b, point)
        except UndefinedError:
            continue
        if _is_zero(top) and _is_zero(bottom):
            continue
        if _is_zero(top) or _is_zero(bottom):
            return False
        ratios.append(_as_mp(top) / _as_mp(bottom) if type(top) is not type(bottom) else top / bottom)
    if not ratios or (variables and len(ratios) < ENOUGH_POINTS):
        return None
    return all(_equal(ratio, ratios[0]) for ratio in ratios)


def _points(variables: set[str]) -> list[dict[str, Fraction]]:
    if not variables:
        return [{}]
    points = []
    for index in range(POINTS):
        rng = generator(0, "answers.point", index)
        numerators = rng.integers(1, 900, len(variables))
        signs = rng.choice([-1, 1], len(variables)) if index % 2 else [1] * len(variables)
        points.append(
            {
                v: Fraction(int(n) * int(s), 211)
                for v, n, s in zip(sorted(variables), numerators, signs, strict=True)
            }
        )
    return points


def _value(tree: Tree, point: Mapping[str, Fraction]) -> Any:
    try:
        return exact(tree, point)
    except InexactError:
        with mpmath.workdps(DIGITS):
            return numeric(tree, {k: mpmath.mpf(v.numerator) / v.denominator for k, v in point.items()})


def _compare(a: Tree, b: Tree, point: Mapping[str, Fraction]) -> tuple[bool | None, bool]:
    try:
        left, right = _value(a, point), _value(b, point)
    except UndefinedError:
        return None, False
    real = all(mpmath.im(_as_mp(value)) == 0 for value in (left, right))
    return _equal(left, right), real


def _as_mp(value: Any) -> Any:
    with mpmath.workdps(DIGITS):
        return mpmath.mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else value


def _is_zero(value: Any) -> bool:
    return value == 0 if isinstance(value, Fraction) else abs(value) < SAME


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a == b
    with mpmath.workdps(DIGITS):
        left, right = _as_mp(a), _as_mp(b)
        return bool(abs(left - right) <= SAME * max(abs(left), abs(right), SAME))
