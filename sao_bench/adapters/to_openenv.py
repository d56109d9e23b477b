"""Our environments as an OpenEnv server (package `openenv`, WebSocket sessions).

Every session plays its own episodes; all sessions of a server share one drift clock, which counts the episodes
that were begun (or takes the number that `reset(index=...)` names). An observation holds what an agent may see;
clock, phase, concept hash, rewards by turn and score are in `state()`, because clients put whole observations into
prompts.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, Field

from sao_bench.adapters import require
from sao_bench.adapters.dispatch import STREAMS, Dispatch, DriftClock, Play
from sao_bench.errors import UserError

if TYPE_CHECKING:
    from fastapi import FastAPI

_openenv = require("openenv.core.env_server", "openenv")


class TextAction(_openenv.Action):  # type: ignore[name-defined]
    """What the agent says; any string is legal."""

    text: str = Field(description="the agent's reply")
    complete: bool = Field(
        default=True,
        description="false if the reply was cut at a token budget: an episode it ends is truncated",
    )


class TextObservation(_openenv.Observation):  # type: ignore[name-defined]
    """What the agent may see, and the ends that OpenEnv's `done` does not tell apart."""

    text: str = Field(description="what the environment says")
    terminated: bool = Field(default=False, description="the task ended")
    truncated: bool = Field(
        default=False, description="a budget ran out, or the machinery failed (see fault)"
    )
    fault: dict[str, str] | None = Field(
        default=None, description="stage and kind of a failure of the machinery"
    )
    reward_valid: bool = Field(
        default=True, description="false after a fault: mask the episode, it is not a 0"
    )
    latency_s: float = Field(default=0.0, description="virtual seconds that the environment took to answer")


class TextState(_openenv.State):  # type: ignore[name-defined]
    """The evaluator's side: clock, concept hash and the episode's record; nothing of it is for the agent."""

    model_config = ConfigDict(extra="forbid")

    clock: dict[str, Any] = Field(description="environment, schedule and its hash, horizon, seed of the run")
    dispatched: int = Field(description="episodes that the server's clock has counted")
    episode: dict[str, Any] | None = Field(
        default=None, description="index, tick, seed, phase, concept hash, turns, score, ... of this episode"
    )


