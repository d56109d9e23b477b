"""One validated RunConfig: everything that decides a run, and how `--set key=value` reaches it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from sao_bench.errors import UserError, did_you_mean, unknown


class Strict(BaseModel):
    """No unknown keys, no number that is infinite, no truth value for a number, immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_bool_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse `true` where pydantic would read 1."""
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation in (int, float):
            raise ValueError("a number is expected")
        return value


class CostModel(Strict):
    """What things cost in virtual seconds, and how much runs side by side, under the `simulated` executor."""

    slots: int = Field(192, ge=1)
    """Requests that decode together in the engine."""
    workers: int = Field(256, ge=1)
    """Episodes that are live at once (decoding, queued or waiting for their environment)."""
    decode_s: float = Field(0.06, ge=0)
    """Seconds per decode round (one token in every slot)."""
    prefill_s: float = Field(2e-5, ge=0)
    """Seconds per prompt token."""
    policy_update_s: float = Field(0.4, ge=0)
    """Seconds per policy update."""
    critic_update_s: float = Field(0.2, ge=0)
    """Seconds per critic update."""
    sync_s: float = Field(0.1, ge=0)
    """Seconds from the end of an update to the publication of its weights."""


class RunConfig(Strict):
    """One algorithm, one seed, one schedule."""

    id: str
    """Name of the run; a folder below `out`."""
    drift: str
    """Path of the schedule as given."""
    algorithm: str
    """Name of the algorithm, or `package.module:Class`."""
    seed: int = Field(0, ge=0)
    """Training seed; the schedule has its own."""
    tier: str = "tiny"
    """The preset that was applied."""
    model: str | None = None
    """A causal LM folder; None is the tier's own checkpoint for the environment."""
    executor: str = "simulated"
    """Who decides what happens next."""
    time_scale: float = Field(1.0, gt=0)
    """Scales the schedule: horizon, event times, widths, periods and probes together."""
    until: int | None = Field(None, ge=1)
    """Stop after this many dispatched episodes; the schedule stays as it is."""
    batch_size: int = Field(128, ge=1)
    """Trajectories per update."""
    max_staleness: int = Field(4, ge=0)
    """S: policy versions between a trajectory's oldest token and its consumption. 0 is the synchronous run."""
    on_stale: Literal["wait", "drop", "ignore"] = "wait"
    """What happens to a trajectory that would pass S: the learner waits, it is dropped, or only counted."""
    temperature: float = Field(1.0, gt=0)
    """Of sampling; the learner scores under the same one."""
    max_reply_tokens: int | None = Field(None, ge=1)
    """Token budget of one action; None is the environment's own."""
    on_swap: Literal["recompute", "keep"] = "recompute"
    """What happens to the cache of requests in flight when weights are swapped."""
    micro_batch: int = Field(64, ge=1)
    """Most trajectories of a forward and backward pass; they are sorted by length, so that little is padded."""
    micro_tokens: int = Field(4096, ge=1)
    """Most tokens of one, padding counted; a trajectory that is longer has a pass of its own."""
    checkpoint_every: int = Field(100, ge=1)
    """Batches between checkpoints."""
    cost: CostModel = CostModel()
    """The cost model of virtual time."""
    env_options: dict[str, Any] = {}
    """Arguments of the environment's constructor. Set with `--set env.KEY=VALUE`."""
    options: dict[str, Any] = {}
    """The algorithm's own config, resolved. Set with `--set algorithm.KEY=VALUE`."""


TIERS: dict[str, dict[str, Any]] = {
    "tiny": {
        "algorithm": {
            "policy_lr": 3e-4,
            "critic_lr": 1.5e-3,
            "critic_warmup": 20,
            # At 1e-8 Adam goes on pushing a policy that is already sure; see docs/TINY_TIER.md.
            "adam_eps": 1e-5,
        }
    },
}
"""Presets over an algorithm's defaults (a key that an algorithm does not have is passed over) and over RunConfig."""


def tier(name: str) -> dict[str, Any]:
    """Return a preset.

    Raises:
        UserError: no such tier.
    """
    if name not in TIERS:
        raise unknown("tier", name, TIERS)
    return TIERS[name]


