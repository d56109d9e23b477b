"""One allowance of seconds for all the work on one verdict."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class TimeUpError(ValueError):
    """The allowance is used up."""


class Deadline:
    """Seconds that run from now on, whatever they are spent on."""

    def __init__(self, seconds: float):
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds that are left, at least 0."""
        return max(0.0, self._end - time.monotonic())

    def check(self) -> None:
        """Raise if nothing is left.

        Raises:
            TimeUpError: the allowance is used up.
        """
        if self.left() <= 0:
            raise TimeUpError("the deadline has passed")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count what happens inside (the start of a child, waiting for another thread)."""
        start = time.monotonic()
        try:
            yield
        finally:
            self._end += time.monotonic() - start
