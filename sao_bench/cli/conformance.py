"""`sao_bench conformance FILE`: hold the library against a file of conformance vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def conformance(
    file: Annotated[Path, typer.Argument(help="Conformance vectors (schema sao-bench-conformance/1).")],
) -> None:
    """Check conformance vectors: a line per failing case; exit 1 if any fails or an op is unknown."""
    from sao_bench import conformance as runner

    verdicts = runner.run(runner.load(file))
    failed = [verdict for verdict in verdicts if verdict.problem]
    for verdict in failed:
        typer.echo(f"FAIL {verdict.id}: {verdict.problem}")
    typer.echo(f"{len(verdicts) - len(failed)} passed, {len(failed)} failed")
    raise typer.Exit(1 if failed else 0)
