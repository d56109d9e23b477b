"""The ladder of isolation: which levels there are, which one works here, and what each lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

from sao_bench.errors import UserError, unknown
from sao_bench.sandbox import bwrap, docker, landlock
from sao_bench.sandbox.host import python
from sao_bench.sandbox.limits import LevelName, Limits, Result, SandboxFaultError


class AnyCell(Protocol):
    """One sandbox around one program: put files, release, talk once (see `cell`)."""

    def put(self, files: Mapping[str, str | bytes]) -> None:
        """Write files into the working directory."""

    def release(self) -> None:
        """Let the program start."""

    def talk(self, stdin: bytes = b"", artefacts: Sequence[str] = ()) -> Result:
        """Feed stdin and wait for the end; ends the sandbox."""

    def close(self) -> None:
        """End everything. Safe to call twice."""


@dataclass(frozen=True, slots=True)
class Level:
    """One rung: how to start a sandbox, what it lacks here (None: nothing), and its Python."""

    name: LevelName
    spawn: Callable[[Sequence[str], Limits, Sequence[Path]], AnyCell]
    missing: Callable[[], str | None]
    python: Callable[..., list[str]] = python


def _image_python(*arguments: str) -> list[str]:
    return ["python3", "-I", *arguments]


LEVELS: dict[str, Level] = {
    "docker": Level("docker", docker.spawn, docker.missing, _image_python),
    "bwrap": Level("bwrap", bwrap.spawn, bwrap.missing),
    "landlock": Level("landlock", landlock.spawn, landlock.missing),
}
"""From the strongest isolation to the weakest."""

UNSAFE = Level("unsafe-local", landlock.spawn_unconfined, lambda: None)

PREFERENCE: tuple[LevelName, ...] = ("bwrap", "docker", "landlock")
"""Order of the default choice: a grade wants a sandbox in milliseconds. Bubblewrap holds against the same
programs as a container and starts 10 to 30 times faster; Landlock comes last because it is weaker."""


@cache
def problem(name: LevelName) -> str | None:
    """Return why a level cannot be used here (what is missing, or how its self-test failed), or None.

    The answer is kept for the life of this process: the self-test takes some tenths of a second.
    """
    from sao_bench.sandbox.selftest import failures

    level = LEVELS[name]
    if lack := level.missing():
        return lack
    try:
        found = failures(level)
    except SandboxFaultError as fault:
        return f"does not start: {fault.message or fault.kind}"
    return f"self-test: {'; '.join(found)}" if found else None


def choose(name: LevelName | None = None, unsafe_local: bool = False) -> Level:
    """Return the level asked for, or the first of `PREFERENCE` that proves itself.

    Raises:
        UserError: the level does not exist or does not work here; or none works and `unsafe_local` is off.
    """
    if name == UNSAFE.name and unsafe_local:
        return UNSAFE
    if name is not None:
        if name not in LEVELS:
            raise unknown("sandbox level", name, LEVELS)
        if lack := problem(name):
            raise UserError(f"sandbox level {name} does not work here: {lack}")
        return LEVELS[name]
    lacks = {}
    for candidate in PREFERENCE:
        lack = problem(candidate)
        if lack is None:
            return LEVELS[candidate]
        lacks[candidate] = lack
    if unsafe_local:
        return UNSAFE
    reasons = "; ".join(f"{level}: {lack}" for level, lack in lacks.items())
    raise UserError(
        f"no sandbox works here ({reasons}); `python -m sao_bench doctor` says how to get one, "
        "--unsafe-local runs model-written code without one"
    )