class Counter:
    """The episodes that a server has begun; safe to use from many sessions."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    def next(self) -> int:
        """Return the next index."""
        with self._lock:
            self.count += 1
            return self.count - 1

    def reach(self, index: int) -> None:
        """Note that an episode was begun by number: the clock never runs backwards."""
        with self._lock:
            self.count = max(self.count, index + 1)


class DriftEnvironment(_openenv.Environment):  # type: ignore[name-defined]
    """One OpenEnv session over a `DriftClock`."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, clock: DriftClock, counter: Counter):
        super().__init__()
        self._clock, self._counter = clock, counter
        self._play: Play | None = None
        self._episode_id: str | None = None

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        index: int | None = None,
        split: str = "train",
        **unknown: Any,
    ) -> TextObservation:
        """Begin an episode: the next one, or number `index` of a stream (`split`).

        `seed` replaces the seed that the clock derives; the concept stays the clock's.

        Raises:
            UserError: the schedule is over, or an argument is not known.
        """
        if unknown:
            raise UserError(f"unknown reset argument {min(unknown)!r}; known: episode_id, index, seed, split")
        for name, value in (("seed", seed), ("index", index)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise UserError(f"{name} {value!r} is not a whole number from 0 up")
        if index is None and split != "train":
            raise UserError(f"split {split!r} needs an index: only the train stream has a clock of its own")
        dispatch = self._dispatch(index, split, seed)
        self._play = self._clock.begin(dispatch)
        self._episode_id = episode_id
        return self._observe(None)

    def _dispatch(self, index: int | None, split: str, seed: int | None) -> Dispatch:
        if index is None:
            index = self._counter.next()
        dispatch = self._clock.at(index, split)
        if split == "train":
            self._counter.reach(index)
        return dispatch if seed is None else replace(dispatch, seed=seed)

    def step(self, action: TextAction, timeout_s: float | None = None, **_: Any) -> TextObservation:
        """Say something.

        Raises:
            UserError: there is no episode.
            gymnasium.error.ResetNeeded: the episode has ended.
        """
        if self._play is None:
            raise UserError(
                "step() before reset(): an episode lives in a session (WebSocket), begin one first"
            )
        reward = self._play.act(action.text, action.complete)
        return self._observe(reward)

    def _observe(self, reward: float | None) -> TextObservation:
        play = self._play
        assert play is not None
        return TextObservation(
            text=play.observation,
            done=play.ended,
            reward=reward,
            terminated=play.terminated,
            truncated=play.truncated,
            fault=play.fault,
            reward_valid=play.fault is None,
            latency_s=play.latency_s,
        )

    @property
    def state(self) -> TextState:
        """The evaluator's side of the session."""
        return TextState(
            episode_id=self._episode_id,
            step_count=len(self._play.turns) if self._play else 0,
            clock=self._clock.declared(),
            dispatched=min(self._counter.count, self._clock.horizon or self._counter.count),
            episode=self._play.record() if self._play else None,
        )

    def get_metadata(self) -> Any:
        """Return name and description for OpenEnv's tools."""
        from sao_bench import __version__

        about = (self._clock.environment.__doc__ or "").strip()
        return _openenv.types.EnvironmentMetadata(
            name=self._clock.environment.id, description=about, version=__version__
        )

    # -- OpenEnv's task API: an episode is a task, by stream and index ------------------------------------

    def list_splits(self) -> list[str]:
        """Return the streams of seeds."""
        return list(STREAMS)

    def num_tasks(self, split: str) -> int:
        """Return the episodes of a stream.

        Raises:
            UserError: the world stands still and never ends, or there is no such stream.
        """
        self._clock.at(0, split)
        if self._clock.horizon is None:
            raise UserError("without a schedule the episodes have no end; give the server a --drift")
        return self._clock.horizon

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """Return what is declared of an episode: index, tick, seed, phase, concept hash.

        Raises:
            IndexError: the schedule is over by then.
        """
        if not 0 <= index < self.num_tasks(split):
            raise IndexError(f"episode {index} is outside the schedule")
        return self._clock.at(index, split).declared()

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[Any]:
        """Return `get_task` of a slice."""
        return [self.get_task(split, i) for i in range(*slice(start, stop).indices(self.num_tasks(split)))]

    def list_tasks(self, split: str) -> list[Any]:
        """Return a bounded preview (the first 1,000)."""
        return self.get_task_range(split, 0, 1000)


def factory(clock: DriftClock) -> Callable[[], DriftEnvironment]:
    """Return what makes the sessions of one server: they share the clock's counter."""
    counter = Counter()
    return lambda: DriftEnvironment(clock, counter)


def create_app(clock: DriftClock, *, sessions: int = 1024) -> FastAPI:
    """Return the ASGI application of a server.

    Args:
        clock: the environment and what drifts.
        sessions: most clients at once.
    """
    app: FastAPI = _openenv.create_app(
        factory(clock),
        TextAction,
        TextObservation,
        env_name=clock.environment.id.partition("/")[2] or clock.environment.id,
        max_concurrent_envs=sessions,
        state_cls=TextState,
    )
    return app


def serve(clock: DriftClock, *, host: str = "127.0.0.1", port: int = 8000, sessions: int = 1024) -> None:
    """Serve until interrupted; prints the URL once the port is bound (port 0 takes a free one).

    Raises:
        UserError: the address cannot be listened on.
    """
    uvicorn = require("uvicorn", "openenv")
    application = create_app(clock, sessions=sessions)
    try:
        listener = socket.create_server((host, port))
    except OSError as error:
        raise UserError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    print(f"{clock.environment.id} at http://{host}:{listener.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(application, log_level="warning")).run(sockets=[listener])
