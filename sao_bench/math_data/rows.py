"""From raw rows to problems with typed answers; every row that is left out is counted and has a reason."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from sao_bench.errors import UserError
from sao_bench.grading.answers import judge
from sao_bench.math_data.damage import answer_type, problem_of_answer, problem_of_problem
from sao_bench.math_data.reading import RAGGED, raw_rows
from sao_bench.math_data.sets import MathSet, math_set


@dataclass(frozen=True, slots=True)
class MathRow:
    """One problem: its set, the number of its row (the first is 1), the gold answer and its type."""

    set: str
    number: int
    problem: str
    answer: str
    type: str


@dataclass(frozen=True, slots=True)
class Damage:
    """A row that cannot be used, and why."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class Rows:
    """What a source of a set holds: `read` rows = `rows` + `damaged` + `duplicates`."""

    set: str
    read: int
    rows: tuple[MathRow, ...]
    damaged: tuple[Damage, ...]
    duplicates: int

    @property
    def summary(self) -> str:
        """Return the counts in a line."""
        types = Counter(row.type for row in self.rows)
        counted = ", ".join(f"{kind} {count}" for kind, count in sorted(types.items()))
        return (
            f"{self.set}: {self.read} rows read, {len(self.rows)} usable ({counted or 'none'}),"
            f" {self.duplicates} duplicates, {len(self.damaged)} damaged"
        )


def load(name: str, sources: str | Path | Iterable[str | Path]) -> Rows:
    """Read a set from files, folders or hub ids.

    Args:
        name: one of `SETS`.
        sources: one or several; rows are numbered through.

    Raises:
        UserError: unknown set, unreadable source, or not one usable row.
    """
    which = math_set(name)
    given = [sources] if isinstance(sources, str | Path) else list(sources)
    found = take(name, chain.from_iterable(raw_rows(source, which) for source in given))
    if not found.rows:
        first = f"; row {found.damaged[0].number}: {found.damaged[0].reason}" if found.damaged else ""
        raise UserError(f"{', '.join(map(str, given))}: no usable row of {name} ({found.read} read{first})")
    return found


def take(name: str, raw: Iterable[Mapping[str, Any]]) -> Rows:
    """Turn raw rows into problems: the first of equal problems counts, one with another answer is damaged."""
    which = math_set(name)
    rows: list[MathRow] = []
    damaged: list[Damage] = []
    seen: dict[str, MathRow] = {}
    read = duplicates = 0
    for read, raw_row in enumerate(raw, start=1):
        row = _row(which, read, raw_row)
        if isinstance(row, Damage):
            damaged.append(row)
            continue
        first = seen.setdefault(" ".join(row.problem.split()), row)
        if first is row:
            rows.append(row)
        elif _agree(first, row):
            duplicates += 1
        else:
            reason = (
                f"the problem of row {first.number} with another answer: {first.answer!r}, {row.answer!r}"
            )
            damaged.append(Damage(read, reason))
    return Rows(name, read, tuple(rows), tuple(damaged), duplicates)


def _agree(first: MathRow, second: MathRow) -> bool:
    if first.answer == second.answer:
        return True
    return judge(first.answer, f"\\boxed{{{second.answer}}}", first.type).verdict == "correct"


def _row(which: MathSet, number: int, raw: Mapping[str, Any]) -> MathRow | Damage:
    if RAGGED in raw:
        return Damage(number, f"shifted columns: {raw[RAGGED]} fields")
    values = {}
    for what, columns in (("problem", which.problem), ("answer", which.answer)):
        value = _value(raw, columns)
        if value is None or not _text(value).strip():
            return Damage(number, f"no {what}: column {' or '.join(columns)} is missing or empty")
        values[what] = _text(value).strip()
    problem, answer = _statement(values["problem"]), values["answer"]
    if which.after:
        _, mark, answer = answer.rpartition(which.after)
        answer = answer.strip().lstrip("$")
        if not mark or not answer:
            return Damage(number, f"no answer after {which.after}")
    reason = which.checks(dict(raw)) or problem_of_problem(problem, which) or problem_of_answer(answer, which)
    if reason:
        return Damage(number, reason)
    return MathRow(which.name, number, problem, answer, which.answer_type or answer_type(answer))


def _value(raw: Mapping[str, Any], columns: tuple[str, ...]) -> Any:
    """Return what the first of the columns that is there holds."""
    for column in columns:
        value: Any = raw
        for part in column.split("."):
            if isinstance(value, str):
                try:
                    value = json.loads(value)
                except ValueError:
                    value = None
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is not None:
            return value
    return None


def _text(value: Any) -> str:
    """Return a cell as text: a chat is its last user turn, a whole float an integer."""
    if isinstance(value, str) and value.lstrip().startswith("[{"):
        try:
            value = json.loads(value)
        except ValueError:
            return value
    if isinstance(value, list | tuple) and value and isinstance(value[-1], Mapping):
        return str(value[-1].get("content", ""))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


_DAPO_HEAD = re.compile(r"\ASolve the following math problem step by step\..*?\n\n", re.S)
_DAPO_TAIL = re.compile(r"\n\nRemember to put your answer on its own line after \"Answer:\"\.?\s*\Z")


def _statement(problem: str) -> str:
    """Drop the instruction that DAPO puts around a problem: it asks for another form of the answer."""
    return _DAPO_TAIL.sub("", _DAPO_HEAD.sub("", problem)).strip()


def read_mapping(path: Path) -> dict[str, list[str | Path]]:
    """Read a YAML file `sets: {name: source or list of sources}`; paths are relative to the file.

    Raises:
        UserError: the file cannot be read, or is not of that form.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    form = "sets: {gsm8k: train.jsonl, dapo: [a.parquet, b.parquet], aime_2025: hub}"
    try:
        data = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise UserError(f"{path}: cannot be read: {' '.join(str(error).split())[:200]}") from error
    sets = data.get("sets") if isinstance(data, Mapping) and set(data) == {"sets"} else None
    if not isinstance(sets, Mapping) or not sets:
        raise UserError(f"{path}: not of the form {form}")
    found: dict[str, list[str | Path]] = {}
    for name, sources in sets.items():
        math_set(str(name))
        given = sources if isinstance(sources, list) else [sources]
        if not given or not all(isinstance(source, str) and source for source in given):
            raise UserError(f"{path}: sources of {name}: {sources!r} is not a text or a list of texts")
        found[str(name)] = [
            path.parent / source if (path.parent / source).exists() else source for source in given
        ]
    return found
