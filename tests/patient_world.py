"""A world of three turns that pays by the clock: one channel moves within an episode, the other does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

import numpy as np

from sao_bench.environment import Message, TextEnv
from sao_bench.types import Channel, Value


class Patient(TextEnv):
    """Every reply earns the level of the moment; `truth()` tells which levels that were."""

    id = "tests/Patient-v0"
    max_turns = 3
    max_reply_tokens = 4
    channels: ClassVar[tuple[Channel, ...]] = (
        Channel("tool.level", "float", "real", 0.0, "paid now", 0, 1, intra_episode=True),
        Channel("task.level", "float", "real", 0.0, "shown at the end", 0, 1),
        Channel("latency.reply", "float", "virtual", 3.0, "median seconds of an answer", 0, 60),
    )

    def begin(self, task: Any) -> str:
        """Return a prompt that the character model knows how to read."""
        self.seen: list[float] = []
        self.task = task or {"n": int(self.rng.integers(100))}
        return f"{self.task['n']}"

    def respond(self, action: str) -> tuple[str, float, bool, bool]:
        """Pay the level of the moment."""
        level = cast(float, self.concept.values["tool.level"])
        self.seen.append(level)
        self.latency_s = cast(float, self.concept.values["latency.reply"]) * float(self.rng.lognormal(0, 1.5))
        return "on", level, self.turn == 3, False

    def truth(self) -> dict[str, Any]:
        """Return what was paid."""
        parts = {"seen": self.seen, "task_level": self.concept.values["task.level"]}
        return {"score": sum(self.seen), "solved": False, "task": self.task, "parts": parts}

    def oracle_action(self) -> str:
        """Return anything."""
        return "x"

    @classmethod
    def oracle(cls, values: Mapping[str, Value]) -> float:
        """Return three times the level."""
        return 3 * cast(float, values["tool.level"])

    @classmethod
    def floor(cls, values: Mapping[str, Value]) -> float:
        """Return 0."""
        return 0.0

    @classmethod
    def demonstration(cls, rng: np.random.Generator) -> list[Message]:
        """Return one exchange."""
        return [{"role": "user", "content": "1"}, {"role": "assistant", "content": "x"}]
