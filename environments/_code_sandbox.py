"""The sandbox that every repair environment of a process shares: started when first needed, closed at exit."""

from __future__ import annotations

import atexit
import os
import threading

from sao_bench.grading.functions import FunctionGrader
from sao_bench.grading.repository import RepositoryGrader
from sao_bench.sandbox import Limits, Sandbox
from sao_bench.sandbox.levels import choose

FUNCTION_LIMITS = Limits(wall_s=10.0, cpu_s=1, memory_mb=256, pids=16, output_bytes=1_000_000, disk_mb=16)
"""The limit that ends an endless loop is the CPU's, so that a busy machine changes no verdict."""


def require() -> None:
    """Make sure that some level of isolation works here.

    Raises:
        UserError: none does; the message names `python -m sao_bench doctor`.
    """
    choose(None)


def function_grader() -> FunctionGrader:
    """Return this process's grader of functions."""
    return _shared(os.getpid()).functions


def repository_grader() -> RepositoryGrader:
    """Return this process's grader of repositories."""
    return _shared(os.getpid()).repositories


def close() -> None:
    """End this process's sandbox, if it has one; whoever needs one next starts another."""
    with _lock:
        shared = _started.pop(os.getpid(), None)
    if shared:
        shared.sandbox.close()


class _Shared:
    def __init__(self) -> None:
        self.sandbox = Sandbox()
        self.functions = FunctionGrader(self.sandbox, warm=2, limits=FUNCTION_LIMITS)
        self.repositories = RepositoryGrader(self.sandbox)


_lock = threading.Lock()
_started: dict[int, _Shared] = {}
atexit.register(close)


def _shared(pid: int) -> _Shared:
    """Return what a process shares: a fork has neither the threads nor the sandboxes of its parent."""
    with _lock:
        if pid not in _started:
            _started[pid] = _Shared()
        return _started[pid]
