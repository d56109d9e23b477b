"""A cache on disk of what takes long to build: named by a hash of the request, written whole, checked when read."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from sao_bench._content import cache_folder
from sao_bench.records import write_atomic


def cached(folder: str, request: Any, build: Callable[[], Any]) -> Any:
    """Return what `build` returns (JSON), from the cache if it is there and whole.

    Args:
        folder: name of a folder inside the cache.
        request: JSON of everything that decides the result, the code included.
        build: makes the result.
    """
    path = cache_folder() / folder / f"{_hash(request)}.json"
    try:
        entry = json.loads(path.read_text())
        if entry["hash"] == _hash(entry["content"]):
            return entry["content"]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    content = json.loads(json.dumps(build()))
    with contextlib.suppress(OSError):  # a cache that cannot be written is slow, not wrong
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps({"hash": _hash(content), "content": content}, sort_keys=True))
    return content


@cache
def code_mark() -> str:
    """Return a hash of the code that makes tasks: another generator means other tasks."""
    here = Path(__file__).parent
    texts = [path.read_bytes() for path in sorted(here.glob("_code_*.py"))]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]


def _hash(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
