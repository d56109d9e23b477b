"""Records that cross borders between modules. No torch here.

Words: *drift* = the environment changes; *staleness* = trainer version minus behaviour version, at
consumption; *behaviour policy* = the weights that sampled a token; *concept* = the values of all
channels that an episode is bound to; *phase* = the stretch between two openings of a real drift.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

Value: TypeAlias = float | int | bool | str | Mapping[str, float]
"""What a channel can hold; a simplex is a mapping from names to shares that sum to 1."""

CLOCKS = ("episode", "sample", "optimizer_step", "policy_version", "wall_s", "env_step")
"""The six clocks. `sample` counts sampled action tokens; `wall_s` is virtual seconds when simulated."""

SIMPLEX_TOLERANCE = 1e-9
LARGEST = sys.float_info.max


@dataclass(frozen=True, slots=True)
class Channel:
    """Something that an environment declares can change.

    `kind` is `real` if the right answer changes (reward rule, API meaning, verifier) and `virtual`
    if only what is seen changes (task mixture, wording, difficulty, latency).
    `choices` are the values of a `choice` and the keys of a `simplex`; `low` and `high` bound a
    `float` or an `int` (both ends included).
    """

    name: str
    type: Literal["float", "int", "choice", "simplex", "bool"]
    kind: Literal["real", "virtual"]
    default: Value
    description: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    intra_episode: bool = False
    """Whether the channel changes within an episode too, before each answer of the environment. An episode's
    oracle and floor remain those of the concept that it began under."""

    def problem(self, value: Any) -> str | None:
        """Return why `value` cannot be held by this channel (what was found, what is allowed), or None."""
        match self.type:
            case "bool":
                return None if isinstance(value, bool) else f"{value!r:.80} is not a bool (true or false)"
            case "choice":
                allowed = ", ".join(self.choices)
                return None if value in self.choices else f"{value!r:.80} is not one of: {allowed}"
            case "simplex":
                return self._simplex_problem(value)
        number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST
        if not number or (self.type == "int" and value != int(value)):
            return f"{value!r:.80} is not {'an int' if self.type == 'int' else 'a finite number'}"
        low, high = self.low, self.high
        if (low is not None and value < low) or (high is not None and value > high):
            return f"{value!r:.80} is outside [{low}, {high}]"
        return None

    def _simplex_problem(self, value: Any) -> str | None:
        if not isinstance(value, Mapping) or not value:
            return f"{value!r:.80} is not a mapping from {', '.join(self.choices)} to shares"
        for key, share in value.items():
            if key not in self.choices:
                return f"{key!r:.80} is not one of: {', '.join(self.choices)}"
            if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share <= 1:
                return f"the share of {key!r:.80} is {share!r:.80}, not a number in [0, 1]"
        total = math.fsum(value.values())
        return None if abs(total - 1) <= SIMPLEX_TOLERANCE else f"the shares sum to {total:.12g}, not to 1"


@dataclass(frozen=True, slots=True)
class Concept:
    """The values of all channels at one tick, and the phase they belong to."""

    phase: int
    values: Mapping[str, Value]
    known_hash: str | None = field(default=None, repr=False, compare=False)
    """The hash once it has been asked for: most concepts of a sliding schedule never are."""

    @classmethod
    def of(cls, values: Mapping[str, Value], phase: int = 0) -> Concept:
        """Build a concept from channel values."""
        return cls(phase, values)

    @property
    def hash(self) -> str:
        """The name of the values alone: 16 hex digits of SHA-256 over canonical JSON.

        A concept that comes back has the hash it had before.
        """
        if self.known_hash is None:
            plain = {name: _plain(value) for name, value in self.values.items()}
            text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
            object.__setattr__(self, "known_hash", hashlib.sha256(text.encode()).hexdigest()[:16])
        return str(self.known_hash)


def _plain(value: Value) -> Any:
    return {k: value[k] for k in sorted(value)} if isinstance(value, Mapping) else value


@dataclass(slots=True)
class Turn:
    """One prompt and the action sampled after it. Tokens in, tokens out: nothing is re-tokenised.

    `prompt_ids` are only the tokens that are new since the previous turn's action (for the first
    turn the whole prompt); a trajectory's token sequence is the turns laid end to end.
    `behavior_logprobs` and `policy_versions` have one entry per action token. `reward` belongs to the last
    sampled token of the turn. `moved` holds all channel values that the environment answered under, where a channel
    changes within an episode.
    """

    prompt_ids: list[int]
    action_ids: list[int]
    behavior_logprobs: list[float]
    policy_versions: list[int]
    reward: float = 0.0
    reply: str = ""
    moved: Mapping[str, Value] | None = None


@dataclass(slots=True)
class Trajectory:
    """One finished episode, as the learner sees it and as the record keeps it.

    `index` is the dispatch index and `t` the tick of the schedule's clock that its concept was read at
    (equal to `index` of the group's first member under the `episode` clock). `score` is the reward
    before `reward.noise`; `reward_valid` is False after a fault of the machinery: the trainer masks it.
    `clocks` are all six clocks at dispatch. Times are virtual seconds. `tail_ids` is the observation that no
    action followed, of an episode that was cut after it: the state that a bootstrapped value is read in.
    """

    index: int
    group: int
    t: float
    seed: int
    concept: Concept
    turns: list[Turn]
    terminated: bool
    truncated: bool
    stop_reason: str
    score: float
    solved: bool
    clocks: dict[str, float]
    prompt: str = ""
    parts: dict[str, Any] = field(default_factory=dict)
    fault: dict[str, Any] | None = None
    early_reward: float = 0.0
    tail_ids: list[int] = field(default_factory=list)
    dispatched_s: float = 0.0
    arrived_s: float = 0.0

    @property
    def reward(self) -> float:
        """Sum of the turns' rewards (what the trainer is paid in)."""
        return math.fsum(turn.reward for turn in self.turns)

    @property
    def reward_valid(self) -> bool:
        """False after a fault of the machinery."""
        return self.fault is None

    @property
    def oldest_version(self) -> int:
        """Policy version of the oldest sampled token."""
        return min(v for turn in self.turns for v in turn.policy_versions)

    @property
    def action_tokens(self) -> int:
        """Number of sampled tokens."""
        return sum(len(turn.action_ids) for turn in self.turns)


def concept_state(concept: Concept) -> dict[str, Any]:
    """Return a concept as plain data."""
    return {"phase": concept.phase, "values": dict(concept.values), "hash": concept.hash}


def restore_concept(state: dict[str, Any]) -> Concept:
    """Rebuild a concept."""
    return Concept(state["phase"], state["values"], state["hash"])


def trajectory_state(trajectory: Trajectory) -> dict[str, Any]:
    """Return a trajectory as plain data."""
    state = {name: getattr(trajectory, name) for name in Trajectory.__dataclass_fields__}
    state["concept"] = concept_state(trajectory.concept)
    state["turns"] = [asdict(turn) for turn in trajectory.turns]
    return state


def restore_trajectory(state: dict[str, Any]) -> Trajectory:
    """Rebuild a trajectory."""
    turns = [Turn(**turn) for turn in state["turns"]]
    return Trajectory(**{**state, "concept": restore_concept(state["concept"]), "turns": turns})
