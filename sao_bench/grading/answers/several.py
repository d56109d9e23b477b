"""Verdicts on answers of several values: sets, tuples, intervals, matrices."""

from __future__ import annotations

from collections.abc import Callable

from sao_bench.grading.answers.deadline import Deadline
from sao_bench.grading.answers.formula import TooLargeError
from sao_bench.grading.answers.intervals import interval_set
from sao_bench.grading.answers.matrices import matrix
from sao_bench.grading.answers.scalars import AnswerFormatError, scalar
from sao_bench.grading.answers.single import UndecidedError, one_scalar
from sao_bench.grading.answers.typesetting import unwrap_text
from sao_bench.grading.answers.values import Item, in_order, set_items, tuple_items
from sao_bench.grading.answers.words import is_text


def _items(read: Callable[[str], list[Item]], gold: str, given: str) -> tuple[list[Item], list[Item]] | None:
    """Return both sides' items; None when the given answer is of another type."""
    right = _gold_items(read, gold)
    try:
        return right, read(given)
    except AnswerFormatError:
        return None


def _gold_items(read: Callable[[str], list[Item]], gold: str) -> list[Item]:
    try:
        return read(gold)
    except AnswerFormatError as error:
        raise UndecidedError(f"the gold answer is not of its type: {error}") from error


def gold_items(gold: str, type: str) -> None:
    """Check that the gold answer is a `set` or a `tuple`.

    Raises:
        UndecidedError: it is not.
    """
    _gold_items(set_items if type == "set" else tuple_items, gold)


def _nested(gold: str, given: str, deadline: Deadline) -> bool:
    """Compare elements: tuples and sets inside, numbers and formulas, else words."""
    deadline.check()
    if gold[:1] in ("⦃",) or given[:1] in ("⦃",):
        return gold[:1] == given[:1] and is_set(gold, given, deadline)
    if gold[:1] == "(" and "," in gold:
        return given[:1] == "(" and is_tuple(gold, given, deadline)
    words = unwrap_text(gold)
    if len(words) > 2 and words.isalpha():
        return is_text(words, unwrap_text(given))
    try:
        scalar(gold)
    except (AnswerFormatError, TooLargeError):
        if "\\" not in words and "∞" not in words:
            return is_text(words, unwrap_text(given))
    return one_scalar(gold, given, deadline)


def is_set(gold: str, given: str, deadline: Deadline) -> bool:
    """Whether both have the same elements; values of different unknowns have to be of the same unknown.

    Raises:
        UndecidedError: the gold answer is no set, or it stayed open.
    """
    items = _items(set_items, gold, given)
    if items is None:
        return False
    right, found = (list(dict.fromkeys(side)) for side in items)
    named = all(item.name for item in (*right, *found)) and bool(right)

    def covers(some: list[Item], others: list[Item]) -> bool:
        return all(
            any(_nested(a.text, b.text, deadline) for b in others if not named or a.name == b.name)
            for a in some
        )

    return covers(right, found) and covers(found, right)


def is_tuple(gold: str, given: str, deadline: Deadline) -> bool:
    """Whether both have the same entries in the same order.

    Raises:
        UndecidedError: the gold answer is no tuple, or it stayed open.
    """
    items = _items(tuple_items, gold, given)
    if items is None or len(items[0]) != len(items[1]):
        return False
    right = in_order(items[0], [])
    found = in_order(items[1], right)
    return all(_nested(a.text, b.text, deadline) for a, b in zip(right, found, strict=True))


def is_interval(gold: str, given: str, deadline: Deadline) -> bool:
    """Whether both are the same union of intervals.

    Raises:
        UndecidedError: the gold answer is none.
    """
    try:
        right = interval_set(gold, strict=True)
    except (AnswerFormatError, TooLargeError) as error:
        raise UndecidedError(f"the gold answer is not an interval: {error}") from error
    try:
        return right == interval_set(given)
    except (AnswerFormatError, TooLargeError):
        return False


def is_matrix(gold: list[list[str]], given: str, deadline: Deadline) -> bool:
    """Whether both have the same entries in the same places."""
    found = matrix(given)
    if found is None or [len(row) for row in gold] != [len(row) for row in found]:
        return False
    return all(
        one_scalar(a, b, deadline)
        for row, other in zip(gold, found, strict=True)
        for a, b in zip(row, other, strict=True)
    )
