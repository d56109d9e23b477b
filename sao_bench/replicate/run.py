"""Plan, run and resume what a card needs, then judge and write it.

`OUT/plan.json` names everything that decides the numbers; a folder that holds another plan is refused. Runs are in
`OUT/STAGE/ALGORITHM/sSEED`; finished ones are not run again, interrupted ones go on from their checkpoint. Several
machines may share a card: each takes some seeds, and the last one judges with the others' card folders.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from sao_bench import launch, registry
from sao_bench.config import parse_settings, resolve
from sao_bench.errors import UserError
from sao_bench.records import Run, to_json, write_atomic
from sao_bench.replicate import card, claims, elsewhere
from sao_bench.replicate.claims import Arm, Stage
from sao_bench.replicate.measures import Values, measure
from sao_bench.report import write_report
from sao_bench.run_data import RunData
from sao_bench.worker import Job

PROCESSES = 2


@dataclass(frozen=True)
class Request:
    """What to replicate, and where."""

    out: Path
    tier: str
    quick: bool
    seeds: tuple[int, ...]
    command: str = ""
    others: tuple[Path, ...] = ()
    """Card folders of other machines, whose runs count as done."""

    @property
    def stages(self) -> dict[str, Stage]:
        """The stages by id."""
        return claims.stages(self.quick)

    @property
    def indicative(self) -> bool:
        """Whether the card must say that it is no judgement."""
        may_judge = [seed for seed in self.seeds if seed >= claims.JUDGING_SEEDS[0]]
        return self.quick or len(may_judge) < max(len(self.seeds), len(claims.JUDGING_SEEDS))

    @cached_property
    def known(self) -> dict[Arm, dict[int, Values]]:
        """What other machines have done."""
        plan = json.loads(to_json(fingerprint(self)))
        found: dict[Arm, dict[int, Values]] = {}
        for folder in self.others:
            for arm, runs in elsewhere.read(folder, plan).items():
                found.setdefault(arm, {}).update(runs)
        return found

    def folder(self, arm: Arm, seed: int) -> Path:
        """Return the run folder of an arm and a seed."""
        return self.out / arm.stage / arm.algorithm / f"s{seed}"

    def cost(self, arm: Arm) -> float:
        """Return the projected process-seconds of one run."""
        stage = self.stages[arm.stage]
        rate = "with_critic" if registry.algorithm(arm.algorithm).needs_critic else "without"
        return stage.seconds["start"] + stage.seconds[rate] * stage.batches


def describe(request: Request, processes: int) -> str:
    """Return the plan as text: stages, arms, seeds, projected cost."""
    arms, total, known = claims.arms(), 0.0, 0
    lines = []
    for stage in request.stages.values():
        lines.append(_stage_line(stage))
        for arm in (arm for arm in arms if arm.stage == stage.id):
            done = len(request.known.get(arm, {}).keys() & set(request.seeds))
            known += done
            total += request.cost(arm) * (len(request.seeds) - done)
            used = ", ".join(claim.id for claim in claims.CLAIMS if arm in claim.arms)
            lines.append(f"  {arm.algorithm:<18} claims {used:<18} {request.cost(arm):6.0f} s a run")
    there = f", {known} of them done in {', '.join(map(str, request.others))}" if request.others else ""
    lines.append(f"seeds {', '.join(map(str, request.seeds))}; {len(arms) * len(request.seeds)} runs{there}")
    lines.append(
        f"projected: {total:,.0f} process-seconds, {total / processes / 60:.0f} minutes in {processes} processes"
    )
    return "\n".join(lines)


def _stage_line(stage: Stage) -> str:
    settings = f"; {' '.join(stage.settings)}" if stage.settings else ""
    return f"{stage.id}: {stage.about}; {stage.batches} batches of {stage.batch_size}{settings}"


def fingerprint(request: Request) -> dict[str, Any]:
    """Return what decides the numbers, as plain data (the seeds may grow)."""
    return {
        "tier": request.tier,
        "quick": request.quick,
        "stages": [{**asdict(stage), "about": None, "seconds": None} for stage in request.stages.values()],
        "arms": [str(arm) for arm in claims.arms()],
    }


def jobs(request: Request, stage: Stage) -> list[Job]:
    """Return the runs of a stage that are not finished, seed by seed; remnants without a checkpoint are removed.

    Raises:
        UserError: a setting does not suit an algorithm.
    """
    from sao_bench.drift import load
    from sao_bench.tiny import checkpoint

    arms = [arm for arm in claims.arms() if arm.stage == stage.id]
    drift = claims.schedule(stage)
    base = {
        "id": stage.id, "drift": drift, "tier": request.tier, "time_scale": stage.time_scale,
        "until": stage.episodes,
    }  # fmt: skip
    found = []
    configs = []
    for arm in arms:
        # An option that only some algorithms have (a critic's) is set where it exists.
        cls = registry.algorithm(arm.algorithm)
        own = [text for text in stage.set if _has(cls, text)]
        configs += resolve(base, parse_settings(own), [cls])
    model = checkpoint(registry.environment(load(drift).env))
    for seed in request.seeds:
        for arm, (_, config) in zip(arms, configs, strict=True):
            if seed in request.known.get(arm, {}):
                continue
            folder = request.folder(arm, seed)
            state = Run(folder).status["state"] if folder.is_dir() else "unknown"
            if state == "finished":
                continue
            resume = (folder / "checkpoints" / "state.pt").is_file()
            if not resume:
                shutil.rmtree(folder, ignore_errors=True)
            found.append(
                Job(config.model_copy(update={"seed": seed}), folder, model, request.command, resume)
            )
    return found


def _has(cls: Any, setting: str) -> bool:
    key = setting.partition("=")[0]
    return not key.startswith("algorithm.") or key.removeprefix("algorithm.") in cls.Config.model_fields


def execute(request: Request, processes: int, console: Console) -> int:
    """Run what is missing, then write the card and its figures.

    Returns:
        the exit status: 0; 1 if a run failed; 130 after Ctrl-C. A card is written in any case.

    Raises:
        UserError: the folder holds another plan or cannot be written.
    """
    request.known  # noqa: B018 - whatever is wrong with it must show before anything is written
    _claim_folder(request)
    failed = interrupted = False
    for stage in request.stages.values():
        waiting = jobs(request, stage)
        console.print(f"stage {stage.id}: {stage.about}; {len(waiting)} runs to do", soft_wrap=True)
        if not waiting:
            continue
        plan = launch.Plan(waiting, request.out / stage.id, stage.episodes, request.command)
        outcome = launch.work(plan, processes, console)
        failed = failed or bool(outcome.failed)
        if outcome.interrupted:
            interrupted = True
            break
    paths = write_card(request, console)
    for path in paths:
        console.print(str(path), soft_wrap=True, highlight=False, markup=False)
    if interrupted:
        console.print("stopped; the same command goes on where it was")
        return 130
    return 1 if failed else 0


def _claim_folder(request: Request) -> None:
    path = request.out / "plan.json"
    wanted = json.loads(to_json(fingerprint(request)))
    if path.is_file():
        try:
            same = json.loads(path.read_text(encoding="utf-8")) == wanted
        except (ValueError, RecursionError):
            same = False
        if not same:
            raise UserError(f"--out {request.out} holds the runs of another plan; choose another folder")
        return
    if request.out.is_dir() and any(request.out.iterdir()):
        raise UserError(f"--out {request.out} is not empty and holds no plan.json; choose another folder")
    try:
        request.out.mkdir(parents=True, exist_ok=True)
        write_atomic(path, to_json(wanted) + "\n")
    except OSError as error:
        raise UserError(f"cannot write to --out {request.out}: {error.strerror}") from error


def load_runs(request: Request) -> dict[Arm, dict[int, Values]]:
    """Return the metrics of the finished runs, done here or elsewhere, by arm and seed."""
    found: dict[Arm, dict[int, Values]] = {}
    for arm in claims.arms():
        for seed in request.seeds:
            run = Run(request.folder(arm, seed))
            elsewhere_done = request.known.get(arm, {}).get(seed)
            if elsewhere_done is not None:
                found.setdefault(arm, {})[seed] = elsewhere_done
            elif run.folder.is_dir() and run.status["state"] == "finished":
                found.setdefault(arm, {})[seed] = measure(RunData.load(run))
    return found


def write_card(request: Request, console: Console) -> list[Path]:
    """Judge from what is finished; write card, tables and figures, and show the card."""
    from sao_bench.reports.replication_card import figure

    runs = load_runs(request)
    judged = [card.judge(claim, runs, request.seeds) for claim in claims.CLAIMS]
    title = f"Replication card: arXiv 2607.07508, tier {request.tier}"
    said = card.text(judged, title, _head(request, runs), request.indicative)
    table = pd.DataFrame(card.rows(judged, request.indicative))
    sidecar = {
        "command": request.command, "plan": fingerprint(request), "seeds": list(request.seeds),
        "runs": [f"{arm}/s{seed}" for arm, mine in runs.items() for seed in mine],
    }  # fmt: skip
    files = {
        "card.md": said.encode(),
        **figure(table, sidecar, card.INDICATIVE if request.indicative else ""),
        "values.csv": _values(runs),
    }
    paths = [request.out / name for name in files]
    for path in paths:
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_bytes(files[path.name])
        temporary.replace(path)
    paths += _curves(request)
    console.print(said, markup=False, highlight=False, soft_wrap=True)
    return paths


def _head(request: Request, runs: card.Runs) -> list[str]:
    arms = claims.arms()
    done = sum(len(mine) for mine in runs.values())
    lines = [
        "Protocol: docs/REPLICATION.md. Effects are positive in the claimed direction: IQM of the paired differences",
        "over seeds, with a bootstrap interval.",
        "",
        f"Runs finished: {done} of {len(arms) * len(request.seeds)}. Seeds: {', '.join(map(str, request.seeds))}.",
    ]
    lines += ["", *(f"- {_stage_line(stage)}" for stage in request.stages.values())]
    if request.indicative:
        lines += [
            "",
            f"{card.INDICATIVE}: fewer seeds or shorter runs than the protocol asks for, or seeds that may not judge."
            " Not a judgement.",
        ]
    return lines


def _values(runs: card.Runs) -> bytes:
    """Return every metric of every run, so that each verdict can be computed again."""
    from sao_bench.plotting import csv_bytes

    rows = [
        {
            "stage": arm.stage,
            "algorithm": arm.algorithm,
            "seed": seed,
            "metric": name,
            "value": value,
        }
        for arm, mine in runs.items()
        for seed, values in mine.items()
        for name, value in values.items()
    ]
    return csv_bytes(pd.DataFrame(rows, columns=elsewhere.COLUMNS))


def _curves(request: Request) -> Sequence[Path]:
    """Draw the adaptation curves of each stage that has an episode."""
    paths: list[Path] = []
    for stage in request.stages:
        try:
            paths += write_report(
                [request.out / stage], request.out / "figures" / stage, command=request.command,
                only=["adaptation_curve"],
            )  # fmt: skip
        except UserError:
            continue  # Nothing of this stage has run yet.
    return paths
