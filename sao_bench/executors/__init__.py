"""Executors: who decides what happens next. One file = one executor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from sao_bench.trainer import Trainer


class Executor(ABC):
    """Runs a trainer's engine, environments and learner against a clock.

    Args:
        trainer: supplies what is run; the executor decides when.
    """

    name: ClassVar[str] = ""
    clocks: ClassVar[tuple[str, ...]] = ()
    """The schedule clocks that it can keep."""

    def __init__(self, trainer: Trainer):
        self.trainer = trainer

    @abstractmethod
    def run(self) -> None:
        """Run until every dispatched episode is consumed, or `trainer.stopping` is set."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return clock, pending events and live episodes as plain data."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`."""
