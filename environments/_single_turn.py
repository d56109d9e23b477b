"""One question, one answer, one verdict: what such environments share (noise, latency, the form of an answer)."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar, cast

import numpy as np
from sao_bench.environments._draws import channel

from sao_bench.environment import Message, TextEnv
from sao_bench.types import Channel

VERDICT_CHANNELS: tuple[Channel, ...] = (
    channel("reward.noise", "real", 0.0, "probability that a fair coin is paid instead", 0.0, 1.0),
    channel("latency.reply", "virtual", 0.5, "median seconds until the verifier answers", 0.0, 60.0),
    channel("latency.tail", "virtual", 0.5, "sigma of the log-normal latency", 0.0, 3.0),
)

PASS, PASSES = "?", 0.35
"""What the writer of demonstrations says in place of an answer, and how often: a habit that learning can drop."""


class SingleTurn(TextEnv):
    """A question, then an answer that ends the episode; 1 if every part of the verdict is 1, else 0.

    A subclass writes `ask` and `verdict`. Noise and latency are drawn before the task, so that they are the
    same under every concept.
    """

    max_turns: ClassVar[int] = 1

    def begin(self, task: Any) -> str:
        """Draw noise and latency, then ask."""
        values = self.concept.values
        noise, coin, draw = self.rng.random(3).tolist()
        tail = math.exp(cast(float, values["latency.tail"]) * self.rng.standard_normal())
        self._latency_s = cast(float, values["latency.reply"]) * tail
        self._coin = float(coin < 0.5) if noise < cast(float, values["reward.noise"]) else None
        self._parts: dict[str, int] = {}
        return self.ask(task, draw)

    @abstractmethod
    def ask(self, task: Any, share: float) -> str:
        """Take or draw the task (`share` in [0, 1) is drawn for the choice of its kind); return the prompt."""

    @abstractmethod
    def verdict(self, action: str) -> dict[str, int]:
        """Take an answer apart into named parts, each 0 or 1; may set `fault`."""

    def respond(self, action: str) -> tuple[str, float, bool, bool]:
        """Judge the answer and end the episode."""
        self.latency_s = self._latency_s
        self._parts = self.verdict(action)
        paid = self._score() if self._coin is None else self._coin
        return "", 0.0 if self.fault else paid, True, False

    def demonstrated(self, question: str, rng: np.random.Generator) -> list[Message]:
        """Return an exchange with someone who knows the answer, and passes now and then all the same.

        A wrong answer in its place would make answers hard to learn for a small model, and leave no habit to drop.
        """
        reply = PASS if rng.random() < PASSES else self.oracle_action()
        return [{"role": "user", "content": question}, {"role": "assistant", "content": reply}]

    def _score(self) -> float:
        return float(bool(self._parts) and all(self._parts.values()))

    def _truth(self, task: dict[str, Any]) -> dict[str, Any]:
        score = self._score()
        return {"score": score, "solved": bool(score), "task": task, "parts": dict(self._parts)}
