"""From run folders to figures and tables: load, group, compute, draw, write.

Each file of `reports/` holds one `Report`: a figure (`sao_bench.plotting.Figure`) or a table. A report gets a
`Comparison`, all runs of one schedule, and returns files. Everything is computed before anything is written,
and nothing depends on the time or the machine, so that a second call writes the same bytes.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar

from rich.console import Console, RenderableType

from sao_bench.errors import UserError, unknown
from sao_bench.metrics import DEFAULTS, MetricOptions
from sao_bench.outcomes import DriftOutcome, RunOutcome, drift_outcomes, run_outcome
from sao_bench.records import Run
from sao_bench.run_data import RunData, Schedule
from sao_bench.statistics import RANKED_SEEDS


@dataclass(frozen=True)
class Line:
    """The runs that one line of a figure stands for: one algorithm with one configuration, over seeds."""

    label: str
    runs: list[RunData]

    @property
    def drawn(self) -> list[RunData]:
        """The runs that have episodes."""
        return [run for run in self.runs if run.episodes]

    @property
    def state(self) -> str:
        """`finished`, or the states of the runs with their counts."""
        states = sorted(run.state for run in self.runs)
        counts = [(state, len(list(same))) for state, same in groupby(states)]
        if len(counts) == 1:
            return counts[0][0]
        return ", ".join(f"{count} {state}" for state, count in counts)


@dataclass(frozen=True)
class Comparison:
    """All runs of one schedule, and how to measure and draw them."""

    schedule: Schedule
    lines: list[Line]
    options: MetricOptions
    command: str
    raw: bool = False
    """Draw scores as they are, not normalised."""

    @property
    def runs(self) -> list[RunData]:
        """All runs."""
        return [run for line in self.lines for run in line.runs]

    @property
    def indicative(self) -> bool:
        """Whether any line has too few seeds to be ranked."""
        return any(len(line.runs) < RANKED_SEEDS for line in self.lines)

    @property
    def note(self) -> str:
        """How far the numbers can be trusted; empty from 5 seeds on."""
        few = min(len(line.runs) for line in self.lines)
        seeds = "1 seed" if few == 1 else f"{few} seeds"
        return f"indicative: {seeds}, of {RANKED_SEEDS} needed for a ranking" if self.indicative else ""

    @property
    def by_episode(self) -> bool:
        """Whether the schedule's clock counts dispatched episodes."""
        return self.schedule.clock == "episode"

    @cached_property
    def outcomes(self) -> dict[Path, tuple[RunOutcome, list[DriftOutcome]]]:
        """The metrics of each run, by its folder."""
        return {
            run.run.folder: (run_outcome(run, self.options), drift_outcomes(run, self.options))
            for run in self.runs
        }

    def sidecar(self) -> dict[str, Any]:
        """Return what a figure was made from: runs, constants, command."""
        return {
            "command": self.command,
            "schedule": {"id": self.schedule.id, "hash": self.schedule.hash, "env": self.schedule.env},
            "options": asdict(self.options),
            "note": self.note,
            "runs": [
                {
                    "folder": run.run.folder.as_posix(),
                    "id": run.manifest.get("id"),
                    "line": line.label,
                    "algorithm": run.algorithm,
                    "seed": run.seed,
                    "state": run.state,
                    "episodes": run.episodes,
                }
                for line in self.lines
                for run in line.runs
            ],
        }


class Report(ABC):
    """One figure or table. A subclass in a file of `reports/` is found by its `name`."""

    name: ClassVar[str] = ""
    """Stem of its files."""
    needs: ClassVar[str] = ""
    """What the data must hold for it to be made, for the line that says that it was not."""
    order: ClassVar[int] = 100
    """Place among the reports: small comes first."""

    @abstractmethod
    def files(self, comparison: Comparison) -> dict[str, bytes]:
        """Return the files by name; none if the data does not suffice."""

    def show(self, comparison: Comparison) -> RenderableType | None:
        """Return what the terminal shows."""
        return None


@cache
def reports() -> list[Report]:
    """Return every report of `reports/`, in order."""
    import sao_bench.reports as folder

    found: list[type[Report]] = []
    for info in pkgutil.iter_modules(folder.__path__):
        module = importlib.import_module(f"{folder.__name__}.{info.name}")
        own = [
            cls for _, cls in inspect.getmembers(module, inspect.isclass) if cls.__module__ == module.__name__
        ]
        found += [cls for cls in own if issubclass(cls, Report) and cls.name]
    return [cls() for cls in sorted(found, key=lambda cls: (cls.order, cls.name))]


def chosen(names: Sequence[str]) -> list[Report]:
    """Return the reports of these names, all if there are none.

    Raises:
        UserError: a name is unknown.
    """
    known = {report.name: report for report in reports()}
    for name in names:
        if name not in known:
            raise unknown("report", name, known)
    return [report for report in reports() if not names or report.name in names]


