"""Files of judged answers: a JSON list, or JSON lines, of `{gold, type, reply, verdict}`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from sao_bench.errors import UserError, did_you_mean
from sao_bench.grading.answers.judge import ANSWER_TYPES, Judgement, Verdict, judge

REQUIRED = ("gold", "type", "reply", "verdict")
OPTIONAL = ("note", "tolerance")


@dataclass(frozen=True, slots=True)
class Case:
    """One row of a file: what was asked of the judge, and the right verdict."""

    number: int
    gold: str
    type: str
    reply: str
    verdict: str
    tolerance: float | None = None
    note: str = ""

    def judged(self) -> Judgement:
        """Judge the row."""
        return judge(self.gold, self.reply, self.type, self.tolerance)


def read_cases(path: Path) -> list[Case]:
    """Read a file of cases.

    Raises:
        UserError: the file or a row is not what it has to be; the message names the row.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from error
    cases = [_case(path, number, row) for number, row in enumerate(_rows(path, text), start=1)]
    if not cases:
        raise UserError(f"{path}: no case in it")
    return cases


def _rows(path: Path, text: str) -> list[Any]:
    try:
        if text.lstrip().startswith("["):
            return json.loads(text)
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not a JSON list or JSON lines: {error}") from error


def _case(path: Path, number: int, row: Any) -> Case:
    where = f"{path}: case {number}"
    if not isinstance(row, dict):
        raise UserError(f"{where}: not an object with {', '.join(REQUIRED)}")
    if missing := [key for key in REQUIRED if key not in row]:
        raise UserError(f"{where}: {missing[0]!r} is missing; an object needs {', '.join(REQUIRED)}")
    for key, allowed in (("type", ANSWER_TYPES), ("verdict", get_args(Verdict))):
        if row[key] not in allowed:
            near = did_you_mean(str(row[key]), allowed)
            raise UserError(f"{where}: {key} {row[key]!r} is not one of {', '.join(allowed)}{near}")
    gold, tolerance = row["gold"], row.get("tolerance")
    if not isinstance(gold, str) and not _is_finite(gold):
        raise UserError(f"{where}: gold {gold!r} is not a string or a number")
    if tolerance is not None and not (_is_finite(tolerance) and tolerance >= 0):
        raise UserError(f"{where}: tolerance {tolerance!r} is not a number of at least 0")
    if not isinstance(row["reply"], str):
        raise UserError(f"{where}: reply {row['reply']!r} is not a string")
    return Case(
        number,
        str(gold),
        row["type"],
        row["reply"],
        row["verdict"],
        tolerance,
        str(row.get("note", "")),
    )


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -math.inf < value < math.inf


def check(cases: list[Case]) -> Iterator[tuple[Case, Judgement]]:
    """Judge every case and yield it with its judgement."""
    for case in cases:
        yield case, case.judged()
