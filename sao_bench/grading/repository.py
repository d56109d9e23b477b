"""The grader of repository tasks: hidden tests on a fresh checkout with the allowed part of a change.

What is never believed: the candidate's tests, configuration and start-up files (left out), a report from a
process in which its code ran (twins must fail, see `twins`), anything written before its processes are dead
(results are read afterwards), a set of tests other than the one asked for.
"""

from __future__ import annotations

import json
import math
import secrets
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path

from sao_bench.errors import UserError
from sao_bench.grading.changes import is_test, refusals
from sao_bench.grading.grade import MAX_SOURCE, Grade, readable, signs_in
from sao_bench.grading.twins import Version, coin_flips, mixtures, true_version, written
from sao_bench.sandbox import Limits, Result, Sandbox, SandboxFaultError
from sao_bench.sandbox.host import joined

HERE = Path(__file__).parent
LIMITS = Limits(wall_s=60.0, cpu_s=60, memory_mb=1024, pids=32, output_bytes=1_000_000, disk_mb=128)
RUNS = 4
"""Runs per grade: a test is true in one of them, and in each other one another of its expectations is wrong."""

GUESS = 1e-3
"""Largest probability with which a change earns that guesses which tests are true; more runs are added to hold it."""

MAX_RESULT = 4 << 20
"""Bytes of a result: reading JSON takes up to twenty times its size."""

TOO_LARGE = "the change is too large"
NOTHING_WRITTEN = (
    "a required test must compare with a constant or expect an exception, or its report can be forged"
)


@dataclass(frozen=True, slots=True)
class RepositoryTask:
    """A repository at its base commit, its hidden tests, and which of them must pass.

    Attributes:
        files: text by path at the base commit.
        tests: hidden test files by path; they replace whatever tests the checkout has.
        fail_to_pass: ids (`tests/test_x.py::test_a`, also `::Class::test_a` and `[parameter]`) that fail at
            the base and must pass.
        pass_to_pass: ids that pass at the base and still must.
        allowed: glob patterns of the paths that a candidate may change.
    """

    files: Mapping[str, str]
    tests: Mapping[str, str]
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ("*.py",)

    @property
    def required(self) -> frozenset[str]:
        """Every id that must pass."""
        return frozenset(self.fail_to_pass) | frozenset(self.pass_to_pass)


def files_at(repository: Path, commit: str) -> dict[str, str]:
    """Return the text files of a commit, without history, links and what is not text.

    Raises:
        UserError: git does not know the commit.
    """
    command = ["git", "-C", str(repository), "archive", "--format=tar", commit]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise UserError(f"{repository}: {done.stderr.decode(errors='replace').strip()}")
    found = {}
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.isreg() else None
            if stream is not None:
                try:
                    found[member.name] = stream.read().decode()
                except UnicodeDecodeError:
                    continue
    return found


