"""Repair tasks: a program with one bug, and tests in the manner of SWE-bench, generated, validated and cached."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from sao_bench.environments._code_cache import cached, code_mark
from sao_bench.environments._code_grammar import DIFFICULTIES, FAMILIES, Program, inputs, write
from sao_bench.environments._code_mutations import mutants, text_of
from sao_bench.environments._code_running import TooLargeError, alike, run, run_source
from sao_bench.environments._draws import pick_of

from sao_bench.errors import UserError
from sao_bench.grading.functions import Outcome
from sao_bench.seeding import generator

SPLITS = ("train", "test")
TEST_SHARE = 10
"""One gold program in so many belongs to the test split, by its content: the splits share none."""

STRICTNESS = ("visible", "hidden", "all", "exact")
POOL = 40
HIDDEN_FAILING, HIDDEN_PASSING = 4, 3
CONTROLS = 6
"""How many other mutants each task is held against when it is validated."""

BLOCK = 100


@dataclass(frozen=True, slots=True)
class TaskKey:
    """What decides a task; everything else follows from it."""

    seed: int
    split: str
    family: str
    difficulty: int
    index: int

    @property
    def name(self) -> str:
        """Return the unique id."""
        return f"{self.split}-{self.seed}-{self.family}-{self.difficulty}-{self.index}"


@dataclass(frozen=True, slots=True)
class Example:
    """One call of the entry: what must come of it, whether it fails at the base, whether it is shown."""

    args: tuple[Any, ...]
    raises: str | None
    expected: Any
    fails: bool
    visible: bool

    def passes(self, outcome: Outcome, exact: bool) -> bool:
        """Return whether an outcome is right; unless `exact`, any exception is as good as another."""
        if self.raises is not None and not exact:
            return outcome[0] is not None
        return alike(outcome, (self.raises, self.expected))


@dataclass(frozen=True, slots=True)
class RepairTask:
    """A program with a bug, the program without it, and the tests that tell them apart.

    Attributes:
        key: what decided the task.
        entry: name of the function that is tested.
        words: what it should compute.
        base: source with the bug.
        gold: source without.
        tests: FAIL_TO_PASS (`fails`) and PASS_TO_PASS tests, the visible ones first.
        controls: patched sources that must earn nothing: the visible answer written down, other mutants.
    """

    key: TaskKey
    entry: str
    words: str
    base: str
    gold: str
    tests: tuple[Example, ...]
    controls: tuple[str, ...]

    @property
    def hard_coded(self) -> str:
        """Return the program that answers the first visible test and nothing else."""
        return self.controls[0]

    def to_json(self) -> dict[str, Any]:
        """Return the task as JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RepairTask:
        """Return the task of `to_json` after a round through JSON."""
        tests = tuple(Example(**{**test, "args": tuple(test["args"])}) for test in data["tests"])
        return cls(
            **{
                **data,
                "key": TaskKey(**data["key"]),
                "tests": tests,
                "controls": tuple(data["controls"]),
            }
        )


def judge(task: RepairTask, outcomes: Sequence[Outcome], strictness: str) -> tuple[bool, int, int]:
    """Return (earned, FAIL_TO_PASS passed, PASS_TO_PASS passed) of a candidate's outcomes.

    Args:
        task: the task.
        outcomes: one per test of the task.
        strictness: `visible` asks for the visible FAIL_TO_PASS alone, `hidden` for every FAIL_TO_PASS, `all`
            for PASS_TO_PASS too, `exact` also for the right exception where one is due.
    """
    right = [
        t.passes(outcome, strictness == "exact") for t, outcome in zip(task.tests, outcomes, strict=True)
    ]
    needed = [_needed(test, strictness) for test in task.tests]
    earned = all(fine for fine, need in zip(right, needed, strict=True) if need)
    failing = sum(fine for fine, test in zip(right, task.tests, strict=True) if test.fails)
    return earned, failing, sum(right) - failing


def _needed(test: Example, strictness: str) -> bool:
    if strictness == "visible":
        return test.fails and test.visible
    return test.fails or strictness in ("all", "exact")


@lru_cache(maxsize=4096)
def make_task(key: TaskKey) -> RepairTask:
    """Return the task of a key: the first draw that holds what a valid task must.

    Raises:
        UserError: the key names no split, family or difficulty.
    """
    check_key(key)
    attempt = 0
    while True:
        rng = generator(
            key.seed, "code_repair.task", key.split, key.family, key.difficulty, key.index, attempt
        )
        task = _draw(key, rng)
        if task is not None and not problems(task):
            return task
        attempt += 1


