"""Reading /proc: descendants, their memory, who is still alive, what an earlier owner left."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

BOX_PREFIX = "sao-bench-box-"
UID_BASE = 1_500_000_000
"""User ids from here on belong to sandboxes when the owner is root; the base plus a supervisor's pid."""

MAX_PIDS = 1 << 22


def children(pid: int) -> list[int]:
    """Return the direct children of all threads of a process (empty if it is gone)."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    return found


def descendants(pid: int) -> Iterator[int]:
    """Yield every process below `pid`, parents first."""
    waiting = children(pid)
    while waiting:
        child = waiting.pop()
        yield child
        waiting += children(child)


def memory_mb(pid: int) -> float:
    """Return the anonymous and shared resident memory of all descendants together, in MB.

    Pages that a fork still shares count once per process.
    """
    total = 0
    for child in descendants(pid):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{child}/status").read_text().splitlines():
                if line.startswith(("RssAnon:", "RssShmem:")):
                    total += int(line.split()[1])
    return total / 1024


def start_time(pid: int) -> int | None:
    """Return when a process started (clock ticks since boot), or None if there is none.

    With the pid it names a process for good: pids are used again, start times of one pid are not.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[19])


def owner_tag() -> str:
    """Return the name of this process for everything it may leave behind: `<pid>-<start time>`."""
    return f"{os.getpid()}-{start_time(os.getpid())}"


def owner_alive(tag: str) -> bool:
    """Return whether the process of an `owner_tag` still runs."""
    pid, _, started = tag.partition("-")
    return pid.isdigit() and str(start_time(int(pid))) == started


def make_box() -> Path:
    """Return a fresh directory that names its owner, so that `sweep` can tell whether it is an orphan."""
    return Path(tempfile.mkdtemp(prefix=f"{BOX_PREFIX}{owner_tag()}-"))


def sweep() -> list[str]:
    """Remove what owners that died left: box directories, and processes of sandbox users. Say what it was."""
    found = []
    for box in Path(tempfile.gettempdir()).glob(f"{BOX_PREFIX}*"):
        if not owner_alive(box.name.removeprefix(BOX_PREFIX).rpartition("-")[0]):
            shutil.rmtree(box, ignore_errors=True)
            found.append(str(box))
    if os.geteuid() == 0:
        found += _sweep_users()
    return found


def _sweep_users() -> list[str]:
    """Kill processes of a sandbox user whose supervisor is gone."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            supervisor = entry.stat().st_uid - UID_BASE
            if 0 < supervisor < MAX_PIDS and start_time(supervisor) is None:
                os.kill(int(entry.name), signal.SIGKILL)
                found.append(f"process {entry.name}")
    return found
