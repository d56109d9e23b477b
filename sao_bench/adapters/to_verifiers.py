"""Our environments for `verifiers` 0.4 (`verifiers.v1`): task k is episode k of a drift clock.

`export_verifiers` writes a package that `load_environment(EnvConfig(taskset={"id": ...}))` finds: a taskset, the
environment that plays it, and the harness that asks the model. The classes here are what such a package configures.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field

from sao_bench.adapters import require
from sao_bench.adapters._verifiers_chat import ChatHarness, ChatHarnessConfig
from sao_bench.adapters.dispatch import Dispatch, DriftClock, Play
from sao_bench.errors import UserError

vf = require("verifiers.v1", "verifiers")

KEY = "sao_bench"
"""Where a trace's `info` holds the episode's record, and the name of its reward."""


class EnvironmentFaultError(RuntimeError):
    """The machinery of the environment failed: verifiers records an error, and no reward."""


class DriftData(vf.TaskData):  # type: ignore[name-defined]
    """One episode, as data: `idx` is the number of its group, `episode` what `Dispatch.declared` says."""

    episode: dict[str, Any]
    """Clock, index, tick, stream, seed, phase and concept hash; no channel's value."""


class DriftTask(vf.Task[DriftData]):  # type: ignore[name-defined]
    """A task without rewards of its own: the environment pays turn by turn."""

    @property
    def key(self) -> str:
        """A name that lasts: stream, seed and index."""
        episode = self.data.episode
        return f"{episode['stream']}-{episode['index']}-{episode['seed']}"


class DriftTasksetConfig(vf.TasksetConfig):  # type: ignore[name-defined]
    """What an exported taskset is made of; an export sets the defaults."""

    env: str = ""
    """Id of our environment, or `package.module:Class`."""
    env_options: dict[str, Any] = Field(default_factory=dict)
    """Arguments of its constructor."""
    drift: Path | None = None
    """Schedule on the episode clock; None is a world that stands still and never ends."""
    schedule_hash: str | None = None
    """Hash that the schedule must have: what was exported is what is played."""
    time_scale: float = 1.0
    """Scales the schedule."""
    seed: int = 0
    """Seed of the run (the schedule has its own)."""
    stream: str = "train"
    """Stream of seeds: `train`, or `probe` for evaluation."""
    group_size: int = 1
    """Rollouts of a task; they are consecutive episodes of our clock, at one tick."""
    endless: bool = False
    """Never end: past the schedule's horizon its last concept holds. A trainer that cycles or shuffles a finite taskset
    streams an endless one in order, so that time does not run back."""


ConfigT = TypeVar("ConfigT", bound=DriftTasksetConfig)


class DriftTaskset(vf.Taskset[DriftTask, DriftTasksetConfig]):  # type: ignore[name-defined]
    """The episodes of a drift clock, in order: task k is what the world is at tick k x `group_size`.

    Order is time here, so a shuffled view is refused.
    """

    def __init__(self, config: DriftTasksetConfig) -> None:
        super().__init__(config)
        self.clock = DriftClock.load(
            config.env,
            config.drift,
            seed=config.seed,
            group_size=config.group_size,
            time_scale=config.time_scale,
            env_options=config.env_options,
            endless=config.endless,
        )
        schedule = self.clock.schedule
        if config.schedule_hash and (schedule is None or schedule.hash != config.schedule_hash):
            raise UserError(f"{config.id}: the schedule is not the one that was exported; export again")
        self.INFINITE = self.clock.horizon is None
        self._begun: Counter[int] = Counter()

    def load(self) -> Iterator[DriftTask]:
        """Yield the episodes (the first of each group) with their first observation as the prompt."""
        horizon = self.clock.horizon
        groups = itertools.count() if horizon is None else range(horizon // self.config.group_size)
        for group in groups:
            play = self.clock.begin(self._dispatch(group, 0))
            yield DriftTask(self._data(play), self.config.task)

    def _dispatch(self, group: int, member: int) -> Dispatch:
        return self.clock.at(group * self.config.group_size + member, self.config.stream)

    def _data(self, play: Play) -> DriftData:
        episode = play.dispatch.declared()
        return DriftData(
            idx=episode["group"],
            name=f"{self.clock.environment.id}#{episode['index']}",
            prompt=play.observation,
            episode=episode,
        )

    def next_member(self, task: DriftTask) -> Dispatch:
        """Return the dispatch of a task's next rollout: a member of its group, with its own seed and noise."""
        group = task.data.episode["group"]
        member = self._begun[group] % self.config.group_size
        self._begun[group] += 1
        return self._dispatch(group, member)

    def shuffle(self, seed: int = 0) -> DriftTaskset:
        """Refuse, unless nothing drifts.

        Raises:
            UserError: the schedule has an order.
        """
        if self.clock.schedule is not None:
            raise UserError(f"{self.config.id}: the order of its tasks is the drift clock; do not shuffle it")
        return super().shuffle(seed)


class DriftEnvConfig(vf.SingleAgentEnvConfig):  # type: ignore[name-defined]
    """One seat, `agent`, whose harness runs in the process of the environment."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())  # type: ignore[name-defined]
    """The policy; the subprocess runtime is an empty folder, since nothing is launched in it."""


class DriftEnv(vf.Env[DriftEnvConfig]):  # type: ignore[name-defined]
    """Plays an episode as the user of the agent: observation, reply, observation, ..."""

    def __init__(self, config: Any) -> None:
        super().__init__(vf.resolve_env_config(config))
        if not isinstance(self.taskset, DriftTaskset):
            raise UserError(f"{self.config.taskset.id}: not a taskset that sao_bench exported")

    async def run(self, task: DriftTask, agents: Any) -> None:
        """Play one episode and put on its trace what verifiers has no field for.

        `trace.info["sao_bench"]` is `Play.record()`: rewards and latencies by turn, how it ended, phase, concept hash,
        score, solved. The reward is their sum. A truncated episode has `is_truncated`; a fault is an error of the trace
        and has no reward.

        Raises:
            EnvironmentFaultError: the machinery failed (verifiers may retry the episode, as for any error).
        """
        play = await asyncio.to_thread(self.taskset.clock.begin, self.taskset.next_member(task))
        task = task.with_data(prompt=play.observation, episode=play.dispatch.declared())
        async with agents.agent.interaction(task) as talk:
            trace = talk.trace
            trace.info[KEY] = play.record()
            segment = None if play.ended else await talk.turn()
            while segment is not None and not segment.terminated:
                reply = next(m.content for m in reversed(segment.messages) if m.role == "assistant")
                complete = trace.calls[-1].finish_reason != "length"
                await asyncio.to_thread(play.act, reply or "", complete)
                segment = None if play.ended else await talk.turn(play.observation)
            if trace.errors:
                play.fail("model", trace.errors[-1].type)
            play.cut(trace.stop_condition or "other_side")
            trace.info[KEY] = play.record()
            if play.fault and not trace.errors:
                raise EnvironmentFaultError(f"{play.fault['stage']}: {play.fault['kind']}")
            if play.truncated:
                trace.stop("max_turns")
        if trace.ok:
            self._score(trace, play)

    @staticmethod
    def _score(trace: Any, play: Play) -> None:
        record = play.record()
        trace.record_reward(KEY, play.reward)
        for name in ("score", "solved", "truncated", "phase", "index", "t"):
            trace.record_metric(f"{KEY}/{name}", float(record[name]))


__all__ = [
    "ChatHarness",
    "ChatHarnessConfig",
    "DriftEnv",
    "DriftEnvConfig",
    "DriftTask",
    "DriftTaskset",
    "DriftTasksetConfig",
]
