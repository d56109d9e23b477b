"""`export`: our environments as packages for other frameworks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

GROUP = "export"
app = typer.Typer(no_args_is_help=True, help="Write an environment as a package for another framework.")


@app.callback()
def _group() -> None:
    pass


@app.command()
def verifiers(
    name: Annotated[str, typer.Argument(help="An environment's id, or package.module:Class.")],
    out: Annotated[Path, typer.Option(help="Folder for the package.")],
    drift: Annotated[
        str | None, typer.Option(help="Schedule on the episode clock; without one the world stands still.")
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", help="Id of the taskset; made of the names unless given.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the run (the schedule has its own).")] = 0,
    group_size: Annotated[int, typer.Option(min=1, help="Rollouts of each task.")] = 1,
    time_scale: Annotated[float, typer.Option(help="Scales the schedule.")] = 1.0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="An option of the environment, name=value.")
    ] = None,
) -> None:
    """Write an installable taskset that `verifiers` 0.4 loads by its id; prints the folder."""
    import re

    from sao_bench.adapters.dispatch import DriftClock
    from sao_bench.adapters.export_verifiers import export_verifiers
    from sao_bench.config import parse_settings

    clock = DriftClock.load(
        name,
        drift,
        seed=seed,
        group_size=group_size,
        time_scale=time_scale,
        env_options=parse_settings(settings or []),
    )
    if id is None:
        words = [clock.environment.id, *([clock.schedule.id] if clock.schedule else [])]
        id = re.sub("[^a-z0-9]+", "-", "-".join(words).lower()).strip("-")
    print(export_verifiers(name, out, drift=drift, name=id, clock=clock, time_scale=time_scale))
