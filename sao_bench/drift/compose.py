"""Composition: `include`, `sequence`, `repeat`, `overlay` become plain events; `sweep` becomes many files.

The order is: sweep, include (as if pasted), sequence, repeat, overlay. Overlays span the whole horizon and
are not repeated.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from sao_bench.drift.fields import channel_value, check_keys, items, text
from sao_bench.drift.layers import Event, LayerSpec
from sao_bench.drift.reading import (
    FOR,
    HORIZON,
    OP,
    PRIORITY,
    REPEAT_JITTER,
    REPEAT_TIMES,
    read_event,
    read_layers,
    read_schema,
)
from sao_bench.drift.shapes import SHAPES
from sao_bench.drift.yaml12 import Node, Place, read_file
from sao_bench.seeding import generator
from sao_bench.types import Channel

MAX_VARIANTS = 10_000
"""Most schedules that one sweep may stand for."""

STEP = SHAPES["step"]


@dataclass(slots=True)
class Plan:
    """The plain content of a file: one base layer per channel, overlays, and the length if it is implied."""

    base: dict[str, LayerSpec] = field(default_factory=dict)
    overlays: list[LayerSpec] = field(default_factory=list)
    length: int | None = None

    def scaled(self, factor: float) -> Plan:
        """Return the plan on a clock that runs `factor` times as long."""
        base = {name: layer.scaled(factor) for name, layer in self.base.items()}
        return Plan(base, [layer.scaled(factor) for layer in self.overlays], self.length)


@dataclass(frozen=True, slots=True)
class Scope:
    """What a file is read against: the environment's channels, the drift seed, and who included it."""

    env: str
    clock: str
    channels: dict[str, Channel]
    seed: int
    files: tuple[Path, ...]

    @property
    def folder(self) -> Path:
        """Folder that relative names in the file start from."""
        return self.files[-1].parent


def expand(top: dict[str, Node], scope: Scope) -> Plan:
    """Return the plain content of a file's top-level mapping.

    Raises:
        UserError: anything in it, or in a file that it includes, is not allowed.
    """
    plan = Plan()
    for node in items(top["include"], "include") if "include" in top else []:
        included = _include(node, scope)
        _merge(plan, included.base.values())
        plan.overlays += included.overlays
    if "channels" in top:
        own = read_layers(top["channels"], scope.channels, scope.env, scope.folder)
        _merge(plan, own)
    if "sequence" in top:
        plan.length = _sequence(top["sequence"], plan, scope)
    if "repeat" in top:
        _repeat(top, plan, scope)
    for node in items(top["overlay"], "overlay") if "overlay" in top else []:
        plan.overlays += _overlay(node, scope)
    _check_overlays(plan)
    return plan


def _merge(plan: Plan, layers: Any) -> None:
    for layer in layers:
        name = layer.channel.name
        if name in plan.base:
            first = plan.base[name].place
            raise layer.place.error(
                f"two writers of channel `{name}`: it is also written in {first.file}, line {first.line}; "
                "write one of them as an `overlay`"
            )
        plan.base[name] = layer


def _include(node: Node, scope: Scope) -> Plan:
    path = scope.folder / text(node, "include")
    if path.resolve() in (file.resolve() for file in scope.files):
        raise node.error(f"`include`: {node.value} includes itself; remove it")
    if not path.is_file():
        near = ", ".join(sorted(p.name for p in path.parent.glob("*.yaml"))[:8]) or "no YAML file"
        raise node.error(f"`include`: there is no file {str(path)!r}; beside it: {near}")
    _, root = read_file(path)
    top = read_schema(root, ("schema",))
    for key, value in (("env", scope.env), ("clock", scope.clock)):
        if key in top and top[key].value != value:
            raise top[key].error(f"`{key}`: found {top[key].text}; allowed: {value}, as in {node.place.file}")
    if "sweep" in top:
        raise top["sweep"].error("a file with a `sweep` is many schedules and cannot be included")
    return expand(top, replace(scope, files=(*scope.files, path)))


# -- sequence -----------------------------------------------------------------------------------------


