"""The run folder: the append-only writer and its only reader.

One folder = one algorithm x one seed:

    manifest.json          what ran, where, when, with which versions (real time lives here)
    config.resolved.yaml   the whole RunConfig
    drift.source.yaml      the schedule as written
    drift.compiled.jsonl   the schedule as compiled: header, phases, changes, segments
    episodes.jsonl         one line per finished training episode, written before it is trained on
    updates.jsonl          one line per consumed batch
    probes.jsonl           one line per (probe point, concept)
    events.jsonl           starts, resumes, checkpoints, stops, with real time
    checkpoints/           learner and executor state
    status.json            running | interrupted | failed | finished
    SHA256SUMS             of the finished files

`episodes`, `updates` and `probes` hold virtual time only, so that equal runs are byte-identical.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from sao_bench.errors import UserError
from sao_bench.types import Concept, Trajectory

LINE_FILES = ("episodes", "updates", "probes", "events")
SEALED = ("episodes.jsonl", "updates.jsonl", "probes.jsonl", "drift.compiled.jsonl", "drift.source.yaml")

REQUIRED: dict[str, frozenset[str]] = {
    name: frozenset(keys.split())
    for name, keys in {
        "episodes": "index t seed phase concept clocks score oracle floor fault arrived_s",
        "updates": "update kind consumed staleness phase_mix metrics score_mean episodes",
        "probes": "t phase concept role score oracle floor",
        "events": "kind",
        "drift.compiled": "kind",
        "manifest.json": "algorithm seed",
        "status.json": "state",
    }.items()
}
"""What each record must have for a folder to be read; a folder may come from anybody."""


def to_json(record: Mapping[str, Any]) -> str:
    """Return one canonical line: sorted keys, no spaces, NaN and infinities refused."""
    return json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def finite(value: float | None, digits: int = 9) -> float | None:
    """Return a float fit for a record: `digits` significant digits, None where it is not finite."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")


def write_atomic(path: Path, text: str) -> None:
    """Write a whole file or nothing."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


class RunWriter:
    """Appends to a run folder and flushes each line; a failed write fails the run.

    Args:
        folder: created; must not exist unless `resume`.
        resume: continue an existing folder after `truncate_to`.
    """

    def __init__(self, folder: Path, resume: bool = False):
        self.folder = folder
        if folder.exists() and not resume:
            raise UserError(
                f"run folder {folder} exists; choose another --id or --out, or continue it with --resume"
            )
        try:
            (folder / "checkpoints").mkdir(parents=True, exist_ok=resume)
            self._files: dict[str, IO[str]] = {
                name: (folder / f"{name}.jsonl").open("a", encoding="utf-8") for name in LINE_FILES
            }
        except OSError as error:
            raise UserError(f"cannot write the run folder {folder}: {error.strerror}") from error

    def append(self, name: str, record: Mapping[str, Any]) -> None:
        """Append one record to `episodes`, `updates` or `probes`."""
        file = self._files[name]
        file.write(to_json(record) + "\n")
        file.flush()

    def event(self, kind: str, **fields: Any) -> None:
        """Append one event with real time (seconds since the epoch)."""
        self.append("events", {"kind": kind, "time": round(time.time(), 3), **fields})

    def status(self, state: str, **fields: Any) -> None:
        """Replace `status.json`."""
        write_atomic(self.folder / "status.json", to_json({"state": state, **fields}) + "\n")

    def offsets(self) -> dict[str, int]:
        """Return the byte length of each deterministic file, to be kept in a checkpoint."""
        return {name: self._files[name].tell() for name in LINE_FILES if name != "events"}

    def truncate_to(self, offsets: Mapping[str, int]) -> None:
        """Cut the files back to what a checkpoint had seen."""
        for name, size in offsets.items():
            self._files[name].truncate(size)
            self._files[name].seek(size)

    def seal(self) -> None:
        """Write `SHA256SUMS` over the deterministic files of a finished run."""
        sums = [f"{sha256(self.folder / name)}  {name}\n" for name in SEALED]
        write_atomic(self.folder / "SHA256SUMS", "".join(sums))

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()


def sha256(path: Path) -> str:
    """Return the hex SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def episode_record(trajectory: Trajectory, oracle: float, floor: float) -> dict[str, Any]:
    """Return the line of `episodes.jsonl` for one finished episode.

    `oracle` and `floor` are J* and b of the episode's concept. Versions are run-length encoded per turn as
    `[[version, tokens], ...]`; `logprob` is the turn's summed behaviour log-probability. A turn has a `concept`
    of its own where an `intra_episode` channel has moved since the episode began.
    """
    return {
        "index": trajectory.index,
        "group": trajectory.group,
        "t": trajectory.t,
        "seed": trajectory.seed,
        "phase": trajectory.concept.phase,
        "concept": trajectory.concept.hash,
        "clocks": {name: finite(value) for name, value in trajectory.clocks.items()},
        "reward": finite(trajectory.reward + trajectory.early_reward),
        "score": finite(trajectory.score),
        "solved": trajectory.solved,
        "oracle": finite(oracle),
        "floor": finite(floor),
        "parts": trajectory.parts,
        "terminated": trajectory.terminated,
        "truncated": trajectory.truncated,
        "stop_reason": trajectory.stop_reason,
        "fault": trajectory.fault,
        "prompt": trajectory.prompt,
        "turns": [
            {
                "reply": turn.reply,
                "reward": finite(turn.reward),
                "tokens": len(turn.action_ids),
                "prompt_tokens": len(turn.prompt_ids),
                "logprob": finite(math.fsum(turn.behavior_logprobs), 7),
                "versions": run_lengths(turn.policy_versions),
                **({} if turn.moved is None else {"concept": Concept.of(turn.moved).hash}),
            }
            for turn in trajectory.turns
        ],
        "dispatched_s": finite(trajectory.dispatched_s),
        "arrived_s": finite(trajectory.arrived_s),
    }


