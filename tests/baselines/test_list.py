"""`algorithms` lists everything that can be trained with, one line each, in 80 columns."""

from __future__ import annotations

import subprocess
import sys

from sao_bench import registry


def test_one_line_per_algorithm_in_80_columns() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sao_bench", "algorithms"],
        capture_output=True, text=True, check=True, env={"COLUMNS": "80", "PATH": ""},
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == sorted(registry.algorithms())
    assert all(len(line) <= 80 and line.rstrip().endswith(".") for line in lines)
