"""Raw rows of a source: JSON, JSON lines, CSV and parquet files, folders of them, and ids on the hub."""

from __future__ import annotations

import codecs
import csv
import json
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sao_bench.errors import UserError
from sao_bench.math_data.sets import MathSet

SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")

csv.field_size_limit(10_000_000)


@dataclass(frozen=True, slots=True)
class Broken:
    """In the place of a row that cannot be read: why."""

    reason: str


def raw_rows(source: str | Path, which: MathSet, unread: list[str]) -> Iterable[Any]:
    """Return the rows of a file, a folder of files, or a hub id (`hub` is the set's own), as they are.

    A row that cannot be read is `Broken`; for a file of a folder that cannot, a line is added to `unread`.

    Parquet is read in batches, since DAPO's file has each row a hundred times; its errors come while iterating.

    Raises:
        UserError: it does not exist, cannot be read, or is not a table of rows.
    """
    path = Path(source)
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
        if not files:
            raise UserError(f"{which.name}: {path} has no file of: {', '.join(SUFFIXES)}")
        return _folder(files, unread)
    if path.is_file():
        return _file(path)
    name = which.hub if str(source) == "hub" else str(source)
    if name is None:
        raise UserError(f"{which.name} has no id of its own on the hub: name a file or an id")
    if path.suffix in SUFFIXES or not _HUB_ID.fullmatch(name):
        raise UserError(f"{which.name}: {source}: no such file, and not an id on the hub (owner/name)")
    return _hub(name, which)


def _folder(files: list[Path], unread: list[str]) -> Iterator[Any]:
    """Go on after a file that cannot be read; what is wrong with it goes to `unread`."""
    for file in files:
        try:
            yield from _file(file)
        except UserError as error:
            unread.append(str(error))


def _file(path: Path) -> Iterable[Any]:
    try:
        match path.suffix:
            case ".csv":
                return _csv(path)
            case ".parquet":
                return _parquet(path)
            case ".jsonl":
                lines = path.read_bytes().removeprefix(codecs.BOM_UTF8).split(b"\n")
                return (_line(line) for line in lines if line.strip())
            case ".json":
                return _table(path, json.loads(path.read_text(encoding="utf-8-sig")))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read: {_of_json(error)}") from error
    raise UserError(f"{path}: not a file of: {', '.join(SUFFIXES)}")


def _line(line: bytes) -> Any:
    """Return what a line of JSON holds. A wrong line is a wrong row, and takes no other with it."""
    try:
        return json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        return Broken(f"not JSON: {_of_json(error)}")


def _of_json(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        line = f"line {error.lineno}, " if error.lineno > 1 else ""
        return f"{error.msg}, {line}character {error.colno}"
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start + 1} is not UTF-8"
    return str(error)


def _table(path: Path, rows: Any) -> list[Any]:
    if isinstance(rows, dict):
        lists = [value for value in rows.values() if isinstance(value, list)]
        rows = lists[0] if len(lists) == 1 else rows
    if not isinstance(rows, list):
        raise UserError(f"{path}: not a list of rows (objects with named columns)")
    return rows


def _csv(path: Path) -> list[Any]:
    # A byte that is not UTF-8 becomes U+FFFD, by which its row is known as damaged.
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        lines = [line for line in _csv_lines(file) if line]
    if not lines:
        return []
    if isinstance(lines[0], Broken) or any("\0" in name for name in lines[0]):
        raise UserError(f"{path}: cannot be read: no line of column names in UTF-8")
    header = [name.strip() for name in lines[0]]
    return [line if isinstance(line, Broken) else _named(header, line) for line in lines[1:]]


def _csv_lines(file: Iterable[str]) -> Iterator[list[str] | Broken]:
    reader = csv.reader(file)
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Broken(f"not CSV: {error}")


def _named(header: list[str], line: list[str]) -> dict[str, str] | Broken:
    if len(line) != len(header):
        return Broken(f"shifted columns: {len(line)} of {len(header)} fields")
    return dict(zip(header, line, strict=True))


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
