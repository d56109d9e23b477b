"""A small world with a channel of every type, and helpers that write schedules against it."""

import itertools
import tempfile
from pathlib import Path

from sao_bench.drift import DriftSchedule, load
from sao_bench.environment import TextEnv
from sao_bench.types import Channel

STYLES = ("cute", "classical", "academic")


class World(TextEnv):
    """Declares channels; it is never played."""

    channels = (
        Channel("reward.preference", "choice", "real", "cute", "what is paid", choices=STYLES),
        Channel("reward.noise", "float", "real", 0.0, "coin share", 0.0, 1.0),
        Channel("tool.ready", "bool", "real", False, "whether the tool works"),
        Channel("task.level", "int", "virtual", 1, "difficulty", 1, 10),
        Channel(
            "task.mixture", "simplex", "virtual", {"easy": 1.0}, "who asks", choices=("easy", "hard", "odd")
        ),
        Channel("latency.scale", "float", "virtual", 1.0, "no bounds"),
        Channel(
            "obs.switch", "choice", "virtual", "off", "looks like a bool", choices=("off", "on", "12:30:00")
        ),
        Channel("obs.code", "choice", "virtual", "1e-5", "looks like a number", choices=("1e-5", "7")),
    )


class Wide(TextEnv):
    """Twenty numbers, half of them real."""

    channels = tuple(
        Channel(f"c{i:02}", "float", "real" if i % 2 else "virtual", 0.5, "a number", 0.0, 1.0)
        for i in range(20)
    )


CHANNELS = {channel.name: channel for channel in World.channels}
_count = itertools.count()


def text(channels: str, horizon: int = 1000, seed: int = 0, more: str = "", clock: str = "episode") -> str:
    """Return a file; `channels` is the YAML below that key (line 8 is its first line)."""
    return (
        f"schema: sao-bench-drift/1\nid: trial\nenv: drift_world:World\nclock: {clock}\n"
        f"horizon: {horizon}\nseed: {seed}\nchannels:\n{channels}\n{more}"
    )


def write(folder: Path, content: str, name: str | None = None) -> Path:
    path = folder / (name or f"trial{next(_count)}.yaml")
    path.write_text(content, encoding="utf-8")
    return path


def load_text(content: str, **options: object) -> DriftSchedule:
    with tempfile.TemporaryDirectory() as folder:
        return load(write(Path(folder), content), **options)


def one(event: str, channel: str = "reward.noise", start: object = None, **header: object) -> DriftSchedule:
    """Load a schedule with one event."""
    begin = "" if start is None else f"start: {start}, "
    return load_text(text(f"  {channel}: {{{begin}events: [{event}]}}", **header))


def values(schedule: DriftSchedule, channel: str, ticks: range | list[int]) -> list:
    return [schedule.at(t).values[channel] for t in ticks]
