"""Playing one episode and keeping everything that it showed, to hold environments against their promises."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import gymnasium
import numpy as np

from sao_bench.environment import TextEnv
from sao_bench.types import Channel, Value

LEAKS = ("answer", "concept", "floor", "oracle", "parts", "phase", "score", "solved", "truth")
"""Keys that `info` may not have: they are the evaluator's."""

Actor: TypeAlias = Callable[[TextEnv, str, int], Any]
"""(environment, last observation, turn) -> action."""
Concept: TypeAlias = dict[str, Value]


class PromiseError(Exception):
    """A promise is not kept."""


@dataclass(frozen=True)
class Trace:
    """Everything an episode showed to the agent, then the evaluator's truth."""

    observations: tuple[str, ...]
    actions: tuple[Any, ...]
    rewards: tuple[float, ...]
    ends: tuple[tuple[bool, bool], ...]
    latencies: tuple[float, ...]
    infos: tuple[str, ...]
    truth: str

    @property
    def score(self) -> float:
        """Sum of rewards before noise."""
        return float(json.loads(self.truth)["score"])

    @property
    def task(self) -> Any:
        """The task, as `reset` takes it."""
        return json.loads(self.truth)["task"]

    def difference(self, other: Trace) -> str | None:
        """Return the first field that an agent or a clock could tell apart, or None."""
        fields = ("observations", "rewards", "ends", "latencies", "infos")
        return next((name for name in fields if getattr(self, name) != getattr(other, name)), None)


def sample(channel: Channel, rng: np.random.Generator) -> Value:
    """Return a random value that a channel can hold."""
    low = 0.0 if channel.low is None else channel.low
    high = low + 1.0 if channel.high is None else channel.high
    match channel.type:
        case "bool":
            return bool(rng.integers(2))
        case "choice":
            return str(rng.choice(channel.choices))
        case "int":
            return int(rng.integers(int(low), int(high) + 1))
        case "simplex":
            shares = rng.dirichlet([0.5] * len(channel.choices))
            return dict(zip(channel.choices, map(float, shares), strict=True))
    return float(rng.uniform(low, high))


def oracle_actor(env: TextEnv, observation: str, turn: int) -> Any:
    """Act as the oracle does."""
    return env.oracle_action()


def replay(actions: Sequence[Any]) -> Actor:
    """Return an actor that says `actions` one by one, the last of them for ever."""
    return lambda env, observation, turn: actions[min(turn, len(actions) - 1)]


def play(
    env: gymnasium.Env[str, str],
    seed: int,
    concept: Mapping[str, Value] | None,
    actor: Actor,
    task: Any = None,
) -> Trace:
    """Play one episode to its end and return its trace.

    Raises:
        PromiseError: the episode does not end within `max_turns`, or shows something that it may not.
    """
    inner = cast(TextEnv, env.unwrapped)
    given = {"concept": concept, "task": task}
    options = {name: value for name, value in given.items() if value is not None}
    observation, info = env.reset(seed=seed, options=options or None)
    observations, infos, latencies = [observation], [_info_text(info, inner)], [inner.latency_s]
    actions, rewards, ends = [], [], []
    for turn in range(inner.max_turns):
        actions.append(actor(inner, observation, turn))
        observation, reward, terminated, truncated, info = env.step(actions[-1])
        observations.append(observation)
        infos.append(_info_text(info, inner))
        latencies.append(inner.latency_s)
        rewards.append(float(reward))
        ends.append((terminated, truncated))
        if terminated or truncated:
            break
    else:
        raise PromiseError(f"the episode of seed {seed} is not over after max_turns = {inner.max_turns}")
    if not all(map(math.isfinite, (*rewards, *latencies))) or min(latencies) < 0:
        raise PromiseError(
            f"seed {seed}: rewards {rewards}, latencies {latencies}: not finite, or time runs backwards"
        )
    if wrong := [text for text in observations if text not in inner.observation_space]:
        raise PromiseError(f"observation {wrong[0]!r} is not in the observation space")
    truth = json.dumps(inner.truth(), sort_keys=True, allow_nan=False)
    return Trace(
        tuple(observations),
        tuple(actions),
        tuple(rewards),
        tuple(ends),
        tuple(latencies),
        tuple(infos),
        truth,
    )


def _info_text(info: Any, env: TextEnv) -> str:
    text = json.dumps(info, sort_keys=True, allow_nan=False)
    leaked = [key for key in LEAKS if key in info]
    leaked += [name for name in (env.concept.hash, *(c.name for c in env.channels)) if name in text]
    if leaked:
        raise PromiseError(f"info shows {leaked[0]!r}: {text[:200]}")
    return text
