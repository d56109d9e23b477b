"""Whether two formulas are the same function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import mpmath

from sao_bench.grading.answers.deadline import Deadline
from sao_bench.grading.answers.evaluate import (
    DIGITS,
    InexactError,
    UndefinedError,
    as_number,
    exact,
    numeric,
    real,
)
from sao_bench.grading.answers.formula import Tree, names
from sao_bench.seeding import generator

SAME = mpmath.mpf(10) ** -350
POINTS = 12
ENOUGH_POINTS = 3
SIZES = (1, 2, 3, 6, 15, 40, 101, 350, 1200, 8001, 10**6, 10**10)
WIDE = [Fraction(0), *(sign * (n + part) for n in SIZES for part in (0, Fraction(5, 13)) for sign in (1, -1))]
"""Values on both sides of the kinks and steps that functions of ordinary problems have, and on the steps."""
WIDE_S = 0.5
WIDE_SAME = mpmath.mpf(10) ** -80


def same(a: Tree, b: Tree, deadline: Deadline) -> bool | None:
    """Return whether two trees are the same function of their variables; None if that stayed open.

    Rational functions are compared exactly at random rational points (Schwartz-Zippel), others to
    350 digits. Points at which either side is undefined, or not real, are left out while others
    remain. What agrees near zero has to agree at whole and large numbers too.

    Raises:
        TooLargeError: a number of either is beyond any answer.
        TimeUpError: the deadline passed.
    """
    results = []
    for point in _points(names(a) | names(b)):
        deadline.check()
        equal, real = _compare(a, b, point)
        if real and equal is False:
            return False
        results.append((equal, real))
    decided = [equal for equal, real in results if equal is not None and real]
    if len(decided) < min(ENOUGH_POINTS, len(results)):
        decided = [equal for equal, _ in results if equal is not None]
    if not decided:
        return None
    return all(decided) and all(_alike(left, right) for left, right in _wide_values(a, b, deadline))


def proportional(a: Tree, b: Tree, deadline: Deadline) -> bool | None:
    """Return whether a = k b for a number k that is not zero; None if that stayed open."""
    variables = names(a) | names(b)
    ratios = []
    for point in _points(variables):
        deadline.check()
        try:
            top, bottom = _value(a, point), _value(b, point)
        except UndefinedError:
            continue
        if _is_zero(top) and _is_zero(bottom):
            continue
        if _is_zero(top) or _is_zero(bottom):
            return False
        ratios.append(_ratio(top, bottom))
    if not ratios or (variables and len(ratios) < ENOUGH_POINTS):
        return None
    factor = _as_mp(ratios[0])
    if not all(_alike(ratio, ratios[0]) for ratio in ratios):
        return False
    if mpmath.im(factor) != 0:
        return True
    return all(_alike(left, right, factor) for left, right in _wide_values(a, b, deadline))


def _ratio(top: Any, bottom: Any) -> Any:
    if isinstance(top, Fraction) and isinstance(bottom, Fraction):
        return top / bottom
    with mpmath.workdps(DIGITS):
        return as_number(top) / as_number(bottom)


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


def _wide_values(a: Tree, b: Tree, deadline: Deadline) -> Iterator[tuple[Any, Any]]:
    """Yield the values at the wide points at which both are real, as many as a part of the time allows."""
    variables = sorted(names(a) | names(b))
    if not variables:
        return
    rng = generator(0, "answers.wide")
    columns = [WIDE, *(rng.permutation(len(WIDE)) for _ in variables[1:])]
    clock = Deadline(min(WIDE_S, deadline.left() / 4))
    for first, *rows in zip(*columns, strict=True):
        if clock.left() <= 0:
            return
        point = dict(zip(variables, (first, *(WIDE[row] for row in rows)), strict=True))
        try:
            yield real(a, point), real(b, point)
        except UndefinedError:
            continue


def _alike(left: Any, right: Any, factor: Any = 1) -> bool:
    """Whether left = factor * right, up to the rounding that `real` allows."""
    if all(isinstance(value, Fraction) for value in (left, right)) and factor == 1:
        return bool(left == right)
    with mpmath.workdps(DIGITS):
        x, y = as_number(left), factor * as_number(right)
        return bool(abs(x - y) <= WIDE_SAME * max(abs(x), abs(y)))


def _value(tree: Tree, point: Mapping[str, Fraction], digits: int = DIGITS) -> Any:
    try:
        return exact(tree, point)
    except InexactError:
        return numeric(tree, point, digits)


def _compare(a: Tree, b: Tree, point: Mapping[str, Fraction]) -> tuple[bool | None, bool]:
    try:
        left, right = _value(a, point), _value(b, point)
        equal = _equal(left, right) or _vanishes(left, right, ("-", a, b), point)
    except UndefinedError:
        return None, False
    real = all(mpmath.im(_as_mp(value)) == 0 for value in (left, right))
    return equal, real


def _vanishes(left: Any, right: Any, difference: Tree, point: Mapping[str, Fraction]) -> bool:
    """Whether a tiny difference is nothing but rounding: with more digits that one shrinks."""
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return False
    with mpmath.workdps(DIGITS):
        tiny = abs(_as_mp(left) - _as_mp(right))
    if tiny > SAME:
        return False
    with mpmath.workdps(2 * DIGITS):
        return bool(abs(numeric(difference, point, 2 * DIGITS)) <= tiny * SAME)


def _as_mp(value: Any) -> Any:
    with mpmath.workdps(DIGITS):
        return as_number(value)


def _is_zero(value: Any) -> bool:
    return value == 0 if isinstance(value, Fraction) else abs(value) < SAME


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a == b
    with mpmath.workdps(DIGITS):
        left, right = _as_mp(a), _as_mp(b)
        return bool(abs(left - right) <= SAME * max(abs(left), abs(right), SAME))


def surely_larger(tree: Tree) -> bool:
    """Whether a tree that is too large to evaluate has a value beyond every number that can be evaluated exactly.

    Only for whole numbers under operations that grow: the size of `2000!/1999!` says nothing.
    """
    if tree[0] == "number":
        return bool(tree[1].denominator == 1 and tree[1] >= 1)
    return tree[0] in ("+", "*", "^", "factorial") and all(surely_larger(child) for child in tree[1:])
