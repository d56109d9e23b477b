"""How two schedules differ in what they do."""

from __future__ import annotations

from collections.abc import Iterator

from sao_bench.drift.schedule import DriftSchedule, show

HEADER = ("env", "clock", "horizon", "seed", "notify", "probe")


def differences(old: DriftSchedule, new: DriftSchedule) -> list[str]:
    """Return one line per difference, none if both schedules do the same.

    Ids and descriptions are no differences. Channels are compared tick by tick over the common horizon.
    """
    if old.hash == new.hash:
        return []
    found = [
        f"{key}: {getattr(old, key)} -> {getattr(new, key)}"
        for key in HEADER
        if getattr(old, key) != getattr(new, key)
    ]
    before = {track.channel.name: track for track in old.tracks}
    after = {track.channel.name: track for track in new.tracks}
    horizon = min(old.horizon, new.horizon)
    for name in sorted(before.keys() | after.keys()):
        if name not in after or name not in before:
            found.append(f"{name}: {'no longer' if name in before else 'newly'} named")
            continue
        stretches = list(_apart(before[name].runs(horizon), after[name].runs(horizon)))
        if stretches:
            ticks = sum(end - start for start, end, _, _ in stretches)
            start, _, a, b = stretches[0]
            found.append(
                f"{name}: differs at {ticks} of {horizon} ticks, first at {start}: {show(a)} -> {show(b)}"
            )
    return found or ["the same values at every tick, written in another way (the hashes differ)"]


def _apart(one: Iterator, other: Iterator) -> Iterator[tuple[int, int, object, object]]:
    """Yield the stretches (first tick, first tick after it, value, value) at which two channels differ."""
    a, b = next(one, None), next(other, None)
    while a is not None and b is not None:
        start, end = max(a[0], b[0]), min(a[1], b[1])
        if a[2] != b[2]:
            yield start, end, a[2], b[2]
        if a[1] == end:
            a = next(one, None)
        if b[1] == end:
            b = next(other, None)
