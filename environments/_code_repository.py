"""A repair in progress of a small package: generated modules, a test suite, a bug in one of them.

A package is made of function tasks: each module is the gold program of one, but one module is the base of its own.
Its tests are theirs, and those of a module that calls two others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sao_bench.environments._code_cache import cached, code_mark
from sao_bench.environments._code_function import TestRun, Verdict, call_text
from sao_bench.environments._code_grammar import FAMILIES
from sao_bench.environments._code_running import run_source
from sao_bench.environments._code_sandbox import repository_grader
from sao_bench.environments._code_tasks import Example, RepairTask, TaskKey, make_task
from sao_bench.environments._code_tools import Call, repair, report, shown

from sao_bench.errors import UserError
from sao_bench.grading.grade import Grade
from sao_bench.grading.repository import RepositoryTask, problems
from sao_bench.seeding import derive

PACKAGE = "shop"
MODULES = ("prices", "stock", "orders", "rates", "labels")
ENTRIES = ("quote", "restock", "settle", "convert", "mark")
REPORT = "report"
INDENT = 4
VALID_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class Package:
    """A generated package: a function task per module, and which of them holds the bug."""

    parts: tuple[RepairTask, ...]
    broken: int

    @property
    def bug(self) -> RepairTask:
        """Return the function task of the module with the bug."""
        return self.parts[self.broken]

    @property
    def path(self) -> str:
        """Return the file with the bug."""
        return f"{PACKAGE}/{MODULES[self.broken]}.py"

    @property
    def entry(self) -> str:
        """Return the name of the function with the bug."""
        return ENTRIES[self.broken]

    def module(self, place: int, source: str) -> str:
        """Return the text of a module from a program of its function task."""
        wide = re.sub("(?m)^ +", lambda found: found[0] * INDENT, source)
        return re.sub("(?m)^def f\\(", f"def {ENTRIES[place]}(", wide)

    def files(self) -> dict[str, str]:
        """Return the package at its base, without tests."""
        texts = {f"{PACKAGE}/__init__.py": ""}
        for place, part in enumerate(self.parts):
            source = part.base if place == self.broken else part.gold
            texts[f"{PACKAGE}/{MODULES[place]}.py"] = self.module(place, source)
        imports = [f"from {PACKAGE}.{MODULES[i]} import {ENTRIES[i]}\n" for i in self._reported()]
        names = [
            ", ".join(f"{letter}{n}" for n in range(self._width(i)))
            for letter, i in zip("ab", self._reported(), strict=True)
        ]
        calls = [f"{ENTRIES[i]}({given})" for i, given in zip(self._reported(), names, strict=True)]
        body = f"def {REPORT}({', '.join(names)}):\n    return [{', '.join(calls)}]\n"
        texts[f"{PACKAGE}/{REPORT}.py"] = "".join(imports) + "\n\n" + body
        return texts

    def tests(self) -> Iterator[tuple[str, str, str, Example]]:
        """Yield (test file, module, function, test) of every test, in a fixed order."""
        for place, part in enumerate(self.parts):
            yield from (
                (f"tests/test_{MODULES[place]}.py", MODULES[place], ENTRIES[place], self._own(place, t))
                for t in part.tests
            )
        first, second = (self.parts[i] for i in self._reported())
        plain = [[t for t in part.tests if t.raises is None] for part in (first, second)]
        for a, b in zip(*plain, strict=False):
            fails = self._reported()[0] == self.broken and a.fails
            yield (
                f"tests/test_{REPORT}.py",
                REPORT,
                REPORT,
                Example((*a.args, *b.args), None, [a.expected, b.expected], fails, False),
            )

    def _own(self, place: int, test: Example) -> Example:
        """Return a test of a module as it is in the package, where only one module is broken."""
        return Example(
            test.args, test.raises, test.expected, test.fails and place == self.broken, test.visible
        )

    def _reported(self) -> tuple[int, int]:
        """Return which two modules the report calls: the broken one and the next."""
        return self.broken, (self.broken + 1) % len(self.parts)

    def _width(self, place: int) -> int:
        return len(self.parts[place].tests[0].args)

    def task(self, strictness: str) -> RepositoryTask:
        """Return what the grader is asked: which tests there are and which have to pass."""
        tests = [
            item for item in self.tests() if strictness != "visible" or (item[3].visible and item[3].fails)
        ]
        return self._task(tests, strictness, passing=strictness in ("all", "exact"))

    def visible_task(self) -> RepositoryTask:
        """Return the task of the tests that are shown."""
        return self._task([item for item in self.tests() if item[3].visible], "exact", passing=True)

    def _task(
        self, items: list[tuple[str, str, str, Example]], strictness: str, passing: bool
    ) -> RepositoryTask:
        texts: dict[str, str] = {}
        ids: dict[bool, list[str]] = {True: [], False: []}
        for file, module, entry, test in items:
            texts.setdefault(file, f"import pytest\n\nfrom {PACKAGE}.{module} import {entry}\n")
            name = f"test_{texts[file].count('def test_')}"
            texts[file] += f"\n\ndef {name}():\n" + _body(entry, test, strictness == "exact")
            ids[test.fails].append(f"{file}::{name}")
        passed = tuple(ids[False]) if passing else ()
        return RepositoryTask(self.files(), texts, tuple(ids[True]), passed, allowed=(f"{PACKAGE}/*.py",))


def _body(entry: str, test: Example, exact: bool) -> str:
    call = f"{entry}({', '.join(map(repr, test.args))})"
    if test.raises is not None:
        return f"    with pytest.raises({test.raises if exact else 'Exception'}):\n        {call}\n"
    return f"    assert {call} == {test.expected!r}\n"


@lru_cache(maxsize=256)
def make_package(key: TaskKey) -> Package:
    """Return the package of a key: the first draw that the real grader finds valid, kept in the cache.

    Raises:
        UserError: the key is none, or the sandbox does not answer.
    """
    attempt = cached("code_repair", {"package": _fields(key), "code": code_mark()}, lambda: _first_valid(key))
    return _draw(key, attempt)


def _first_valid(key: TaskKey) -> int:
    for attempt in range(VALID_ATTEMPTS):
        if not package_problems(_draw(key, attempt)):
            return attempt
    raise UserError(
        f"no valid package for {key.name}: `python -m sao_bench doctor` says what the sandbox lacks"
    )


def package_problems(package: Package) -> list[str]:
    """Return why a package is not a valid repair task, by the real grader (empty: it is)."""
    bug = package.bug
    rivals = [f"{bug.base}# fixed\n", *bug.controls[:2]]
    others: list[dict[str, str | None]] = [
        {package.path: package.module(package.broken, text)} for text in rivals
    ]
    gold: dict[str, str | None] = {package.path: package.module(package.broken, bug.gold)}
    return problems(repository_grader(), package.task("exact"), gold, others)


def _draw(key: TaskKey, attempt: int) -> Package:
    count = min(len(MODULES), 1 + key.difficulty)

    def part(place: int, family: str) -> RepairTask:
        index = derive(key.seed, "code_repair.package", *_fields(key).values(), attempt, place) >> 32
        return make_task(TaskKey(key.seed, key.split, family, key.difficulty, index))

    broken = derive(key.seed, "code_repair.broken", *_fields(key).values(), attempt) % count
    start = FAMILIES.index(key.family)
    families = [FAMILIES[(start + place - broken) % len(FAMILIES)] for place in range(count)]
    return Package(tuple(part(place, family) for place, family in enumerate(families)), broken)


def _fields(key: TaskKey) -> dict[str, Any]:
    return {name: getattr(key, name) for name in TaskKey.__dataclass_fields__}


class RepositoryRepair:
    """A repair of a package; everything runs in the sandbox, by the grader of repositories."""

    def __init__(self, key: TaskKey):
        self.package = make_package(key)
        self._visible = self.package.visible_task()
        texts = {**self._visible.files, **self._visible.tests}
        self._base = {path: text.splitlines() or [""] for path, text in sorted(texts.items())}
        self.files = dict(self._base)

    def issue(self, style: str) -> tuple[str, str, str]:
        """Return the function, what it should give, and the report of its visible failing test."""
        bug = self.package.bug
        test = bug.tests[0]
        (got,) = run_source(bug.base, bug.entry, [test.args])
        call = call_text(self.package.entry, test.args)
        return self.package.entry, bug.words, report(style, 1, call, shown(None, test.expected), shown(*got))

    def test(self, style: str) -> TestRun:
        """Run the visible tests; of those that fail only that they do is known."""
        found = repository_grader().examine(self._visible, self._changes())
        if isinstance(found, Grade):
            if found.fault:
                return TestRun((), 0, found.fault)
            passed, why = {}, found.label.replace("_", " ")
        else:
            passed, why = found, "wrong"
        reports = tuple(self._failed(style, passed, why))
        return TestRun(reports, len(self._visible.required) - len(reports))

    def _failed(self, style: str, passed: Mapping[str, bool], why: str) -> Iterator[str]:
        shown_tests = [item for item in self.package.tests() if item[3].visible]
        numbers: dict[str, int] = {}
        for place, (file, _, entry, test) in enumerate(shown_tests, 1):
            number = numbers[file] = numbers.get(file, -1) + 1
            if not passed.get(f"{file}::test_{number}", False):
                yield report(
                    style, place, call_text(entry, test.args), shown(test.raises, test.expected), why
                )

    def submit(self, strictness: str) -> Verdict:
        """Grade the change."""
        task = self.package.task(strictness)
        grade = repository_grader().grade(task, self._changes())
        solved = grade.solved
        return Verdict(
            solved,
            grade.label,
            len(task.fail_to_pass) if solved else 0,
            len(task.pass_to_pass) if solved else 0,
            grade.signs,
            grade.fault,
        )

    def next_edit(self, strictness: str) -> Call | None:
        """Return the gold edit; where the visible test suffices, the one that writes its answer down."""
        bug, path = self.package.bug, self.package.path
        target = self.package.module(
            self.package.broken, bug.hard_coded if strictness == "visible" else bug.gold
        )
        before = "\n".join(self.files[path]) + "\n"
        return None if before == target else repair(before, target, path)

    def _changes(self) -> dict[str, str | None]:
        return {
            path: "\n".join(lines) + "\n" for path, lines in self.files.items() if lines != self._base[path]
        }
