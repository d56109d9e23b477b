"""Runs one program inside a container, bounds its time and output, and reports once. Sent as source.

Joined to `seccomp`. Reads one JSON line on stdin: `argv`, `stdin`, `files` and file bytes in base64,
`artefacts` (glob patterns), `wall_s`, `output_bytes`, `disk_bytes`, `rlimits`. Prints one JSON line. What the
program could forge here is only what is its own to say: its output, its files and its status; time is
watched from outside as well.
"""
# Starts with as few imports as it can, hence no pathlib.
# ruff: noqa: PTH103, PTH118, PTH120, PTH123

from __future__ import annotations

import base64
import contextlib
import fnmatch
import json
import os
import resource
import select
import signal
import stat
import subprocess
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sao_bench.sandbox.seccomp import install, program

MAX_ENTRIES = 20_000


def put(files: dict[str, str]) -> None:
    """Write the input files below the working directory."""
    for path, content in files.items():
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "wb") as stream:
            stream.write(base64.b64decode(content))


def prepare(rlimits: dict[str, list[int]]) -> None:
    """Be the first to go when memory runs out; set the limits and the system call filter."""
    with open("/proc/self/oom_score_adj", "w") as stream:
        stream.write("1000")
    for name, bounds in rlimits.items():
        number = getattr(resource, "RLIMIT_" + name.upper(), None)
        if number is not None:
            resource.setrlimit(number, (bounds[0], bounds[1]))
    install(program(sockets=True))


def pump(
    process: subprocess.Popen[bytes], stdin: bytes, cap: int, deadline: float
) -> tuple[bytes, bytes, bool, bool]:
    """Move bytes until the program ends or time is up; return (stdout, stderr, truncated, timed out)."""
    assert process.stdin and process.stdout and process.stderr
    kept = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    out, err = kept
    truncated = False
    ending = os.pidfd_open(process.pid)
    poll = select.poll()
    for descriptor in (ending, 0, out, err):
        poll.register(descriptor, select.POLLIN | select.POLLHUP)
    feed = process.stdin.fileno()
    os.set_blocking(feed, False)
    poll.register(feed, select.POLLOUT)
    over = late = False
    while not over:
        late = time.monotonic() >= deadline
        if late:
            os.kill(-1, signal.SIGKILL)
            deadline += 5
        events = dict(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
        over = ending in events or late
        if 0 in events and not os.read(0, 4096):
            os._exit(1)  # the worker is gone
        if feed in events:
            try:
                stdin = stdin[os.write(feed, stdin[:65536]) :] if stdin else stdin
            except BlockingIOError:
                pass
            except BrokenPipeError:
                stdin = b""
            if not stdin:
                poll.unregister(feed)
                process.stdin.close()
        for descriptor in (out, err):
            if descriptor in events:
                chunk = os.read(descriptor, 65536)
                if not chunk:
                    poll.unregister(descriptor)
                room = cap - len(kept[descriptor])
                truncated |= len(chunk) > room
                kept[descriptor] += chunk[:room]
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    for descriptor in (out, err):
        os.set_blocking(descriptor, True)
        while chunk := os.read(descriptor, 65536):
            room = cap - len(kept[descriptor])
            truncated |= len(chunk) > room
            kept[descriptor] += chunk[:room]
    process.wait()
    return bytes(kept[out]), bytes(kept[err]), truncated, late


def collect(patterns: list[str], room: int) -> dict[str, str]:
    """Read matching regular files with one name; links and devices are left out."""
    found: dict[str, str] = {}
    entries = 0
    for root, _, files, directory in os.fwalk("."):
        entries += len(files) + 1
        if entries > MAX_ENTRIES:
            break
        for name in files:
            path = os.path.normpath(os.path.join(root, name))
            if not any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns):
                continue
            try:
                descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
            except OSError:
                continue
            facts = os.fstat(descriptor)
            if not (stat.S_ISREG(facts.st_mode) and facts.st_nlink == 1 and facts.st_size <= room):
                os.close(descriptor)
                continue
            with os.fdopen(descriptor, "rb") as stream:
                room -= facts.st_size
                found[path] = base64.b64encode(stream.read(facts.st_size)).decode()
    return found


def main() -> None:
    """Serve one request."""
    report = os.dup(1)
    os.dup2(2, 1)
    os.write(report, b"ready\n")
    line = bytearray()
    while not line.endswith(b"\n"):
        chunk = os.read(0, 1 << 16)
        if not chunk:
            os._exit(1)
        line += chunk
    request = json.loads(line)
    put(request["files"])
    deadline = time.monotonic() + request["wall_s"]
    try:
        process = subprocess.Popen(
            request["argv"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            preexec_fn=lambda: prepare(request["rlimits"]),
        )
    except OSError as error:
        answer: dict[str, Any] = {"error": str(error)}
    else:
        stdin = base64.b64decode(request["stdin"])
        out, err, truncated, late = pump(process, stdin, request["output_bytes"], deadline)
        answer = {
            "status": process.returncode,
            "stdout": base64.b64encode(out).decode(),
            "stderr": base64.b64encode(err).decode(),
            "truncated": truncated,
            "timed_out": late,
            "artefacts": collect(request["artefacts"], request["disk_bytes"]) if request["artefacts"] else {},
        }
    data = json.dumps(answer).encode() + b"\n"
    while data:
        data = data[os.write(report, data) :]


if __name__ == "__main__":
    main()
