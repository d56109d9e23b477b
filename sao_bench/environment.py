"""`TextEnv`: a Gymnasium environment over text whose world can drift.

The concept of an episode (the values of all channels) is given to `reset` and holds until the episode
ends. What the agent may see is the observation; what the evaluator knows is `truth()`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, TypeAlias

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded

from sao_bench.errors import UserError, did_you_mean
from sao_bench.seeding import generator
from sao_bench.types import Channel, Concept, Value

Message: TypeAlias = dict[str, str]
"""`{"role": "user" | "assistant", "content": text}`; an observation after a turn has the role `user`."""

MAX_CHARACTERS = 100_000


def clean_text(text: Any, limit: int = MAX_CHARACTERS) -> str:
    """Return legal text: lone surrogates and NUL become U+FFFD; long text keeps head and tail.

    The cut is named in the text (`[... 123 characters cut ...]`). Anything that is not a `str` becomes "".
    """
    if not isinstance(text, str):
        return ""
    text = text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters cut ...]\n{text[-half:]}"


class UnicodeText(gymnasium.Space[str]):
    """Any `str` of 0 to `max_length` characters (the stock `Text` refuses spaces, "" and non-ASCII)."""

    def __init__(self, max_length: int = 4 * MAX_CHARACTERS, seed: int | np.random.Generator | None = None):
        self.max_length = max_length
        super().__init__(dtype=str, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """Text does not flatten to an array."""
        return False

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Return a short random text over letters, digits, spaces and a few non-ASCII characters."""
        alphabet = "abcdefghijklmnopqrstuvwxyz ABC 0123456789.,!?~\n\u00e9\u4e2d\u2603"
        picks = self.np_random.integers(0, len(alphabet), int(self.np_random.integers(0, 40)))
        return "".join(alphabet[i] for i in picks)[: self.max_length]

    def contains(self, x: Any) -> bool:
        """Return whether `x` is a `str` that is not too long."""
        return isinstance(x, str) and len(x) <= self.max_length

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnicodeText) and other.max_length == self.max_length

    def __repr__(self) -> str:
        return f"UnicodeText({self.max_length})"


