"""The file that `drift new` writes."""

from __future__ import annotations

import json
import os
from pathlib import Path

from sao_bench.drift.reading import ID, SCHEMA
from sao_bench.drift.schema import SCHEMA_FILE
from sao_bench.errors import UserError
from sao_bench.files import make_folder
from sao_bench.types import Channel

HORIZON = 19200


def write_template(name: str, env: str, folder: Path) -> Path:
    """Write a valid schedule that moves the environment's first channel once; return its path.

    Raises:
        UserError: the id is not allowed, the environment is unknown, or the file exists.
    """
    from sao_bench.registry import environment

    if not ID.fullmatch(name):
        raise UserError(
            f"id {name!r:.120} is not allowed: up to 100 letters, digits, `.`, `_` and `-`, beginning with one of"
            " the first two"
        )
    path = folder / f"{name.replace('-', '_')}.yaml"
    if path.exists():
        raise UserError(f"{str(path)!r} exists; choose another name or remove it")
    schema = os.path.relpath(SCHEMA_FILE, folder)
    text = _text(name, env, environment(env).channels, schema)
    make_folder(folder)
    path.write_text(text, encoding="utf-8")
    return path


def _text(name: str, env: str, channels: tuple[Channel, ...], schema: str) -> str:
    known = "\n".join(
        f"#   {c.name}: {c.kind} {c.type}{_range(c)}, default {_yaml(c.default)}" for c in channels
    )
    body = " {}"
    if channels:
        channel = next((c for c in channels if c.kind == "real"), channels[0])
        at = HORIZON // 2
        body = (
            f"\n  {channel.name}:\n    start: {_yaml(channel.default)}\n    events:\n"
            f"      - {{at: {at}, shape: step, to: {_yaml(_other(channel))}}}"
        )
    return f"""\
# yaml-language-server: $schema={schema}
# Channels of {env}:
{known}
schema: {SCHEMA}
id: {name}
version: 1
env: {env}
description: What happens, and why.
shows: What a reader should see in the results.
clock: episode            # episode | sample | optimizer_step | policy_version | wall_s | env_step
horizon: {HORIZON}
seed: 0                   # drift seed, apart from the training seed
notify: none              # none | boundary | value
channels:{body}
probe: {{every: {HORIZON // 6}, episodes: 128, concepts: [seen, current, next]}}
"""


def _range(channel: Channel) -> str:
    if channel.choices:
        return f" ({', '.join(channel.choices)})"
    return "" if channel.low is None and channel.high is None else f" ({channel.low}..{channel.high})"


def _other(channel: Channel) -> object:
    """Return a value that the channel can hold and that is not its default."""
    match channel.type:
        case "bool":
            return not channel.default
        case "choice":
            return next(value for value in channel.choices if value not in (channel.default, "same"))
        case "simplex":
            assert isinstance(channel.default, dict)
            return {next(n for n in channel.choices if channel.default.get(n, 0.0) < 1): 1.0}
    low, high = channel.low, channel.high
    assert isinstance(channel.default, int | float)
    if high is not None and channel.default < high:
        return high if channel.type == "int" else round((channel.default + high) / 2, 6)
    return low if low is not None else channel.default + 1


def _yaml(value: object) -> str:
    """Return a value as YAML (JSON is YAML; text that needs no quotes goes without)."""
    if isinstance(value, str) and value.isidentifier() and value not in ("true", "false", "null"):
        return value
    return json.dumps(value)