def _sequence(node: Node, plan: Plan, scope: Scope) -> int:
    for layer in plan.base.values():
        for event in layer.events:
            raise event.place.error(
                "`at` and duration mixed: with a `sequence` channels hold a `start` only; "
                "put the event into a segment, or into an `overlay`"
            )
    t = 0
    for segment in items(node, "sequence"):
        for key in ("at", "duration"):
            if key in segment.keys:
                raise segment.keys[key].error(
                    f"`at` and duration mixed: a segment is placed by its `for`; remove `{key}`"
                )
        found = check_keys(segment, ("for", *sorted(scope.channels)), ("for",), "a segment")
        length = FOR.read(found["for"])
        for name in found:
            if name != "for":
                _segment_channel(segment, name, t, length, plan, scope)
        t += length
    if t == 0:
        raise node.error("`sequence`: found an empty list; allowed: segments with `for` and channels")
    return t


def _segment_channel(segment: Node, name: str, t: int, length: int, plan: Plan, scope: Scope) -> None:
    channel = scope.channels[name]
    node, place = segment.value[name], segment.keys[name]
    layer = plan.base.get(name)
    if layer is None:
        layer = plan.base[name] = read_layers(_nothing(name, place), scope.channels, scope.env, scope.folder)[
            0
        ]
    if isinstance(node.value, dict) and "shape" in node.value:
        event = read_event(node, channel, scope.folder, at=t)
        if event.end is not None and event.end > t + length:
            raise place.error(
                f"the window of this {event.shape.name} is longer than its segment; allowed: {length} ticks"
            )
        layer.events.append(event)
        return
    value = channel_value(node, channel)
    if t == 0:
        layer.start = value
    elif _held_at_end(layer) != value:
        layer.events.append(Event(STEP, t, {"to": value}, place))


def _nothing(name: str, place: Place) -> Node:
    return Node({name: Node({}, place)}, place, {name: place})


def _held_at_end(layer: LayerSpec) -> Any:
    """Return what the layer holds after its last event, or None if that is not known before compiling."""
    for event in reversed(layer.events):
        if not event.shape.returns:
            return event.params.get("to")
    return layer.start


# -- repeat -------------------------------------------------------------------------------------------


def _repeat(top: dict[str, Node], plan: Plan, scope: Scope) -> None:
    node = top["repeat"]
    found = check_keys(node, ("times", "jitter"), ("times",), "`repeat`")
    times = REPEAT_TIMES.read(found["times"])
    jitter = REPEAT_JITTER.read(found["jitter"]) if "jitter" in found else 0
    length = plan.length
    if length is None:
        horizon = HORIZON.read(top["horizon"]) if "horizon" in top else 0
        if not horizon or horizon % times:
            raise found["times"].error(
                f"`times`: found {times}; allowed: a divisor of the horizon of {horizon}, as each copy takes "
                "horizon / times ticks"
            )
        length = horizon // times
    _check_pattern(plan, length, jitter, found)
    offsets = np.zeros(times, dtype=np.int64)
    if jitter and times > 1:
        content = json.dumps({"times": times, "jitter": jitter, "length": length}, sort_keys=True)
        offsets[1:] = generator(scope.seed, "repeat", content).integers(-jitter, jitter + 1, times - 1)
    starts = [int(k * length + offset) for k, offset in enumerate(offsets)]
    for layer in plan.base.values():
        layer.events = list(_copies(layer, starts))
    plan.length = length * times


def _check_pattern(plan: Plan, length: int, jitter: int, found: dict[str, Node]) -> None:
    for layer in plan.base.values():
        for event in layer.events:
            end = event.at + 1 if event.end is None else event.end
            if end > length:
                raise event.place.error(
                    f"the event at {event.at} does not fit into the repeated pattern of {length} ticks and can "
                    "never fire; allowed: `at` and window inside it"
                )
            if end + 2 * jitter > length:
                raise found["jitter"].error(
                    f"`jitter`: found {jitter}; allowed: at most {(length - end) // 2}, as the pattern's last "
                    f"event ends at {end} of {length}"
                )


def _copies(layer: LayerSpec, starts: list[int]) -> Iterator[Event]:
    """Yield the layer's events, once for each start; every copy begins from the layer's own start."""
    if not layer.events:
        return
    known = _held_at_end(layer)
    first = min(layer.events, key=lambda event: event.at)
    for k, start in enumerate(starts):
        if k and first.at > 0 and known != layer.start:
            yield Event(STEP, start, {"to": layer.start}, layer.place)
        for event in layer.events:
            copy = replace(event, at=event.at + start)
            if k and event.at == 0 and known != layer.start:
                copy = replace(copy, origin=layer.start)
            yield copy


