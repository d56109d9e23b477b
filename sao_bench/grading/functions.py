"""The grader of function tasks: outputs are computed in the sandbox and compared here."""

from __future__ import annotations

import json
import marshal
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from sao_bench.grading.grade import MAX_SOURCE, Grade, readable, signs_in
from sao_bench.grading.plain import MalformedError, Opaque, decode, encode, equal, has_opaque
from sao_bench.sandbox import Limits, Result, Sandbox, SandboxFaultError
from sao_bench.sandbox.host import joined

HERE = Path(__file__).parent
LIMITS = Limits(wall_s=5.0, cpu_s=5, memory_mb=256, pids=16, output_bytes=4_000_000, disk_mb=16)
MARSHAL_VERSION = 4
"""One that every Python from 3.4 reads: in a container it may be another than this one."""

Outcome: TypeAlias = tuple[str | None, Any]
"""What came of a call: (name of the exception, None) or (None, value)."""


@dataclass(frozen=True, slots=True)
class Case:
    """One hidden call and what must come of it: a value, or a built-in exception by name.

    All values are plain data (see `plain.encode`).
    """

    args: tuple[Any, ...] = ()
    expected: Any = None
    kwargs: dict[str, Any] = field(default_factory=dict)
    raises: str | None = None


@dataclass(frozen=True, slots=True)
class FunctionTask:
    """A function by name and the hidden calls that decide; `tolerance` is between floats (0: exact)."""

    entry: str
    cases: tuple[Case, ...]
    tolerance: float = 0.0


class FunctionGrader:
    """Grades candidates (Python source) for function tasks, each in a sandbox of its own, started ahead.

    The child gets inputs and never an expected value; this process compares plain data that it decoded
    itself, so that no object, frame, file or process of the candidate takes part in the verdict. The
    candidate sees the standard library only. A grade is 1 when every case comes out right, else 0.

    Args:
        sandbox: where candidates run; closed by its owner.
        warm: sandboxes kept ready. With bubblewrap and one of them ready, a grade takes under 25 ms.
        limits: bounds of one grade.
    """

    def __init__(self, sandbox: Sandbox, warm: int = 2, limits: Limits = LIMITS):
        self.level = sandbox.level
        runner = joined("plain.py", "function_runner.py", folder=HERE)
        self._pool = sandbox.warm(sandbox.python("-S", "-c", runner), size=warm, limits=limits)

    def grade(self, task: FunctionTask, source: str) -> Grade:
        """Grade one candidate.

        Its own time-out, crash or exit is a valid 0; a fault of the machinery is not a 0 but `fault`.
        """
        found = self.outcomes(task, source)
        return found if isinstance(found, Grade) else self._compare(task, source, found)

    def outcomes(self, task: FunctionTask, source: str) -> list[Outcome] | Grade:
        """Return what came of every case, or the grade (0 or a fault) of a candidate that gave no outcomes.

        For who compares by rules of their own; expected values are not used.
        """
        if len(source) > MAX_SOURCE:
            return self._grade(task, source, "limit", detail="the source is too large")
        nonce = secrets.token_hex(16)
        request = {
            "nonce": nonce,
            "source": source,
            "entry": task.entry,
            "inputs": [[encode(list(case.args)), encode(case.kwargs)] for case in task.cases],
        }
        try:
            cell = self._pool.take()
        except SandboxFaultError as fault:
            return self._grade(task, source, "fault", fault=fault.record())
        result = cell.talk(marshal.dumps(request, MARSHAL_VERSION))
        if result.fault is not None:
            return self._grade(task, source, "fault", fault=result.fault)
        return self._read(task, source, result, nonce)

    def waiting(self) -> int:
        """Return how many sandboxes are ready."""
        return self._pool.waiting()

    def _read(self, task: FunctionTask, source: str, result: Result, nonce: str) -> list[Outcome] | Grade:
        if result.limit in ("wall", "cpu"):
            return self._grade(task, source, "timed_out")
        if result.limit is not None:
            return self._grade(task, source, "limit", detail=result.limit)
        frames = [line for line in result.stdout.splitlines() if nonce in line]
        if not frames:
            return self._grade(task, source, "no_result", detail=_ending(result))
        if len(frames) > 1 or not frames[0].startswith(nonce + " "):
            return self._grade(task, source, "forged", detail="more than one result")
        try:
            answer = json.loads(frames[0].removeprefix(nonce))
            outcomes = answer.get("outcomes")
            if "error" in answer:
                return self._grade(task, source, "error", detail=readable(str(answer["error"])[:500]))
            if not isinstance(outcomes, list) or len(outcomes) != len(task.cases):
                raise MalformedError("wrong number of outcomes")
            return [_outcome(item) for item in outcomes]
        except (ValueError, RecursionError, AttributeError) as error:
            return self._grade(task, source, "malformed", detail=readable(str(error)[:500]))

    def _compare(self, task: FunctionTask, source: str, found: Sequence[Outcome]) -> Grade:
        right = [_right(case, *item, task.tolerance) for case, item in zip(task.cases, found, strict=True)]
        passed = sum(right)
        if passed == len(right) > 0:
            return self._grade(task, source, "correct", passed)
        wrong = [item for item, fine in zip(found, right, strict=True) if not fine]
        if any(has_opaque(value) for _, value in wrong):
            return self._grade(task, source, "opaque_value", passed)
        if wrong and all(raised is not None for raised, _ in wrong):
            return self._grade(task, source, "error", passed, detail=readable(f"raised {wrong[0][0]}"[:500]))
        return self._grade(task, source, "wrong_answer", passed)

    def _grade(self, task: FunctionTask, source: str, label: Any, passed: int = 0, **more: Any) -> Grade:
        score = float(label == "correct")
        return Grade(score, label, passed, len(task.cases), signs_in([source]), self.level, **more)


def _outcome(item: Any) -> Outcome:
    if isinstance(item, dict) and set(item) == {"raised"}:
        return str(item["raised"]), None
    if isinstance(item, dict) and set(item) == {"value"}:
        return None, decode(item["value"])
    raise MalformedError("an outcome is neither a value nor an exception")


def _right(case: Case, raised: str | None, value: Any, tolerance: float) -> bool:
    if case.raises is not None:
        return raised == case.raises
    if raised is not None or isinstance(value, Opaque):
        return False
    return equal(decode(encode(case.expected)), value, tolerance)


def _ending(result: Result) -> str:
    return f"signal {result.signal}" if result.signal is not None else f"exit status {result.exit}"
