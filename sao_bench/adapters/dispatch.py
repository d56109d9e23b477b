"""The drift clock of an exported environment: which concept, and which seed, episode k has.

A trainer of ours dispatches episodes 0, 1, 2, ... and binds each to `schedule.at(t)`; the seed of episode k is
`derive(seed, stream, k)`. An exported environment keeps the same numbers, so that an episode played elsewhere is
the episode that `sao_bench.rollout.Rollout.begin` would have begun.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sao_bench import registry
from sao_bench.drift import DriftSchedule, load
from sao_bench.environment import TextEnv
from sao_bench.errors import UserError, unknown
from sao_bench.seeding import derive
from sao_bench.types import Concept

CLOCK = "episode"
"""The only clock that another side can keep for us: it asks for episodes by number."""
STREAMS = ("train", "probe")
"""Streams of seeds that never meet: a run's episodes and its probes."""


@dataclass(frozen=True)
class Dispatch:
    """What is decided when an episode is dispatched.

    `t` is the tick of the episode clock at which the concept was read; it is the index of the group's first member.
    """

    index: int
    group: int
    t: int
    stream: str
    seed: int
    concept: Concept

    def declared(self) -> dict[str, Any]:
        """Return what the other side is told, as JSON: never a channel's value."""
        return {
            "clock": CLOCK,
            "index": self.index,
            "group": self.group,
            "t": self.t,
            "stream": self.stream,
            "seed": self.seed,
            "phase": self.concept.phase,
            "concept": self.concept.hash,
        }


@dataclass(frozen=True)
class DriftClock:
    """An environment under a schedule, by episode.

    Attributes:
        environment: class of the environment.
        schedule: what drifts, on the episode clock; None for a world that stands still and never ends.
        seed: the run's seed (the schedule has its own).
        group_size: consecutive episodes that share a tick and a task, as a group-based algorithm dispatches them.
        env_options: arguments of the environment's constructor.
        endless: go on past the schedule's horizon, where its last concept holds.
    """

    environment: type[TextEnv]
    schedule: DriftSchedule | None = None
    seed: int = 0
    group_size: int = 1
    env_options: Mapping[str, Any] = field(default_factory=dict)
    endless: bool = False

    @classmethod
    def load(
        cls,
        env: str,
        drift: str | Path | None = None,
        *,
        seed: int = 0,
        group_size: int = 1,
        time_scale: float = 1.0,
        env_options: Mapping[str, Any] | None = None,
        endless: bool = False,
    ) -> DriftClock:
        """Build the clock of a named environment and a schedule's file or name.

        Raises:
            UserError: a name is unknown, the schedule is wrong, written for another environment or on another clock.
        """
        environment = registry.environment(env)
        if group_size < 1 or seed < 0:
            raise UserError(
                f"group size {group_size}, seed {seed}: the first is at least 1, the second at least 0"
            )
        schedule = None if drift is None else load(drift, time_scale=time_scale, executor_clocks=(CLOCK,))
        if schedule is not None and registry.environment(schedule.env) is not environment:
            raise UserError(f"the schedule {schedule.id} is written for {schedule.env}, not for {env}")
        clock = cls(environment, schedule, seed, group_size, dict(env_options or {}), endless)
        clock.make()
        return clock

    @property
    def horizon(self) -> int | None:
        """Episodes until the schedule is over (whole groups), or None where there is no end."""
        if self.schedule is None or self.endless:
            return None
        return self.schedule.horizon // self.group_size * self.group_size

    def make(self) -> TextEnv:
        """Return a new environment.

        Raises:
            UserError: its constructor does not take the options.
        """
        try:
            return self.environment(**self.env_options)
        except TypeError as error:
            raise UserError(f"{self.environment.id}: options {dict(self.env_options)}: {error}") from error

    def at(self, index: int, stream: str = "train") -> Dispatch:
        """Return the dispatch of episode `index`.

        Raises:
            UserError: the schedule is over by then, or there is no such stream.
        """
        if stream not in STREAMS:
            raise unknown("stream", stream, STREAMS)
        if index < 0 or (self.horizon is not None and index >= self.horizon):
            raise UserError(f"episode {index} is outside the schedule's 0..{(self.horizon or 1) - 1}")
        group = index // self.group_size
        t = group * self.group_size
        return Dispatch(index, group, t, stream, derive(self.seed, stream, index), self._concept(t))

    def begin(self, dispatch: Dispatch) -> Play:
        """Start an episode; a later member of a group faces the task of the first."""
        task = None
        if dispatch.index != dispatch.t:
            first = self.make()
            first.reset(seed=self.at(dispatch.t, dispatch.stream).seed, options={"concept": dispatch.concept})
            task = first.truth()["task"]
        return Play(self.make(), dispatch, task)

    def declared(self) -> dict[str, Any]:
        """Return what names this clock, as JSON."""
        schedule = self.schedule
        return {
            "environment": self.environment.id,
            "schedule": schedule.id if schedule else None,
            "schedule_hash": schedule.hash if schedule else None,
            "horizon": schedule.horizon if schedule else None,
            "run_seed": self.seed,
            "group_size": self.group_size,
            "notify": schedule.notify if schedule else "none",
        }

    def _concept(self, t: int) -> Concept:
        if self.schedule is None:
            return self.environment.default_concept()
        return self.environment.complete_concept(self.schedule.at(t))


