"""The lines of `drift.compiled.jsonl`: all that a report needs to draw a schedule without its YAML."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sao_bench.drift.reading import SCHEMA

if TYPE_CHECKING:
    from sao_bench.drift.schedule import DriftSchedule

POINTS = 400
"""Most points at which a channel that slides or wanders is written down per piece."""


def lines(schedule: DriftSchedule) -> list[dict[str, Any]]:
    """Return one dict per line: a header, then channels, segments, phases and changes in order."""
    header = {
        "kind": "header",
        "schema": SCHEMA,
        "id": schedule.id,
        "env": schedule.env,
        "clock": schedule.clock,
        "horizon": schedule.horizon,
        "seed": schedule.seed,
        "notify": schedule.notify,
        "hash": schedule.hash,
        "version": schedule.version,
        "time_scale": schedule.time_scale,
        "probe": asdict(schedule.probe) if schedule.probe else None,
        "variation_budget": schedule.variation_budget(),
    }
    channels = [{"kind": "channel", "channel": c.name, "type": c.type, "drift": c.kind, "low": c.low,
                 "high": c.high, "choices": list(c.choices)} for c in schedule.channels]  # fmt: skip
    segments = [segment for track in schedule.tracks for segment in _segments(track, schedule.horizon)]
    phases = [{"kind": "phase", **asdict(phase)} for phase in schedule.phases()]
    # A change has a key `kind` of its own (real or virtual); in a line it is called `drift`.
    changes = [
        {"kind": "change", "drift": change.kind}
        | {key: value for key, value in asdict(change).items() if key != "kind"}
        for change in schedule.changes()
    ]
    return [header, *channels, *segments, *phases, *changes]


def _segments(track: Any, horizon: int) -> list[dict[str, Any]]:
    found = []
    for layer in track.layers:
        starts = [piece.start for piece in layer.pieces]
        for piece, end in zip(layer.pieces, [*starts[1:], horizon], strict=True):
            if piece.start >= horizon:
                continue
            line = {"kind": "segment", "channel": track.channel.name, "op": layer.op,
                    "priority": layer.priority, "shape": piece.shape, "start": piece.start, "end": end,
                    "to": piece.final}  # fmt: skip
            if piece.shape in ("ramp", "walk", "replay"):
                every = max(1, (end - piece.start) // POINTS)
                ticks = range(piece.start, end, every)
                line["points"] = [[t, piece.decode(piece.key(t))] for t in ticks]
            if piece.shape == "mix":
                every = max(1, (end - piece.start) // POINTS)
                line["shares"] = [[t, piece.share(t)] for t in range(piece.start, end, every)]
            found.append(line)
    return found
