"""A `verifiers` 0.4 environment (`verifiers.v1`) as an environment of ours."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from sao_bench.adapters import require
from sao_bench.adapters.imported import Answer, FaultError, Imported, Score, build, plain
from sao_bench.errors import UserError
from sao_bench.types import Channel

KEY = "sao_bench"
"""Where a taskset that we exported keeps an episode's record."""


class VerifiersText(Imported):
    """A verifiers environment, played as text; made by `from_verifiers`.

    The agent is its model: an observation is what the conversation has gained since the last reply, an action is the
    next reply. verifiers pays once, when the episode is over, so the last turn has the whole reward. What its traces
    call truncated (a limit of turns or tokens) is truncated here, an error of an episode is a fault, and rewards and
    metrics by name are `truth()["parts"]`. A task is `{"idx": k}`, drawn from the seed unless given.
    """

    task_keys = ("idx", "seed")
    config: ClassVar[dict[str, Any]]
    tasks: ClassVar[int | None] = None
    timeout_s: ClassVar[float] = 600.0

    def __init__(self) -> None:
        super().__init__()
        self._played: list[Any] = []
        weakref.finalize(self, _give_up, self._played)

    def close(self) -> None:
        """Give up the episode in progress."""
        _give_up(self._played)

    def open(self, task: dict[str, Any]) -> str:
        """Start the episode of a task and return what its model is asked first."""
        from sao_bench.adapters._verifiers_host import Ended, host

        self.close()
        settings = {name: plain(value) for name, value in self.concept.values.items()}
        env, tasks = host().environment(_configured(self.config, settings), self.tasks)
        index = task.get("idx", int(self.rng.integers(len(tasks))))
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(tasks):
            raise UserError(f"{self.id}: task idx {index!r} is not one of 0..{len(tasks) - 1}")
        self._task = {"idx": index}
        self._played.append(host().play(env, tasks[index]))
        event = self._next()
        if isinstance(event, Ended):
            self._end(event)
            raise FaultError("ended_before_it_began")
        return _shown(event.messages)

    def answer(self, action: str) -> Answer:
        """Say the reply, and wait until the model is asked again or the episode is over."""
        from sao_bench.adapters._verifiers_host import Ended

        if not self._played:
            raise FaultError("no_episode")
        self._played[0].say(action)
        event = self._next()
        return self._end(event) if isinstance(event, Ended) else Answer(_shown(event.messages))

    def _next(self) -> Any:
        try:
            return self._played[0].next(self.timeout_s)
        except TimeoutError as error:
            self.close()
            raise FaultError("timeout") from error

    def _end(self, event: Any) -> Answer:
        """Read what the episode came to."""
        self._played.clear()
        if event.error is not None:
            raise event.error
        traces = event.episode.traces
        self.parts = {
            "rewards": {name: r.value for trace in traces for name, r in trace.rewards.items() if r},
            "metrics": plain({name: v for trace in traces for name, v in trace.metrics.items()}),
            "stop_conditions": [trace.stop_condition for trace in traces],
        }
        record = next((trace.info[KEY] for trace in traces if KEY in trace.info), None)
        if isinstance(record, Mapping):
            self._take(record)
        if not event.episode.ok and self.fault is None:
            errors = [*event.episode.errors, *(error for trace in traces for error in trace.errors)]
            self.parts["errors"] = [f"{error.type}: {error.message}"[:1000] for error in errors]
            raise FaultError(errors[0].type if errors else "not_ok")
        truncated = any(trace.is_truncated for trace in traces)
        reward = math.fsum(trace.reward for trace in traces) if event.episode.ok else 0.0
        return Answer("", reward, not truncated, truncated)

    def _take(self, record: Mapping[str, Any]) -> None:
        """Take over the record of an environment of ours."""
        self.score, self.solved = float(record["score"]), bool(record["solved"])
        self.parts.update(record["parts"], record=plain(record))
        self.latency_s = record["turns"][-1]["latency_s"] if record["turns"] else 0.0
        self.fault = dict(record["fault"]) if record["fault"] else None


def _give_up(played: list[Any]) -> None:
    """Cancel the episode that an environment plays, if it plays one."""
    while played:
        played.pop().cancel()


