"""Writing an environment and a schedule as an installable `verifiers` package (needs no `verifiers` to write it)."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sao_bench.adapters.dispatch import CLOCK, DriftClock
from sao_bench.drift import load
from sao_bench.drift.loading import resolve_path
from sao_bench.drift.yaml12 import Node, read_file
from sao_bench.errors import UserError

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")

PYPROJECT = """\
[project]
name = "{name}"
version = "0.1.0"
description = "{env} under the drift schedule {schedule}, as a verifiers taskset."
requires-python = ">=3.11"
dependencies = ["sao-bench[verifiers]"]

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
packages = ["{module}"]
"""

README = """\
# {name}

{env} under the drift schedule `{schedule}`, exported by sao_bench for `verifiers` 0.4 (`verifiers.v1`).

```python
import verifiers.v1 as vf

env = vf.load_environment(vf.resolve_env_config({{"taskset": {{"id": "{name}"}}}}))
```

Task k is episode k x group_size of the schedule's clock, so the order of the tasks is time: a shuffled view is refused.
For training set `taskset.endless = true`: trainers cycle (or shuffle) a finite taskset and stream an endless one in
order; past the horizon the schedule's last concept holds. Set `taskset.group_size` to the trainer's group size.
`trace.info["sao_bench"]` has what verifiers has no field for: rewards and latencies by turn, how the episode ended, its
phase and concept hash, score and solved. A fault of the machinery is an error of the trace and has no reward.
"""

TASKSET = '''\
"""{env} under the drift schedule {schedule}; written by `python -m sao_bench export verifiers`."""

from pathlib import Path
from typing import Any

import verifiers.v1 as vf

from sao_bench.adapters.to_verifiers import DriftTask, DriftTaskset, DriftTasksetConfig


class {prefix}Config(DriftTasksetConfig):
    """Defaults of this export; every field can be set with `--env.taskset.*`."""

    env: str = {env!r}
    env_options: dict[str, Any] = {options!r}
    drift: Path | None = {drift}
    schedule_hash: str | None = {hash!r}
    time_scale: float = {time_scale!r}
    seed: int = {seed!r}
    group_size: int = {group_size!r}


class {prefix}Taskset(DriftTaskset, vf.Taskset[DriftTask, {prefix}Config]):
    """Episodes of the schedule's clock, in order."""
'''

INIT = """\
from sao_bench.adapters.to_verifiers import ChatHarness, DriftEnv

from {module}.taskset import {prefix}Taskset

__all__ = ["ChatHarness", "DriftEnv", "{prefix}Taskset"]
"""


def export_verifiers(
    env: str,
    out: Path,
    *,
    drift: str | Path | None = None,
    name: str,
    clock: DriftClock,
    time_scale: float = 1.0,
) -> Path:
    """Write the package `out/<module>` and return its folder.

    Args:
        env: the environment as it was named.
        out: folder for packages; it is made.
        drift: the schedule's file or name; it is copied with all that it includes.
        name: id of the taskset, which is the name of the package: lower case, digits and hyphens.
        clock: the environment and the compiled schedule.
        time_scale: what the schedule was compiled with.

    Raises:
        UserError: the name is not one, the folder exists, or the schedule needs a file from elsewhere.
    """
    if not NAME.fullmatch(name):
        raise UserError(
            f"--id {name!r}: use lower-case letters and digits, with single hyphens between words"
        )
    module = name.replace("-", "_")
    folder = out / module
    if folder.exists():
        raise UserError(f"{folder} exists; choose another --id or --out")
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out, prefix=".export-") as scratch:
            work = Path(scratch) / module
            (work / module).mkdir(parents=True)
            entry = (
                None
                if drift is None
                else _copy_schedule(drift, work / module / "schedule", clock, time_scale)
            )
            _write(work, env, name, module, clock, time_scale, entry)
            work.rename(folder)
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror or error}") from error
    return folder


def _write(
    work: Path, env: str, name: str, module: str, clock: DriftClock, time_scale: float, entry: str | None
) -> None:
    schedule = clock.schedule
    words = {
        "name": name,
        "module": module,
        "prefix": "".join(word[0].upper() + word[1:] for word in name.split("-")),
        "env": env,
        "options": dict(clock.env_options),
        "schedule": schedule.id if schedule else "none",
        "hash": schedule.hash if schedule else None,
        "drift": None if entry is None else f'Path(__file__).parent / "schedule" / {entry!r}',
        "time_scale": time_scale,
        "seed": clock.seed,
        "group_size": clock.group_size,
    }
    files = {
        "pyproject.toml": PYPROJECT,
        "README.md": README,
        f"{module}/__init__.py": INIT,
        f"{module}/taskset.py": TASKSET,
    }
    for path, template in files.items():
        (work / path).write_text(template.format(**words), encoding="utf-8")


def _copy_schedule(drift: str | Path, to: Path, clock: DriftClock, time_scale: float) -> str:
    """Copy a schedule and the files that it names; returns its path below `to`, which compiles to the same hash."""
    source = resolve_path(drift).resolve()
    needed = sorted(_needed(source, set()))
    root = source.parent
    for path in needed:
        if not path.is_relative_to(root):
            raise UserError(f"{drift}: it needs {path.name}, which is not in its folder; put it there")
        target = to / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    copied = load(to / source.name, time_scale=time_scale, executor_clocks=(CLOCK,))
    assert clock.schedule is not None
    if copied.hash != clock.schedule.hash:
        raise UserError(f"{drift}: its copy is another schedule; put all that it names beside or below it")
    return source.name


def _needed(path: Path, seen: set[Path]) -> set[Path]:
    """Return a schedule's file and every file that it names: includes, and the traces of replays."""
    if path in seen:
        return seen
    seen.add(path)
    _, root = read_file(path)
    for key, node in _named(root):
        found = (path.parent / str(node.value)).resolve()
        if key == "include":
            _needed(found, seen)
        else:
            seen.add(found)
    return seen


def _named(node: Node) -> Iterator[tuple[str, Node]]:
    """Yield `include` and `file` entries, wherever they stand."""
    if isinstance(node.value, dict):
        for key, child in node.value.items():
            if key == "include" and isinstance(child.value, list):
                yield from (("include", item) for item in child.value)
            elif key == "file" and isinstance(child.value, str):
                yield "file", child
            else:
                yield from _named(child)
    elif isinstance(node.value, list):
        for child in node.value:
            yield from _named(child)
