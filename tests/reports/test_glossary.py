"""docs/GLOSSARY.md names every metric that is logged and every column that is shown."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

from sao_bench.report import compare, reports
from tests.helpers import small_run
from tests.run_folders import SMALL, write_run

TEXT = (Path(__file__).parents[2] / "docs" / "GLOSSARY.md").read_text(encoding="utf-8")
NAMES = {name for line in TEXT.splitlines() for name in re.findall(r"`([^`]+)`", line.partition(" | ")[0])}


def test_every_logged_metric_is_defined(tmp_path, schedule_file):
    settings = ["batch_size=16", "algorithm.critic_warmup=1", "algorithm.value_pretrain_episodes=0"]
    run = small_run(schedule_file(), tmp_path, *settings, algorithm="sao", until=48)
    logged = {name for update in run.lines("updates") for name in (*update, *update["metrics"])}
    assert {"entropy", "value_loss"} <= logged
    assert logged - NAMES - {"metrics"} == set()


def test_every_column_is_defined(tmp_path):
    write_run(tmp_path)
    (comparison,) = compare([tmp_path], options=SMALL)
    files = next(report for report in reports() if report.name == "summary").files(comparison)
    columns = {
        column
        for name in ("summary.csv", "summary_drifts.csv")
        for column in next(csv.reader(io.StringIO(files[name].decode())))
    }
    plain = {re.sub("_(low|high)$", "", column) for column in columns}
    derived = {name for name in plain if name.startswith("recovery_")}
    assert {"recovery_episodes", "recovery_updates", "recovery_reason"} <= derived & NAMES
    assert plain - derived - NAMES == set()