class TextEnv(gymnasium.Env[str, str]):
    """Base class of every environment: text in, text out, one concept per episode.

    A subclass sets `id`, `channels` and `max_turns` and writes `begin`, `respond`, `oracle`, `floor`,
    `oracle_action` and `demonstration`. It draws from `self.rng` only, which is fresh for every
    episode, so that (seed, task, concept) decide an episode whatever came before.

    Attributes for the evaluator (never in `info`): `truth()`; for the executor: `latency_s`, virtual
    seconds that the last answer of the environment took. When the machinery fails (a grader that times out,
    a sandbox that does not start), `begin` or `respond` sets `fault` to `{"stage": ..., "kind": ...}`: the
    episode is cut short and marked in `info`, so that nobody takes it for a reward of 0.
    """

    id: ClassVar[str] = ""
    channels: ClassVar[tuple[Channel, ...]] = ()
    max_turns: ClassVar[int] = 1
    max_reply_tokens: ClassVar[int] = 64
    """Token budget of one action in the tiny tier; a longer action is cut and the episode truncated."""

    tiny_config: ClassVar[Mapping[str, Any]] = {}
    """Overrides of `sao_bench.tiny.TinyConfig` for the warm-started model of this environment."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (declared so by Gymnasium)

    def __init__(self) -> None:
        self.observation_space = UnicodeText()
        self.action_space = UnicodeText()
        self.rng: np.random.Generator = generator(0, self.id)
        self.concept: Concept = self.default_concept()
        self.latency_s = 0.0
        self.fault: dict[str, str] | None = None
        self.turn = 0
        self._running = False

    # -- for subclasses ---------------------------------------------------------------------------

    @abstractmethod
    def begin(self, task: Any) -> str:
        """Draw the episode (or take the given `task`) and return the first observation."""

    @abstractmethod
    def respond(self, action: str) -> tuple[str, float, bool, bool]:
        """Answer one action: (observation, reward, terminated, truncated). Never raises for any text."""

    @abstractmethod
    def truth(self) -> dict[str, Any]:
        """Return the evaluator's record of the episode so far, JSON-serialisable.

        Keys: `score` (sum of rewards before reward noise), `solved` (bool), `task` (the JSON description
        that `reset(options={"task": ...})` takes), `parts` (raw score of each named component).
        """

    @abstractmethod
    def oracle_action(self) -> str:
        """Return what the best policy would say now."""

    @classmethod
    @abstractmethod
    def oracle(cls, values: Mapping[str, Value]) -> float:
        """Return J*: the best policy's expected score under a concept (analytic, versioned with the task)."""

    @classmethod
    @abstractmethod
    def floor(cls, values: Mapping[str, Value]) -> float:
        """Return b: the expected score of the best constant reply under a concept."""

    @classmethod
    @abstractmethod
    def demonstration(cls, rng: np.random.Generator) -> list[Message]:
        """Return one imperfect conversation for the supervised warm start (user, assistant, user, ...)."""

    # -- fixed ------------------------------------------------------------------------------------

    @classmethod
    @cache
    def default_concept(cls) -> Concept:
        """Return the concept in which every channel holds its default."""
        return Concept.of({c.name: c.default for c in cls.channels})

    @classmethod
    def complete_concept(cls, concept: Concept | Mapping[str, Value] | None) -> Concept:
        """Return `concept` with the default of every channel that it leaves out.

        Raises:
            UserError: a channel is unknown or holds a value that it cannot hold.
        """
        if isinstance(concept, Concept) and len(concept.values) == len(cls.channels):
            return concept
        given = concept.values if isinstance(concept, Concept) else (concept or {})
        known = {c.name: c for c in cls.channels}
        for name, value in given.items():
            if name not in known:
                raise UserError(
                    f"{cls.id}: unknown channel {name!r}{did_you_mean(name, known)}; known: {', '.join(known)}"
                )
            if problem := known[name].problem(value):
                raise UserError(f"{cls.id}: channel {name!r}: {problem}")
        values = {name: given.get(name, channel.default) for name, channel in known.items()}
        return Concept.of(values, concept.phase if isinstance(concept, Concept) else 0)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: decides the episode's task, noise and latency. Without one, the next from `np_random`.
            options: `concept` (a `Concept` or a mapping of channel values) and `task` (as in `truth()`).

        Raises:
            UserError: an option, a channel or a value is not known.
        """
        super().reset(seed=seed)
        options = options or {}
        if extra := set(options) - {"concept", "task"}:
            raise UserError(f"{self.id}: unknown reset option {min(extra)!r}; known: concept, task")
        if seed is None:
            seed = int(self.np_random.integers(2**62))
        self.rng = generator(seed, self.id)
        self.concept = self.complete_concept(options.get("concept"))
        self.latency_s = 0.0
        self.fault = None
        self.turn = 0
        self._running = True
        return clean_text(self.begin(options.get("task"))), self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Answer one action; every string is legal.

        Raises:
            gymnasium.error.ResetNeeded: the episode has ended.
        """
        if not self._running:
            raise ResetNeeded(f"{self.id}: step() after the episode ended; call reset() first")
        self.turn += 1
        observation, reward, terminated, truncated = self.respond(clean_text(action))
        if self.fault:
            terminated, truncated = False, True
        elif not terminated and self.turn >= self.max_turns:
            truncated = True
        self._running = not (terminated or truncated)
        return clean_text(observation), float(reward), terminated, truncated, self._info()

    def move(self, concept: Concept) -> None:
        """Take over the `intra_episode` channels of a later concept; all others hold until the episode ends."""
        moving = {c.name: concept.values[c.name] for c in self.channels if c.intra_episode}
        if any(self.concept.values[name] != value for name, value in moving.items()):
            self.concept = Concept.of({**self.concept.values, **moving}, self.concept.phase)

    @classmethod
    @cache
    def moves(cls) -> bool:
        """Return whether a channel can change within an episode."""
        return any(channel.intra_episode for channel in cls.channels)

    def _info(self) -> dict[str, Any]:
        """Return a new `info`: empty, or the fault of the machinery."""
        return {"fault": dict(self.fault), "reward_valid": False} if self.fault else {}


def value_of(values: Mapping[str, Value], name: str, channels: Sequence[Channel]) -> Value:
    """Return a channel's value, or its default where the mapping leaves it out."""
    return values[name] if name in values else next(c.default for c in channels if c.name == name)
