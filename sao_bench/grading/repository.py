"""The grader of repository tasks: hidden tests on a fresh checkout with the allowed part of a change.

What is never believed: the candidate's tests, configuration and start-up files (left out), a report from a
process in which its code ran (twins must fail, see `twins`), anything written before its processes are dead
(results are read afterwards), a set of tests other than the one asked for.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

from sao_bench.errors import UserError
from sao_bench.grading.changes import is_test, reason_against
from sao_bench.grading.grade import Grade, signs_in
from sao_bench.grading.twins import Version, expectations, false_version, true_version
from sao_bench.sandbox import Limits, Result, Sandbox
from sao_bench.sandbox.host import joined

HERE = Path(__file__).parent
LIMITS = Limits(wall_s=60.0, cpu_s=60, memory_mb=1024, pids=32, output_bytes=1_000_000, disk_mb=128)
MAX_TWINS = 3
"""Twin runs per grade: each makes another expectation of every test wrong."""


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

    One run of the true tests and up to `MAX_TWINS` runs of their twins, each in a sandbox of its own.

    Args:
        sandbox: where candidates run; it needs pytest in its Python.
        limits: bounds of each run.
    """

    def __init__(self, sandbox: Sandbox, limits: Limits = LIMITS):
        self.sandbox = sandbox
        self.limits = limits
        self._runner = sandbox.python("-c", joined("repository_runner.py", folder=HERE))

    def grade(self, task: RepositoryTask, changes: Mapping[str, str | None]) -> Grade:
        """Grade the allowed part of `changes` (new text by path, None: deleted)."""
        refused = {path: reason_against(path, task.allowed, task.files) for path in changes}
        signs = sorted({reason for reason in refused.values() if reason})
        signs += signs_in(text for text in changes.values() if text)
        kept = {path: text for path, text in changes.items() if refused[path] is None}
        grade = self._grade_tree(task, _tree(task, kept))
        if changes and not kept and not grade.solved and grade.label != "fault":
            grade = replace(grade, label="not_allowed", score=0.0)
        return replace(grade, signs=tuple(dict.fromkeys(signs)), level=self.sandbox.level)

    def outcomes(self, task: RepositoryTask, changes: Mapping[str, str | None]) -> dict[str, bool]:
        """Return which hidden tests pass, for building and validating tasks (trusted code only).

        Raises:
            UserError: the tests gave no result; the message says why.
        """
        versions = {path: true_version(source) for path, source in task.tests.items()}
        result, name = self._run(versions, _tree(task, changes))
        if result.fault is not None or name not in result.artefacts:
            raise UserError(
                f"the tests gave no result: {result.fault or result.stderr[-300:] or result.limit}"
            )
        return _by_original(json.loads(result.artefacts[name])["outcomes"], versions)

    def _grade_tree(self, task: RepositoryTask, tree: Mapping[str, str]) -> Grade:
        total = len(task.required)
        versions = {path: true_version(source) for path, source in task.tests.items()}
        found = self._outcomes(versions, tree, total)
        if isinstance(found, Grade):
            return found
        known = {name for version in versions.values() for name in (*version.names, *version.canaries)}
        reported = {_function(node) for node in found}
        if not reported <= known:
            return Grade(0.0, "forged", 0, total, detail="tests that do not exist")
        canaries = {name for version in versions.values() for name in version.canaries}
        if any(found[node] for node in found if _function(node) in canaries) or not canaries <= reported:
            return Grade(0.0, "forged", 0, total, detail="a canary did not fail")
        outcomes = _by_original(found, versions)
        passed = sum(outcomes.get(name, False) for name in task.required)
        if passed < total or not total:
            return Grade(0.0, "wrong_answer", passed, total)
        return self._check_twins(task, tree, total) or Grade(1.0, "correct", passed, total)

    def _check_twins(self, task: RepositoryTask, tree: Mapping[str, str], total: int) -> Grade | None:
        """Return a grade if a twin that cannot pass did, or did not run as the true tests do."""
        turns = min(MAX_TWINS, max(map(expectations, task.tests.values()), default=0))
        start = secrets.randbelow(1 << 16)
        needed = {name.partition("[")[0].rpartition("::")[2] for name in task.required}
        for turn in range(turns):
            versions = {path: false_version(source, start + turn) for path, source in task.tests.items()}
            found = self._outcomes(versions, tree, total)
            if isinstance(found, Grade):
                return found
            false = {n for v in versions.values() for n in v.false if v.names[n] in needed}
            ran = {_function(node) for node in found}
            if any(found[node] for node in found if _function(node) in false):
                return Grade(0.0, "forged", 0, total, detail="passed a test with a wrong expectation")
            if not false <= ran:
                return Grade(0.0, "forged", 0, total, detail="tests were taken out")
        return None

    def _outcomes(
        self, versions: Mapping[str, Version], tree: Mapping[str, str], total: int
    ) -> dict[str, bool] | Grade:
        """Run one version of the tests; return passed or not by id, or the grade of a run without any."""
        result, name = self._run(versions, tree)
        if result.fault is not None:
            return Grade(0.0, "fault", 0, total, fault=result.fault)
        if result.limit in ("wall", "cpu"):
            return Grade(0.0, "timed_out", 0, total)
        if result.limit is not None:
            return Grade(0.0, "limit", 0, total, detail=result.limit)
        if name not in result.artefacts:
            return Grade(0.0, "no_result", 0, total, detail=result.stderr[-300:])
        try:
            answer = json.loads(result.artefacts[name])
            outcomes, errors = answer["outcomes"], answer["errors"]
            found = {str(node): outcome == "passed" for node, outcome in outcomes.items()}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            return Grade(0.0, "malformed", 0, total, detail=str(error)[:300])
        return Grade(0.0, "error", 0, total, detail=str(errors[0])[-300:]) if errors else found

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


def _by_original(found: Mapping[str, Any], versions: Mapping[str, Version]) -> dict[str, bool]:
    """Translate random names back: original id -> passed. Canaries are left out."""
    names = {name: original for version in versions.values() for name, original in version.names.items()}
    outcomes = {}
    for node, passed in found.items():
        function = _function(node)
        if function in names:
            head, parameter = node.partition("[")[0], node[len(node.partition("[")[0]) :]
            outcomes[head[: -len(function)] + names[function] + parameter] = passed in (True, "passed")
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