def _shown(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return what the conversation has gained since the model's last reply, as text."""
    last = max((i for i, message in enumerate(messages) if message["role"] == "assistant"), default=-1)
    texts = []
    for message in messages[last + 1 :]:
        content = message.get("content") or ""
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if any(part.get("type") != "text" for part in parts):
            raise FaultError("not_text")
        texts.append("\n".join(part["text"] for part in parts))
    return "\n\n".join(texts)


def _configured(config: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of nested settings with dotted names set."""
    result = {key: dict(value) if isinstance(value, Mapping) else value for key, value in config.items()}
    for name, value in settings.items():
        *path, last = name.split(".")
        inside = result
        for key in path:
            inside[key] = dict(inside.get(key, {}))
            inside = inside[key]
        inside[last] = value
    return result


def from_verifiers(
    taskset: str,
    *,
    max_turns: int,
    id: str | None = None,
    config: Mapping[str, Any] | None = None,
    channels: Sequence[Channel] = (),
    tasks: int | None = None,
    oracle: Score = 1.0,
    floor: Score = 0.0,
    oracle_policy: Callable[[Any], str] | None = None,
    solved_score: float = 1.0,
    max_reply_tokens: int = 64,
    timeout_s: float = 600.0,
) -> type[VerifiersText]:
    """Make a `TextEnv` class of an installed verifiers taskset.

    Args:
        taskset: its id, as verifiers finds it.
        max_turns: most replies of an episode; verifiers keeps the limit, so that a cut episode is scored.
        id: our name for it; the taskset's id unless given.
        config: the rest of verifiers' `[env]` block, such as `{"taskset": {"split": "test"}}`.
        channels: what can drift, named by its dotted place in that block (`taskset.difficulty`); every value loads an
            environment of its own, so a channel is a choice, a bool or an int.
        tasks: how many of its tasks are used; None is all, and an infinite taskset needs a number.
        oracle: J* of a concept.
        floor: b of a concept.
        oracle_policy: what the best policy would say, given our environment.
        solved_score: the reward that counts as solved.
        max_reply_tokens: token budget of an action in the tiny tier.
        timeout_s: seconds until a silent environment is a fault.

    Raises:
        UserError: the package or the taskset is missing; it has several seats, tool servers or needs a container; a
            channel has no place in its configuration.
    """
    vf = require("verifiers.v1", "verifiers")
    name = id or taskset
    if max_turns < 1 or timeout_s <= 0 or (tasks is not None and tasks < 1):
        raise UserError(
            f"{name}: max_turns {max_turns}, tasks {tasks}, timeout_s {timeout_s}: none may be below 1"
        )
    if wrong := [c.name for c in channels if c.type in ("float", "simplex")]:
        raise UserError(
            f"{name}: channel {wrong[0]!r} is continuous; what drifts here is a choice, a bool or an int"
        )
    block = _configured(config or {}, {"taskset.id": taskset})
    try:
        seats = _seats(taskset, str(block.get("id") or ""))
        if len(seats) != 1:
            raise UserError(
                f"{name}: it has {len(seats)} seats ({', '.join(seats)}); a text environment plays one"
            )
        block = _seated(block, seats[0], max_turns)
        defaults = {channel.name: plain(channel.default) for channel in channels}
        env = vf.load_environment(vf.resolve_env_config(_configured(block, defaults)))
    except UserError:
        raise
    except Exception as error:
        # verifiers and pydantic raise many types for a name or a setting that is not known.
        raise UserError(f"verifiers cannot load {taskset!r}: {' '.join(str(error).split())[:500]}") from error
    _check(env, name, tasks)
    cls: type[VerifiersText] = build(
        VerifiersText,
        "".join(c for c in name.title() if c.isalnum()) or "Imported",
        __doc__=f"The verifiers taskset {taskset}.",
        id=name,
        config=block,
        tasks=tasks,
        max_turns=max_turns,
        max_reply_tokens=max_reply_tokens,
        channels=tuple(channels),
        oracle_score=oracle,
        floor_score=floor,
        oracle_policy=oracle_policy,
        solved_score=solved_score,
        timeout_s=timeout_s,
    )
    return cls


def _seats(taskset: str, env: str) -> list[str]:
    """Return the names of the agents that an environment declares."""
    import verifiers.v1 as vf
    from verifiers.v1.utils.loaders import env_config_type

    fields = env_config_type(taskset, env).model_fields
    return [name for name, field in fields.items() if isinstance(field.default, vf.AgentConfig)]


def _seated(block: Mapping[str, Any], seat: str, max_turns: int) -> dict[str, Any]:
    from sao_bench.adapters._verifiers_host import CHAT

    own = {"harness.id": CHAT, "runtime.type": "subprocess", "max_turns": max_turns}
    return _configured(block, {f"{seat}.{key}": value for key, value in own.items()})


def _check(env: Any, name: str, tasks: int | None) -> None:
    taskset, task = env.taskset, env.taskset.task_type()
    if taskset.toolsets(taskset.config) or task.toolsets(taskset.config.task):
        raise UserError(f"{name}: it has tool servers (MCP); a text environment has no channel for tools")
    if task.NEEDS_CONTAINER:
        raise UserError(f"{name}: its tasks need a container; a text environment gives the agent none")
    if tasks is None and not taskset.bounded:
        raise UserError(f"{name}: its tasks never end; pass tasks= (how many of them to use)")
