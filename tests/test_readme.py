"""What the README shows works as shown."""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def snippet(heading: str) -> str:
    section = README.split(f"## {heading}")[1].split("\n## ")[0]
    found = re.search(r"```(?:python|yaml)\n(.*?)```", section, re.S)
    assert found
    return textwrap.dedent(found.group(1))


def test_the_schedule_validates_and_previews_what_it_says(tmp_path: Path) -> None:
    from sao_bench.drift import load

    file = tmp_path / "my.yaml"
    file.write_text(snippet("Add a schedule"))
    schedule = load(file)
    assert schedule.warnings == []
    assert schedule.at(7999).values["reward.preference"] == "cute"
    assert schedule.at(9000).values["reward.preference"] == "classical"
    assert schedule.at(18000).values["reward.noise"] == pytest.approx(0.1)


def test_the_environment_and_the_algorithm_run_from_a_file_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sao_bench import registry
    from sao_bench.checks import check_drift_env

    (tmp_path / "digits_file.py").write_text(snippet("Add an environment"))
    (tmp_path / "best_file.py").write_text(snippet("Add an algorithm"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    report = check_drift_env(registry.environment("digits_file:Digits"))
    assert not report.failures, report.failures
    assert registry.algorithm("best_file:BestOfBatch").name == "best_of_batch"


def test_every_command_of_the_readme_exists() -> None:
    from sao_bench.cli import build

    app = build()
    groups = {g.name: {c.name or c.callback.__name__ for c in g.typer_instance.registered_commands if c.callback}
              for g in app.registered_groups if g.typer_instance}  # fmt: skip
    verbs = {c.name or c.callback.__name__ for c in app.registered_commands if c.callback}
    for line in re.findall(r"^ {4}python -m sao_bench ([^#\n]*)", README, re.M):
        first, *rest = line.split()
        assert first in verbs or first in groups, line
        if first in groups:
            alternatives = {part.split()[0] for part in " ".join(rest).split("|")}
            assert alternatives <= groups[first], line


def test_every_file_of_the_readme_exists() -> None:
    for path in re.findall(
        r"`((?:sao_bench|environments|baselines|docs|drift_schedules|tests)/[\w./]*)`", README
    ):
        assert (ROOT / path).exists(), path
    for path in re.findall(r"\]\(([\w./]+)\)", README):
        assert (ROOT / path).exists(), path
