"""The verdict on a reply, by the type of its gold answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias, get_args

from sao_bench.errors import unknown
from sao_bench.grading.answers.evaluate import proportional, same
from sao_bench.grading.answers.extract import boxed_answer, plain, unwrap_text
from sao_bench.grading.answers.formula import FormulaError, TooLargeError, Tree, parse
from sao_bench.grading.answers.symbolic import ALGEBRA, DEADLINE_S, UnavailableError
from sao_bench.grading.answers.values import (
    AnswerFormatError,
    approximate,
    intervals,
    number_readings,
    set_items,
    sides,
    tuple_items,
)

AnswerType: TypeAlias = Literal[
    "integer", "rational", "decimal", "set", "tuple", "interval", "expression", "equation", "text"
]
Verdict: TypeAlias = Literal["correct", "incorrect", "not_judged"]
ANSWER_TYPES: tuple[str, ...] = get_args(AnswerType)

SIGNIFICANT_DIGITS = 3
"""A decimal gold with at least so many significant digits stands for everything that rounds to it."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, why, and the answer text it is about (None: no box)."""

    verdict: Verdict
    reason: str
    answer: str | None


class UndecidedError(ValueError):
    """Neither equal nor unequal could be shown; or the gold answer is not of its type."""


def judge(
    gold: str,
    reply: str,
    type: str,
    tolerance: float | None = None,
    deadline_s: float = DEADLINE_S,
) -> Judgement:
    """Judge a reply's boxed answer against the gold answer.

    Args:
        gold: the right answer, LaTeX or plain, with or without a box.
        reply: everything the candidate said.
        type: one of `ANSWER_TYPES`.
        tolerance: for `decimal`, the largest absolute error that is right (inclusive). Without one, a gold
            of three or more significant digits accepts what rounds to it, a shorter one only its own value.
        deadline_s: seconds for computer algebra, where it is needed at all.

    Returns:
        `not_judged` when the gold answer is damaged (not of its type) or equality stayed open.

    Raises:
        UserError: the type is unknown.
    """
    if type not in ANSWER_TYPES:
        raise unknown("answer type", type, ANSWER_TYPES)
    answer = boxed_answer(reply)
    if answer is None or not answer:
        return Judgement("incorrect", "no boxed answer", answer)
    right, given = plain(boxed_answer(gold) or gold), plain(answer)
    if not right:
        return Judgement("not_judged", "the gold answer is empty", answer)
    try:
        if type == "decimal":
            equal = _decimal(right, given, tolerance)
        else:
            equal = _squeezed(right) == _squeezed(given) or _EQUAL[type](right, given, deadline_s)
    except UndecidedError as open_question:
        return Judgement("not_judged", str(open_question), answer)
    except UnavailableError as missing:
        return Judgement("not_judged", str(missing), answer)
    return Judgement("correct" if equal else "incorrect", f"compared as {type}", answer)


def _squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


def _scalar(gold: str, given: str, deadline_s: float) -> bool:
    """Whether every side of the given equality chain equals the gold."""
    gold = sides(gold)[-1]
    return all(_one_scalar(gold, side, deadline_s) for side in sides(given))


def _one_scalar(gold: str, given: str, deadline_s: float) -> bool:
    try:
        right = number_readings(gold)
    except (AnswerFormatError, TooLargeError):
        return _algebra(gold, given, deadline_s)
    try:
        readings = number_readings(given)
    except TooLargeError:
        return False
    except AnswerFormatError:
        return "\\" in given and "," not in given and _algebra_or_wrong(gold, given, deadline_s)
    verdicts = [_same(a, b) for a in right for b in readings]
    if any(verdicts):
        return True
    if None in verdicts:
        raise UndecidedError("the formulas are undefined where they were compared")
    return False


def _same(right: Tree, given: Tree) -> bool | None:
    try:
        same(right, right)
    except TooLargeError as error:
        raise UndecidedError("the gold answer is too large to evaluate") from error
    try:
        return same(right, given)
    except TooLargeError:
        return False


def _algebra(gold: str, given: str, deadline_s: float) -> bool:
    equal = ALGEBRA.same(gold, given, deadline_s)
    if equal is None:
        raise UndecidedError("computer algebra did not decide")
    return equal


def _algebra_or_wrong(gold: str, given: str, deadline_s: float) -> bool:
    """The gold is readable: what computer algebra cannot read either is not an answer."""
    return ALGEBRA.same(gold, given, deadline_s) is True


def _number(gold: str, given: str, deadline_s: float, integral: bool) -> bool:
    try:
        value = approximate(number_readings(sides(gold)[-1])[0])
    except (AnswerFormatError, TooLargeError) as error:
        raise UndecidedError(f"the gold answer is not a number: {error}") from error
    if integral and value.denominator != 1:
        raise UndecidedError("the gold answer is not an integer")
    return _scalar(gold, given, deadline_s)


def _decimal(gold: str, given: str, tolerance: float | None) -> bool:
    """Whether every side is within the tolerance of the gold."""
    try:
        readings = [approximate(tree) for tree in number_readings(sides(gold)[-1])]
    except (AnswerFormatError, TooLargeError) as error:
        raise UndecidedError(f"the gold answer is not a number: {error}") from error
    margin = Fraction(str(tolerance)) if tolerance is not None else _rounding(gold)
    return all(_near(readings, side, margin) for side in sides(given))


def _near(gold: list[Fraction], side: str, margin: Fraction) -> bool:
    try:
        values = [approximate(tree) for tree in number_readings(side)]
    except (AnswerFormatError, TooLargeError):
        return False
    return any(abs(value - right) <= margin for value in values for right in gold)


