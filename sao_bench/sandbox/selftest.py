"""What every level must prove before it is trusted: a hostile program gets nothing out, in or past its end."""

from __future__ import annotations

import json
import os
import secrets
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from sao_bench.sandbox.limits import Limits, SandboxFaultError

if TYPE_CHECKING:
    from sao_bench.sandbox.levels import Level

LIMITS = Limits(wall_s=20.0, cpu_s=20, pids=16, memory_mb=256, disk_mb=8)
FORKS = 64
"""Processes that the probe tries to start; more than `LIMITS.pids` must not come to life."""

PROBE = r"""
import json, os, socket, sys, time
task = json.loads(sys.stdin.readline())
seen = {}

def attempt(name, action):
    try:
        action()
        seen[name] = True
    except OSError:
        seen[name] = False

def write(path):
    with open(path, "w") as stream:
        stream.write("x")

def connect(kind, address):
    with socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET, kind) as end:
        end.settimeout(2)
        end.connect(address)
        end.send(b"x")

def daemon():
    middle = os.fork()
    if middle == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(60)
        os._exit(0)
    os.waitpid(middle, 0)

attempt("write", lambda: write(task["outside"]))
attempt("read", lambda: open(task["secret"]).read())
attempt("signal", lambda: os.kill(task["parent"], 0) if task["parent"] > 64 else None)
seen["environment"] = task["variable"] in os.environ
attempt("tcp", lambda: connect(socket.SOCK_STREAM, tuple(task["tcp"])))
attempt("udp", lambda: connect(socket.SOCK_DGRAM, tuple(task["udp"])))
attempt("abstract", lambda: connect(socket.SOCK_STREAM, "\0" + task["abstract"]))
attempt("own", lambda: write("own"))
attempt("daemon", daemon)
forks = 0
try:
    for _ in range(task["forks"]):
        if os.fork() == 0:
            time.sleep(60)
        forks += 1
except OSError:
    pass
seen["forks"] = forks
print(json.dumps(seen), flush=True)
"""

EXPLAIN = {
    "write": "wrote outside its directory",
    "read": "read a file of the host",
    "signal": "could signal the worker",
    "environment": "saw an environment variable of the worker",
    "tcp": "connected over TCP",
    "abstract": "connected to an abstract socket",
}


def failures(level: Level) -> list[str]:
    """Run the probe on a level and return what it got away with (empty: nothing).

    Raises:
        SandboxFaultError: the level did not run it.
    """
    variable, abstract = f"SAO_BENCH_PROBE_{secrets.token_hex(4).upper()}", secrets.token_hex(8)
    with tempfile.TemporaryDirectory(prefix="sao-bench-selftest-") as folder, _listeners(abstract) as ears:
        Path(folder).chmod(0o755)
        secret, outside = Path(folder, "secret"), Path(folder, "outside")
        secret.write_text("secret")
        task = {
            "outside": str(outside),
            "secret": str(secret),
            "parent": os.getpid(),
            "variable": variable,
            "tcp": ears.tcp.getsockname(),
            "udp": ears.udp.getsockname(),
            "abstract": abstract,
            "forks": FORKS,
        }
        os.environ[variable] = "secret"
        try:
            seen = _probe(level, task, variable)
        finally:
            del os.environ[variable]
        found = [text for key, text in EXPLAIN.items() if seen.get(key)]
        found += ["wrote outside its directory"] if outside.exists() and not seen.get("write") else []
        found += ["sent over UDP"] if ears.heard() else []
    found += [] if seen.get("own") else ["could not write in its own directory"]
    found += [f"started {seen['forks']} processes"] if seen["forks"] > LIMITS.pids else []
    found += ["left a process behind"] if _survivors(variable) else []
    return found


def _probe(level: Level, task: dict[str, object], mark: str) -> dict[str, int]:
    """Run the probe; `mark` in its command line makes its processes findable."""
    cell = level.spawn(level.python("-c", PROBE, mark), LIMITS, ())
    cell.release()
    result = cell.talk(json.dumps(task).encode() + b"\n")
    if result.fault is not None:
        raise SandboxFaultError(**result.fault)
    try:
        return json.loads(result.stdout)
    except json.JSONDecodeError as error:
        raise SandboxFaultError("self-test", "no answer", result.stderr.strip()[-300:]) from error


def _survivors(mark: str) -> list[int]:
    """Return processes whose command line carries the mark."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in command:
                found.append(int(entry.name))
    return found


class _listeners:  # noqa: N801 - reads as the context manager it is
    """Sockets of this process that nothing in a sandbox may reach."""

    def __init__(self, abstract: str):
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.udp.setblocking(False)
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind("\0" + abstract)
        self.unix.listen()

    def heard(self) -> bool:
        """Whether a datagram arrived."""
        try:
            return bool(self.udp.recv(16))
        except BlockingIOError:
            return False

    def __enter__(self) -> _listeners:
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self.tcp, self.udp, self.unix):
            end.close()
