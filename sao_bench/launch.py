"""From a command line to finished runs: check everything, run side by side, show progress, report.

Nothing is written before every part of the request has been checked.
"""

from __future__ import annotations

import inspect
import multiprocessing
import os
import queue
import re
import signal
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from sao_bench import registry, worker
from sao_bench.config import RunConfig, load_resolved, parse_settings, resolve, tier
from sao_bench.errors import UserError
from sao_bench.records import Run
from sao_bench.worker import Job

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
MAX_SEEDS = 1000
PRELOADED = ["sao_bench.trainer", "sao_bench.tiny", "transformers.models.qwen3.modeling_qwen3"]
"""What every worker imports; the last is the tiny tier's model."""


@dataclass(frozen=True)
class Plan:
    """Jobs to run, the folder that the report covers, and the schedule's phase names."""

    jobs: list[Job]
    folder: Path
    horizon: int
    command: str


def schedule_names() -> list[str]:
    """Return the names of the shipped schedules."""
    return sorted(registry.schedules())


def parse_seeds(text: str) -> list[int]:
    """Return the seeds of `3` (0, 1, 2) or `4,7`.

    Raises:
        UserError: neither a positive count nor a comma list of distinct non-negative numbers.
    """
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    seeds = list(range(min(numbers[0], MAX_SEEDS + 1))) if len(numbers) == 1 else numbers
    if not seeds or len(seeds) > MAX_SEEDS or min(seeds) < 0 or len(set(seeds)) != len(seeds):
        raise UserError(
            f"--seeds {text!r}: expected a count (3 means 0, 1, 2) or a comma list of seeds (4,7)"
        )
    return seeds


def plan(
    values: Mapping[str, Any],
    algorithms: Iterable[str],
    seeds: str,
    out: Path,
    settings: Iterable[str],
    *,
    env: str | None = None,
    command: str = "",
) -> Plan:
    """Check a request and lay out its jobs; writes nothing.

    Raises:
        UserError: any part of the request is wrong.
    """
    from sao_bench.drift import load

    names = [name.strip() for text in algorithms for name in text.split(",")]
    classes = [registry.algorithm(name) for name in dict.fromkeys(names)]
    executor = registry.executor(str(values["executor"]))
    tier(str(values["tier"]))
    schedule = load(
        values["drift"], time_scale=_positive(values["time_scale"]), executor_clocks=executor.clocks
    )
    if env is not None and registry.environment(env).id != registry.environment(schedule.env).id:
        raise UserError(f"--env {env}: the schedule {schedule.id} is written for {schedule.env}")
    name = values["id"]
    if name is None:
        name = f"{schedule.id}-{time.strftime('%Y%m%d-%H%M%S')}"
    if not NAME.fullmatch(name):
        raise UserError(
            f"--id {name!r}: use letters, digits, '.', '_' and '-', beginning with a letter or digit"
        )
    folder = out / name
    if folder.exists():
        raise UserError(
            f"run folder {folder} exists; choose another --id or --out, or continue it with --resume"
        )
    _check_writable(out)
    base = {key: value for key, value in values.items() if value is not None} | {"id": name}
    configs = resolve({**base, "drift": str(values["drift"])}, parse_settings(settings), classes)
    model = _model_folder(schedule.env, configs[0][1])
    jobs = [
        Job(
            config.model_copy(update={"seed": seed}),
            folder / Path(config.algorithm.replace(":", ".")).name / f"s{seed}",
            model,
            command,
        )
        for seed in parse_seeds(seeds)
        for cls, config in configs
    ]
    return Plan(jobs, folder, schedule.horizon, command)


