"""From nodes of a file to events, channels and the header, with every check that needs one file only."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sao_bench.drift.fields import (
    Key,
    canonical_value,
    channel_value,
    check_keys,
    items,
    text,
    ticks,
    unbounded,
    word,
)
from sao_bench.drift.layers import Event, LayerSpec
from sao_bench.drift.shapes import SHAPES
from sao_bench.drift.yaml12 import Node
from sao_bench.errors import UserError, did_you_mean
from sao_bench.types import CLOCKS, Channel

SCHEMA = "sao-bench-drift/1"
NOTIFY = ("none", "boundary", "value")
PROBE_CONCEPTS = ("seen", "current", "next")
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

AT = ticks("at", "tick of the schedule's clock at which the event begins", low=0)
FOR = ticks("for", "length of the segment in ticks")
HORIZON = ticks("horizon", "length of the schedule in ticks of its clock")
SEED = Key("seed", "count", "drift seed, apart from the training seed", False, 0, low=0, high=2**63 - 1)
SHAPE = Key("shape", "word", "how the channel changes", words=tuple(SHAPES))
PROBE_EVERY = ticks("every", "ticks between two probes")
PROBE_EPISODES = Key("episodes", "count", "episodes per probe and concept", low=1, high=1_000_000)
REPEAT_TIMES = Key("times", "count", "how often the pattern is played", low=1, high=100_000)
REPEAT_JITTER = ticks(
    "jitter", "each copy moves by up to so many ticks either way", 0, required=False, default=0
)
PRIORITY = Key("priority", "count", "a higher priority is applied later", low=-1_000_000, high=1_000_000)
OP = Key("op", "word", "how the layer joins what lies below it", words=("set", "add", "mul"))

FILE_KEYS = (
    "schema", "id", "env", "clock", "horizon", "seed", "notify", "version", "description", "shows",
    "channels", "probe", "include", "sequence", "repeat", "overlay", "sweep",
)  # fmt: skip
_PLACED_BY = ("at", "for", "duration")


@dataclass(frozen=True, slots=True)
class Probe:
    """Evaluation off the clock: every so many ticks, so many episodes on each named concept.

    `concepts`: `seen` every concept met so far, `current`, `next` the one after the coming drift.
    """

    every: int
    episodes: int
    concepts: tuple[str, ...]


@dataclass(slots=True)
class Header:
    """What a schedule says about itself as a whole."""

    id: str
    env: str
    clock: str
    horizon: int | None
    seed: int
    notify: str
    version: str
    description: str
    shows: str
    probe: Probe | None
    places: dict[str, Node] = field(default_factory=dict)

    def error(self, key: str, message: str) -> UserError:
        """Return an error at one of the header's keys."""
        return self.places[key].error(message)


def read_schema(root: Node, required: Collection[str]) -> dict[str, Node]:
    """Return the top-level mapping of a schedule file.

    Raises:
        UserError: a key is unknown or missing, or the language version is another one.
    """
    top = check_keys(root, FILE_KEYS, required, "a drift schedule")
    word(top["schema"], "schema", (SCHEMA,))
    return top


def read_header(root: Node) -> Header:
    """Return the header of a schedule file.

    Raises:
        UserError: a key is unknown, missing or holds what it must not.
    """
    needed = ["schema", "id", "env", "clock"]
    is_mapping = isinstance(root.value, dict)
    top = read_schema(root, needed if is_mapping and "sequence" in root.value else [*needed, "horizon"])
    name = text(top["id"], "id")
    if not ID.fullmatch(name):
        raise top["id"].error(
            f"`id`: found {name!r:.120}; allowed: up to 100 letters, digits, `.`, `_` and `-`, as it names a folder"
        )
    horizon = HORIZON.read(top["horizon"]) if "horizon" in top else None
    return Header(
        id=name,
        env=text(top["env"], "env"),
        clock=word(top["clock"], "clock", CLOCKS),
        horizon=horizon,
        seed=SEED.read(top["seed"]) if "seed" in top else 0,
        notify=word(top["notify"], "notify", NOTIFY) if "notify" in top else "none",
        version=_version(top.get("version")),
        description=text(top["description"], "description").strip() if "description" in top else "",
        shows=text(top["shows"], "shows").strip() if "shows" in top else "",
        probe=read_probe(top["probe"]) if "probe" in top else None,
        places=top,
    )


def _version(node: Node | None) -> str:
    if node is None:
        return ""
    if isinstance(node.value, bool) or not isinstance(node.value, int | float | str) or not node.text.strip():
        raise node.error(f"`version`: found {node.found()}; allowed: a number or text")
    return node.text


