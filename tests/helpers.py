"""Running one small job in this process."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sao_bench import launch, worker
from sao_bench.records import Run
from sao_bench.trainer import Trainer


def small_run(
    schedule: Path, out: Path, *settings: str, algorithm: str = "running_mean", **values: Any
) -> Run:
    """Run one algorithm over a schedule, in this process; returns its run folder."""
    job = job_of(schedule, out, *settings, algorithm=algorithm, **values)
    kind, fields = _work(job)
    assert kind != "failed", fields
    return Run.open(job.folder)


def stopped_run(job: worker.Job, batches: int, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a job until so many batches are consumed, as Ctrl-C would stop it there."""
    learn = Trainer.learn

    def learn_then_stop(self: Trainer, *args: Any) -> None:
        learn(self, *args)
        self.stopping = self.batches == batches

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "learn", learn_then_stop)
        kind, fields = _work(job)
    run = Run.open(job.folder)
    assert kind == run.status["state"] == "interrupted", fields
    return run


def resume(job: worker.Job) -> None:
    """Continue a stopped run to its end."""
    assert _work(replace(job, resume=True)) == ("finished", {})


def _work(job: worker.Job) -> tuple[str, Any]:
    """Return the last message of a job."""
    outcome: list[tuple[str, Any]] = []
    before = signal.getsignal(signal.SIGINT)
    try:
        worker.run(job, lambda kind, fields: outcome.append((kind, fields)))
    finally:
        signal.signal(signal.SIGINT, before)
    return outcome[-1]


def job_of(
    schedule: Path, out: Path, *settings: str, algorithm: str = "running_mean", seed: int = 0, **values: Any
) -> worker.Job:
    """Check a request and return its only job."""
    request = {
        "id": "t",
        "drift": str(schedule),
        "tier": "tiny",
        "executor": "simulated",
        "time_scale": 1.0,
        **values,
    }
    plan = launch.plan(request, [algorithm], str(seed + 1), out, settings)
    return plan.jobs[-1]
