"""Small environments that the adapter tests play: a Gymnasium one, and one of ours that truncates and faults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium
import numpy as np

from sao_bench.environment import Message, TextEnv, UnicodeText
from sao_bench.types import Channel, Value


class Echo(gymnasium.Env[str, str]):
    """Say the word that was shown; three turns, 1.5 at most a turn, `info["success"]` at the end."""

    def __init__(self, bonus: float = 0.5) -> None:
        self.observation_space = UnicodeText()
        self.action_space = gymnasium.spaces.Text(8, charset="abcdefgh")
        self.bonus = bonus

    def _word(self) -> str:
        return "".join("abcdefgh"[i] for i in self.np_random.integers(0, 8, 4))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.turn, self.right = 0, 0
        self.pay = (options or {}).get("pay", 1.0)
        self.word = self._word()
        return f"say {self.word}", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if action == "hhhh":
            raise RuntimeError("the machine is on fire")
        good = action == self.word
        self.turn, self.right = self.turn + 1, self.right + good
        self.word = self._word()
        done = self.turn == 3
        info = {"success": self.right == 3, "seen": np.int64(self.turn)} if done else {}
        return f"say {self.word}", (self.pay + self.bonus) * good, done, False, info


gymnasium.register("sao_bench_tests/Echo-v0", entry_point=Echo, max_episode_steps=2)


class Toll(TextEnv):
    """Say the number shown plus `tax`; up to three turns, paid each turn; `break` faults, `stop` ends."""

    id = "tests/Toll-v0"
    max_turns = 3
    channels: ClassVar[tuple[Channel, ...]] = (
        Channel("tax", "int", "real", 0, "what is added to the right answer", 0, 9),
        Channel("task.size", "int", "virtual", 10, "numbers are below this", 2, 1000),
    )

    def begin(self, task: Any) -> str:
        size = int(self.concept.values["task.size"])  # type: ignore[arg-type]
        self._numbers = list(task["numbers"]) if task else [int(n) for n in self.rng.integers(0, size, 3)]
        self._score = 0.0
        return f"n = {self._numbers[0]}"

    def respond(self, action: str) -> tuple[str, float, bool, bool]:
        self.latency_s = 0.25 * self.turn
        if action == "break":
            self.fault = {"stage": "tool", "kind": "timeout"}
            return "", 0.0, False, False
        if action == "stop":
            return "", 0.0, True, False
        reward = 0.5 if action == self._answer(self.turn - 1) else 0.0
        self._score += reward
        return f"n = {self._numbers[self.turn % 3]}", reward, False, False

    def _answer(self, turn: int) -> str:
        return str(self._numbers[turn] + int(self.concept.values["tax"]))  # type: ignore[arg-type]

    def oracle_action(self) -> str:
        return self._answer(self.turn)

    def truth(self) -> dict[str, Any]:
        task = {"numbers": self._numbers}
        return {
            "score": self._score,
            "solved": self._score == 1.5,
            "task": task,
            "parts": {"paid": self._score},
        }

    @classmethod
    def oracle(cls, values: Mapping[str, Value]) -> float:
        return 1.5

    @classmethod
    def floor(cls, values: Mapping[str, Value]) -> float:
        return 0.3

    @classmethod
    def demonstration(cls, rng: np.random.Generator) -> list[Message]:
        return [{"role": "user", "content": "n = 1"}, {"role": "assistant", "content": "1"}]