def _rounding(gold: str) -> Fraction:
    match = re.search(r"(\d*)\.(\d+)", gold)
    if not match or len((match.group(1) + match.group(2)).lstrip("0")) < SIGNIFICANT_DIGITS:
        return abs(Fraction(1, 10**12))
    return Fraction(1, 2 * 10 ** len(match.group(2)))


def _items(read: Callable[[str], list[str]], gold: str, given: str) -> tuple[list[str], list[str]] | None:
    """Return both sides' items; None when the given answer is of another type."""
    try:
        right = read(gold)
    except AnswerFormatError as error:
        raise UndecidedError(f"the gold answer is not of its type: {error}") from error
    try:
        return right, read(given)
    except AnswerFormatError:
        return None


def _nested(gold: str, given: str, deadline_s: float) -> bool:
    """Compare elements: tuples and sets inside, numbers and formulas, else words."""
    if gold[:1] in ("⦃",) or given[:1] in ("⦃",):
        return gold[:1] == given[:1] and _set(gold, given, deadline_s)
    if gold[:1] == "(" and "," in gold:
        return given[:1] == "(" and _tuple(gold, given, deadline_s)
    if len(gold) > 2 and gold.isalpha():
        return _text(gold, given, deadline_s)
    try:
        number_readings(gold)
    except (AnswerFormatError, TooLargeError):
        if "\\" not in gold:
            return _text(gold, given, deadline_s)
    return _one_scalar(gold, given, deadline_s)


def _set(gold: str, given: str, deadline_s: float) -> bool:
    items = _items(set_items, gold, given)
    if items is None:
        return False
    right, found = items

    def covers(some: list[str], others: list[str]) -> bool:
        return all(any(_nested(a, b, deadline_s) for b in others) for a in some)

    return covers(right, found) and covers(found, right)


def _tuple(gold: str, given: str, deadline_s: float) -> bool:
    items = _items(tuple_items, gold, given)
    if items is None or len(items[0]) != len(items[1]):
        return False
    return all(_nested(a, b, deadline_s) for a, b in zip(*items, strict=True))


def _interval(gold: str, given: str, deadline_s: float) -> bool:
    try:
        right = _merged(gold)
    except (AnswerFormatError, TooLargeError) as error:
        raise UndecidedError(f"the gold answer is not an interval: {error}") from error
    try:
        return right == _merged(given)
    except (AnswerFormatError, TooLargeError):
        return False


def _merged(text: str) -> list[tuple[tuple[Fraction, int], tuple[Fraction, int]]]:
    """Return disjoint intervals in order. An end is (value, -1 / 0 / 1): just below, at or just above it."""
    cuts = []
    for low, low_closed, high, high_closed in intervals(text):
        start = (_end(low), -1 if low_closed else 1)
        stop = (_end(high), 1 if high_closed else -1)
        if start < stop:
            cuts.append((start, stop))
    merged: list[tuple[tuple[Fraction, int], tuple[Fraction, int]]] = []
    for start, stop in sorted(cuts):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], stop))
        else:
            merged.append((start, stop))
    return merged


INFINITY = Fraction(10) ** 7000
"""Stands for an infinite end: larger than any number that `approximate` returns."""


def _end(text: str) -> Fraction:
    bare = text.replace(" ", "").lstrip("+")
    if bare in ("∞", "-∞"):
        return INFINITY if bare == "∞" else -INFINITY
    value = approximate(number_readings(text)[0])
    return value.limit_denominator(10**30) if value.denominator.bit_length() > 100 else value


def _equation(gold: str, given: str, deadline_s: float) -> bool:
    """Whether both equations say left - right = 0 up to a factor that is not zero."""
    right = _difference(gold)
    if right is None:
        raise UndecidedError("the gold answer is not an equation")
    found = _difference(given)
    if found is None:
        return False
    try:
        verdict = proportional(right, found)
    except TooLargeError:
        return False
    if verdict is None:
        raise UndecidedError("the equations are undefined where they were compared")
    return verdict


def _difference(text: str) -> Tree | None:
    parts = unwrap_text(text).split("=")
    if len(parts) != 2:
        return None
    try:
        return ("-", parse(parts[0]), parse(parts[1]))
    except (FormulaError, TooLargeError):
        return None


def _text(gold: str, given: str, deadline_s: float) -> bool:
    right, found = _words(gold), _words(given)
    if re.fullmatch(r"[a-z]", right):
        choice = re.match(r"([a-z])(?=$|[.:)])", found)
        return bool(choice) and choice.group(1) == right  # type: ignore[union-attr]
    return right == found


def _words(text: str) -> str:
    bare = unwrap_text(text).replace("{", "").replace("}", "").strip(" .'\"`“”")
    if option := re.fullmatch(r"\(([a-zA-Z])\)(.*)", bare):
        bare = f"{option.group(1)}){option.group(2)}" if option.group(2) else option.group(1)
    return re.sub(r"\s+", " ", bare).strip().casefold()


_EQUAL: dict[str, Callable[[str, str, float], bool]] = {
    "integer": lambda gold, given, deadline_s: _number(gold, given, deadline_s, integral=True),
    "rational": lambda gold, given, deadline_s: _number(gold, given, deadline_s, integral=False),
    "set": _set,
    "tuple": _tuple,
    "interval": _interval,
    "expression": _scalar,
    "equation": _equation,
    "text": _text,
}
