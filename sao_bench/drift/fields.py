"""The keys of the drift language: one table gives the loader its checks and editors their JSON Schema."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from sao_bench.drift.yaml12 import Node
from sao_bench.errors import did_you_mean
from sao_bench.types import Channel, Value

MAX_TICKS = 1_000_000_000
"""Largest horizon, and largest number of ticks any key can hold."""

SCALAR_SCHEMA: dict[str, Any] = {"type": ["number", "string", "boolean"]}
SIMPLEX_SCHEMA: dict[str, Any] = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": {"type": "number", "minimum": 0, "maximum": 1},
}
VALUE_SCHEMA: dict[str, Any] = {"anyOf": [SCALAR_SCHEMA, SIMPLEX_SCHEMA]}
VALUE_REF = "#/$defs/value"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a mapping: what it may hold.

    Kinds: `ticks` (whole number on the schedule's clock, scaled by `time_scale`), `count` (whole number
    that is not scaled), `number`, `word` (one of `words`), `text`, `value` (of the channel), `values` (two or
    more of them). `low` and `high` are allowed themselves; `above` is not.
    """

    name: str
    kind: Literal["ticks", "count", "number", "word", "text", "value", "values"]
    help: str
    required: bool = True
    default: Any = None
    low: float | None = None
    high: float | None = None
    above: float | None = None
    words: tuple[str, ...] = ()

    def read(self, node: Node, channel: Channel | None = None) -> Any:
        """Return the node's value, checked.

        Raises:
            UserError: the value is not what the key may hold.
        """
        match self.kind:
            case "ticks" | "count":
                return self._number(node, whole=True)
            case "number":
                return self._number(node, whole=False)
            case "word":
                return word(node, self.name, self.words)
            case "text":
                return text(node, self.name)
        assert channel is not None, f"{self.name} holds a channel's value"
        if self.kind == "value":
            return channel_value(node, channel)
        if not isinstance(node.value, list) or len(node.value) < 2:
            raise node.error(f"`{self.name}`: found {node.found()}; allowed: a list of two or more values")
        return tuple(channel_value(item, channel) for item in node.value)

    def _number(self, node: Node, whole: bool) -> float:
        value = node.value
        good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if (
            not good
            or (whole and value != int(value))
            or (self.low is not None and value < self.low)
            or (self.high is not None and value > self.high)
            or (self.above is not None and value <= self.above)
        ):
            raise node.error(
                f"`{self.name}`: found {node.found()}; allowed: {self._range(whole)}{hint(node, number=True)}"
            )
        return int(value) if whole else float(value)

    def _range(self, whole: bool) -> str:
        bounds = [
            f"{word} {bound:.10g}"
            for word, bound in (("at least", self.low), ("above", self.above), ("at most", self.high))
            if bound is not None
        ]
        return " ".join(["a whole number" if whole else "a number", " and ".join(bounds)]).strip()

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of what the key may hold."""
        match self.kind:
            case "word":
                return {"enum": list(self.words), "description": self.help}
            case "text":
                return {"type": "string", "pattern": "\\S", "description": self.help}
            case "value":
                return {"$ref": VALUE_REF, "description": self.help}
            case "values":
                return {
                    "type": "array",
                    "minItems": 2,
                    "items": {"$ref": VALUE_REF},
                    "description": self.help,
                }
        found: dict[str, Any] = {"type": "number" if self.kind == "number" else "integer"}
        bounds = {"minimum": self.low, "maximum": self.high, "exclusiveMinimum": self.above}
        found |= {name: bound for name, bound in bounds.items() if bound is not None}
        return found | {"description": self.help}


def ticks(name: str, help: str, low: int = 1, **more: Any) -> Key:
    """Return a key that holds ticks of the schedule's clock."""
    return Key(name, "ticks", help, low=low, high=MAX_TICKS, **more)