def parse_settings(settings: Iterable[str]) -> dict[str, Any]:
    """Turn `key=value` texts into a mapping of dotted keys; values are YAML scalars or flow collections.

    Raises:
        UserError: a text has no `=`, or its value is not YAML.
    """
    from sao_bench.drift.yaml12 import parse

    parsed: dict[str, Any] = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UserError(f"--set {text!r}: expected key=value, for example --set algorithm.policy_lr=3e-4")
        try:
            parsed[key] = parse(value, "").plain() if value.strip() else None
        except UserError as error:
            raise UserError(f"--set {key}: {value!r:.80} is not a YAML value{error}") from error
    return parsed


def resolve(
    base: Mapping[str, Any], settings: Mapping[str, Any], algorithms: Iterable[type]
) -> list[tuple[type, RunConfig]]:
    """Build one RunConfig per algorithm class from command-line values, the tier's preset and `--set` values.

    `algorithm.KEY` goes to every chosen algorithm that has KEY; one that no chosen algorithm has is an error.

    Raises:
        UserError: an unknown key or an illegal value, with the known keys.
    """
    chosen = list(algorithms)
    preset = tier(str(base.get("tier", "tiny")))
    own = {
        key.removeprefix("algorithm."): value
        for key, value in settings.items()
        if key.startswith("algorithm.")
    }
    known = sorted({name for cls in chosen for name in cls.Config.model_fields})  # type: ignore[attr-defined]
    for key in own:
        if key not in known:
            raise UserError(
                f"--set algorithm.{key}: unknown key{did_you_mean(key, known)}; known: {', '.join(known)}"
            )
    values: dict[str, Any] = {**{k: v for k, v in preset.items() if k != "algorithm"}, **base}
    for key, value in settings.items():
        if not key.startswith("algorithm."):
            _put(values, key, value)
    return [(cls, _one(cls, values, {**preset.get("algorithm", {}), **own})) for cls in chosen]


def _one(cls: Any, values: dict[str, Any], own: dict[str, Any]) -> RunConfig:
    fields = cls.Config.model_fields
    options = validated(cls.Config, {k: v for k, v in own.items() if k in fields}, "--set algorithm.")
    config = validated(
        RunConfig, {**values, "algorithm": cls.name or f"{cls.__module__}:{cls.__name__}"}, "--set "
    )
    size = options.group_size
    if config.batch_size % size:
        raise UserError(f"batch_size {config.batch_size} is not a multiple of {cls.name}'s group_size {size}")
    return config.model_copy(update={"options": options.model_dump(mode="json")})


def validated(model: type[BaseModel], values: Mapping[str, Any], prefix: str) -> Any:
    """Build a pydantic model; the first problem becomes one line.

    Raises:
        UserError: names the key, what was found and what is allowed.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = prefix + ".".join(map(str, first["loc"]))
        raise UserError(f"{key}: {first['msg']}, not {first['input']!r:.80}") from error


def _put(values: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted RunConfig key."""
    target, path = values, key.split(".")
    settable = [
        name
        for name in RunConfig.model_fields
        if name not in ("options", "env_options", "cost", "id", "algorithm")
    ]
    everything = [*settable, *(f"cost.{name}" for name in CostModel.model_fields), "algorithm.KEY", "env.KEY"]
    if key.startswith("env."):
        values.setdefault("env_options", {})[key.removeprefix("env.")] = value
        return
    if key not in everything:
        raise UserError(
            f"--set {key}: unknown key{did_you_mean(key, everything)}; known: {', '.join(everything)}"
        )
    for part in path[:-1]:
        target = target.setdefault(part, {})
    target[path[-1]] = value


def load_resolved(path: Path) -> RunConfig:
    """Read `config.resolved.yaml` back.

    Raises:
        UserError: the file is missing or does not validate.
    """
    from sao_bench.drift.yaml12 import read_file

    if not path.is_file():
        raise UserError(f"{path} does not exist: not a run folder that can be resumed")
    values = read_file(path)[1].plain()
    if not isinstance(values, dict):
        raise UserError(f"{path}: not a mapping of settings")
    return validated(RunConfig, values, f"{path}: ")
