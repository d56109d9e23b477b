"""`replicate paper`: does what a paper claims hold at this scale?"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()
PAPERS = ("paper",)


@app.command()
def replicate(
    what: Annotated[str, typer.Argument(help="`paper`: the claims of SAO (arXiv 2607.07508).")],
    tier: Annotated[str, typer.Option(help="Preset of model and optimizer settings.")] = "tiny",
    quick: Annotated[
        bool, typer.Option("--quick", help="Two seeds and short runs, about 10 minutes; marked indicative.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder of runs and card. Default: out/replicate-paper[-quick].")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs side by side. Default: one per core.")] = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="A count or a comma list as in `run`, in place of the judging seeds (100 to 109)."),
    ] = None,
    others: Annotated[
        list[Path] | None,
        typer.Option(
            "--with",
            help="Card folder (card.json, values.csv) of the same plan, made elsewhere or earlier: its runs count as "
            "done. May be given again.",
        ),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print the plan and its projected cost; run nothing.")
    ] = False,
) -> None:
    """Run every arm over the judging seeds, then print a verdict per claim; run it again to go on."""
    import os

    from rich.console import Console

    from sao_bench.config import tier as known_tier
    from sao_bench.errors import unknown
    from sao_bench.launch import parse_seeds
    from sao_bench.replicate import claims, run

    if what not in PAPERS:
        raise unknown("replication", what, PAPERS)
    known_tier(tier)
    chosen = parse_seeds(seeds) if seeds else claims.seeds(quick)
    folder = out or Path("out") / f"replicate-{what}{'-quick' if quick else ''}"
    command = shlex.join(["python", "-m", "sao_bench", *sys.argv[1:]])
    request = run.Request(folder, tier, quick, tuple(chosen), command, tuple(others or ()))
    side_by_side = jobs or os.cpu_count() or 1
    if plan:
        typer.echo(run.describe(request, side_by_side))
        return
    raise typer.Exit(run.execute(request, side_by_side, Console()))
