"""Running one small job in this process."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from sao_bench import launch, worker
from sao_bench.records import Run


def small_run(
    schedule: Path, out: Path, *settings: str, algorithm: str = "running_mean", **values: Any
) -> Run:
    """Run one algorithm over a schedule, in this process; returns its run folder."""
    job = job_of(schedule, out, *settings, algorithm=algorithm, **values)
    outcome: list[Any] = []
    before = signal.getsignal(signal.SIGINT)
    try:
        worker.run(job, lambda kind, fields: outcome.append((kind, fields)))
    finally:
        signal.signal(signal.SIGINT, before)
    assert outcome[-1][0] != "failed", outcome[-1][1]
    return Run.open(job.folder)


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