class RepositoryGrader:
    """Grades changes of a repository. A grade is 1 when all required tests pass and every check holds.

    Each run is in a sandbox of its own and of a mixture of tests and twins: `RUNS`, and as many with fair coins as
    keep a change that guesses below `GUESS` (10 for one required test, 2 for five), until one shows that it is wrong.

    Args:
        sandbox: where candidates run; it needs pytest in its Python.
        limits: bounds of each run.
    """

    def __init__(self, sandbox: Sandbox, limits: Limits = LIMITS):
        self.sandbox = sandbox
        self.limits = limits
        self._runner = sandbox.python("-c", joined("repository_runner.py", folder=HERE))

    def grade(self, task: RepositoryTask, changes: Mapping[str, str | None]) -> Grade:
        """Grade the allowed part of `changes` (new text by path, None: deleted).

        Raises:
            UserError: a required test has no written expectation (a constant, an exception): a forged report of it
                could not be told from a true one.
        """
        if unwritten := _unwritten(task):
            raise UserError(f"{unwritten[0]}: {NOTHING_WRITTEN}")
        if _size(changes) > MAX_SOURCE:
            return Grade(0.0, "limit", 0, len(task.required), level=self.sandbox.level, detail=TOO_LARGE)
        refused = refusals(changes, task.allowed, task.files, task.tests)
        signs = sorted(set(refused.values()))
        signs += signs_in(text for text in changes.values() if text)
        kept = {path: text for path, text in changes.items() if path not in refused}
        grade = self._grade_tree(task, _tree(task, kept))
        if changes and not kept and not grade.solved and grade.label != "fault":
            grade = replace(grade, label="not_allowed", score=0.0)
        return replace(grade, signs=tuple(dict.fromkeys(signs)), level=self.sandbox.level)

    def outcomes(self, task: RepositoryTask, changes: Mapping[str, str | None]) -> dict[str, bool]:
        """Return which hidden tests pass, for building and validating tasks (trusted code only).

        Raises:
            UserError: the tests gave no result; the message says why.
        """
        found = self.examine(task, changes)
        if isinstance(found, Grade):
            raise UserError(f"the tests gave no result: {found.fault or found.detail or found.label}")
        return found

    def examine(self, task: RepositoryTask, changes: Mapping[str, str | None]) -> dict[str, bool] | Grade:
        """Return which tests pass by the word of the candidate's own process, or the grade of one that said nothing.

        To tell whoever repairs a repository how it stands; a verdict comes from `grade` alone.
        """
        if _size(changes) > MAX_SOURCE:
            return Grade(0.0, "limit", 0, len(task.required), detail=TOO_LARGE)
        refused = refusals(changes, task.allowed, task.files, task.tests)
        kept = {path: text for path, text in changes.items() if path not in refused}
        versions = {path: true_version(source) for path, source in task.tests.items()}
        found = self._outcomes(versions, _tree(task, kept), len(task.required))
        return found if isinstance(found, Grade) else _by_original(found, versions)

    def _grade_tree(self, task: RepositoryTask, tree: Mapping[str, str]) -> Grade:
        """Run every mixture until one shows that a candidate is wrong.

        A twin that passed is a forgery only if no true test failed: a wrong value can be the one it expects.
        """
        total, lie = len(task.required), None
        passed: set[str] = set()
        for versions in _rounds(task):
            found = self._outcomes(versions, tree, total)
            if isinstance(found, Grade):
                return found if lie is None else Grade(0.0, "forged", 0, total, detail=lie)
            tampered = _tampering(found, versions, task.required)
            if tampered is not None:
                return Grade(0.0, "forged", 0, total, detail=tampered)
            outcomes = _by_original(found, versions)
            asked = _true_ids(task.required, versions)
            right = {name for name in asked if outcomes.get(name, False)}
            passed |= right
            if len(right) < len(asked) or not total:
                return Grade(0.0, "wrong_answer", len(passed.difference(asked) | right), total)
            if _false_ones(versions, task.required) & {
                _function(node) for node, fine in found.items() if fine
            }:
                lie = "passed a test with a wrong expectation"
        return (
            Grade(1.0, "correct", total, total) if lie is None else Grade(0.0, "forged", 0, total, detail=lie)
        )

    def _outcomes(
        self, versions: Mapping[str, Version], tree: Mapping[str, str], total: int
    ) -> dict[str, bool] | Grade:
        """Run one version of the tests; return passed or not by id, or the grade of a run without any."""
        try:
            result, name = self._run(versions, tree)
        except OSError as error:  # the files do not fit: the base's, as changes are small
            fault = SandboxFaultError("put", "refused", str(error))
            return Grade(0.0, "fault", 0, total, fault=fault.record())
        if result.fault is not None:
            return Grade(0.0, "fault", 0, total, fault=result.fault)
        if result.limit in ("wall", "cpu"):
            return Grade(0.0, "timed_out", 0, total)
        if result.limit is not None:
            return Grade(0.0, "limit", 0, total, detail=result.limit)
        if name not in result.artefacts:
            return Grade(0.0, "no_result", 0, total, detail=result.stderr[-300:])
        try:
            outcomes, errors = _read(result.artefacts[name])
        except (ValueError, RecursionError) as error:
            return Grade(0.0, "malformed", 0, total, detail=readable(str(error))[:300])
        if errors:
            return Grade(0.0, "error", 0, total, detail=readable(errors[0])[-300:])
        return {node: outcome == "passed" for node, outcome in outcomes.items()}

    def _run(self, versions: Mapping[str, Version], tree: Mapping[str, str]) -> tuple[Result, str]:
        name = f"{secrets.token_hex(8)}.json"
        request = {"tests": sorted(versions), "result": name, "order": secrets.randbelow(1 << 30)}
        files: dict[str, str | bytes] = {f"repo/{path}": text for path, text in tree.items()}
        files |= {f"repo/{path}": version.source for path, version in versions.items()}
        result = self.sandbox.run(
            self._runner,
            files=files,
            stdin=json.dumps(request) + "\n",
            limits=self.limits,
            artefacts=[name],
        )
        return result, name


def _rounds(task: RepositoryTask) -> list[dict[str, Version]]:
    """Return the versions of each run, in an order that tells nothing."""
    files = {path: mixtures(source, RUNS) for path, source in task.tests.items()}
    rounds = [{path: mixed[turn] for path, mixed in files.items()} for turn in range(RUNS)]
    tests = len({name.partition("[")[0] for name in task.required})
    rounds += [
        {path: coin_flips(source) for path, source in task.tests.items()} for _ in range(_fair_runs(tests))
    ]
    secrets.SystemRandom().shuffle(rounds)
    return rounds


def _fair_runs(tests: int) -> int:
    """Return how many runs of fair coins keep a guess of so many tests below `GUESS`: it is right with 1/2 for each."""
    return math.ceil(-math.log2(GUESS) / tests) if tests else 0