# -- overlay ------------------------------------------------------------------------------------------


def _overlay(node: Node, scope: Scope) -> list[LayerSpec]:
    keys = ("priority", "op", "channels")
    found = check_keys(node, keys, keys, "an overlay")
    op = OP.read(found["op"])
    priority = PRIORITY.read(found["priority"])
    return read_layers(found["channels"], scope.channels, scope.env, scope.folder, op, priority)


def _check_overlays(plan: Plan) -> None:
    seen: dict[tuple[str, int], LayerSpec] = {}
    for layer in plan.overlays:
        key = (layer.channel.name, layer.priority)
        if key in seen:
            raise layer.place.error(
                f"two writers of channel `{layer.channel.name}` with priority {layer.priority} (the other is in "
                f"line {seen[key].place.line}): their order would matter; give one another priority"
            )
        seen[key] = layer


# -- sweep --------------------------------------------------------------------------------------------


def variants(root: Node) -> list[tuple[str, Node]]:
    """Return every combination of a `sweep` as (suffix of the id, root); a file without one is alone.

    Keys are paths into the file, such as `seed` or `channels.reward.noise.events.0.to`.

    Raises:
        UserError: a path leads nowhere, or its values are no list.
    """
    if not isinstance(root.value, dict) or "sweep" not in root.value:
        return [("", root)]
    sweep = root.value["sweep"]
    if not isinstance(sweep.value, dict) or not sweep.value:
        raise sweep.error(f"`sweep`: found {sweep.found()}; allowed: a mapping from paths to lists of values")
    base = without_sweep(root)
    axes = []
    for path, node in sweep.value.items():
        values = items(node, f"sweep.{path}")
        if not values:
            raise node.error(f"`sweep.{path}`: found an empty list; allowed: one or more values")
        axes.append([(path, i, value) for i, value in enumerate(values)])
    if (count := math.prod(map(len, axes))) > MAX_VARIANTS:
        raise sweep.error(f"`sweep`: found {count} combinations; allowed: at most {MAX_VARIANTS}")
    found = []
    for combination in product(*axes):
        variant = base
        for path, _, value in combination:
            variant = _with(variant, path, value, sweep.keys[path])
        found.append(("".join(_suffix(*choice) for choice in combination), variant))
    return found


def without_sweep(root: Node) -> Node:
    """Return the root of a file that does not have its `sweep`."""
    rest = {key: node for key, node in root.value.items() if key != "sweep"}
    return Node(rest, root.place, {key: root.keys[key] for key in rest})


def _suffix(path: str, index: int, value: Node) -> str:
    name = re.sub(r"[^A-Za-z0-9]+", "_", path.rsplit(".", 1)[-1])
    shown = re.sub(r"[^A-Za-z0-9.]+", "_", value.text) if value.text else f"v{index}"
    return f"-{name}{shown}"


def _with(node: Node, path: str, value: Node, place: Place, top: bool = True) -> Node:
    """Return a copy of `node` in which the value at `path` is another one; keys may contain dots."""
    if isinstance(node.value, dict):
        for key in sorted(node.value, key=len, reverse=True):
            child = node.value[key]
            if path == key:
                return replace(node, value=node.value | {key: value})
            if path.startswith(key + "."):
                changed = _with(child, path[len(key) + 1 :], value, place, top=False)
                return replace(node, value=node.value | {key: changed})
        if top and path in ("seed", "notify", "version"):
            return Node(node.value | {path: value}, node.place, node.keys | {path: place})
    elif isinstance(node.value, list):
        index, _, rest = path.partition(".")
        if index.isdigit() and int(index) < len(node.value):
            i = int(index)
            child = _with(node.value[i], rest, value, place, top=False) if rest else value
            return replace(node, value=[*node.value[:i], child, *node.value[i + 1 :]])
    known = ", ".join(node.value) if isinstance(node.value, dict) else "an index of the list"
    raise place.error(f"`sweep`: the path ends nowhere at {path!r}; allowed there: {known}")
