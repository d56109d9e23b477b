"""Sandboxes started ahead of time: one for every grade, none used twice."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from sao_bench.sandbox.levels import AnyCell, Level
from sao_bench.sandbox.limits import Limits, SandboxFaultError

QUIET_S = 0.05
"""While at least half of the pool is ready, refilling waits until no grade began for so long."""


class WarmPool:
    """Keeps `size` sandboxes with `argv` running, each waiting for its stdin.

    One thread starts them all and lives as long as the pool, because a sandbox ends with the thread that
    started it. What a sandbox does before it reads its first byte is not on the clock of a grade; the wall
    limit counts from `talk`.
    """

    def __init__(
        self, level: Level, argv: Sequence[str], limits: Limits, size: int, extra: Sequence[Path] = ()
    ):
        self._start = lambda: level.spawn(argv, limits, extra)
        self._ready: queue.Queue[AnyCell | SandboxFaultError] = queue.Queue(maxsize=size)
        self._enough = size / 2
        self._last_take = 0.0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._refill, name="sandbox-pool", daemon=True)
        self._thread.start()

    def _refill(self) -> None:
        while not self._closing.is_set():
            item: AnyCell | SandboxFaultError
            self._let_grades_run()
            try:
                item = self._start()
                item.release()
            except SandboxFaultError as fault:
                item = fault
                self._closing.wait(0.2)
            while not self._closing.is_set():
                with contextlib.suppress(queue.Full):
                    self._ready.put(item, timeout=0.1)
                    break
            else:
                _close(item)

    def _let_grades_run(self) -> None:
        """Leave the cores to a burst of grades; a longer one is refilled beside it."""
        while self.waiting() >= self._enough and time.monotonic() - self._last_take < QUIET_S:
            if self._closing.wait(QUIET_S / 5):
                return

    def take(self) -> AnyCell:
        """Return a waiting sandbox, for one use; blocks while none is ready.

        Raises:
            SandboxFaultError: the last one did not start, or the pool is closed.
        """
        if self._closing.is_set():
            raise SandboxFaultError("start", "closed", "the pool is closed")
        item = self._ready.get()
        self._last_take = time.monotonic()
        if isinstance(item, SandboxFaultError):
            raise item
        return item

    def waiting(self) -> int:
        """Return how many sandboxes are ready now."""
        return self._ready.qsize()

    def close(self) -> None:
        """End all waiting sandboxes and the thread."""
        self._closing.set()
        self._thread.join()
        with contextlib.suppress(queue.Empty):
            while True:
                _close(self._ready.get_nowait())


def _close(item: AnyCell | SandboxFaultError) -> None:
    if not isinstance(item, SandboxFaultError):
        item.close()
