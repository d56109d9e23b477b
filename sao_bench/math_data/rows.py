"""From raw rows to problems with typed answers; every row that is left out is counted and has a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from sao_bench.errors import UserError
from sao_bench.grading.answers import judge
from sao_bench.math_data.cells import CellError, answer_text, problem_text
from sao_bench.math_data.damage import answer_type, problem_of_answer, problem_of_problem, shown
from sao_bench.math_data.reading import Broken, raw_rows
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
    """What a source of a set holds: `read` rows = `rows` + `damaged` + `duplicates`.

    `unread` says of each file of a folder that could not be read (to its end) why.
    """

    set: str
    read: int
    rows: tuple[MathRow, ...]
    damaged: tuple[Damage, ...]
    duplicates: int
    unread: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """Return the counts in a line."""
        types = Counter(row.type for row in self.rows)
        counted = ", ".join(f"{kind} {count}" for kind, count in sorted(types.items()))
        unread = f", {len(self.unread)} files not read" if self.unread else ""
        return (
            f"{self.set}: {self.read} rows read, {len(self.rows)} usable ({counted or 'none'}),"
            f" {self.duplicates} duplicates, {len(self.damaged)} damaged{unread}"
        )

    def complaints(self, most: int | None = None) -> list[str]:
        """Return a line for each damaged row and each file not read; after `most`, a count of the rest."""
        wrong = len(self.damaged) + len(self.unread)
        rows = (f"row {damage.number}: {damage.reason}" for damage in self.damaged)
        lines = list(islice(chain(rows, self.unread), most))
        return lines if len(lines) == wrong else [*lines, f"and {wrong - len(lines)} more"]


def load(name: str, sources: str | Path | Iterable[str | Path]) -> Rows:
    """Read a set from files, folders or hub ids.

    Args:
        name: one of `SETS`.
        sources: one or several; rows are numbered through.

    Raises:
        UserError: unknown set, unreadable source, or not one usable row.
    """
    found = survey(name, sources)
    if not found.rows:
        raise _none_usable(found, sources)
    return found


def survey(name: str, sources: str | Path | Iterable[str | Path]) -> Rows:
    """Read a set as `load` does, also one without a usable row: to see what is wrong with it.

    Raises:
        UserError: unknown set, unreadable source, or not one row.
    """
    which = math_set(name)
    given = [sources] if isinstance(sources, str | Path) else list(sources)
    unread: list[str] = []
    found = take(name, chain.from_iterable(raw_rows(source, which, unread) for source in given))
    found = replace(found, unread=tuple(unread))
    if not found.read:
        raise _none_usable(found, given)
    return found


def _none_usable(found: Rows, sources: str | Path | Iterable[str | Path]) -> UserError:
    given = [sources] if isinstance(sources, str | Path) else sources
    why = "; ".join([f"{found.read} read", *found.complaints(3)])
    return UserError(f"{', '.join(map(str, given))}: no usable row of {found.set} ({why})")


def take(name: str, raw: Iterable[Any]) -> Rows:
    """Turn raw rows into problems: the first of equal problems counts, one with another answer is damaged.

    What is no row at all (`Broken`, or no mapping) is damaged too.
    """
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
            answers = f"{shown(first.answer)}, {shown(row.answer)}"
            damaged.append(Damage(read, f"the problem of row {first.number} with another answer: {answers}"))
    return Rows(name, read, tuple(rows), tuple(damaged), duplicates)


def _agree(first: MathRow, second: MathRow) -> bool:
    if first.answer == second.answer:
        return True
    return judge(first.answer, f"\\boxed{{{second.answer}}}", first.type).verdict == "correct"


def _row(which: MathSet, number: int, raw: Any) -> MathRow | Damage:
    if isinstance(raw, Broken):
        return Damage(number, raw.reason)
    if not isinstance(raw, Mapping):
        return Damage(number, "not an object")
    try:
        problem, answer = problem_text(raw, which), answer_text(raw, which)
    except CellError as error:
        return Damage(number, str(error))
    reason = which.checks(dict(raw)) or problem_of_problem(problem, which) or problem_of_answer(answer, which)
    if reason:
        return Damage(number, reason)
    return MathRow(which.name, number, problem, answer, which.answer_type or answer_type(answer))


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
