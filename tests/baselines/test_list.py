"""`algorithms` lists everything that can be trained with, one line each, in 80 columns."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from sao_bench import registry


def test_one_line_per_algorithm_in_80_columns() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sao_bench", "algorithms"],
        capture_output=True, text=True, check=True, env={"COLUMNS": "80", "PATH": ""},
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == sorted(registry.algorithms())
    assert all(len(line) <= 80 and line.rstrip().endswith(".") for line in lines)


def test_every_file_of_the_folder_has_one_algorithm() -> None:
    files = Counter(inspect.getfile(cls) for cls in registry.algorithms().values())
    folder = Path(__file__).parents[2] / "baselines"
    found = {Path(name).name: count for name, count in files.items() if Path(name).parent == folder}
    assert found == {path.name: 1 for path in folder.glob("*.py")}


@pytest.mark.parametrize("name", sorted(set(registry.algorithms()) - {"sao"}))
def test_a_file_says_what_it_departs_from_in_60_lines(name: str) -> None:
    path = Path(inspect.getfile(registry.algorithm(name)))
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60
    header = text.split('"""')[1]
    assert "Departure" in header
    assert "arXiv" in header or "Source" in header