def check_key(key: TaskKey) -> None:
    """Make sure that there is a task of a key.

    Raises:
        UserError: it names no split, family or difficulty, or its numbers are none.
    """
    allowed: dict[str, tuple[Any, ...]] = {"split": SPLITS, "family": FAMILIES, "difficulty": DIFFICULTIES}
    for name, options in allowed.items():
        given = getattr(key, name)
        if type(given) is not type(options[0]) or given not in options:
            raise UserError(f"task {name} {given!r} is not one of: {', '.join(map(str, options))}")
    if any(type(n) is not int or n < 0 for n in (key.seed, key.index)):
        raise UserError(f"task seed {key.seed!r} and index {key.index!r} must be whole numbers from 0")


def _draw(key: TaskKey, rng: np.random.Generator) -> RepairTask | None:
    program = write(rng, key.difficulty, key.family)
    tree = ast.parse(program.source)
    gold = text_of(tree)
    if split_of(gold) != key.split:
        return None
    pool = inputs(rng, program.kinds, POOL)
    try:
        right = run(tree, program.entry, pool)
    except TooLargeError:
        return None
    if sum(raised is not None for raised, _ in right) > POOL // 3:
        return None
    variants = list(_outcomes(tree, program, pool))
    bugs = [
        i
        for i, (family, found) in enumerate(variants)
        if family == key.family and found and _fits(right, found)
    ]
    if not bugs:
        return None
    bug = bugs[int(rng.integers(len(bugs)))]
    wrong = variants[bug][1] or []
    tests = _tests(pool, right, wrong)
    others = [i for i, (_, found) in enumerate(variants) if i != bug and found and not _alike(right, found)]
    chosen = [others[int(i)] for i in rng.permutation(len(others))[:CONTROLS]]
    sources = {
        i: ast.unparse(mutant) + "\n" for i, (_, mutant) in enumerate(mutants(tree)) if i in {bug, *chosen}
    }
    base = text_of(ast.parse(sources[bug]))
    written = _hard_coded(base, program.entry, tests[0].expected)
    rivals = [run_source(written, program.entry, pool), *(found for _, found in variants if found)]
    tests = _strengthened(tests, pool, right, wrong, rivals)
    controls = (written, *(sources[i] for i in chosen))
    return RepairTask(key, program.entry, program.words, base, gold, tests, controls)


def split_of(gold: str) -> str:
    """Return the split that a gold program belongs to, wherever it was drawn."""
    return SPLITS[hashlib.blake2b(gold.encode()).digest()[0] % TEST_SHARE == 0]


def _outcomes(
    tree: ast.Module, program: Program, pool: list[list[Any]]
) -> Iterator[tuple[str, list[Outcome] | None]]:
    """Yield the family of each mutant and what comes of the pool; None of one that does not stay small."""
    for family, mutant in mutants(tree):
        try:
            yield family, run(mutant, program.entry, pool)
        except TooLargeError:
            yield family, None


def _alike(right: Sequence[Outcome], found: Sequence[Outcome]) -> bool:
    return all(map(alike, right, found))


def _fits(right: list[Outcome], wrong: list[Outcome]) -> bool:
    """Return whether a bug shows in three calls or more, in one of them by a value in place of another."""
    differing = [i for i, pair in enumerate(zip(right, wrong, strict=True)) if not alike(*pair)]
    return len(differing) >= 3 and any(right[i][0] is None and wrong[i][0] is None for i in differing)


def _tests(pool: list[list[Any]], right: list[Outcome], wrong: list[Outcome]) -> tuple[Example, ...]:
    """Return tests: one failing and one passing test are shown, some of both kinds are hidden."""
    differing = [i for i in range(len(pool)) if not alike(right[i], wrong[i])]
    shown = next(i for i in differing if right[i][0] is None and wrong[i][0] is None)
    failing = [shown, *(i for i in differing if i != shown)][: 1 + HIDDEN_FAILING]
    passing = [i for i in range(len(pool)) if alike(right[i], wrong[i])]
    passing.sort(key=lambda i: right[i][0] is not None)
    raising = [i for i in passing if right[i][0] is not None][:1]
    passing = [*passing[:HIDDEN_PASSING], *(i for i in raising if i not in passing[:HIDDEN_PASSING])]
    tests = [_test(pool, right, wrong, i, i == shown) for i in failing]
    tests += [_test(pool, right, wrong, i, place == 0) for place, i in enumerate(passing)]
    return tuple(sorted(tests, key=lambda test: (not test.visible, not test.fails)))