class Play:
    """One episode in progress, and all of it that the other side may have no word for.

    Attributes:
        observation: what the agent sees now.
        ended, terminated, truncated, fault: how it stands; a fault of the machinery truncates, as `step` does.
        stop_reason: `terminated`, `turns`, `length` (the last reply was cut), `fault`, or why `cut` was called.
    """

    def __init__(self, env: TextEnv, dispatch: Dispatch, task: Any = None):
        self.env, self.dispatch = env, dispatch
        options = {"concept": dispatch.concept} | ({} if task is None else {"task": task})
        self.observation, info = env.reset(seed=dispatch.seed, options=options)
        self.turns: list[dict[str, Any]] = []
        self.fault: dict[str, str] | None = info.get("fault")
        self.terminated, self.truncated = False, self.fault is not None
        self.latency_s = env.latency_s
        self.stop_reason: str | None = "fault" if self.fault else None

    @property
    def ended(self) -> bool:
        """Whether there is nothing more to say."""
        return self.stop_reason is not None

    @property
    def reward(self) -> float:
        """Sum of the turns' rewards."""
        return math.fsum(turn["reward"] for turn in self.turns)

    def act(self, action: Any, complete: bool = True) -> float:
        """Say something; returns the turn's reward.

        `complete` is False for a reply that the other side cut at its token budget: as in our rollouts, an episode
        that such a reply ends is truncated.
        """
        self.observation, reward, terminated, truncated, info = self.env.step(action)
        self.latency_s = self.env.latency_s
        self.turns.append({"reward": reward, "latency_s": self.latency_s})
        self.fault = info.get("fault")
        if self.fault:
            self.truncated, self.stop_reason = True, "fault"
        elif terminated:
            self.terminated, self.truncated = complete, not complete
            self.stop_reason = "terminated" if complete else "length"
        elif truncated:
            self.truncated, self.stop_reason = True, "turns"
        return reward

    def cut(self, reason: str) -> None:
        """Note that the other side ended the episode (`context`, `budget`, ...): it is truncated."""
        if not self.ended:
            self.truncated, self.stop_reason = True, reason

    def fail(self, stage: str, kind: str) -> None:
        """Note that the other side's machinery ended the episode: its reward is not valid."""
        if not self.ended:
            self.fault, self.truncated, self.stop_reason = {"stage": stage, "kind": kind}, True, "fault"

    def record(self) -> dict[str, Any]:
        """Return the episode for the evaluator's log, as JSON; nothing in it is for the agent."""
        truth = self.env.truth()
        return {
            **self.dispatch.declared(),
            "terminated": self.terminated,
            "truncated": self.truncated,
            "stop_reason": self.stop_reason,
            "fault": self.fault,
            "reward_valid": self.fault is None,
            "reward": self.reward,
            "turns": list(self.turns),
            "score": float(truth["score"]),
            "solved": bool(truth["solved"]),
            "parts": truth["parts"],
        }
