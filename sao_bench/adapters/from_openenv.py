"""An OpenEnv environment (a server, played through OpenEnv's own client) as an environment of ours."""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from sao_bench.adapters import require
from sao_bench.adapters.imported import (
    Answer,
    FaultError,
    IllegalActionError,
    Imported,
    Score,
    build,
    plain,
    text_of,
)
from sao_bench.errors import UserError
from sao_bench.types import Channel

TRUNCATED = ("truncated", "TimeLimit.truncated")
"""Fields (of the observation, else of its metadata) that say that `done` was a budget's end."""


class Sessions:
    """Sessions with one server, handed on from episode to episode (a trainer makes an environment per episode)."""

    def __init__(self, base_url: str, timeout_s: float):
        self._base_url, self._timeout_s = base_url, timeout_s
        self._free: list[Any] = []
        self._lock = threading.Lock()

    def take(self) -> Any:
        """Return a client that nobody uses."""
        with self._lock:
            if self._free:
                return self._free.pop()
        core = require("openenv.core", "openenv")
        return core.GenericEnvClient(base_url=self._base_url, message_timeout_s=self._timeout_s).sync()

    def give(self, held: list[Any]) -> None:
        """Take back the client of an environment, if it holds one."""
        with self._lock:
            self._free += held
            held.clear()

    def close(self) -> None:
        """End the sessions that nobody uses."""
        with self._lock:
            free, self._free = self._free, []
        for client in free:
            client.close()


class OpenEnvText(Imported):
    """An OpenEnv environment, played as text; made by `from_openenv`.

    OpenEnv knows one end (`done`) and no fault. Both are read from the fields that a server declares for them
    (`truncated`, `fault`, as ours does); a server that fails or falls silent is a fault, and an action that its schema
    refuses is an error observation. A channel is passed as the reset argument of its name.
    """

    sessions: ClassVar[Sessions]
    action_field: ClassVar[str | None] = None
    observation_field: ClassVar[str | None] = None

    def __init__(self) -> None:
        super().__init__()
        self._held: list[Any] = []
        weakref.finalize(self, self.sessions.give, self._held)

    @property
    def client(self) -> Any:
        """The client that plays this episode."""
        if not self._held:
            self._held.append(self.sessions.take())
        return self._held[0]

    def close(self) -> None:
        """Hand the session on."""
        self.sessions.give(self._held)

    def open(self, task: dict[str, Any]) -> str:
        """Reset the server's environment with the task's arguments (its `seed` among them) and the channels."""
        arguments = {**task, **{name: plain(value) for name, value in self.concept.values.items()}}
        return self._read(self._call(self.client.reset, **arguments)).observation

    def answer(self, action: str) -> Answer:
        """Step the server's environment."""
        return self._read(self._call(self.client.step, self._payload(action)))

    def _payload(self, action: str) -> dict[str, Any]:
        if self.action_field is not None:
            return {self.action_field: action}
        try:
            payload = json.loads(action)
        except ValueError as error:
            raise IllegalActionError(f"an action is a JSON object ({error})") from error
        if not isinstance(payload, dict):
            raise IllegalActionError("an action is a JSON object")
        return payload

    def _call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        try:
            return method(*arguments, **named)
        except RuntimeError as error:
            # The client puts the server's code into the text of a RuntimeError.
            if "code: VALIDATION_ERROR" in str(error):
                raise IllegalActionError(f"the server refuses the action ({error})") from error
            raise FaultError("server_error") from error
        except TimeoutError as error:
            raise FaultError("timeout") from error
        except (OSError, EOFError) as error:
            raise FaultError("connection") from error

    def _read(self, result: Any) -> Answer:
        seen: Mapping[str, Any] = result.observation
        declared = {**(result.metadata or {}), **(seen.get("metadata") or {}), **seen}
        if isinstance(declared.get("fault"), Mapping):
            self.fault = {str(key): str(value) for key, value in declared["fault"].items()}
        self.latency_s = float(declared.get("latency_s", 0.0))
        truncated = any(bool(declared.get(name)) for name in TRUNCATED)
        if result.done:
            self._ask_state()
        field = self.observation_field
        shown = (
            {key: value for key, value in seen.items() if key != "metadata"} if field is None else seen[field]
        )
        done = bool(result.done)
        if done:
            self.close()
        return Answer(text_of(shown), float(result.reward or 0.0), done and not truncated, done and truncated)

    def _ask_state(self) -> None:
        """Read score and solved where the server's state has them (as ours does)."""
        state = self._call(self.client.state)
        self.parts["state"] = plain(state)
        record = state.get("episode") if isinstance(state, Mapping) else None
        if isinstance(record, Mapping) and {"score", "solved", "parts"} <= set(record):
            self.score, self.solved = float(record["score"]), bool(record["solved"])
            self.parts.update(record["parts"])


def from_openenv(
    base_url: str,
    *,
    id: str,
    max_turns: int,
    action_field: str | None = None,
    observation_field: str | None = None,
    channels: Sequence[Channel] = (),
    oracle: Score = 1.0,
    floor: Score = 0.0,
    oracle_policy: Callable[[Any], str] | None = None,
    solved_score: float = 1.0,
    max_reply_tokens: int = 64,
    timeout_s: float = 60.0,
) -> type[OpenEnvText]:
    """Make a `TextEnv` class of an OpenEnv server.

    Args:
        base_url: of the server, `http://...` or `ws://...`.
        id: our name for it.
        max_turns: most actions of an episode (OpenEnv declares none).
        action_field: the field of an action that holds the agent's text; None for actions that are JSON objects.
        observation_field: the field that the agent sees; None shows all of them, as JSON.
        channels: what can drift; each is passed as the reset argument of its name.
        oracle: J* of a concept.
        floor: b of a concept.
        oracle_policy: what the best policy would say, given our environment.
        solved_score: the sum of rewards that counts as solved, where the server's state does not say.
        max_reply_tokens: token budget of an action in the tiny tier.
        timeout_s: seconds until a silent server is a fault.

    Raises:
        UserError: the package is missing, or an argument is wrong.
    """
    require("openenv.core", "openenv")
    if not base_url.startswith(("http://", "https://", "ws://", "wss://")):
        raise UserError(f"OpenEnv server {base_url!r} is not a URL (http://, https://, ws:// or wss://)")
    if max_turns < 1 or timeout_s <= 0:
        raise UserError(f"max_turns {max_turns}, timeout_s {timeout_s}: at least 1, and above 0")
    cls: type[OpenEnvText] = build(
        OpenEnvText,
        "".join(c for c in id.title() if c.isalnum()) or "Imported",
        __doc__=f"The OpenEnv server at {base_url}.",
        id=id,
        sessions=Sessions(base_url, timeout_s),
        max_turns=max_turns,
        max_reply_tokens=max_reply_tokens,
        action_field=action_field,
        observation_field=observation_field,
        channels=tuple(channels),
        oracle_score=oracle,
        floor_score=floor,
        oracle_policy=oracle_policy,
        solved_score=solved_score,
    )
    return cls
