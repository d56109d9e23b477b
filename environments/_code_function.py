"""A repair in progress of one function: its text, its tests and its verdict."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from sao_bench.environments._code_mutations import clone, neighbours
from sao_bench.environments._code_running import TooLargeError, run, run_source
from sao_bench.environments._code_sandbox import function_grader
from sao_bench.environments._code_tasks import RepairTask, judge
from sao_bench.environments._code_tools import Call, repair, report, shown

from sao_bench.grading.functions import Case, FunctionTask, Outcome
from sao_bench.grading.grade import Grade, signs_in
from sao_bench.grading.plain import has_opaque

MAX_PARSED = 2000
"""Longer texts are never parsed in this process, only in the sandbox."""

CLOSE = 2
"""Up to this difficulty the neighbourhood of a task is small enough to look a program up in."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a submission earned: by which label, of FAIL_TO_PASS and PASS_TO_PASS how many, and signs of cheating."""

    earned: bool
    label: str
    failing: int
    passing: int
    signs: tuple[str, ...] = ()
    fault: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class TestRun:
    """The reports of the visible tests that failed, and how many passed."""

    reports: tuple[str, ...]
    passed: int
    fault: dict[str, str] | None = None


class Repair(Protocol):
    """A repair in progress, of one function or of a repository."""

    files: dict[str, list[str]]

    def issue(self, style: str) -> tuple[str, str, str]:
        """Return a function, what it should give, and the report of a test of it that fails."""

    def test(self, style: str) -> TestRun:
        """Run the visible tests."""

    def submit(self, strictness: str) -> Verdict:
        """Run every test."""

    def next_edit(self, strictness: str) -> Call | None:
        """Return the next edit of the oracle, or None once there is nothing left to do."""


class FunctionRepair:
    """A repair of one function.

    What a model wrote runs in the sandbox. Where it is, as a tree, a program that the generator makes itself
    (gold, base, or one substitution away from either), that program is run in its place, without a sandbox.

    Args:
        task: what is to be repaired.
        indent: spaces per level of the text that is shown and edited.
    """

    def __init__(self, task: RepairTask, indent: int = 1):
        self.task = task
        self.indent = indent
        self.files = {"": self._lines(self.task.base)}
        self._found: dict[tuple[str, bool], list[Outcome] | Grade] = {}

    @property
    def source(self) -> str:
        """Return the text as it stands."""
        return "\n".join(self.files[""]) + "\n"

    def issue(self, style: str) -> tuple[str, str, str]:
        """Return the entry, its words and the report of its visible failing test."""
        task = self.task
        found = run_source(task.base, task.entry, [test.args for test in task.tests if test.visible])
        return task.entry, task.words, next(self._reports(found, style))

    def test(self, style: str) -> TestRun:
        """Run the visible tests on the text as it stands."""
        found = self._outcomes(visible=True)
        if isinstance(found, Grade) and found.fault:
            return TestRun((), 0, found.fault)
        reports = tuple(self._reports(found, style))
        return TestRun(reports, sum(test.visible for test in self.task.tests) - len(reports))

    def submit(self, strictness: str) -> Verdict:
        """Run every test on the text as it stands."""
        found = self._outcomes(visible=False)
        signs = signs_in([self.source])
        if isinstance(found, Grade):
            return Verdict(False, found.label, 0, 0, signs, found.fault)
        earned, failing, passing = judge(self.task, found, strictness)
        wrong = "opaque_value" if any(has_opaque(value) for _, value in found) else "wrong_answer"
        return Verdict(earned, "correct" if earned else wrong, failing, passing, signs)

    def next_edit(self, strictness: str) -> Call | None:
        """Return the gold edit; where the visible tests suffice, the shorter one that writes the answer down."""
        target = self.task.hard_coded if strictness == "visible" else self.task.gold
        return self.edit_to(target)

    def edit_to(self, target: str) -> Call | None:
        """Return the edit that makes the text a program of one space per level, or None if it is that."""
        after = "\n".join(self._lines(target)) + "\n"
        return None if after == self.source else repair(self.source, after)

    def _lines(self, source: str) -> list[str]:
        return re.sub("(?m)^ +", lambda found: found[0] * self.indent, source).splitlines()

    def _outcomes(self, visible: bool) -> list[Outcome] | Grade:
        """Return what comes of the visible tests or of all, or the grade of a program that cannot be called."""
        place = (self.source, visible)
        if place not in self._found:
            self._found[place] = self._run(*place)
        return self._found[place]

    def _run(self, source: str, visible: bool) -> list[Outcome] | Grade:
        tests = [test for test in self.task.tests if test.visible or not visible]
        try:
            mark = _mark(source)
        except SyntaxError as error:
            return Grade(0.0, "error", 0, len(tests), detail=f"SyntaxError: {error.msg}")
        known = None if mark is None else _known(self.task, mark)
        if known is not None:
            try:
                return run(known, self.task.entry, [test.args for test in tests])
            except TooLargeError:
                return Grade(0.0, "limit", 0, len(tests), detail="too large")
        cases = tuple(Case(test.args) for test in tests)
        return function_grader().outcomes(FunctionTask(self.task.entry, cases), source)

    def _reports(self, found: list[Outcome] | Grade, style: str) -> Iterator[str]:
        """Yield the reports of the visible tests that fail, exceptions told apart."""
        for i, test in enumerate(test for test in self.task.tests if test.visible):
            got = _failure(found) if isinstance(found, Grade) else shown(*found[i])
            if isinstance(found, Grade) or not test.passes(found[i], exact=True):
                call = call_text(self.task.entry, test.args)
                yield report(style, i + 1, call, shown(test.raises, test.expected), got)


def _failure(grade: Grade) -> str:
    """Return why a program gave no outcomes, in a few words."""
    return grade.detail.partition(":")[0] if grade.label == "error" else grade.label.replace("_", " ")


def call_text(entry: str, arguments: tuple[Any, ...]) -> str:
    """Return a call as compact source."""
    return f"{entry}({','.join(repr(value).replace(', ', ',') for value in arguments)})"


def _mark(source: str) -> str | None:
    """Return the dump of a text's tree, or None where it is not safe to find out here: nothing is run by parsing.

    Raises:
        SyntaxError: it has none, wherever it is parsed.
    """
    if len(source) > MAX_PARSED or not source.isascii():
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.dump(ast.parse(source))
    except (ValueError, RecursionError, MemoryError):
        return None


def _known(task: RepairTask, mark: str) -> ast.Module | None:
    """Return the generator's own program whose tree has this dump, if it makes one."""
    for source in (task.base, task.gold, task.hard_coded):
        tree = ast.parse(source)
        if ast.dump(tree) == mark:
            return tree
    if task.key.difficulty <= CLOSE:
        for source in (task.base, task.gold):
            place = _neighbourhood(source).get(mark)
            if place is not None:
                return next(clone(tree) for i, tree in enumerate(neighbours(ast.parse(source))) if i == place)
    return None


@lru_cache(maxsize=1024)
def _neighbourhood(source: str) -> dict[str, int]:
    """Return the place of every program that is one substitution away from a source, by the dump of its tree."""
    return {ast.dump(tree): place for place, tree in enumerate(neighbours(ast.parse(source)))}