def plan_resume(folder: Path, command: str = "") -> Plan:
    """Lay out the unfinished runs below a folder.

    Raises:
        UserError: there are no runs, or all of them are finished.
    """
    from sao_bench.drift import load

    if not folder.is_dir():
        raise UserError(f"--resume {folder}: no such folder")
    runs = [run for run in Run.find(folder) if run.status["state"] != "finished"]
    if not runs:
        raise UserError(f"--resume {folder}: every run in it is finished")
    jobs = []
    for run in runs:
        config = load_resolved(run.folder / "config.resolved.yaml")
        schedule = load(config.drift, time_scale=config.time_scale)
        if missing := {"schedule_hash", "model"} - run.manifest.keys():
            raise UserError(f"--resume {run.folder}: its manifest.json lacks {min(missing)}")
        if schedule.hash != run.manifest["schedule_hash"]:
            raise UserError(f"--resume {run.folder}: {config.drift} has changed since the run was started")
        if not (run.folder / "checkpoints" / "state.pt").is_file():
            raise UserError(f"--resume {run.folder}: it has no checkpoint; start it again under another --id")
        jobs.append(Job(config, run.folder, Path(run.manifest["model"]), command, resume=True))
    return Plan(jobs, folder, schedule.horizon, command)


def execute(plan: Plan, jobs: int | None = None, console: Console | None = None) -> int:
    """Run the jobs in processes of their own, then write the report.

    Returns:
        the exit status: 0, 1 if a run failed, 2 if it failed on wrong input, 130 after Ctrl-C.
    """
    console = console or Console()
    outcome = work(plan, jobs, console)
    if outcome.arrived:
        _report(plan, console)
    if outcome.interrupted:
        console.print(
            f"stopped; continue with: python -m sao_bench run --resume {plan.folder}", soft_wrap=True
        )
        return 130
    if outcome.failed:
        return 2 if all(fields.get("user") for fields in outcome.failed.values()) else 1
    return 0


def work(plan: Plan, jobs: int | None, console: Console) -> Crew:
    """Run the jobs in processes of their own, and say which failed."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # `kill` stops as Ctrl-C does
    try:
        outcome = Crew(plan, jobs or os.cpu_count() or 1, console).run()
    finally:
        signal.signal(signal.SIGTERM, before)
    for name, fields in outcome.failed.items():
        console.print(f"{name} failed: {fields['error']}", style="red", markup=False, soft_wrap=True)
    return outcome


def _report(plan: Plan, console: Console) -> None:
    from sao_bench.report import write_report

    try:
        paths = write_report([plan.folder], None, console, plan.command)
    except UserError as error:
        # A run that was stopped early may have nothing to draw; that must not hide how it ended.
        console.print(f"no report: {error}", soft_wrap=True, markup=False)
        return
    for path in paths:
        console.print(str(path), soft_wrap=True, highlight=False, markup=False)


class Crew:
    """Worker processes and the progress they report; in the end, what `failed` and whether it was `interrupted`."""

    def __init__(self, plan: Plan, side_by_side: int, console: Console):
        self.plan = plan
        self.side_by_side = side_by_side
        self.console = console
        self.interrupted = False
        self.arrived = False
        self.failed: dict[str, dict[str, Any]] = {}
        # Workers fork from a process that has the imports behind it (7 s each) and has computed nothing.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)
        self._messages: Any = self._context.Queue()
        self._waiting = list(plan.jobs)
        self._running: dict[str, Any] = {}
        self._display = _Display(plan, console)

    def run(self) -> Crew:
        """Run all jobs, or until Ctrl-C."""
        with self._display:
            while self._waiting or self._running:
                try:
                    self._start()
                    self._listen()
                except KeyboardInterrupt:
                    self._interrupt()
        return self

    def _start(self) -> None:
        while self._waiting and len(self._running) < self.side_by_side and not self.interrupted:
            job = self._waiting.pop(0)
            name = job_name(job)
            process = self._context.Process(target=_work, args=(job, self._messages), daemon=True)
            process.start()
            self._running[name] = process
            self._display.started(name)

    def _listen(self) -> None:
        try:
            name, kind, fields = self._messages.get(timeout=0.2)
        except queue.Empty:
            for name, process in list(self._running.items()):
                if process.exitcode not in (None, 0):
                    self._ended(
                        name, "failed", {"error": f"its process ended with status {process.exitcode}"}
                    )
            return
        if kind == "progress":
            self.arrived = True
            self._display.progress(name, fields)
        else:
            self._ended(name, kind, fields)

    def _ended(self, name: str, kind: str, fields: dict[str, Any]) -> None:
        process = self._running.pop(name, None)
        if process is not None:
            process.join()
        if kind == "failed":
            self.failed[name] = fields
        self.interrupted = self.interrupted or kind == "interrupted"
        self._display.ended(name, kind)

    def _interrupt(self) -> None:
        """Let each worker finish its event and write a checkpoint."""
        self.interrupted = True
        self._waiting = []
        self._display.say("stopping: writing checkpoints")
        for process in self._running.values():
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, signal.SIGINT)


def _work(job: Job, messages: Any) -> None:
    """Entry point of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    name = job_name(job)
    worker.run(job, lambda kind, fields: messages.put((name, kind, fields)))


