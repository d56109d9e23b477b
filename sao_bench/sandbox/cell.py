"""A started sandbox that holds one program: fill it, release it, talk to it, empty it.

The order of one run, and what unblocks each step:

    spawn     the level's wrapper process builds the sandbox and prints `ready`    <- all limits are in force
    put       files are written through a directory handle of the sandbox's disk
    release   one line on stdin lets the wrapper become the program
    talk      stdin in, capped stdout and stderr out, until the wrapper ends       <- program over, or a limit
    collect   regular files are read through the same handle                       <- every process is dead
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import select
import signal
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from sao_bench.errors import UserError
from sao_bench.sandbox.host import limit_of
from sao_bench.sandbox.limits import LevelName, Limits, Result, SandboxFaultError
from sao_bench.sandbox.processes import memory_mb

READY = b"ready\n"
START_DEADLINE_S = 20.0
DEATH_DEADLINE_S = 10.0
WATCH_S = 0.05
MAX_ENTRIES = 20_000
"""More files than this in a sandbox's disk count as a full disk, and are not searched for artefacts."""

CHUNK = 1 << 16


@dataclass
class Capture:
    """The first `cap` bytes of a stream; the rest is counted and dropped."""

    cap: int
    data: bytearray = field(default_factory=bytearray)
    dropped: bool = False

    def add(self, chunk: bytes) -> None:
        """Keep what still fits."""
        room = self.cap - len(self.data)
        self.data += chunk[:room]
        self.dropped |= len(chunk) > room