def read_probe(node: Node) -> Probe:
    """Return the probe settings.

    Raises:
        UserError: a key is unknown, missing or holds what it must not.
    """
    keys = ("every", "episodes", "concepts")
    found = check_keys(node, keys, keys, "`probe`")
    concepts = tuple(word(n, "concepts", PROBE_CONCEPTS) for n in items(found["concepts"], "concepts"))
    if not concepts or len(set(concepts)) < len(concepts):
        raise found["concepts"].error(
            f"`concepts`: allowed: one or more of {', '.join(PROBE_CONCEPTS)}, each once"
        )
    return Probe(PROBE_EVERY.read(found["every"]), PROBE_EPISODES.read(found["episodes"]), concepts)


def read_event(node: Node, channel: Channel, folder: Path, at: int | None = None) -> Event:
    """Return one event of a channel; with `at` it stands in a segment and does not place itself.

    Raises:
        UserError: the shape or a key is unknown, or a value is not allowed.
    """
    if not isinstance(node.value, dict):
        raise node.error(f"an event: found {node.found()}; allowed: a mapping with at, shape and its keys")
    if "shape" not in node.value:
        check_keys(node, ("at", "shape", *_all_shape_keys()), (), "an event")
        raise node.error(f"an event lacks the key 'shape'; allowed: {', '.join(SHAPES)}")
    shape = SHAPES[word(node.value["shape"], "shape", SHAPES)]
    for key in _PLACED_BY:
        if key in node.value and (key != "at" or at is not None):
            where = "a segment is placed by its `for`" if at is not None else "an event is placed by `at`"
            raise node.keys[key].error(
                f"`at` and duration mixed: {where}, so `{key}` does not belong in it; remove it"
            )
    placed = () if at is not None else ("at",)
    keys = {key.name: key for key in shape.keys}
    required = [*placed, "shape", *(key.name for key in shape.keys if key.required)]
    found = check_keys(node, (*placed, "shape", *keys), required, f"a {shape.name} event")
    if channel.type not in shape.types:
        raise found["shape"].error(
            f"a {shape.name} cannot move channel `{channel.name}`, which is a {channel.type}; allowed: "
            + ", ".join(s.name for s in SHAPES.values() if channel.type in s.types)
        )
    params: dict[str, Any] = {
        name: key.read(found[name], channel) if name in found else key.default for name, key in keys.items()
    }
    shape.check(params, node, channel, folder)
    tick = AT.read(found["at"]) if at is None else at
    return Event(shape, tick, params, found["at"].place if at is None else node.place)


def _all_shape_keys() -> list[str]:
    return sorted({key.name for shape in SHAPES.values() for key in shape.keys})


def find_channel(name: str, node: Node, known: dict[str, Channel], env: str) -> Channel:
    """Return the environment's channel that a mapping of `node` names.

    Raises:
        UserError: the environment does not declare it.
    """
    if name not in known:
        raise node.keys[name].error(
            f"unknown channel {name!r} of {env}{did_you_mean(name, known)}; known: {', '.join(sorted(known))}"
        )
    return known[name]


def read_layers(
    node: Node, known: dict[str, Channel], env: str, folder: Path, op: str = "base", priority: int = 0
) -> list[LayerSpec]:
    """Return one layer for every channel of a `channels` mapping.

    Raises:
        UserError: a channel or key is unknown, or a value is not allowed.
    """
    if not isinstance(node.value, dict):
        raise node.error(
            f"`channels`: found {node.found()}; allowed: a mapping from channels to their events"
        )
    return [
        _read_layer(find_channel(name, node, known, env), node, name, folder, op, priority)
        for name in node.value
    ]


def _read_layer(channel: Channel, parent: Node, name: str, folder: Path, op: Any, priority: int) -> LayerSpec:
    node, place = parent.value[name], parent.keys[name]
    found = check_keys(node, ("start", "events"), (), f"channel `{name}`")
    if op in ("add", "mul") and channel.type not in ("float", "int"):
        raise place.error(f"`{op}` cannot join channel `{name}`, which is a {channel.type}; allowed: set")
    reads = unbounded(channel) if op in ("add", "mul") else channel
    neutral = {"base": canonical_value(channel.default, channel), "set": None, "add": 0.0, "mul": 1.0}
    start = channel_value(found["start"], reads) if "start" in found else neutral[op]
    events = [
        read_event(event, reads, folder)
        for event in (items(found["events"], "events") if "events" in found else [])
    ]
    return LayerSpec(channel, reads, start, place, events, op, priority)
