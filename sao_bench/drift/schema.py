"""The JSON Schema of the drift language, made from the loader's own table of keys.

Editors read the copy in the package: `python -m sao_bench.drift.schema` prints it. It refuses what is wrong
in structure (keys, types, ranges); what needs the environment or a second key is the loader's alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sao_bench.drift.fields import VALUE_REF, VALUE_SCHEMA, Key, object_schema
from sao_bench.drift.reading import (
    AT,
    FOR,
    HORIZON,
    ID,
    NOTIFY,
    OP,
    PRIORITY,
    PROBE_CONCEPTS,
    PROBE_EPISODES,
    PROBE_EVERY,
    REPEAT_JITTER,
    REPEAT_TIMES,
    SCHEMA,
    SEED,
)
from sao_bench.drift.shapes import SHAPES
from sao_bench.types import CLOCKS

SCHEMA_FILE = Path(__file__).with_name("schema.json")
"""The shipped copy."""

_TEXT: dict[str, Any] = {"type": "string", "pattern": r"\S"}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a drift schedule file."""
    text = {name: _TEXT for name in ("env", "description", "shows")}
    properties: dict[str, Any] = {
        **text,
        "schema": {"const": SCHEMA},
        "id": {"type": "string", "pattern": f"^{ID.pattern}$"},
        "clock": {"enum": list(CLOCKS)},
        "horizon": HORIZON.schema(),
        "seed": SEED.schema(),
        "notify": {"enum": list(NOTIFY)},
        "version": {"anyOf": [{"type": "number"}, _TEXT]},
        "channels": {"$ref": "#/$defs/channels"},
        "probe": _probe(),
        "include": {"type": "array", "items": _TEXT},
        "sequence": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/segment"}},
        "repeat": object_schema([REPEAT_TIMES, REPEAT_JITTER]),
        "overlay": {"type": "array", "items": {"$ref": "#/$defs/overlay"}},
        "sweep": _mapping({"type": "array", "minItems": 1}) | {"minProperties": 1},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Drift schedule",
        "type": "object",
        "properties": properties,
        "required": ["schema", "id", "env", "clock"],
        "anyOf": [{"required": ["horizon"]}, {"required": ["sequence"]}],
        "if": {"required": ["sequence"]},
        "then": {"properties": {"channels": _mapping({"properties": {"events": {"maxItems": 0}}})}},
        "additionalProperties": False,
        "$defs": {
            "value": VALUE_SCHEMA,
            "event": _events([AT]),
            "segment_event": _events([]),
            "channels": _mapping(_channel()),
            "segment": _segment(),
            "overlay": object_schema([PRIORITY, OP], channels={"$ref": "#/$defs/channels"})
            | {"required": ["channels", "op", "priority"]},
        },
    }


def _mapping(values: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values}


def _events(placed: list[Key]) -> dict[str, Any]:
    shapes = []
    for name, shape in SHAPES.items():
        found = object_schema([*placed, *shape.keys], shape={"const": name})
        shapes.append(found | {"required": ["shape", *found["required"]], "description": shape.summary})
    return {"anyOf": shapes}


def _channel() -> dict[str, Any]:
    events = {"type": "array", "items": {"$ref": "#/$defs/event"}}
    return object_schema([], start={"$ref": VALUE_REF}, events=events)


def _segment() -> dict[str, Any]:
    held = {"anyOf": [{"$ref": VALUE_REF}, {"$ref": "#/$defs/segment_event"}]}
    found = object_schema([FOR], at=False, duration=False)  # type: ignore[arg-type]
    return found | {"additionalProperties": held}


def _probe() -> dict[str, Any]:
    concepts = {
        "type": "array",
        "minItems": 1,
        "uniqueItems": True,
        "items": {"enum": list(PROBE_CONCEPTS)},
    }
    found = object_schema([PROBE_EVERY, PROBE_EPISODES], concepts=concepts)
    return found | {"required": ["concepts", "episodes", "every"]}


def text() -> str:
    """Return the schema as it is shipped."""
    return json.dumps(json_schema(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    print(text(), end="")
