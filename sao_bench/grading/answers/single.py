"""Verdicts on single values: numbers, decimals, formulas."""

from __future__ import annotations

import re
from fractions import Fraction

from sao_bench.grading.answers.compare import same, surely_larger
from sao_bench.grading.answers.deadline import Deadline, TimeUpError
from sao_bench.grading.answers.evaluate import InexactError, UndefinedError, exact
from sao_bench.grading.answers.formula import TooLargeError, Tree
from sao_bench.grading.answers.scalars import (
    AnswerFormatError,
    Scalar,
    Side,
    approximate,
    chain,
    last_place,
    measured,
    pairs,
    rounds_to,
    scalar,
)
from sao_bench.grading.answers.symbolic import ALGEBRA

SIGNIFICANT_DIGITS = 3
"""A decimal gold with at least so many significant digits stands for everything that rounds to it."""
NOTHING = Fraction(1, 10**350)
"""What the difference of two equal numbers can be after 400 digits of arithmetic."""


class UndecidedError(ValueError):
    """Neither equal nor unequal could be shown; or the gold answer is not of its type."""


def gold_side(text: str, numbers: bool = False) -> str:
    """Return the side of a gold chain that counts: the last one, or the first if the rest only approximates it."""
    found = chain(text, numbers)
    return found[0].text if any(side.rounded for side in found) else found[-1].text


def is_scalar(gold: str, given: str, deadline: Deadline, letters: bool = False) -> bool:
    """Whether every side of the given equality chain equals the gold, or is an approximation beside one that does."""
    gold = gold_side(gold, letters)
    exact_sides, rounded = [], []
    for side in chain(given, letters or _has_no_variables(gold)):
        if one_scalar(gold, side.text, deadline, letters):
            exact_sides.append(side)
        elif side.rounded:
            rounded.append(side)
        else:
            return False
    return bool(exact_sides) and (not rounded or _all_round(gold, rounded, letters))


def _has_no_variables(gold: str) -> bool:
    try:
        approximate(scalar(gold).plain)
    except (AnswerFormatError, TooLargeError):
        return False
    return True


def _all_round(gold: str, rounded: list[Side], letters: bool) -> bool:
    try:
        readings = scalar(gold, letters)
        values = {approximate(readings.plain), approximate(readings.marked)}
    except (AnswerFormatError, TooLargeError):
        return False
    return all(any(rounds_to(value, side.text) for value in values) for side in rounded)


def one_scalar(gold: str, given: str, deadline: Deadline, letters: bool = False) -> bool:
    """Whether two values without equality signs are equal.

    Raises:
        UndecidedError: it stayed open.
    """
    if bare_infinity(gold):
        return bare_infinity(gold) == bare_infinity(given)
    if bare_infinity(given):
        return False
    try:
        right = scalar(gold, letters)
    except (AnswerFormatError, TooLargeError):
        return _algebra(gold, given, deadline, letters)
    try:
        readings = scalar(given, letters)
    except TooLargeError:
        return False
    except AnswerFormatError:
        return "\\" in given and _algebra_or_wrong(gold, given, deadline, letters)
    verdicts = [_same(a, b, deadline) for a, b in pairs(right, readings)]
    if any(verdicts):
        return True
    if None in verdicts:
        raise UndecidedError("the formulas are undefined where they were compared")
    return False


def bare_infinity(text: str) -> str:
    """Return the sign of an infinity, nothing for any other text."""
    match = re.fullmatch(r"([+-]?)∞", re.sub(r"[ {}()]", "", text))
    return (match.group(1) or "+") if match else ""


def _same(right: Tree, given: Tree, deadline: Deadline) -> bool | None:
    """Compare; what cannot be evaluated is wrong if the gold answer can be."""
    try:
        verdict = same(right, given, deadline)
    except (TooLargeError, TimeUpError):
        verdict = None
    if verdict is not None:
        return verdict
    try:
        return False if same(right, right, Deadline(1.0)) else None
    except TimeUpError:
        return None
    except TooLargeError as error:
        if surely_larger(right) and _is_exact(given):
            return False
        raise UndecidedError("the gold answer is too large to evaluate") from error


def _is_exact(tree: Tree) -> bool:
    try:
        exact(tree)
    except (InexactError, TooLargeError):
        return False
    except UndefinedError:
        return True
    return True


def _algebra(gold: str, given: str, deadline: Deadline, letters: bool) -> bool:
    equal = _asked(gold, given, deadline, letters)
    if equal is None:
        raise UndecidedError("computer algebra did not decide")
    return equal


def _algebra_or_wrong(gold: str, given: str, deadline: Deadline, letters: bool) -> bool:
    """The gold is readable: what computer algebra cannot read either is not an answer."""
    return _asked(gold, given, deadline, letters) is True


def _asked(gold: str, given: str, deadline: Deadline, letters: bool) -> bool | None:
    right, found = measured(gold, letters), measured(given, letters)
    if right.factor != found.factor or right.percent != found.percent:
        return None
    return ALGEBRA.same_by(right.value, found.value, deadline)


def gold_number(gold: str, integral: bool) -> None:
    """Check that the gold answer is a number, and a whole one if it has to be.

    Raises:
        UndecidedError: it is none.
    """
    right = _gold_number(gold)
    try:
        whole = approximate(right.plain).denominator == 1
    except AnswerFormatError as error:
        raise UndecidedError(f"the gold answer is not a number: {error}") from error
    except TooLargeError as error:
        whole = surely_larger(right.plain)
        if not whole:
            raise UndecidedError("the gold answer is too large to evaluate") from error
    if integral and not whole:
        raise UndecidedError("the gold answer is not an integer")


def _gold_number(gold: str) -> Scalar:
    try:
        return scalar(gold_side(gold, numbers=True), letters=True)
    except (AnswerFormatError, TooLargeError) as error:
        raise UndecidedError(f"the gold answer is not a number: {error}") from error


def is_decimal(gold: str, given: str, tolerance: float | None, deadline: Deadline) -> bool:
    """Whether every side is within the tolerance of the gold.

    Raises:
        UndecidedError: the gold answer is not a number.
    """
    right = _gold_number(gold)
    try:
        approximate(right.plain)
    except (AnswerFormatError, TooLargeError) as error:
        raise UndecidedError(f"the gold answer is not a number: {error}") from error
    margin = Fraction(str(tolerance)) if tolerance is not None else _rounding(right)
    return all(_near(right, side.text, margin, deadline) for side in chain(given, numbers=True))


def _near(right: Scalar, side: str, margin: Fraction, deadline: Deadline) -> bool:
    try:
        deadline.check()
        given = scalar(side, letters=True)
        for gold, value in pairs(right, given):
            scale = 100 if right.mark == "percent" and gold == right.marked else 1
            wanted = approximate(gold)
            least = abs(wanted) * NOTHING or NOTHING
            if abs(approximate(value) - wanted) <= max(margin / scale, least):
                return True
    except (AnswerFormatError, TooLargeError, TimeUpError):
        return False
    return False


def _rounding(right: Scalar) -> Fraction:
    place = last_place(right.body)
    if place is None or place[1] < SIGNIFICANT_DIGITS or "." not in right.body:
        return Fraction(0)
    return place[0] / 2
