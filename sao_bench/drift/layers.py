"""One writer of one channel: its events as read, and its timeline once compiled."""

from __future__ import annotations

import json
from array import array
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sao_bench.drift.shapes import Piece, Shape
from sao_bench.drift.shapes.base import MAX_DRAWS, Constant, Context, Held
from sao_bench.drift.yaml12 import Place
from sao_bench.types import Channel


@dataclass(frozen=True, slots=True)
class Event:
    """One event as read: a shape, its first tick and its keys.

    `origin` is set where the event must not begin from what the layer held just before it (the copies that
    `repeat` makes begin from the channel's start).
    """

    shape: type[Shape]
    at: int
    params: Mapping[str, Any]
    place: Place
    origin: Held = None

    @property
    def end(self) -> int | None:
        """First tick after the window; None for a shape that runs until the next event."""
        length = self.shape.length(dict(self.params))
        return None if length is None else self.at + length

    def scaled(self, factor: float) -> Event:
        """Return the event on a clock that runs `factor` times as long."""
        params = self.shape.scaled(dict(self.params), self.at, factor)
        return replace(self, at=round(self.at * factor), params=params)

    def canonical(self) -> dict[str, Any]:
        """Return the content that decides what the event does, and nothing else."""
        found = {"at": self.at, "shape": self.shape.name, **self.params}
        return found if self.origin is None else found | {"origin": self.origin}


@dataclass(slots=True)
class LayerSpec:
    """What one part of a file writes to one channel.

    `op` is `base` for the channel itself, else how the layer joins what lies below it: `set`, `add`, `mul`.
    `start` is None in a `set` layer that lets the layer below show through until its first event.
    """

    channel: Channel
    reads: Channel
    start: Held
    place: Place
    events: list[Event] = field(default_factory=list)
    op: Literal["base", "set", "add", "mul"] = "base"
    priority: int = 0

    def canonical(self) -> dict[str, Any]:
        """Return the content that decides what the layer does: the order of events does not matter."""
        events = sorted((event.canonical() for event in self.events), key=lambda e: e["at"])
        found = {"channel": self.channel.name, "start": self.start, "events": events}
        return found if self.op == "base" else found | {"op": self.op, "priority": self.priority}

    def scaled(self, factor: float) -> LayerSpec:
        """Return the layer on a clock that runs `factor` times as long."""
        return replace(self, events=[event.scaled(factor) for event in self.events])


class Layer:
    """The compiled timeline of one layer: pieces that cover every tick from 0 on."""

    def __init__(self, spec: LayerSpec, pieces: list[Piece]) -> None:
        self.channel = spec.channel
        self.op = spec.op
        self.priority = spec.priority
        self.place = spec.place
        self.pieces = pieces
        self.starts = array("q", [piece.start for piece in pieces])

    def piece(self, t: int) -> Piece:
        """Return the piece in force at t."""
        return self.pieces[bisect_right(self.starts, t) - 1]

    def value(self, t: int) -> Held:
        """Return what the layer holds at t."""
        piece = self.piece(t)
        return piece.decode(piece.key(t))


def compile_layer(spec: LayerSpec, horizon: int, seed: int) -> tuple[Layer, list[str]]:
    """Return the timeline of a layer and its warnings.

    Raises:
        UserError: an event can never fire, runs past the horizon, meets another one, or begins where it cannot.
    """
    spec = replace(spec, events=sorted(spec.events, key=lambda event: event.at))
    _check_windows(spec, horizon)
    content = json.dumps(spec.canonical(), sort_keys=True, separators=(",", ":"))
    pieces: list[Piece] = [Constant(0, spec.start, spec.start)]
    warnings: list[str] = []
    for i, event in enumerate(spec.events):
        end = spec.events[i + 1].at if i + 1 < len(spec.events) else horizon
        origin = pieces[-1].final if event.origin is None else event.origin
        context = Context(spec.reads, origin, event.at, end, seed, f"{content}#{i}")
        _check_origin(spec, event, origin)
        _check_reach(event, spec, end, horizon)
        piece = event.shape.compile(dict(event.params), context)
        if piece.start == pieces[-1].start:
            pieces.pop()
        pieces.append(piece)
        if event.end is not None:
            pieces.append(Constant(event.end, piece.final, piece.final))
        warnings += _warnings(spec, event, piece, origin)
    return Layer(spec, pieces), warnings


def _check_windows(spec: LayerSpec, horizon: int) -> None:
    name = spec.channel.name
    for i, event in enumerate(spec.events):
        if event.at >= horizon:
            raise event.place.error(
                f"the event at {event.at} lies past the horizon of {horizon} and can never fire; "
                f"allowed: `at` from 0 to {horizon - 1}, or a longer `horizon`"
            )
        if event.end is not None and event.end > horizon:
            raise event.place.error(
                f"the window of this {event.shape.name} ({event.at} to {event.end}) runs past the horizon of "
                f"{horizon}; allowed: at most {horizon - event.at} ticks from {event.at} on"
            )
        previous = spec.events[i - 1] if i else None
        if previous and event.at < (free := previous.end or previous.at + 1):
            raise event.place.error(
                f"two writers of channel `{name}`: the event at {event.at} meets the {previous.shape.name} of "
                f"line {previous.place.line} ({previous.at} to {free}); begin at {free} or later, or write an "
                "`overlay`"
            )


def _check_origin(spec: LayerSpec, event: Event, origin: Held) -> None:
    if origin is None and event.shape.needs_origin:
        raise event.place.error(
            f"a {event.shape.name} in a `set` overlay needs a `start` for channel `{spec.channel.name}`"
        )
    if origin is not None and (problem := event.shape.origin_problem(dict(event.params), origin)):
        raise event.place.error(problem)


def _check_reach(event: Event, spec: LayerSpec, end: int, horizon: int) -> None:
    params = dict(event.params)
    first = event.at + event.shape.first(params)
    if first >= end and first > event.at:
        what = f"the horizon of {horizon}" if end == horizon else f"the next event at {end}"
        raise event.place.error(
            f"the first change of this {event.shape.name} would come at {first}, not before {what}: it can "
            "never fire; make it come sooner"
        )
    if (count := event.shape.draws(params, end - event.at)) > MAX_DRAWS:
        raise event.place.error(
            f"this {event.shape.name} would precompute {count:.3g} entries; allowed: at most {MAX_DRAWS:,}"
        )


def _warnings(spec: LayerSpec, event: Event, piece: Piece, origin: Held) -> list[str]:
    found = event.shape.warning(piece)
    if "to" in event.params and event.params["to"] == origin:
        found = f"channel `{spec.channel.name}` already holds {origin!r}, so the event changes nothing"
    return [str(event.place.error(f"warning: {found}"))] if found else []
