"""The Landlock level: no namespaces, so the kernel's access rules, a system call filter and a supervisor.

Weaker than bubblewrap: the program sees which processes and paths exist (not their content), its disk is a
directory that is watched rather than bounded, and without root the process limit counts the user's other
processes too.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sao_bench.sandbox import seccomp, supervisor
from sao_bench.sandbox.cell import Cell
from sao_bench.sandbox.host import READABLE, environment, joined, rlimits
from sao_bench.sandbox.limits import Limits
from sao_bench.sandbox.processes import UID_BASE, make_box


def missing() -> str | None:
    """Return what this level lacks, or None."""
    abi = supervisor.landlock_abi()
    if abi < supervisor.MINIMUM_ABI:
        return f"Landlock ABI {max(abi, 0)}, needs {supervisor.MINIMUM_ABI} (Linux 6.12 or newer, with it enabled)"
    try:
        seccomp.program(sockets=False)
    except OSError as error:
        return str(error)
    return None


class _BoxCell(Cell):
    """A cell whose disk is a directory of the host; removed at the end."""

    box: Path

    def close(self) -> None:
        super().close()
        shutil.rmtree(self.box, ignore_errors=True)


def spawn_unconfined(argv: Sequence[str], limits: Limits, extra: Sequence[Path] = ()) -> Cell:
    """Start a program under a supervisor and limits, but free to read, write and connect as its user may.

    Raises:
        SandboxFaultError: not even that works here.
    """
    return spawn(argv, limits, extra, confined=False)


def spawn(argv: Sequence[str], limits: Limits, extra: Sequence[Path] = (), *, confined: bool = True) -> Cell:
    """Start a sandbox that waits to become `argv`; `extra` paths are readable inside.

    Raises:
        SandboxFaultError: Landlock does not work here.
    """
    box = make_box()
    readable = [*READABLE, *extra]
    spec_end, ours = os.pipe()
    process, lifeline = _start(spec_end)
    root = os.geteuid() == 0
    user = UID_BASE + process.pid if root else None
    processes = _processes_of_this_user() + limits.pids
    spec = {
        "argv": [shutil.which(argv[0]) or argv[0], *argv[1:]],
        "env": environment(str(box)),
        "box": str(box),
        "read": [str(path) for path in readable] if confined else None,
        "user": user,
        "pass_over_modes": root and not all(map(_reachable, readable)),
        "rlimits": rlimits(limits) | ({} if root else {"nproc": (processes,) * 2}),
    }
    cell = _BoxCell(
        "landlock" if confined else "unsafe-local",
        process,
        limits,
        user=user,
        lifeline=lifeline,
        disk_is_bounded=False,
    )
    cell.box = box
    try:
        cell.disk = os.open(box, os.O_RDONLY | os.O_DIRECTORY)
        if user is not None:
            os.fchown(cell.disk, user, user)
        with os.fdopen(ours, "w") as stream:
            json.dump(spec, stream)
        cell.await_ready()
    except BaseException:
        cell.close()
        raise
    return cell


def _start(spec_end: int) -> tuple[subprocess.Popen[bytes], int]:
    """Start the supervisor; return it and our end of its lifeline."""
    far, near = os.pipe()
    try:
        process = subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-S",
                "-c",
                joined("seccomp.py", "supervisor.py"),
                str(spec_end),
                str(far),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment("/"),
            pass_fds=[spec_end, far],
            bufsize=0,
            start_new_session=True,
        )
    finally:
        os.close(spec_end)
        os.close(far)
    return process, near


def _reachable(path: Path) -> bool:
    """Whether any user can pass through the directories above a path."""
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in path.parents)


def _processes_of_this_user() -> int:
    """Count the threads of this user: without root the kernel counts them all together."""
    total = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid == os.geteuid():
                    total += len(list((entry / "task").iterdir()))
            except OSError:
                continue
    return total
