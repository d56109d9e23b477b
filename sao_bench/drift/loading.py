"""From a path or a shipped name to a compiled schedule."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np

from sao_bench.drift.compose import Plan, Scope, expand, variants, without_sweep
from sao_bench.drift.fields import MAX_TICKS
from sao_bench.drift.layers import Layer, LayerSpec, compile_layer
from sao_bench.drift.reading import Header, Probe, read_header
from sao_bench.drift.schedule import DriftSchedule
from sao_bench.drift.track import Track
from sao_bench.drift.yaml12 import Node, read_file
from sao_bench.errors import UserError, did_you_mean, unknown
from sao_bench.types import Channel

RECOVERY_BINS = 50
"""Bins of the recovery window (METRICS: recovery_time)."""
EPISODES_PER_BIN = 128
RECOVERY_WINDOW = RECOVERY_BINS * EPISODES_PER_BIN
"""Dispatched episodes that a phase must last for recovery in it to be measured."""
MAX_STALENESS = 4
"""Policy versions that a trajectory may lag behind (the default cap of a run)."""
EPISODES_PER_UPDATE = 128
STALENESS_WINDOW = MAX_STALENESS * EPISODES_PER_UPDATE
"""Dispatched episodes in which a trajectory of the last phase may still arrive."""


def load(
    path_or_name: str | Path, *, time_scale: float = 1.0, executor_clocks: Collection[str] | None = None
) -> DriftSchedule:
    """Load, check and compile one schedule.

    Args:
        path_or_name: a YAML file, or the name of a shipped schedule (`style_switch`).
        time_scale: multiplies everything that is measured in ticks: horizon, `at`, widths, periods,
            dwells, traces and the distance of probes (not their episodes); rates are divided by it.
        executor_clocks: the clocks that the executor can keep; None accepts all six.

    Raises:
        UserError: the schedule is wrong, as `file:line:column: what was found, what is allowed`.
    """
    text, root, path = _read(path_or_name)
    if isinstance(root.value, dict) and "sweep" in root.value:
        raise root.keys["sweep"].error(
            f"this file is a sweep of {len(variants(root))} schedules; use `load_all` (or `drift validate`)"
        )
    return _build(root, path, text, "", time_scale, executor_clocks)


def load_all(
    path_or_name: str | Path, *, time_scale: float = 1.0, executor_clocks: Collection[str] | None = None
) -> list[DriftSchedule]:
    """Load every schedule of a file: one, or one per combination of its `sweep`.

    Raises:
        UserError: as for `load`; two combinations have the same id. The file must be right without its
            sweep, too.
    """
    text, root, path = _read(path_or_name)
    choices = variants(root)
    if choices[0][0]:
        _build(without_sweep(root), path, text, "", 1.0, None)
    found = [_build(variant, path, text, suffix, time_scale, executor_clocks) for suffix, variant in choices]
    ids = [schedule.id for schedule in found]
    for name in ids:
        if ids.count(name) > 1:
            raise root.value["sweep"].error(f"two combinations have the id {name!r}; give values once")
    return found


def resolve_path(path_or_name: str | Path) -> Path:
    """Return the file of a path or of a shipped schedule's name (or id).

    Raises:
        UserError: there is neither.
    """
    from sao_bench.registry import schedules

    path, name = Path(path_or_name), str(path_or_name)
    if path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        if not path.is_file():
            beside = [p.name for p in path.parent.glob("*.yaml")] if path.parent.is_dir() else []
            if path.exists():
                raise UserError(f"no drift schedule at {name!r}: it is not a regular file")
            raise UserError(f"no drift schedule at {name!r}{did_you_mean(path.name, beside)}")
        return path
    shipped = schedules()
    if (stem := name.replace("-", "_")) in shipped:
        return shipped[stem]
    if path.is_file():
        return path
    raise unknown("drift schedule", name, shipped)


def _read(path_or_name: str | Path) -> tuple[str, Node, Path]:
    path = resolve_path(path_or_name)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    text, root = read_file(path)
    return text, root, path


def _build(
    root: Node,
    path: Path,
    text: str,
    suffix: str,
    time_scale: float,
    executor_clocks: Collection[str] | None,
) -> DriftSchedule:
    header = read_header(root)
    header.id += suffix
    if executor_clocks is not None and header.clock not in executor_clocks:
        raise header.error(
            "clock",
            f"`clock`: this executor cannot keep the clock {header.clock!r}; allowed: "
            + ", ".join(sorted(executor_clocks)),
        )
    channels = _channels(header)
    plan = expand(header.places, Scope(header.env, header.clock, channels, header.seed, (path,)))
    horizon = _horizon(header, plan)
    schedule = _compile(header, plan, horizon, header.probe, text)
    if time_scale == 1:
        return schedule
    least, most = 0.5 / horizon, MAX_TICKS / horizon
    if not least < time_scale <= most:
        raise UserError(
            f"time scale {time_scale} is not allowed: it must be above {least:.2g} and at most {most:.2g}"
        )
    probe = header.probe and replace(header.probe, every=max(1, round(header.probe.every * time_scale)))
    scaled, length = plan.scaled(time_scale), max(1, round(horizon * time_scale))
    try:
        return _compile(header, scaled, length, probe, text, time_scale)
    except UserError as error:
        raise UserError(f"{error} (at time scale {time_scale:g}; the unscaled schedule is fine)") from error


def _channels(header: Header) -> dict[str, Channel]:
    from sao_bench.registry import environment

    try:
        return {channel.name: channel for channel in environment(header.env).channels}
    except UserError as error:
        raise header.error("env", f"`env`: {error}") from error


def _horizon(header: Header, plan: Plan) -> int:
    if header.horizon is None:
        assert plan.length is not None, "a file without a horizon has a sequence"
        return plan.length
    if plan.length is not None and plan.length > header.horizon:
        raise header.error(
            "horizon",
            f"`horizon`: found {header.horizon}, but the segments last {plan.length} ticks; allowed: at least "
            "that (or leave `horizon` out)",
        )
    return header.horizon


def _compile(
    header: Header, plan: Plan, horizon: int, probe: Probe | None, text: str, time_scale: float = 1.0
) -> DriftSchedule:
    if probe and probe.every > horizon:
        raise (
            header.places["probe"]
            .value["every"]
            .error(
                f"`every`: found {probe.every}, past the horizon of {horizon}, so no probe can ever fire; allowed: "
                "at most the horizon"
            )
        )
    specs = [*plan.base.values(), *plan.overlays]
    alone = {layer.channel.name: layer for layer in plan.overlays if layer.channel.name not in plan.base}
    specs += [_default_layer(overlay) for overlay in alone.values()]
    specs.sort(key=lambda spec: (spec.channel.name, spec.op != "base", spec.priority))
    compiled = [compile_layer(spec, horizon, header.seed) for spec in specs]
    by_channel: dict[str, list[Layer]] = {}
    for layer, _ in compiled:
        by_channel.setdefault(layer.channel.name, []).append(layer)
    tracks = [Track(layers[0].channel, layers, horizon) for layers in by_channel.values()]
    for track in tracks:
        track.check_bounds()
    content = [spec.canonical() for spec in specs]
    schedule = DriftSchedule(header, horizon, probe, tracks, content, time_scale, text)
    schedule.warnings = [warning for _, found in compiled for warning in found]
    schedule.warnings += _general_warnings(schedule, header)
    return schedule


def _default_layer(layer: LayerSpec) -> LayerSpec:
    from sao_bench.drift.fields import canonical_value

    start = canonical_value(layer.channel.default, layer.channel)
    return LayerSpec(layer.channel, layer.channel, start, layer.place)


def _general_warnings(schedule: DriftSchedule, header: Header) -> list[str]:
    found = []
    if schedule.clock in ("optimizer_step", "wall_s"):
        found.append(f"clock {schedule.clock}: when drift comes depends on throughput")
    lengths = np.diff([*schedule.phase_starts, schedule.horizon])
    if schedule.clock == "episode" and len(lengths) > 1:
        for window, what in (
            (RECOVERY_WINDOW, "recovery window"),
            (STALENESS_WINDOW, "maximum staleness"),
        ):
            short = np.flatnonzero(lengths < window)
            if len(short):
                worst = int(np.argmin(lengths))
                found.append(
                    f"{len(short)} of {len(lengths)} phases are shorter than the {what} of {window} episodes "
                    f"(phase {worst} is the shortest: {lengths[worst]})"
                )
    place = header.places["clock"].place
    return [str(place.error(f"warning: {text}")) for text in found]
