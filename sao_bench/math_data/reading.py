"""Raw rows of a source: JSON, JSON lines, CSV and parquet files, folders of them, and ids on the hub."""

from __future__ import annotations

import csv
import json
import logging
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from sao_bench.errors import UserError
from sao_bench.math_data.sets import MathSet

SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")
RAGGED = "\0ragged"
"""Key of a CSV row whose fields are not as many as the header's; it holds how many there are."""

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")

csv.field_size_limit(10_000_000)


def raw_rows(source: str | Path, which: MathSet) -> Iterable[dict[str, Any]]:
    """Return the rows of a file, a folder of files, or a hub id (`hub` is the set's own), as they are.

    Parquet is read in batches, since DAPO's file has each row a hundred times; its errors come while iterating.

    Raises:
        UserError: it does not exist, cannot be read, or is not a table of rows.
    """
    path = Path(source)
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
        if not files:
            raise UserError(f"{which.name}: {path} has no file of: {', '.join(SUFFIXES)}")
        return chain.from_iterable(map(_file, files))
    if path.is_file():
        return _file(path)
    name = which.hub if str(source) == "hub" else str(source)
    if name is None:
        raise UserError(f"{which.name} has no id of its own on the hub: name a file or an id")
    if path.suffix in SUFFIXES or not _HUB_ID.fullmatch(name):
        raise UserError(f"{which.name}: {source}: no such file, and not an id on the hub (owner/name)")
    return _hub(name, which)


def _file(path: Path) -> Iterable[dict[str, Any]]:
    if path.suffix not in SUFFIXES:
        raise UserError(f"{path}: not a file of: {', '.join(SUFFIXES)}")
    try:
        match path.suffix:
            case ".csv":
                return _csv(path)
            case ".parquet":
                return _parquet(path)
        text = path.read_text(encoding="utf-8-sig")
        rows = _lines(path, text) if path.suffix == ".jsonl" else json.loads(text)
    except (OSError, UnicodeDecodeError, csv.Error, json.JSONDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from error
    return _table(path, rows)


def _lines(path: Path, text: str) -> list[Any]:
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise UserError(f"{path}: line {number} is not JSON: {error}") from error
    return rows


def _table(path: Path, rows: Any) -> list[dict[str, Any]]:
    if isinstance(rows, dict):
        lists = [value for value in rows.values() if isinstance(value, list)]
        rows = lists[0] if len(lists) == 1 else rows
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{path}: not a list of rows (objects with named columns)")
    return rows


def _csv(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = [line for line in csv.reader(file) if line]
    if not lines:
        return []
    header = [name.strip() for name in lines[0]]
    rows: list[dict[str, Any]] = []
    for line in lines[1:]:
        row: dict[str, Any] = dict(zip(header, line, strict=False))
        rows.append(row if len(line) == len(header) else row | {RAGGED: f"{len(line)} of {len(header)}"})
    return rows


def _parquet(path: Path) -> Iterator[dict[str, Any]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise UserError(f"{path}: parquet needs pyarrow: pip install 'sao-bench[datasets]'") from error
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches():
                yield from batch.to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        raise UserError(f"{path}: not a parquet file: {_first_line(error)}") from error


def _hub(name: str, which: MathSet) -> Iterator[dict[str, Any]]:
    try:
        import datasets
    except ImportError as error:
        raise UserError(
            f"{which.name}: a hub id needs datasets: pip install 'sao-bench[datasets]'"
        ) from error
    config = which.config if name == which.hub else None
    datasets.disable_progress_bars()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it logs every retry
    try:
        found: Iterable[dict[str, Any]] = datasets.load_dataset(name, config, split=which.split)
    except Exception as error:
        # Whatever a download can raise (network, authorisation, format) is one line to the user.
        raise UserError(f"{which.name}: cannot load {name!r} from the hub: {_first_line(error)}") from error
    return map(dict, found)


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200]}" if text else type(error).__name__
