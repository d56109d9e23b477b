"""`algorithms`: what can be trained with, a line each."""

from __future__ import annotations

import typer

app = typer.Typer()


@app.command()
def algorithms() -> None:
    """List SAO, the baselines, the ablations and the controls; `run --algorithm NAME` takes each."""
    import inspect

    from rich.console import Console
    from rich.table import Table

    from sao_bench import registry

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for name, cls in sorted(registry.algorithms().items()):
        table.add_row(name, (inspect.getdoc(cls) or "").partition("\n")[0])
    Console().print(table)