def job_name(job: Job) -> str:
    """Return `sao s0`."""
    return f"{job.folder.parent.name} {job.folder.name}"


class _Display:
    """Rich progress bars in a terminal; a line per tenth of the way elsewhere."""

    def __init__(self, plan: Plan, console: Console):
        self.console = console
        self.total = min(plan.horizon, *(job.config.until or plan.horizon for job in plan.jobs))
        self._live = console.is_terminal
        self._tasks: dict[str, TaskID] = {}
        self._began: dict[str, tuple[float, int]] = {}
        self._tenth: dict[str, int] = {}
        self._bars = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=None), TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[facts]}"), TimeRemainingColumn(compact=True), console=console, expand=True,
        )  # fmt: skip

    def __enter__(self) -> _Display:
        if self._live:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def say(self, text: str) -> None:
        self.console.print(text)

    def started(self, name: str) -> None:
        self._tasks[name] = self._bars.add_task(name, total=self.total, facts="starting")
        if not self._live:
            self.console.print(f"{name}: started", highlight=False)

    def progress(self, name: str, fields: Mapping[str, Any]) -> None:
        now, consumed, batch = time.monotonic(), fields["consumed"], fields["batch"]
        began, first = self._began.setdefault(name, (now, batch))
        rate = (batch - first) / (now - began) if now > began else 0.0
        facts = (
            f"reward {fields['reward_mean'] or 0:.2f}  phase {fields['phase']}  "
            f"staleness {fields['staleness']['max']}  {rate:4.1f} steps/s"
        )
        self._bars.update(self._tasks[name], completed=consumed, facts=facts)
        tenth = 10 * consumed // self.total
        if not self._live and tenth > self._tenth.get(name, 0):
            self._tenth[name] = tenth
            left = (self.total - consumed) / consumed * (now - began)
            self.console.print(
                f"{name}: {10 * tenth}%  {facts}  {left:.0f} s left", highlight=False, soft_wrap=True
            )

    def ended(self, name: str, kind: str) -> None:
        if not self._live:
            self.console.print(f"{name}: {kind}", highlight=False)


def _positive(number: float) -> float:
    if not 0 < number <= 1e6:
        raise UserError(f"--time-scale {number}: expected a number above 0 and at most 1e6")
    return number


def _check_writable(out: Path) -> None:
    """Refuse an output folder that cannot be made or written to, and leave nothing behind."""
    nearest = next(path for path in (out.absolute(), *out.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise UserError(f"--out {out}: {nearest} is not a folder")
    try:
        # The mode alone does not tell: root may write anywhere but into /proc or a read-only mount.
        tempfile.TemporaryDirectory(dir=nearest).cleanup()
    except OSError as error:
        raise UserError(f"--out {out}: {nearest} is not writable: {error.strerror}") from error


def _model_folder(env: str, config: RunConfig) -> Path:
    """Return the folder of the starting policy, after checking that it is one."""
    environment = registry.environment(env)
    try:
        environment(**config.env_options)
    except TypeError as error:
        known = ", ".join(f"env.{name}" for name in inspect.signature(environment).parameters) or "none"
        raise UserError(f"--set env: {environment.id}: {error}; known: {known}") from error
    if config.model is not None:
        from sao_bench.models import load_policy

        # A damaged folder must show before a run folder is made, so it is loaded once here.
        load_policy(folder := Path(config.model))
        return folder.absolute()
    from sao_bench.tiny import checkpoint

    return checkpoint(environment)