def compare(
    folders: Sequence[Path], command: str = "", options: MetricOptions = DEFAULTS, raw: bool = False
) -> list[Comparison]:
    """Load the runs below some folders, one comparison per schedule.

    Raises:
        UserError: there are no runs, or none has a finished episode.
    """
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"no such run folder: {folder}")
    found = {run.folder.resolve(): run for folder in folders for run in Run.find(folder)}
    runs = [RunData.load(run) for run in found.values()]
    if not any(run.episodes for run in runs):
        names = ", ".join(map(str, folders))
        raise UserError(f"nothing to draw: no run below {names} has a finished episode yet")
    by_hash: dict[str, list[RunData]] = {}
    for run in runs:
        by_hash.setdefault(_schedule_hash(run), []).append(run)
    comparisons = []
    for same in by_hash.values():
        schedule = next((run.schedule for run in same if run.schedule and run.episodes), None)
        if schedule is not None:
            comparisons.append(Comparison(schedule, lines(same), options, command, raw))
    return comparisons


def _schedule_hash(run: RunData) -> str:
    return run.schedule.hash if run.schedule else str(run.manifest.get("schedule_hash"))


def lines(runs: Sequence[RunData]) -> list[Line]:
    """Group runs over seeds, SAO first; an algorithm with several configurations gets a line per run id."""
    by_algorithm: dict[str, list[RunData]] = {}
    for run in runs:
        by_algorithm.setdefault(run.algorithm, []).append(run)
    found: list[Line] = []
    for algorithm, same in sorted(by_algorithm.items(), key=lambda item: (item[0] != "sao", item[0])):
        ids = {str(run.manifest.get("id")) for run in same}
        repeated = len({run.seed for run in same}) < len(same)
        if len(ids) > 1 and (repeated or len({_setting(run) for run in same}) > 1):
            found += [
                Line(f"{algorithm} [{name}]", [run for run in same if str(run.manifest.get("id")) == name])
                for name in sorted(ids)
            ]
        else:
            found.append(Line(algorithm, sorted(same, key=lambda run: run.seed)))
    return found


def _setting(run: RunData) -> str:
    config = run.manifest.get("config", {})
    return json.dumps({k: v for k, v in config.items() if k not in ("id", "seed", "drift")}, sort_keys=True)


def write_report(
    folders: Sequence[Path],
    out: Path | None = None,
    console: Console | None = None,
    command: str = "",
    *,
    options: MetricOptions = DEFAULTS,
    raw: bool = False,
    only: Sequence[str] = (),
) -> list[Path]:
    """Draw every report that the data of some run folders suffices for.

    Runs of different schedules are not drawn over each other: each schedule gets a folder below `out`.

    Args:
        folders: run folders, or folders of run folders.
        out: where to write; by default `report` in the run folder, or beside the folders if there are several.
        console: where tables are shown; None shows nothing.
        command: kept in the sidecars.
        options: constants of the metrics.
        raw: draw scores as they are, not normalised.
        only: names of the reports to make; all by default.

    Returns:
        the paths written.

    Raises:
        UserError: nothing to draw, an unknown name in `only`, or `out` cannot be written to.
    """
    wanted = chosen(only)
    comparisons = compare(folders, command, options, raw)
    target = out or _default_out(folders)
    written: dict[Path, bytes] = {}
    for comparison in comparisons:
        below = target if len(comparisons) == 1 else target / _folder_name(comparison, comparisons)
        for report in wanted:
            files = report.files(comparison)
            written |= {below / name: content for name, content in files.items()}
            if console is not None:
                _show(console, report, comparison, bool(files))
    _write(target, written)
    return list(written)


def _show(console: Console, report: Report, comparison: Comparison, made: bool) -> None:
    if not made:
        console.print(f"not drawn: {report.name} (needs {report.needs})", style="dim", soft_wrap=True)
    shown = report.show(comparison)
    if shown is not None:
        console.print(shown)


def _default_out(folders: Sequence[Path]) -> Path:
    if len(folders) == 1:
        return folders[0] / "report"
    return Path(os.path.commonpath([folder.absolute() for folder in folders])) / "report"


def _folder_name(comparison: Comparison, comparisons: Sequence[Comparison]) -> str:
    name = comparison.schedule.id
    same = [other for other in comparisons if other.schedule.id == name]
    return name if len(same) == 1 else f"{name}-{comparison.schedule.hash[:8]}"


def _write(target: Path, files: Mapping[Path, bytes]) -> None:
    try:
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.{os.getpid()}")
            temporary.write_bytes(content)
            temporary.replace(path)
    except OSError as error:
        raise UserError(f"cannot write the report to {target}: {error.strerror}") from error


def json_bytes(record: Mapping[str, Any]) -> bytes:
    """Return a record as indented JSON with sorted keys."""
    return (json.dumps(record, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n").encode()
