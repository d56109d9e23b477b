"""The texts of a row's problem and answer, taken out of whatever its cells hold."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from numbers import Real
from typing import Any

from sao_bench.grading.answers import boxed_answer
from sao_bench.grading.answers.extract import boxes
from sao_bench.math_data.damage import shown, wrong_characters
from sao_bench.math_data.sets import MathSet

EXACT = 2**53
"""From here on a float does not hold every whole number."""


class CellError(Exception):
    """A cell that cannot be used; the message says why."""


def problem_text(raw: Mapping[str, Any], which: MathSet) -> str:
    """Return the problem of a row: a text, or the last user turn of a chat.

    Raises:
        CellError: there is none.
    """
    value = _chat(_cell(raw, "problem", which.problem))
    if isinstance(value, list | tuple) and value and all(isinstance(turn, Mapping) for turn in value):
        turns = [turn for turn in value if turn.get("role", "user") == "user"]
        if not turns:
            raise CellError("no problem: a chat without a user's turn")
        value = turns[-1].get("content")
    if not isinstance(value, str) and not _is_number(value):
        raise CellError(f"the problem is not text: {shown(value)}")
    problem = _statement(str(value))
    if not problem.strip():
        raise CellError("an empty problem")
    if wrong := wrong_characters(problem):
        raise CellError(f"{wrong} in the problem")
    return problem.strip()


def answer_text(raw: Mapping[str, Any], which: MathSet) -> str:
    """Return the answer of a row: what stands behind the set's mark, and in its box if there is one.

    Raises:
        CellError: there is none, or more than one.
    """
    value = _cell(raw, "answer", which.answer)
    if not isinstance(value, str) and not _is_number(value):
        raise CellError(f"the answer is neither text nor a number: {shown(value)}")
    answer = value if isinstance(value, str) else _number(value)
    if which.after:
        answer = _behind(answer, which.after)
    answer = _unboxed(answer)
    # Before the ends are stripped: a form feed, all that is left of the backslash of \frac, counts as space.
    if wrong := wrong_characters(answer, control=True):
        raise CellError(f"{wrong} in the answer: {shown(answer)}")
    return answer.strip()


def _cell(raw: Mapping[str, Any], what: str, columns: tuple[str, ...]) -> Any:
    """Return what the first of the columns that is there holds."""
    for column in columns:
        value: Any = raw
        for part in column.split("."):
            value = _parsed(value) if isinstance(value, str) else value
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is not None and not (isinstance(value, str) and not value.strip()):
            return value
    raise CellError(f"no {what}: column {' or '.join(columns)} is missing or empty")


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _chat(value: Any) -> Any:
    """Return the turns of a chat that is written as text; anything else as it is."""
    if not isinstance(value, str) or not value.lstrip().startswith("[{"):
        return value
    turns = _parsed(value)
    if turns is None and re.search(r"['\"]content['\"]\s*:", value):
        raise CellError("no problem: a chat that is not JSON")
    return value if turns is None else turns


def _is_number(value: Any) -> bool:
    return isinstance(value, Real | Decimal) and not isinstance(value, bool)


def _number(value: Any) -> str:
    """Return a number as digits; a whole float is an integer."""
    if not math.isfinite(value):
        raise CellError(f"the answer is no finite number: {value}")
    if not isinstance(value, float):
        return format(value, "f") if isinstance(value, Decimal) else str(value)
    if not value.is_integer():
        return format(Decimal(repr(float(value))), "f")
    if abs(value) >= EXACT:
        raise CellError(f"a whole number that was rounded: {value}")
    return str(int(value))


def _behind(answer: str, mark: str) -> str:
    marks = answer.count(mark)
    if marks > 1:
        raise CellError(f"{marks} answers: {mark} is there {marks} times")
    answer = answer.partition(mark)[2].lstrip(" \t$")
    if not answer.strip():
        raise CellError(f"no answer after {mark}")
    return answer


def _unboxed(answer: str) -> str:
    """Return what the box holds; several boxes have to agree."""
    found = list(dict.fromkeys(box.strip() for box in boxes(answer)))
    if not found:
        return answer
    if len(found) > 1:
        raise CellError(f"{len(found)} boxed answers: {', '.join(map(shown, found[:3]))}")
    return boxed_answer(found[0]) or found[0]


_DAPO_HEAD = re.compile(r"\ASolve the following math problem step by step\..*?\n\n", re.S)
_DAPO_TAIL = re.compile(r"\n\nRemember to put your answer on its own line after \"Answer:\"\.?\s*\Z")


def _statement(problem: str) -> str:
    """Drop the instruction that DAPO puts around a problem: it asks for another form of the answer."""
    return _DAPO_TAIL.sub("", _DAPO_HEAD.sub("", problem))
