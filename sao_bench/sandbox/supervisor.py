"""Runs one program under Landlock, and outlives it to end all that it started. Sent as source.

Joined to `seccomp`; `python -I -S -c ... SPEC LIFELINE` reads JSON on descriptor SPEC: `argv`, `env`,
`box`, `read` (paths; null: no confinement), `user` (or null), `pass_over_modes` (bool), `rlimits`. The end of
descriptor LIFELINE means that the worker has died or wants an end. Standard input, output and errors belong
to the program.

    supervisor    subreaper, the worker's own user; never confined
      program     own user if root, rlimits, no new privileges, Landlock, seccomp
        ...       daemons come back here when their parents die
"""
# Starts with as few imports as it can, hence no pathlib.
# ruff: noqa: PTH112, PTH123, PTH208

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import shutil
import signal
import struct
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sao_bench.sandbox.seccomp import install, program

MINIMUM_ABI = 6
"""The first Landlock that keeps signals and abstract sockets inside (Linux 6.12)."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ALL_FILE_RIGHTS = (1 << 16) - 1
_EXECUTE, _WRITE, _READ, _READ_DIRECTORY, _TRUNCATE, _DEVICE_IOCTL = (
    1 << bit for bit in (0, 1, 2, 3, 14, 15)
)
_NET_TCP, _SCOPES = 0b11, 0b11
_PR_SET_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_KEEPCAPS, _PR_AMBIENT = 36, 38, 8, 47
_CAP_DAC_READ_SEARCH = 2
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def landlock_abi() -> int:
    """Return the version of Landlock that the kernel offers; 0 or less: none."""
    return int(_LIBC.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1)))


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _prctl(option: int, *arguments: int) -> None:
    values = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    _checked(_LIBC.prctl(option, *values), f"prctl {option}")


def confine(read: list[str], write: list[str]) -> None:
    """Restrict this process and its children to reading `read` and writing `write`; no TCP, no signals out."""
    attributes = struct.pack("=QQQ", _ALL_FILE_RIGHTS, _NET_TCP, _SCOPES)
    ruleset = _checked(
        _LIBC.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0)),
        "landlock_create_ruleset",
    )
    for path in read:
        _allow(ruleset, path, _EXECUTE | _READ | _READ_DIRECTORY)
    for path in _DEVICES:
        _allow(ruleset, path, _READ | _WRITE)
    for path in write:
        _allow(ruleset, path, _ALL_FILE_RIGHTS & ~_DEVICE_IOCTL)
    _checked(_LIBC.syscall(_RESTRICT_SELF, ruleset, ctypes.c_uint32(0)), "landlock_restrict_self")
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        target = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    if not os.path.isdir(path):
        rights &= _EXECUTE | _WRITE | _READ | _TRUNCATE
    rule = struct.pack("=Qi", rights, target)
    _checked(
        _LIBC.syscall(_ADD_RULE, ruleset, ctypes.c_int(1), rule, ctypes.c_uint32(0)),
        f"landlock_add_rule {path}",
    )
    os.close(target)


def _become(user: int, pass_over_modes: bool) -> None:
    """Drop root; keep at most the right to read past permission bits (Landlock still says which paths)."""
    if pass_over_modes:
        _prctl(_PR_KEEPCAPS, 1)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    if pass_over_modes:
        kept = 1 << _CAP_DAC_READ_SEARCH
        header, sets = struct.pack("=Ii", 0x20080522, 0), struct.pack("=6I", kept, kept, kept, 0, 0, 0)
        _checked(_LIBC.capset(header, sets), "capset")
        _prctl(_PR_AMBIENT, 2, _CAP_DAC_READ_SEARCH)


def _program(spec: dict[str, Any]) -> None:
    """Confine this process, say that it is ready, and become the program at the first line of input."""
    os.setsid()
    os.chdir(spec["box"])
    limits = spec["rlimits"]
    if spec["user"] is not None:
        _become(spec["user"], spec["pass_over_modes"])
    for name, bounds in limits.items():
        number = getattr(resource, f"RLIMIT_{name.upper()}", None)
        if number is not None:
            resource.setrlimit(number, (bounds[0], bounds[1]))
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    if spec["read"] is not None:
        confine(spec["read"], [spec["box"]])
        install(program(sockets=False))
    os.write(1, b"ready\n")
    while (byte := os.read(0, 1)) != b"\n":
        if not byte:
            os._exit(125)
    os.execve(spec["argv"][0], spec["argv"], spec["env"])


def _children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children") as stream:
        return [int(pid) for pid in stream.read().split()]


def _descendants() -> list[int]:
    found: list[int] = []
    waiting = _children()
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/children") as stream:
                    waiting += map(int, stream.read().split())
        except OSError:
            continue
    return found


def _end_all(user: int | None) -> None:
    """Kill and reap every descendant, whatever it forks meanwhile."""
    while True:
        if user is None:
            _signal_descendants()
        else:
            _kill_user(user)
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                break
        time.sleep(0.001)


def _signal_descendants() -> None:
    """Stop all of them first, so that none forks while the others are being killed."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in _descendants():
            try:
                os.kill(pid, number)
            except OSError:
                continue


def _kill_user(user: int) -> None:
    """Kill every process of a user in one call, which no fork can outrun."""
    killer = os.fork()
    if killer == 0:
        try:
            os.setresuid(user, user, user)
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(killer, 0)


def main() -> None:
    """Run the program of the specification, end everything, and exit as it did (128 + n for signal n)."""
    specification, lifeline = map(int, sys.argv[1:])
    with os.fdopen(specification) as stream:
        spec = json.load(stream)
    os.set_inheritable(lifeline, False)
    _prctl(_PR_SET_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    child = os.fork()
    if child == 0:
        try:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            _program(spec)
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(126)
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    status = _await(child, lifeline)
    _end_all(spec["user"])
    if not _owner_lives(lifeline):
        shutil.rmtree(spec["box"], ignore_errors=True)
    os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


def _await(child: int, lifeline: int) -> int:
    """Wait for the program's end or the lifeline's, reaping the orphans that come here meanwhile."""
    handle = os.pidfd_open(child)
    poll = select.poll()
    for descriptor in (handle, lifeline):
        poll.register(descriptor, select.POLLIN)
    while True:
        events = dict(poll.poll(50))
        if handle in events:
            return os.waitpid(child, 0)[1]
        if lifeline in events:
            return int(signal.SIGKILL)
        for pid in _children():
            if pid != child:
                os.waitpid(pid, os.WNOHANG)


def _owner_lives(lifeline: int) -> bool:
    """Whether the worker still holds the lifeline; if not, nobody else removes the box."""
    return not select.select([lifeline], [], [], 0)[0]


if __name__ == "__main__":
    main()
