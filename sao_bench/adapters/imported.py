"""`Imported`: what every environment from elsewhere has in common once it is a `TextEnv` of ours.

A subclass says how an episode is opened and how an action is answered. Whatever the other side raises is a fault of
the machinery (the episode is masked, never a 0), and an action that it cannot take is an error observation that
costs a turn.
"""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from sao_bench.environment import Message, TextEnv
from sao_bench.errors import UserError
from sao_bench.types import Value

Score: TypeAlias = float | Callable[[Mapping[str, Value]], float]
"""A number, or a function of a concept's values."""


class Answer(NamedTuple):
    """What the other side said: the observation, the turn's reward, and how the episode stands."""

    observation: str
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False


class IllegalActionError(Exception):
    """The other side cannot take this action; its text tells the agent why."""


class FaultError(Exception):
    """The other side's machinery failed."""

    def __init__(self, kind: str):
        super().__init__(kind)
        self.kind = kind


class Imported(TextEnv):
    """Base class of imported environments.

    Attributes:
        oracle_score: J*, the best policy's expected score: a number, or a function of the channel values.
        floor_score: b, the best constant reply's expected score.
        oracle_policy: what the best policy would say, given the environment; None where nobody knows.
        solved_score: the score from which an episode counts as solved, where the other side does not say.

    What an import cannot know is not guessed: without `oracle_policy` or demonstrations, asking for them is an error.
    """

    oracle_score: ClassVar[Score] = 1.0
    floor_score: ClassVar[Score] = 0.0
    oracle_policy: ClassVar[Callable[[Any], str] | None] = None
    solved_score: ClassVar[float] = 1.0
    task_keys: ClassVar[tuple[str, ...] | None] = None
    """Keys that a task may have; None where the other side decides."""

    def __init__(self) -> None:
        super().__init__()
        self._seed = 0
        self._task: dict[str, Any] = {}
        self._rewards: list[float] = []
        self.solved: bool | None = None
        self.score: float | None = None
        self.parts: dict[str, Any] = {}

    # -- for subclasses ---------------------------------------------------------------------------

    @abstractmethod
    def open(self, task: dict[str, Any]) -> str:
        """Begin the other side's episode; `task` has its `seed` and whatever else decides it."""

    @abstractmethod
    def answer(self, action: str) -> Answer:
        """Take an action to the other side.

        Raises:
            IllegalActionError: the action has no meaning there.
            FaultError: the machinery failed; so does any other exception.
        """

    # -- TextEnv ----------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start an episode; the other side gets the very same seed (below 2**63)."""
        self._seed = int(self.np_random.integers(2**62)) if seed is None else seed
        return super().reset(seed=self._seed, options=options)

    def begin(self, task: Any) -> str:
        """Open the episode of a task, or of the seed."""
        if task is not None and not isinstance(task, Mapping):
            raise UserError(f"{self.id}: task {task!r} is not a mapping")
        if self.task_keys and (wrong := set(task or ()) - set(self.task_keys)):
            raise UserError(f"{self.id}: unknown task key {min(wrong)!r}; known: {', '.join(self.task_keys)}")
        self._task = {"seed": self._seed} if task is None else dict(task)
        self._rewards, self.parts = [], {}
        self.solved = self.score = None
        try:
            return self.open(dict(self._task))
        except UserError:
            raise
        except Exception as error:
            # Somebody else's code: whatever it raises cuts the episode short.
            return self._fail("reset", error)

    def respond(self, action: str) -> tuple[str, float, bool, bool]:
        """Take the action to the other side."""
        try:
            answer = self.answer(action)
            reward = float(answer.reward)
            if not math.isfinite(reward):
                raise FaultError("reward_not_finite")
        except IllegalActionError as illegal:
            return f"error: {illegal}", 0.0, False, False
        except Exception as error:
            return self._fail("step", error), 0.0, False, True
        self._rewards.append(reward)
        return answer.observation, reward, answer.terminated, answer.truncated

    def _fail(self, stage: str, error: Exception) -> str:
        kind = error.kind if isinstance(error, FaultError) else type(error).__name__
        self.parts["error"] = str(error)[:1000]
        self.fault = {"stage": stage, "kind": kind}
        return ""

    def truth(self) -> dict[str, Any]:
        """Return the score (the other side's, or the sum of rewards), solved, task and what else it told."""
        score = math.fsum(self._rewards) if self.score is None else self.score
        solved = score >= self.solved_score if self.solved is None else self.solved
        return {"score": score, "solved": bool(solved), "task": dict(self._task), "parts": dict(self.parts)}

    def oracle_action(self) -> str:
        """Return what the given oracle says.

        Raises:
            UserError: none was given.
        """
        policy = type(self).oracle_policy
        if policy is None:
            raise UserError(
                f"{self.id}: imported without an oracle; pass oracle_policy= to say how it is solved"
            )
        return policy(self)

    @classmethod
    def oracle(cls, values: Mapping[str, Value]) -> float:
        """Return the given J*."""
        return _score(cls.oracle_score, values)

    @classmethod
    def floor(cls, values: Mapping[str, Value]) -> float:
        """Return the given b."""
        return _score(cls.floor_score, values)

    @classmethod
    def demonstration(cls, rng: np.random.Generator) -> list[Message]:
        """Refuse: an import has none.

        Raises:
            UserError: always.
        """
        raise UserError(
            f"{cls.id}: imported without demonstrations; start from a model folder that knows the task"
        )


def _score(score: Score, values: Mapping[str, Value]) -> float:
    return float(score(values) if callable(score) else score)


def plain(value: Any) -> Any:
    """Return a value as JSON keeps it: numbers, text and containers; anything else as its `repr`."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)


def text_of(value: Any) -> str:
    """Return an observation as text: a string as it stands, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(plain(value), sort_keys=True, ensure_ascii=False)


def build(base: type[Imported], name: str, **attributes: Any) -> type[Any]:
    """Return a subclass of an imported base with its class attributes set; functions stay functions."""
    own = {
        key: staticmethod(value) if callable(value) and not isinstance(value, type) else value
        for key, value in attributes.items()
        if value is not None
    }
    return type(name, (base,), own)
