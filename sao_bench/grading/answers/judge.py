"""The verdict on a reply, by the type of its gold answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from sao_bench.errors import unknown
from sao_bench.grading.answers.compare import proportional
from sao_bench.grading.answers.deadline import Deadline, TimeUpError
from sao_bench.grading.answers.extract import boxed_answer
from sao_bench.grading.answers.formula import FormulaError, TooLargeError, Tree, parse
from sao_bench.grading.answers.matrices import matrix
from sao_bench.grading.answers.several import gold_items, is_interval, is_matrix, is_set, is_tuple
from sao_bench.grading.answers.single import UndecidedError, gold_number, is_decimal, is_scalar
from sao_bench.grading.answers.symbolic import DEADLINE_S, UnavailableError
from sao_bench.grading.answers.typesetting import plain, unwrap_text
from sao_bench.grading.answers.values import balanced
from sao_bench.grading.answers.words import is_text, squeezed

AnswerType: TypeAlias = Literal[
    "integer", "rational", "decimal", "set", "tuple", "interval", "expression", "equation", "text"
]
Verdict: TypeAlias = Literal["correct", "incorrect", "not_judged"]
ANSWER_TYPES: tuple[str, ...] = get_args(AnswerType)
MAX_CHARACTERS = 10_000
INTERVAL_SIGNS = re.compile(r"[(\[\]{⦃<>≤≥≠ℝ∅]|\b(?:all|any|every) ")


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, why, and the answer text it is about (None: no box)."""

    verdict: Verdict
    reason: str
    answer: str | None


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
        deadline_s: seconds for the whole verdict, computer algebra included.

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
    if len(answer) > MAX_CHARACTERS:
        return Judgement("incorrect", f"more than {MAX_CHARACTERS} characters", answer)
    right, given = plain(boxed_answer(gold) or gold), plain(answer)
    if not right:
        return Judgement("not_judged", "the gold answer is empty", answer)
    try:
        equal = _equal(right, given, type, tolerance, Deadline(deadline_s))
    except (UndecidedError, UnavailableError) as open_question:
        return Judgement("not_judged", str(open_question), answer)
    except TimeUpError as late:
        return Judgement("incorrect", str(late), answer)
    except (ArithmeticError, RecursionError, ValueError) as error:
        return Judgement("not_judged", f"the comparison failed: {error!r}"[:200], answer)
    return Judgement("correct" if equal else "incorrect", f"compared as {type}", answer)


def _equal(right: str, given: str, type: str, tolerance: float | None, deadline: Deadline) -> bool:
    if type == "text":
        return is_text(right, given)
    if type != "interval" and not (_complete(right) and balanced(right)):
        raise UndecidedError("the gold answer is damaged")
    if type == "decimal":
        return is_decimal(right, given, tolerance, deadline)
    _check_gold(right, type)
    return squeezed(right) == squeezed(given) or _BY_TYPE[type](right, given, deadline)


def _check_gold(gold: str, type: str) -> None:
    """Refuse a gold answer that is not of its type: a copy of it is not right."""
    if type in ("integer", "rational"):
        gold_number(gold, integral=type == "integer")
    elif type in ("set", "tuple"):
        gold_items(gold, type)
    elif (type == "equation" and not re.search(r"[^=]=[^=]", gold)) or (
        type == "interval" and not INTERVAL_SIGNS.search(gold)
    ):
        raise UndecidedError(f"the gold answer is not an {type}")


def _complete(text: str) -> bool:
    """Whether a text can be a whole formula: nothing is missing at its end, no number has two points."""
    return not re.search(r"[-+*/^_=,\\]$|(?<!\.)\.\.(?!\.)", text)


def _expression(gold: str, given: str, deadline: Deadline) -> bool:
    rows = matrix(gold)
    if rows is not None:
        return is_matrix(rows, given, deadline)
    if "±" in gold or "∓" in gold:
        return is_set(gold, given, deadline)
    return is_scalar(gold, given, deadline)


def _equation(gold: str, given: str, deadline: Deadline) -> bool:
    """Whether both equations say left - right = 0 up to a factor that is not zero."""
    right = _difference(gold)
    if right is None:
        raise UndecidedError("the gold answer is not an equation")
    found = _difference(given)
    if found is None:
        return False
    try:
        verdict = proportional(right, found, deadline)
    except (TooLargeError, TimeUpError):
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


_BY_TYPE: dict[str, Callable[[str, str, Deadline], bool]] = {
    "integer": lambda gold, given, deadline: is_scalar(gold, given, deadline, letters=True),
    "rational": lambda gold, given, deadline: is_scalar(gold, given, deadline, letters=True),
    "set": is_set,
    "tuple": is_tuple,
    "interval": is_interval,
    "expression": _expression,
    "equation": _equation,
}