class Cell:
    """One sandbox around one program, from spawn to collection; never used twice.

    A level makes one with its wrapper process. `disk` is an open directory handle of the program's working
    directory, `init` a handle of the process whose end is the end of all of them (None: closing `lifeline`
    makes the wrapper end them).
    """

    def __init__(
        self,
        level: LevelName,
        process: subprocess.Popen[bytes],
        limits: Limits,
        *,
        user: int | None = None,
        lifeline: int | None = None,
        disk_is_bounded: bool = True,
    ):
        self.level: LevelName = level
        self.process = process
        self.limits = limits
        self.user = user
        self.lifeline = lifeline
        self.disk_is_bounded = disk_is_bounded
        self.disk = -1
        self.init: int | None = None
        self.cut = False

    def await_ready(self) -> None:
        """Wait until the wrapper says that the sandbox stands.

        Raises:
            SandboxFaultError: it ended or stayed silent instead.
        """
        stream = self.process.stdout
        assert stream is not None
        seen = b""
        end = time.monotonic() + START_DEADLINE_S
        while len(seen) < len(READY):
            if not select.select([stream], [], [], max(0.0, end - time.monotonic()))[0]:
                raise SandboxFaultError(
                    "start", "timeout", f"{self.level}: no answer in {START_DEADLINE_S} s"
                )
            chunk = os.read(stream.fileno(), len(READY) - len(seen))
            if not chunk:
                raise SandboxFaultError("start", "refused", self._complaint())
            seen += chunk
        if seen != READY:
            raise SandboxFaultError("start", "refused", f"{self.level}: said {seen!r}")

    def _complaint(self) -> str:
        stream = self.process.stderr
        assert stream is not None
        text = stream.read(4096).decode(errors="replace").strip()
        return text or f"{self.level}: ended with status {self.process.wait()}"

    def put(self, files: Mapping[str, str | bytes]) -> None:
        """Write files into the program's working directory.

        Raises:
            UserError: a path is absolute or climbs out.
        """
        for path, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            with _directory_of(self.disk, path, self.user) as (directory, name):
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
                descriptor = os.open(name, flags, 0o644, dir_fd=directory)
                with os.fdopen(descriptor, "wb") as stream:
                    stream.write(data)
                    if self.user is not None:
                        os.fchown(stream.fileno(), self.user, self.user)

    def release(self) -> None:
        """Let the wrapper become the program."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self.process.stdin.fileno(), b"go\n")  # type: ignore[union-attr]

    def talk(self, stdin: bytes = b"", artefacts: Sequence[str] = ()) -> Result:
        """Feed stdin, gather output until the program is over or a limit ends it, then collect files."""
        start = time.monotonic()
        out, err = Capture(self.limits.output_bytes), Capture(self.limits.output_bytes)
        try:
            limit = self._pump(stdin, out, err, start + self.limits.wall_s)
            found = self.collect(artefacts) if artefacts else {}
        except SandboxFaultError as fault:
            return Result(self.level, fault=fault.record(), wall_s=time.monotonic() - start)
        finally:
            self.close()
        status = self.process.returncode
        killed = -status if status < 0 else status - 128 if status > 128 else None
        if limit is not None:
            killed = int(signal.SIGKILL)
        limit = limit or limit_of(killed)
        return Result(
            self.level,
            exit=status if killed is None else None,
            signal=killed,
            timed_out=limit == "wall",
            stdout=out.data.decode(errors="replace"),
            stderr=err.data.decode(errors="replace"),
            truncated=out.dropped or err.dropped or self.cut,
            artefacts=found,
            limit=limit,
            wall_s=time.monotonic() - start,
        )

    def _pump(self, stdin: bytes, out: Capture, err: Capture, deadline: float) -> str | None:
        """Move bytes until the wrapper has ended; return the limit that ended it, if one did."""
        process = self.process
        assert process.stdin and process.stdout and process.stderr
        captures = {process.stdout.fileno(): out, process.stderr.fileno(): err}
        ending = os.pidfd_open(process.pid)
        poll = select.poll()
        for descriptor in (ending, *captures):
            poll.register(descriptor, select.POLLIN)
        feed = _Feed(process.stdin, stdin, poll)
        limit: str | None = None
        next_watch = time.monotonic() + WATCH_S
        try:
            while True:
                now = time.monotonic()
                if now >= deadline:
                    if limit is not None:
                        raise SandboxFaultError("end", "undead", f"{self.level}: alive after it was killed")
                    limit, deadline = "wall", now + DEATH_DEADLINE_S
                    self.kill()
                if now >= next_watch and limit is None:
                    limit = self._exceeded()
                    next_watch = time.monotonic() + WATCH_S
                    if limit is not None:
                        deadline = now + DEATH_DEADLINE_S
                        self.kill()
                events = dict(poll.poll(1000 * max(0.0, min(deadline, next_watch) - time.monotonic())))
                for descriptor in captures.keys() & events.keys():
                    if chunk := os.read(descriptor, CHUNK):
                        captures[descriptor].add(chunk)
                    else:
                        poll.unregister(descriptor)
                if feed.descriptor in events:
                    feed.advance()
                if ending in events:
                    break
        finally:
            os.close(ending)
            feed.close()
        process.wait()
        self._await_init()
        for descriptor, capture in captures.items():
            _drain(descriptor, capture)
        return limit

    def _await_init(self) -> None:
        """Wait for the sandbox's first process, whose end is the end of all: the wrapper may leave before it."""
        if self.init is None:
            return
        self.kill()
        if not select.select([self.init], [], [], DEATH_DEADLINE_S)[0]:
            raise SandboxFaultError("end", "undead", f"{self.level}: alive after it was killed")

    def _exceeded(self) -> str | None:
        if memory_mb(self.process.pid) > self.limits.memory_mb:
            return "memory"
        if not self.disk_is_bounded and self._disk_mb() > self.limits.disk_mb:
            return "disk"
        return None

    def _disk_mb(self) -> float:
        total = 0
        for entries, (_, _, files, directory) in enumerate(os.fwalk(".", dir_fd=self.disk)):
            if entries + len(files) > MAX_ENTRIES:
                return float("inf")
            for name in files:
                with contextlib.suppress(OSError):
                    total += os.stat(name, dir_fd=directory, follow_symlinks=False).st_blocks * 512
        return total / 2**20

    def kill(self) -> None:
        """End every process of the sandbox; returns before they are gone."""
        if self.lifeline is not None:
            os.close(self.lifeline)
            self.lifeline = None
        if self.init is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.init, signal.SIGKILL)
        elif self.disk < 0:
            self.process.kill()

    def collect(self, patterns: Sequence[str]) -> dict[str, bytes]:
        """Read the regular files that match; links, devices and what exceeds the disk limit are left out."""
        room = self.limits.disk_mb << 20
        found: dict[str, bytes] = {}
        for path in self._matching(patterns):
            data = _read_regular(self.disk, path, room + 1)
            if data is None:
                continue
            if len(data) > room:
                self.cut = True
                continue
            room -= len(data)
            found[path] = data
        return found

    def _matching(self, patterns: Sequence[str]) -> list[str]:
        plain = [p for p in patterns if not set(p) & set("*?[")]
        if len(plain) == len(patterns):
            return plain
        paths: list[str] = []
        for root, _, files, _ in os.fwalk(".", dir_fd=self.disk):
            paths += [str(PurePosixPath(root, name)) for name in files]
            if len(paths) > MAX_ENTRIES:
                self.cut = True
                break
        return sorted(p for p in paths if any(fnmatch.fnmatchcase(p, pattern) for pattern in patterns))

    def close(self) -> None:
        """End what still runs and give every handle back. Safe to call twice."""
        if self.process.poll() is None:
            self.kill()
            try:
                self.process.wait(DEATH_DEADLINE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        elif self.lifeline is not None:
            self.kill()
        if self.init is not None:
            select.select([self.init], [], [], DEATH_DEADLINE_S)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        for descriptor in (self.disk, self.init):
            if descriptor is not None and descriptor >= 0:
                os.close(descriptor)
        self.disk, self.init = -1, None


class _Feed:
    """Writes stdin as the program takes it, and closes it after the last byte."""

    def __init__(self, stream: object, data: bytes, poll: select.poll):
        self.stream = stream
        self.descriptor: int = stream.fileno()  # type: ignore[attr-defined]
        self.data = memoryview(data)
        self.poll = poll
        os.set_blocking(self.descriptor, False)
        self.open = True
        poll.register(self.descriptor, select.POLLOUT)
        self.advance()

    def advance(self) -> None:
        try:
            if self.data:
                self.data = self.data[os.write(self.descriptor, self.data[:CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self.data = self.data[:0]
        if not self.data:
            self.close()

    def close(self) -> None:
        if self.open:
            self.open = False
            self.poll.unregister(self.descriptor)
            with contextlib.suppress(BrokenPipeError):
                self.stream.close()  # type: ignore[attr-defined]


def _drain(descriptor: int, capture: Capture) -> None:
    """Read what the dead left in a pipe. No writer lives, so the end comes at once."""
    os.set_blocking(descriptor, False)
    with contextlib.suppress(BlockingIOError):
        while chunk := os.read(descriptor, CHUNK):
            capture.add(chunk)


def relative_parts(path: str) -> tuple[str, ...]:
    """Return the components of a path inside the sandbox.

    Raises:
        UserError: it is absolute or climbs out.
    """
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise UserError(f"{path!r} is not a relative path inside the sandbox")
    return parts


@contextlib.contextmanager
def _directory_of(disk: int, path: str, user: int | None) -> Iterator[tuple[int, str]]:
    """Open the directory of a path below `disk`, making what is missing and following no link."""
    *folders, name = relative_parts(path)
    directory = os.dup(disk)
    try:
        for folder in folders:
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, 0o755, dir_fd=directory)
                if user is not None:
                    os.chown(folder, user, user, dir_fd=directory, follow_symlinks=False)
            inner = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
            os.close(directory)
            directory = inner
        yield directory, name
    finally:
        os.close(directory)


def _read_regular(disk: int, path: str, most: int) -> bytes | None:
    """Return up to `most` bytes of a regular file with one name, or None for anything else."""
    *folders, name = relative_parts(path)
    directory = os.dup(disk)
    try:
        for folder in folders:
            inner = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
            os.close(directory)
            directory = inner
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    except OSError:
        return None
    finally:
        os.close(directory)
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1:
        os.close(descriptor)
        return None
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read(most)