def _test(
    pool: list[list[Any]], right: list[Outcome], wrong: list[Outcome], i: int, visible: bool = False
) -> Example:
    return Example(tuple(pool[i]), *right[i], fails=not alike(right[i], wrong[i]), visible=visible)


def _strengthened(
    tests: tuple[Example, ...],
    pool: list[list[Any]],
    right: list[Outcome],
    wrong: list[Outcome],
    rivals: list[list[Outcome]],
) -> tuple[Example, ...]:
    """Add a hidden test against every rival that differs from the gold program and passes all tests so far."""
    places = [pool.index(list(test.args)) for test in tests]
    for found in rivals:
        if all(alike(right[i], found[i]) for i in places):
            telling = next((i for i in range(len(pool)) if not alike(right[i], found[i])), None)
            if telling is not None:
                places.append(telling)
    return (*tests, *(_test(pool, right, wrong, i) for i in places[len(tests) :]))


def _hard_coded(base: str, entry: str, answer: Any) -> str:
    """Return the base whose entry begins by returning an answer; what was in the way is replaced."""
    lines = base.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(f"def {entry}(")) + 1
    kept = [lines[first]] if lines[first].endswith(":") else []
    text = f" return {answer!r}"
    return text_of(ast.parse("\n".join([*lines[:first], text, *kept, *lines[first + 1 :]])))


def problems(task: RepairTask) -> list[str]:
    """Return why a task is not valid (empty: it is); every program is run anew.

    The base fails every FAIL_TO_PASS and passes every PASS_TO_PASS; the gold program earns three times, in
    random order too; the base with a comment and every control earn nothing.
    """
    found = []
    if len({str(test.args) for test in task.tests}) < len(task.tests):
        found.append("two tests make the same call")
    base = _passes(task, task.base)
    found += [
        f"passes at the base: {t.args}" for t, fine in zip(task.tests, base, strict=True) if t.fails and fine
    ]
    found += [
        f"fails at the base: {t.args}"
        for t, fine in zip(task.tests, base, strict=True)
        if not t.fails and not fine
    ]
    rng = generator(0, "code_repair.order", task.key.name)
    for _ in range(3):
        order = rng.permutation(len(task.tests)).tolist()
        if not all(_passes(task, task.gold, order)):
            found.append("the gold program fails a test")
    for source in (f"{task.base}# fixed\n", *task.controls):
        if all(_passes(task, source)):
            found.append(f"earns without the repair: {source!r}")
    return found


def _passes(task: RepairTask, source: str, order: Sequence[int] | None = None) -> list[bool]:
    tests = [task.tests[i] for i in order] if order is not None else task.tests
    try:
        outcomes = run_source(source, task.entry, [test.args for test in tests])
    except TooLargeError:
        return [False] * len(tests)
    return [test.passes(outcome, exact=True) for test, outcome in zip(tests, outcomes, strict=True)]


def build_tasks(
    count: int,
    seed: int = 0,
    split: str = "train",
    families: Mapping[str, float] | None = None,
    difficulties: Mapping[int, float] | None = None,
) -> list[RepairTask]:
    """Return `count` validated tasks with ids of their own; task i depends on everything but `count`.

    They are kept in the cache in blocks of `BLOCK`, under a hash of the request and of the generator's code.

    Args:
        count: how many.
        seed: of the draws.
        split: `train` or `test`; no program is in both.
        families: share per family of bugs; all alike if None.
        difficulties: share per difficulty, 1 to 5; all alike if None.

    Raises:
        UserError: an argument is none of these.
    """
    if type(count) is not int or count < 0:
        raise UserError(f"count {count!r} is not a whole number from 0")
    families = families or dict.fromkeys(FAMILIES, 1 / len(FAMILIES))
    levels = {
        str(level): share for level, share in (difficulties or dict.fromkeys(DIFFICULTIES, 0.2)).items()
    }
    request = {"seed": seed, "split": split, "families": dict(families), "difficulties": levels}

    def key(index: int) -> TaskKey:
        rng = generator(seed, "code_repair.set", split, index)
        return TaskKey(seed, split, pick_of(rng, families), int(pick_of(rng, levels)), index)

    def build(start: int) -> list[dict[str, Any]]:
        return [make_task(key(i)).to_json() for i in range(start, start + BLOCK)]

    check_key(key(0))
    found: list[RepairTask] = []
    for start in range(0, count, BLOCK):
        mark = {**request, "start": start, "code": code_mark()}
        block = cached("code_repair", mark, lambda start=start: build(start))
        found += map(RepairTask.from_json, block)
    return found[:count]
