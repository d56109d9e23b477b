"""One run in one process: from a resolved config to a sealed run folder."""

from __future__ import annotations

import multiprocessing
import os
import platform
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sao_bench.config import RunConfig
from sao_bench.errors import UserError
from sao_bench.records import RunWriter, to_json, write_atomic

Report = Callable[[str, dict[str, Any]], None]
"""Called with a kind (`progress`, `finished`, `interrupted`, `failed`) and its fields."""


@dataclass(frozen=True)
class Job:
    """What a worker process is told.

    `model` is the folder of the starting policy; `command` is for the manifest.
    """

    config: RunConfig
    folder: Path
    model: Path
    command: str
    resume: bool = False


def run(job: Job, report: Report) -> None:
    """Run a job to its end, or until SIGINT; whatever happens is written to `status.json`."""
    import torch

    # One thread: sums are added in one order, and matrices this small run faster. Two runs use two processes.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    writer = RunWriter(job.folder, job.resume)
    try:
        state = _train(job, writer, report)
    except Exception as error:
        line = f"{type(error).__name__}: {error}"
        writer.event("failed", error=line, traceback=traceback.format_exc())
        writer.status("failed", error=line)
        report("failed", {"error": line, "user": isinstance(error, UserError)})
    else:
        report(state, {})
    finally:
        writer.close()


def _train(job: Job, writer: RunWriter, report: Report) -> str:
    from sao_bench import registry
    from sao_bench.drift import load
    from sao_bench.trainer import Trainer

    config = job.config
    executor_class = registry.executor(config.executor)
    schedule = load(config.drift, time_scale=config.time_scale, executor_clocks=executor_class.clocks)
    algorithm_class = registry.algorithm(config.algorithm)
    algorithm = algorithm_class(algorithm_class.Config.model_validate(config.options))
    started, parent = time.monotonic(), multiprocessing.parent_process()

    def progress(fields: dict[str, Any]) -> None:
        writer.status(
            "running", consumed=fields["consumed"], dispatched=trainer.dispatched, updates=trainer.updates
        )
        report("progress", fields)
        if parent is not None and not parent.is_alive():  # killed: stop as after Ctrl-C
            trainer.stopping = True

    environment = registry.environment(schedule.env)
    trainer = Trainer(config, algorithm, schedule, environment, job.model, writer, progress)
    executor = executor_class(trainer)
    signal.signal(signal.SIGINT, lambda *_: setattr(trainer, "stopping", True))
    if job.resume:
        trainer.restore(executor)
        writer.event("resumed", batches=trainer.batches)
    else:
        _write_head(job, writer, schedule)
        writer.event("started")
        found = trainer.start()
        write_atomic(writer.folder / "manifest.json", to_json({**manifest(job, schedule), **found}) + "\n")
    executor.run()
    if trainer.stopping:
        trainer.save(executor)
        return _close(writer, "interrupted", trainer, started)
    trainer.finish()
    writer.seal()
    return _close(writer, "finished", trainer, started)


def _close(writer: RunWriter, state: str, trainer: Any, started: float) -> str:
    fields = {"consumed": trainer.consumed, "dispatched": trainer.dispatched, "updates": trainer.updates}
    writer.event(state, seconds=round(time.monotonic() - started, 3), **fields)
    writer.status(state, **fields)
    return state


def _write_head(job: Job, writer: RunWriter, schedule: Any) -> None:
    """Write what describes the run before it begins."""
    from ruamel.yaml import YAML

    folder = writer.folder
    write_atomic(folder / "manifest.json", to_json(manifest(job, schedule)) + "\n")
    with (folder / "config.resolved.yaml").open("w", encoding="utf-8") as file:
        YAML().dump(job.config.model_dump(mode="json"), file)
    write_atomic(folder / "drift.source.yaml", schedule.source)
    lines = "".join(to_json(line) + "\n" for line in schedule.compiled_lines())
    write_atomic(folder / "drift.compiled.jsonl", lines)
    writer.status("running", consumed=0, dispatched=0, updates=0)


def manifest(job: Job, schedule: Any) -> dict[str, Any]:
    """Return what ran, where, and with which versions."""
    config = job.config
    return {
        "id": config.id,
        "algorithm": config.algorithm,
        "seed": config.seed,
        "tier": config.tier,
        "env": schedule.env,
        "schedule": schedule.id,
        "schedule_hash": schedule.hash,
        "model": str(job.model),
        "config": config.model_dump(mode="json"),
        "command": job.command,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "host": {
            "machine": platform.machine(),
            "system": platform.platform(),
            "python": platform.python_version(),
        },
        "process": {"pid": os.getpid(), "argv0": sys.argv[0]},
        "versions": {
            name: version(name) for name in ("sao-bench", "torch", "transformers", "numpy", "gymnasium")
        },
    }
