"""`python -m sao_bench run`: one or more algorithms over one schedule, side by side, then the report."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from sao_bench.errors import UserError

app = typer.Typer()
DEFAULT_ALGORITHMS = ("sao", "running_mean", "grpo_dis")


@app.command()
def run(
    drift: Annotated[
        str | None, typer.Option(help="Schedule: a YAML file, or the name of a shipped one.")
    ] = None,
    algorithm: Annotated[
        list[str] | None,
        typer.Option(
            help="Name, comma list, or package.module:Class; repeatable. Default: sao,running_mean,grpo_dis."
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(help="A count (3 means 0, 1, 2) or a comma list (4,7).")] = "1",
    tier: Annotated[str, typer.Option(help="Preset of model and optimizer settings.")] = "tiny",
    model: Annotated[
        Path | None, typer.Option(help="Folder of a causal LM, in place of the tier's own.")
    ] = None,
    env: Annotated[
        str | None, typer.Option(help="Environment id or package.module:Class; must be the schedule's.")
    ] = None,
    executor: Annotated[str, typer.Option(help="Who decides what happens next.")] = "simulated",
    out: Annotated[Path, typer.Option(help="Folder that run folders are made in.")] = Path("runs"),
    id: Annotated[str | None, typer.Option(help="Name of the run. Default: schedule and time.")] = None,
    set: Annotated[
        list[str] | None, typer.Option(help="key=value of the RunConfig, or algorithm.key=value; repeatable.")
    ] = None,
    until: Annotated[
        int | None, typer.Option(help="Stop after this many episodes; the schedule stays as it is.")
    ] = None,
    time_scale: Annotated[
        float, typer.Option(help="Scale the schedule: horizon, event times, widths, probes.")
    ] = 1.0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs side by side. Default: one per core.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the stopped runs of this folder.")] = None,
) -> None:
    """Train under drift, then draw the adaptation curve."""
    from sao_bench import launch

    command = shlex.join(["python", "-m", "sao_bench", *sys.argv[1:]])
    if resume is not None:
        if drift is not None:
            raise UserError("--resume continues a folder with its own schedule; leave --drift out")
        plan = launch.plan_resume(resume, command)
    else:
        if drift is None:
            raise UserError(
                "--drift is missing: a YAML file, or one of: " + ", ".join(launch.schedule_names())
            )
        values = {
            "id": id, "drift": drift, "tier": tier, "model": str(model) if model else None, "executor": executor,
            "until": until, "time_scale": time_scale,
        }  # fmt: skip
        plan = launch.plan(
            values, algorithm or list(DEFAULT_ALGORITHMS), seeds, out, set or [], env=env, command=command
        )
    raise typer.Exit(launch.execute(plan, jobs))
