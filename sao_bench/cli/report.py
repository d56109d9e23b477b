"""`python -m sao_bench report runs/ID ...`: figures and tables from run folders."""

from __future__ import annotations

import shlex
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from sao_bench.metrics import MetricOptions

app = typer.Typer()


@app.command()
def report(
    folders: Annotated[
        list[Path], typer.Argument(help="Run folders: runs/ID, one algorithm of it, or one seed.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Where to write. Default: report/ in the run folder (beside them, if several)."),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Draw scores as they are, not normalised.")] = False,
    only: Annotated[
        list[str] | None, typer.Option(help="Name of a figure or table to make; repeatable. Default: all.")
    ] = None,
    set: Annotated[
        list[str] | None, typer.Option(help="A constant of the metrics, such as bin=64; repeatable.")
    ] = None,
) -> None:
    """Draw the adaptation curve and other figures, and print the summary; works on a running folder."""
    from rich.console import Console

    from sao_bench.report import write_report

    command = shlex.join(["python", "-m", "sao_bench", *sys.argv[1:]])
    paths = write_report(
        folders, out, Console(), command, options=_options(set or []), raw=raw, only=only or ()
    )
    for path in paths:
        typer.echo(str(path))


def _options(settings: list[str]) -> MetricOptions:
    """Build the metric options from `name=value` texts.

    Raises:
        UserError: a name is unknown or a value is not a number that it can hold.
    """
    from sao_bench.errors import UserError, unknown
    from sao_bench.metrics import DEFAULTS, MetricOptions

    kinds = {field.name: type(getattr(DEFAULTS, field.name)) for field in fields(MetricOptions)}
    values = {}
    for text in settings:
        name, _, value = text.partition("=")
        if name not in kinds:
            raise unknown("metric option", name, kinds)
        try:
            values[name] = kinds[name](value)
        except ValueError as error:
            raise UserError(f"--set {text!r}: expected {name}=<{kinds[name].__name__}>") from error
    return MetricOptions(**values)
