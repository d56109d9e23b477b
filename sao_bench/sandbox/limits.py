"""What a sandboxed program may use, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

LevelName: TypeAlias = Literal["docker", "bwrap", "landlock", "unsafe-local"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one run. They are per sandbox unless said otherwise.

    `memory_mb` bounds the resident memory of all processes together (watched every 50 ms; exact under
    docker) and, with some headroom, the address space of each. `cpu_s` is per process. `disk_mb` bounds
    all files together and each file. Output beyond `output_bytes` per stream is read and thrown away.
    """

    wall_s: float = 10.0
    cpu_s: int = 10
    memory_mb: int = 512
    pids: int = 32
    output_bytes: int = 1_000_000
    disk_mb: int = 64


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one run.

    A program that ran into a limit has `timed_out` or `limit` set and is judged by what it did (a valid
    0); `fault` is set only where the machinery failed, and then nothing is known about the program.

    Attributes:
        level: the rung of the ladder it ran on.
        exit: exit status, None if a signal ended the program or it never ran.
        signal: the signal that ended it (a status above 128 is read as one, as shells do).
        timed_out: the wall limit ended it.
        stdout: what it wrote, decoded with replacement, cut at `Limits.output_bytes`.
        stderr: likewise.
        truncated: some output or artefact was cut.
        artefacts: bytes of the regular files asked for, by path in the sandbox.
        fault: `{"stage", "kind", "message"}` of a failure of the machinery, else None.
        limit: which limit ended it: wall, cpu, memory, disk; None if none did.
        wall_s: real seconds from release to end.
    """

    level: LevelName
    exit: int | None = None
    signal: int | None = None
    timed_out: bool = False
    stdout: str = ""
    stderr: str = ""
    truncated: bool = False
    artefacts: dict[str, bytes] = field(default_factory=dict)
    fault: dict[str, str] | None = None
    limit: str | None = None
    wall_s: float = 0.0


class SandboxFaultError(RuntimeError):
    """The machinery failed: no statement about the program is possible."""

    def __init__(self, stage: str, kind: str, message: str = ""):
        super().__init__(f"{stage}: {kind}: {message}".rstrip(": "))
        self.stage, self.kind, self.message = stage, kind, message

    def record(self) -> dict[str, str]:
        """Return the fault as it goes into a `Result`."""
        return {"stage": self.stage, "kind": self.kind, "message": self.message}
