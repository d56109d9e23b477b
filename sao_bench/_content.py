"""Where the four content folders live: beside the package in a checkout, inside it in a wheel; and the cache."""

import os
from pathlib import Path


def content_path(init_file: str) -> list[str]:
    """Return the `__path__` of a content package whose `__init__.py` is `init_file`."""
    inside = Path(init_file).resolve().parent
    beside = inside.parent.parent / inside.name
    checkout = (inside.parent.parent / "pyproject.toml").is_file() and beside.is_dir()
    return [str(beside if checkout else inside)]


def cache_folder() -> Path:
    """Return the folder for what can be made again: `$SAO_BENCH_CACHE`, or one in the user's cache folder."""
    if given := os.environ.get("SAO_BENCH_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sao_bench"