def _unwritten(task: RepositoryTask) -> list[str]:
    """Return the required tests that are there and have no written expectation."""
    there = {
        f"{path}::{name}" for path, text in task.tests.items() for name in true_version(text).names.values()
    }
    fine = {f"{path}::{name}" for path, text in task.tests.items() for name in written(text)}
    return sorted({name.partition("[")[0] for name in task.required} & (there - fine))


def _read(data: bytes) -> tuple[dict[str, str], list[str]]:
    """Return the outcomes and errors of a result file, whose whole shape is checked here and nowhere else.

    Raises:
        ValueError: it has another shape.
        RecursionError: it is nested too deep to be read.
    """
    if len(data) > MAX_RESULT:
        raise ValueError("too large a result")
    answer = json.loads(data)
    if not isinstance(answer, dict) or set(answer) != {"outcomes", "errors"}:
        raise ValueError("not the fields of a result")
    outcomes, errors = answer["outcomes"], answer["errors"]
    if not isinstance(outcomes, dict) or not all(
        value in ("passed", "failed") for value in outcomes.values()
    ):
        raise ValueError("not a mapping of ids to outcomes")
    if not isinstance(errors, list) or not all(isinstance(error, str) for error in errors):
        raise ValueError("not a list of errors")
    return outcomes, errors


def _tampering(
    found: Mapping[str, bool], versions: Mapping[str, Version], required: frozenset[str]
) -> str | None:
    """Return what cannot be in outcomes of a run that nobody tampered with, or None."""
    canaries = {name for version in versions.values() for name in version.canaries}
    passed = {_function(node) for node, fine in found.items() if fine}
    ran = {_function(node) for node in found}
    if not ran <= canaries | {name for version in versions.values() for name in version.names}:
        return "tests that do not exist"
    if passed & canaries or not canaries <= ran:
        return "a canary did not fail"
    return None if _false_ones(versions, required) <= ran else "tests were taken out"


def _false_ones(versions: Mapping[str, Version], required: frozenset[str]) -> set[str]:
    """Return the random names of the required tests that have an expectation made wrong."""
    needed = {name.partition("[")[0] for name in required}
    return {n for path, v in versions.items() for n in v.false if f"{path}::{v.names[n]}" in needed}


def _true_ids(required: frozenset[str], versions: Mapping[str, Version]) -> list[str]:
    """Return the required ids whose test is a true one in these versions; those of no test are asked for always."""
    false = {f"{path}::{version.names[n]}" for path, version in versions.items() for n in version.false}
    return [name for name in required if name.partition("[")[0] not in false]


def _size(changes: Mapping[str, str | None]) -> int:
    return sum(len(path) + len(text or "") for path, text in changes.items())


def _tree(task: RepositoryTask, changes: Mapping[str, str | None]) -> dict[str, str]:
    """Return the fresh checkout with a change, without any test of its own."""
    tree = {path: text for path, text in task.files.items() if not is_test(path)}
    for path, text in changes.items():
        tree.pop(path, None)
        if text is not None:
            tree[path] = text
    return tree


def _function(node: str) -> str:
    """Return the function name of a test id."""
    return node.partition("[")[0].rpartition("::")[2]


def _by_original(found: Mapping[str, bool], versions: Mapping[str, Version]) -> dict[str, bool]:
    """Translate random names back: original id -> passed. Canaries are left out."""
    names = {n: f"{path}::{own}" for path, version in versions.items() for n, own in version.names.items()}
    outcomes = {}
    for node, passed in found.items():
        function = _function(node)
        if function in names:
            outcomes[names[function] + node[len(node.partition("[")[0]) :]] = passed
    return outcomes


def problems(
    grader: RepositoryGrader,
    task: RepositoryTask,
    gold: Mapping[str, str | None],
    others: Sequence[Mapping[str, str | None]] = (),
    repeats: int = 3,
) -> list[str]:
    """Return why a repair task is not valid (empty: it is).

    The base fails every FAIL_TO_PASS and passes every PASS_TO_PASS; the gold change earns 1 `repeats` times,
    in random order; an empty change and each of `others` (comment-only, other mutants, hacks) earn 0.
    """
    found = []
    if (
        len(set(task.fail_to_pass)) + len(set(task.pass_to_pass)) != len(task.required)
        or not task.fail_to_pass
    ):
        found.append("ids are not unique, or none has to be repaired")
    if unwritten := _unwritten(task):
        return [*found, *(f"{name}: {NOTHING_WRITTEN}" for name in unwritten)]
    base = grader.outcomes(task, {})
    found += [f"passes at the base: {name}" for name in task.fail_to_pass if base.get(name, False)]
    found += [f"fails at the base: {name}" for name in task.pass_to_pass if not base.get(name, False)]
    for _ in range(repeats):
        grade = grader.grade(task, gold)
        if not grade.solved:
            found.append(f"gold does not earn 1: {grade.label} {grade.detail}".rstrip())
            break
    for change in ({}, *others):
        if grader.grade(task, change).score:
            found.append(f"earns 1 without the repair: a change of {', '.join(change) or 'nothing'}")
    return found
