"""A concept binds at dispatch; only a channel that says `intra_episode` moves before the episode ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from sao_bench import registry, tiny
from sao_bench.records import Run
from sao_bench.types import Concept
from tests.helpers import job_of, resume, small_run, stopped_run
from tests.patient_world import Patient

SCHEDULE = """\
schema: sao-bench-drift/1
id: patient
env: tests.patient_world:Patient
clock: episode
horizon: 128
channels:
  tool.level: {start: 0.0, events: [{at: 64, shape: step, to: 1.0}]}
  task.level: {start: 0.0, events: [{at: 64, shape: step, to: 1.0}]}
"""
SMALL = ("batch_size=16", "cost.slots=24", "cost.workers=48", "micro_batch=16")


@pytest.fixture
def schedule(tmp_path: Path) -> Path:
    path = tmp_path / "patient.yaml"
    path.write_text(SCHEDULE)
    return path


@pytest.fixture(scope="module")
def model() -> str:
    return str(tiny.checkpoint(registry.environment("sao_bench/StyleWriting-v0")))


def contents(run: Run) -> list[bytes]:
    return [(run.folder / f"{name}.jsonl").read_bytes() for name in ("episodes", "updates", "probes")]


def test_an_episode_takes_over_the_moving_channel_alone() -> None:
    env = Patient()
    env.reset(seed=0, options={"concept": {"tool.level": 0.25, "task.level": 0.5}})
    env.step("x")
    env.move(Concept.of({"tool.level": 0.75, "task.level": 0.0, "latency.reply": 0.0}, phase=3))
    assert dict(env.concept.values) == {"tool.level": 0.75, "task.level": 0.5, "latency.reply": 3.0}
    assert env.concept.phase == 0
    _, reward, *_ = env.step("x")
    assert reward == 0.75


def test_episodes_in_flight_see_the_change_of_a_moving_channel(
    schedule: Path, model: str, tmp_path: Path
) -> None:
    run = small_run(schedule, tmp_path / "out", *SMALL, model=model)
    before = [line for line in run.lines("episodes") if line["t"] < 64]
    after = [line for line in run.lines("episodes") if line["t"] >= 64]
    assert all(line["parts"] == {"seen": [1, 1, 1], "task_level": 1} for line in after)
    assert all(line["parts"]["task_level"] == 0 for line in before)
    seen = {tuple(line["parts"]["seen"]) for line in before}
    assert seen <= {(0, 0, 0), (0, 0, 1), (0, 1, 1), (1, 1, 1)} and len(seen) >= 3
    moved = Concept.of({"tool.level": 1.0, "task.level": 0.0, "latency.reply": 3.0}).hash
    for line in before:
        assert [turn.get("concept") == moved for turn in line["turns"]] == [
            bool(level) for level in line["parts"]["seen"]
        ]
    assert all("concept" not in turn for line in after for turn in line["turns"])


def test_a_stopped_run_resumes_to_the_same_bytes(
    schedule: Path, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Episodes in flight at the stop have turns under two concepts."""
    whole = small_run(schedule, tmp_path / "whole", *SMALL, model=model)
    job = job_of(schedule, tmp_path / "cut", *SMALL, model=model)
    cut = stopped_run(job, 3, monkeypatch)
    assert len(contents(cut)[0]) < len(contents(whole)[0])
    resume(job)
    assert contents(cut) == contents(whole)
