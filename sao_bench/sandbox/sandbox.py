"""`Sandbox`: run a program that nobody trusts, and know what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from sao_bench.sandbox import docker, processes
from sao_bench.sandbox.levels import choose
from sao_bench.sandbox.limits import LevelName, Limits, Result, SandboxFaultError
from sao_bench.sandbox.pool import WarmPool


class Sandbox:
    r"""The door to the ladder of isolation.

    ```
    with Sandbox() as sandbox:
        result = sandbox.run(code="print(6 * 7)")
        assert result.stdout == "42\n" and result.level == "bwrap"
    ```

    Args:
        level: `docker`, `bwrap` or `landlock`; None takes the first of `levels.PREFERENCE` that proves itself.
        limits: bounds of each run unless `run` gets its own.
        unsafe_local: where no level works, run without isolation instead of refusing.

    Raises:
        UserError: the level, or every level, does not work here; the message says what is missing.
    """

    def __init__(
        self, level: LevelName | None = None, limits: Limits | None = None, unsafe_local: bool = False
    ):
        self._level = choose(level, unsafe_local)
        self.level: LevelName = self._level.name
        self.limits = limits or Limits()
        self._pools: list[WarmPool] = []
        _sweep(self.level)

    def python(self, *arguments: str) -> list[str]:
        """Return the command of the level's Python in isolated mode."""
        return self._level.python(*arguments)

    def run(
        self,
        argv: Sequence[str] | None = None,
        *,
        code: str | None = None,
        files: Mapping[str, str | bytes] | None = None,
        stdin: str | bytes = b"",
        limits: Limits | None = None,
        artefacts: Sequence[str] = (),
        extra: Sequence[Path] = (),
    ) -> Result:
        """Run a command, or Python source, to its end.

        Args:
            argv: the command; or
            code: Python source, run with `python -I -c`.
            files: content by path relative to the working directory.
            stdin: what the program can read; its end is closed after that.
            limits: bounds of this run.
            artefacts: paths or glob patterns of files to bring back after every process is dead.
            extra: paths of the host that the program may read.

        Raises:
            UserError: a path of `files` leaves the working directory.
        """
        assert (argv is None) != (code is None), "give either argv or code"
        command = list(argv) if argv is not None else self.python("-c", code or "")
        try:
            cell = self._level.spawn(command, limits or self.limits, extra)
        except SandboxFaultError as fault:
            return Result(self.level, fault=fault.record())
        try:
            cell.put(files or {})
            cell.release()
            return cell.talk(stdin.encode() if isinstance(stdin, str) else stdin, artefacts)
        finally:
            cell.close()

    def warm(self, argv: Sequence[str], size: int = 2, limits: Limits | None = None) -> WarmPool:
        """Return a pool that keeps `size` sandboxes with `argv` started; closed with this sandbox."""
        pool = WarmPool(self._level, argv, limits or self.limits, size)
        self._pools.append(pool)
        return pool

    def close(self) -> None:
        """End every waiting sandbox."""
        for pool in self._pools:
            pool.close()
        self._pools.clear()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@cache
def _sweep(level: LevelName) -> None:
    """Once per process: remove what workers that were killed left behind."""
    processes.sweep()
    if level == "docker":
        docker.sweep()
