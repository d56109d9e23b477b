"""Run folders made by hand: real writers and records, scores that the test chooses."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sao_bench.metrics import MetricOptions
from sao_bench.records import RunWriter, episode_record, to_json, write_atomic
from sao_bench.types import Concept, Trajectory, Turn

SMALL = MetricOptions(bin=4, window=2, hold=2, recovery_window=4, collapse_window=4)
"""Constants with which curves of ten bins can be worked out by hand."""

BEFORE = [0.8] * 4
AFTER = [0.2, 0.4, 0.6, 0.8, 0.8, 0.8]
CURVE = [*BEFORE, *AFTER]
"""Ten bins with a drift at bin 4.

Level 0.8, target 0.72: windows of two are 0.3, 0.5, 0.7, 0.8, so recovery is at delta 3; dip 0.8 - 0.3 = 0.5;
AUAC (0.3 + 0.5 + 0.7 + 0.8 + 0.8) / 5 = 0.62; mean (3.2 + 3.6) / 10 = 0.68.
"""

ORACLE, FLOOR = 0.6, 0.1


def phase_lines(openings: Sequence[tuple[int, str]], horizon: int) -> list[dict[str, Any]]:
    """Return the phase lines of a compiled schedule."""
    ends = [*(start for start, _ in openings[1:]), horizon]
    return [
        {
            "kind": "phase",
            "index": i,
            "start": start,
            "end": end,
            "label": label,
            "channels": ["reward.preference"],
        }
        for i, ((start, label), end) in enumerate(zip(openings, ends, strict=True))
    ]


def change(
    start: int, end: int | None = None, drift: str = "real", channel: str = "reward.preference"
) -> dict:
    """Return a change line: a jump, or a window if it has an end."""
    shape = "step" if end is None else "mix"
    return {"kind": "change", "channel": channel, "shape": shape, "start": start, "end": end or start,
            "to": "x", "drift": drift, "returns": False}  # fmt: skip


def write_run(
    out: Path,
    algorithm: str = "sao",
    seed: int = 0,
    curve: Sequence[float] = CURVE,
    *,
    bin: int = 4,
    openings: Sequence[tuple[int, str]] = ((0, "reward.preference = cute"), (16, "reward.preference = bold")),
    changes: Sequence[dict] | None = None,
    horizon: int | None = None,
    state: str = "finished",
    schedule: str = "one-switch",
    clock: str = "episode",
    noise: Callable[[int], float] = lambda _: 0.0,
    faults: Sequence[int] = (),
    missing: Sequence[int] = (),
    zero_advantage: Callable[[int], float] = lambda _: 0.0,
    metrics: Callable[[int], dict] = lambda _: {},
    config: Mapping[str, Any] | None = None,
    probes: Sequence[dict] = (),
    start_score: Mapping[int, float] | None = None,
    ticks: Callable[[int], int] = lambda index: index,
    id: str = "run",
) -> Path:
    """Write `out/id/algorithm/sSEED` with `bin` episodes for each entry of `curve` (normalised scores).

    Episodes arrive in pairs swapped; a batch is a bin. `missing` episodes are still in flight.
    `start_score` is by phase.
    """
    horizon = horizon or ticks(bin * len(curve))
    folder = out / id / algorithm / f"s{seed}"
    writer = RunWriter(folder)
    concepts = [Concept.of({"reward.preference": label}, i) for i, (_, label) in enumerate(openings)]
    manifest = {"id": id, "algorithm": algorithm, "seed": seed, "schedule": schedule, "tier": "tiny",
                "config": dict(config or {}), "command": "python -m sao_bench run",
                "start_score": {concepts[p].hash: s for p, s in (start_score or {}).items()}}  # fmt: skip
    write_atomic(folder / "manifest.json", to_json(manifest) + "\n")
    header = {"kind": "header", "id": schedule, "env": "sao_bench/StyleWriting-v0", "clock": clock,
              "horizon": horizon, "seed": 0, "hash": f"{schedule}-hash"}  # fmt: skip
    marks = [change(start) for start, _ in openings[1:]] if changes is None else changes
    lines = [header, *phase_lines(openings, horizon), *marks]
    write_atomic(folder / "drift.compiled.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    for place, n in enumerate(curve):
        batch = range(place * bin, (place + 1) * bin)
        arrivals = sorted(set(batch) - set(missing), key=lambda index: index ^ 1)
        for index in arrivals:
            t = ticks(index)
            phase = max(i for i, (start, _) in enumerate(openings) if start <= t)
            score = FLOOR + (n + noise(index)) * (ORACLE - FLOOR)
            line = _episode(index, t, seed, concepts[phase], score, place, index in faults)
            writer.append("episodes", line)
        phases = [max(i for i, (start, _) in enumerate(openings) if start <= ticks(index)) for index in batch]
        writer.append("updates", _update(place, batch, n, phases, zero_advantage(place), metrics(place)))
    for probe in probes:
        known = {"version": 0, "role": "seen", "n": 8, "oracle": ORACLE, "floor": FLOOR}
        writer.append("probes", {**known, "concept": concepts[probe["phase"]].hash, **probe})
    writer.status(state, **({"error": "ValueError: broken"} if state == "failed" else {}))
    writer.close()
    return folder


def _episode(
    index: int, t: int, seed: int, concept: Concept, score: float, version: int, fault: bool
) -> dict[str, Any]:
    turn = Turn([1, 2], [3, 4, 5], [-0.1] * 3, [version] * 3, reward=score, reply="hey")
    clocks = {"episode": index, "sample": 3 * index, "optimizer_step": version, "policy_version": version,
              "wall_s": 2.0 * index, "env_step": index}  # fmt: skip
    trajectory = Trajectory(
        index, index, t, seed, concept, [turn], True, False, "terminated", score, False, clocks,
        fault={"kind": "timeout"} if fault else None, dispatched_s=2.0 * index, arrived_s=2.0 * index + 1,
    )  # fmt: skip
    return episode_record(trajectory, ORACLE, FLOOR)


def _update(
    place: int, batch: range, n: float, phases: Sequence[int], zero: float, more: Mapping[str, Any]
) -> dict[str, Any]:
    mean = FLOOR + n * (ORACLE - FLOOR)
    metrics = {
        "mask_ratio": 0.01, "entropy": 0.3, "kl_behavior": 0.001, "explained_variance": 0.5, "policy_loss": 0.1,
        "policy_grad_norm": 0.2, "value_loss": 0.1, "zero_advantage_share": zero, **more,
    }  # fmt: skip
    stale = {"0": 1, "2": len(batch) - 1}
    return {
        "kind": "policy", "batch": place + 1, "update": place + 1, "version": place + 1,
        "episodes": batch.stop, "consumed": list(batch), "dropped": [], "started_s": 1.0, "finished_s": 2.0,
        "reward_mean": mean, "score_mean": mean, "phase_mix": {str(p): phases.count(p) for p in set(phases)},
        "staleness": {"max": 2, "mean": 2 * (len(batch) - 1) / len(batch), "hist": stale}, "metrics": metrics,
    }  # fmt: skip
