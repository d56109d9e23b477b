"""The sandbox that every repair environment of a process shares: started when first needed, closed at exit."""

from __future__ import annotations

import atexit
import os
from functools import cache

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
    return _function_grader(os.getpid())


def repository_grader() -> RepositoryGrader:
    """Return this process's grader of repositories."""
    return _repository_grader(os.getpid())


# By process: a fork inherits neither the threads nor the sandboxes of its parent.
@cache
def _sandbox(pid: int) -> Sandbox:
    sandbox = Sandbox()
    atexit.register(_close, pid, sandbox)
    return sandbox


def _close(pid: int, sandbox: Sandbox) -> None:
    if pid == os.getpid():
        sandbox.close()


@cache
def _function_grader(pid: int) -> FunctionGrader:
    return FunctionGrader(_sandbox(pid), warm=2, limits=FUNCTION_LIMITS)


@cache
def _repository_grader(pid: int) -> RepositoryGrader:
    return RepositoryGrader(_sandbox(pid))