def run_lengths(values: list[int]) -> list[list[int]]:
    """Return `[[value, count], ...]` of consecutive equal values."""
    runs: list[list[int]] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1][1] += 1
        else:
            runs.append([value, 1])
    return runs


@dataclass(frozen=True)
class Run:
    """A run folder, opened for reading; works while the run is still going."""

    folder: Path

    @classmethod
    def open(cls, folder: Path) -> Run:
        """Open one run folder.

        Raises:
            UserError: `folder` has no readable manifest.
        """
        if not (folder / "manifest.json").is_file():
            raise UserError(f"{folder} is not a run folder: it has no manifest.json")
        return cls(folder)

    @classmethod
    def find(cls, folder: Path) -> list[Run]:
        """Return the runs below a folder (`OUT/<id>`, one algorithm of it, or one run), sorted by path."""
        runs = [cls(path.parent) for path in sorted(folder.glob("**/manifest.json"))]
        if not runs:
            raise UserError(f"no runs below {folder}: a run is a folder with manifest.json")
        return runs

    @property
    def manifest(self) -> dict[str, Any]:
        """What ran: `id`, `algorithm`, `seed`, `config`, versions, host, command, start time."""
        return self._json("manifest.json")

    @property
    def status(self) -> dict[str, Any]:
        """The last `status.json`."""
        return self._json("status.json") if (self.folder / "status.json").exists() else {"state": "unknown"}

    def lines(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the records of `episodes`, `updates`, `probes`, `events` or `drift.compiled`.

        A last line without its newline is still being written and is left out.

        Raises:
            UserError: a line is not a JSON object with the keys of its kind (the message names file and line).
        """
        path = self.folder / f"{name}.jsonl"
        if not path.exists():
            return
        with _opened(path) as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    return
                yield _record(line, f"{path}:{number}", REQUIRED[name])

    def _json(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        with _opened(path) as file:
            return _record(file.read(), str(path), REQUIRED[name])


def _opened(path: Path) -> IO[bytes]:
    if not path.is_file():
        raise UserError(f"{path}: not a regular file")
    try:
        return path.open("rb")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error


def _record(text: bytes, where: str, required: frozenset[str]) -> dict[str, Any]:
    """Return one JSON object that has the required keys."""
    try:
        record = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not JSON in UTF-8: {error}") from error
    if not isinstance(record, dict):
        raise UserError(f"{where}: not a JSON object but a {type(record).__name__}")
    if missing := sorted(required - record.keys()):
        raise UserError(f"{where}: lacks {', '.join(missing)}")
    return record
