"""The bubblewrap level: namespaces for processes, mounts, network, IPC and host name; a memory disk.

As root the program gets a user id of its own (the process limit does not bind root, not even inside), as
anyone else a user namespace. Everything ends with its first process or with the worker's thread that
started it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from sao_bench.sandbox import seccomp
from sao_bench.sandbox.cell import Cell
from sao_bench.sandbox.host import READABLE, WORKDIR, environment, rlimits
from sao_bench.sandbox.limits import Limits, SandboxFaultError
from sao_bench.sandbox.processes import MAX_PIDS, UID_BASE, children

NAMESPACES = ("pid", "net", "ipc", "uts", "cgroup-try")
TOOLS = ("bwrap", "prlimit", "setpriv", "sh")
USER_BASE = UID_BASE + MAX_PIDS
"""User ids of this level lie above those that `processes.sweep` reads as a supervisor's."""

WAIT = 'echo ready; read -r go && exec "$@"'


def missing() -> str | None:
    """Return what this level lacks, or None."""
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    return f"{absent[0]} is not installed (apt-get install bubblewrap util-linux)" if absent else None


def spawn(argv: Sequence[str], limits: Limits, extra: Sequence[Path] = ()) -> Cell:
    """Start a sandbox that waits to become `argv`; `extra` paths are readable inside.

    Raises:
        SandboxFaultError: bubblewrap does not work here.
    """
    user = USER_BASE + secrets.randbelow(1 << 24) if os.geteuid() == 0 else None
    filter_ = os.memfd_create("seccomp")
    try:
        os.write(filter_, seccomp.program(sockets=True))
        os.lseek(filter_, 0, os.SEEK_SET)
        command = [*_bwrap(limits, extra), "--seccomp", str(filter_), "--", *_drop(user, limits)]
        process = subprocess.Popen(
            [*command, "sh", "-c", WAIT, "sh", *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
            pass_fds=[filter_],
            bufsize=0,
        )
    except OSError as error:
        raise SandboxFaultError("start", "exec", str(error)) from error
    finally:
        os.close(filter_)
    cell = Cell("bwrap", process, limits, user=user)
    try:
        cell.await_ready()
        _attach(cell)
    except BaseException:
        process.kill()
        cell.close()
        raise
    return cell


def _attach(cell: Cell) -> None:
    """Take handles of the sandbox's first process and of its disk; both outlive it."""
    try:
        first = children(cell.process.pid)[0]
        cell.init = os.pidfd_open(first)
        cell.disk = os.open(f"/proc/{first}/root{WORKDIR}", os.O_RDONLY | os.O_DIRECTORY)
        if cell.user is not None:
            os.fchown(cell.disk, cell.user, cell.user)
    except (OSError, IndexError) as error:
        raise SandboxFaultError("start", "attach", str(error)) from error


def _bwrap(limits: Limits, extra: Sequence[Path]) -> list[str]:
    size = str(limits.disk_mb << 20)
    command = ["bwrap", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    command += [f"--unshare-{name}" for name in NAMESPACES]
    if os.geteuid() == 0:
        command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        command += ["--unshare-user", "--uid", "65534", "--gid", "65534"]
    shown = (*READABLE, *extra)
    for path in shown:
        command += _visible(path)
    command += ["--proc", "/proc", "--dev", "/dev"]
    command += ["--size", size, "--perms", "1777", "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
    command += ["--size", size, "--perms", "0755", "--tmpfs", WORKDIR]
    if not any(path.is_relative_to("/tmp") for path in shown):
        # Where this Python lives below /tmp, that name is taken; TMPDIR points to WORKDIR all the same.
        command += ["--symlink", WORKDIR[1:], "/tmp"]
    return [*command, "--remount-ro", "/", "--chdir", WORKDIR]


def _visible(path: Path) -> list[str]:
    """Show a host path read-only; the directories above it are made passable for any user."""
    above = [
        part for parent in reversed(path.parents[:-1]) for part in ("--perms", "0755", "--dir", str(parent))
    ]
    if path.is_symlink():
        return [*above, "--symlink", str(path.readlink()), str(path)]
    return [*above, "--ro-bind-try", str(path), str(path)]


def _drop(user: int | None, limits: Limits) -> list[str]:
    """Become the sandbox's user and set the limits that only hold from inside."""
    command = [f"--{name}={soft}:{hard}" for name, (soft, hard) in rlimits(limits).items()]
    command = ["prlimit", *command]
    if user is None:
        return command
    identity = [f"--reuid={user}", f"--regid={user}", "--clear-groups", "--inh-caps=-all"]
    return ["setpriv", *identity, *command]