def object_schema(keys: Iterable[Key], **more: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a mapping with these keys and no others."""
    keys = list(keys)
    properties = {key.name: key.schema() for key in keys} | more
    required = sorted(key.name for key in keys if key.required)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def check_keys(node: Node, allowed: Collection[str], required: Iterable[str], where: str) -> dict[str, Node]:
    """Return the mapping of a node that has the required keys and no unknown one.

    Raises:
        UserError: it is no mapping, a key is unknown (with the nearest name) or missing.
    """
    if not isinstance(node.value, dict):
        raise node.error(f"{where}: found {node.found()}; allowed: a mapping with {_listed(allowed)}")
    for key, place in node.keys.items():
        if key not in allowed:
            raise place.error(
                f"unknown key {key!r} in {where}{did_you_mean(key, allowed)}; allowed: {_listed(allowed)}"
            )
    for key in required:
        if key not in node.value:
            raise node.error(f"{where} lacks the key {key!r}; allowed: {_listed(allowed)}")
    return node.value


def items(node: Node, name: str) -> list[Node]:
    """Return the entries of a list.

    Raises:
        UserError: it is no list.
    """
    if not isinstance(node.value, list):
        raise node.error(f"`{name}`: found {node.found()}; allowed: a list")
    return node.value


def word(node: Node, name: str, words: Collection[str]) -> str:
    """Return a text that is one of `words`."""
    if not isinstance(node.value, str) or node.value not in words:
        near = did_you_mean(node.text, words)
        raise node.error(f"`{name}`: found {node.found()}; allowed: {', '.join(words)}{near}")
    return node.value


def text(node: Node, name: str) -> str:
    """Return a text that is not empty."""
    if not isinstance(node.value, str) or not node.value.strip():
        quotes = f"; write it in quotes: '{node.text}'" if node.text else ""
        raise node.error(
            f"`{name}`: found {node.found()}; allowed: text{' that is not empty' * isinstance(node.value, str)}{quotes}"
        )
    return node.value


def channel_value(node: Node, channel: Channel) -> Value:
    """Return what a channel is to hold, in one form per value (so that equal concepts hash equally).

    A float channel gets a float, an int channel an int, a simplex all its names (0 where left out).

    Raises:
        UserError: the channel cannot hold it: what was found, what is allowed, the nearest name.
    """
    value = node.plain()
    problem = channel.problem(value)
    if problem is None:
        return canonical_value(value, channel)
    if channel.type == "simplex" and isinstance(node.value, dict):
        for key, place in node.keys.items():
            if key not in channel.choices:
                raise place.error(f"channel `{channel.name}`: {problem}{did_you_mean(key, channel.choices)}")
    near = did_you_mean(node.text, channel.choices) if channel.type == "choice" else ""
    if channel.type == "choice" and not isinstance(node.value, str) and node.text in channel.choices:
        near = f" (YAML reads it as {type(node.value).__name__}: write it in quotes)"
    more = near or hint(node, number=channel.type in ("float", "int"))
    raise node.error(f"channel `{channel.name}`: {problem}{more}")


def canonical_value(value: Any, channel: Channel) -> Value:
    """Return the one form in which a channel holds `value`."""
    match channel.type:
        case "float":
            return float(value) + 0.0
        case "int":
            return int(value)
        case "simplex":
            return {name: float(value.get(name, 0.0)) for name in channel.choices}
    return value


def unbounded(channel: Channel) -> Channel:
    """Return the channel that an `add` or `mul` layer is read against: any finite number."""
    return replace(channel, type="float", low=None, high=None)


def hint(node: Node, number: bool = False) -> str:
    """Explain a text that a person may take for a number or a bool, or return an empty string."""
    if not isinstance(node.value, str):
        return ""
    bare = node.text.replace("_", "").replace(",", "")
    if number and re.fullmatch(r"[-+]?[\d.]+(?:[eE][-+]?\d+)?", bare):
        return f" (in quotes a number is text: write {bare})" if node.quoted else f" (write {bare})"
    if number and re.fullmatch(r"\d+(:\d+)+", node.text):
        return " (YAML 1.2 reads this as text, not as a time)"
    lower = node.text.lower()
    if not number and lower in ("on", "yes", "off", "no", "true", "false"):
        return f" (this is text in YAML 1.2: write {'true' if lower in ('on', 'yes', 'true') else 'false'})"
    return ""


def _listed(names: Collection[str]) -> str:
    return ", ".join(names)
