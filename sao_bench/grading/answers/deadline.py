"""One allowance of seconds for all the work on one verdict."""

from __future__ import annotations

import time


class TimeUpError(ValueError):
    """The allowance is used up."""


class Deadline:
    """Seconds of this thread's processor time (a busy machine changes no verdict) and of a child's work."""

    def __init__(self, seconds: float):
        self._end = time.thread_time() + seconds

    def left(self) -> float:
        """Return the seconds that are left, at least 0."""
        return max(0.0, self._end - time.thread_time())

    def spend(self, seconds: float) -> None:
        """Take off what another process needed."""
        self._end -= seconds

    def check(self) -> None:
        """Raise if nothing is left.

        Raises:
            TimeUpError: the allowance is used up.
        """
        if self.left() <= 0:
            raise TimeUpError("the deadline has passed")
