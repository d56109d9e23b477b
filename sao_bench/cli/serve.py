"""`serve`: our environments as servers for other frameworks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

GROUP = "serve"
app = typer.Typer(no_args_is_help=True, help="Serve an environment to another framework.")


@app.callback()
def _group() -> None:
    pass


@app.command()
def openenv(
    name: Annotated[str, typer.Argument(help="An environment's id, or package.module:Class.")],
    drift: Annotated[
        Path | None, typer.Option(help="Schedule on the episode clock; without one the world stands still.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the run (the schedule has its own).")] = 0,
    group_size: Annotated[int, typer.Option(min=1, help="Episodes that share a tick and a task.")] = 1,
    time_scale: Annotated[float, typer.Option(help="Scales the schedule.")] = 1.0,
    sessions: Annotated[int, typer.Option(min=1, help="Most clients at once.")] = 1024,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="An option of the environment, name=value.")
    ] = None,
) -> None:
    """Serve an environment over OpenEnv until interrupted; the first line printed is its URL."""
    from sao_bench.adapters.dispatch import DriftClock
    from sao_bench.config import parse_settings

    clock = DriftClock.load(
        name,
        drift,
        seed=seed,
        group_size=group_size,
        time_scale=time_scale,
        env_options=parse_settings(settings or []),
    )
    from sao_bench.adapters import to_openenv

    to_openenv.serve(clock, host=host, port=port, sessions=sessions)
