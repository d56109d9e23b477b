"""What is on this machine that a sandbox could leave behind."""

import os
import tempfile
import time
from pathlib import Path


def processes() -> dict[int, str]:
    """Return every process below this one, zombies included, and every process of a sandbox user."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(stat[1]) == os.getpid() or entry.stat().st_uid >= 1_500_000_000:
                found[int(entry.name)] = (
                    stat[0] + " " + (entry / "cmdline").read_text().replace("\0", " ")[:80]
                )
        except OSError:
            continue
    return found


def boxes() -> set[str]:
    return {path.name for path in Path(tempfile.gettempdir()).glob("sao-bench-*")}


def mounts() -> str:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return "\n".join(line for line in lines if "/docker/" not in line)


def snapshot():
    """Return what must be the same before and after."""
    return {
        "processes": processes(),
        "boxes": boxes(),
        "mounts": mounts(),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
    }


def settled(before, seconds=5.0):
    """Return the snapshot once it equals `before`, or the last one after `seconds`."""
    end = time.monotonic() + seconds
    while (now := snapshot()) != before and time.monotonic() < end:
        time.sleep(0.05)
    return now


def containers() -> set[str]:
    """Return every container of ours, running or not; none where no daemon answers."""
    from sao_bench.sandbox import docker
    from sao_bench.sandbox.limits import SandboxFaultError

    try:
        return set(docker.containers())
    except SandboxFaultError:
        return set()
