"""`tiny`: the small models that environments are warm-started with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

GROUP = "tiny"
app = typer.Typer(no_args_is_help=True, help="Build and find the tiny warm-started models.")
Name = Annotated[str, typer.Argument(help="An environment's id, or package.module:Class.")]


@app.command()
def rebuild(
    name: Name,
    out: Annotated[Path, typer.Option(help="Folder to write; an older tiny model there is replaced.")],
    seed: Annotated[int, typer.Option(help="Of weights and demonstrations.")] = 0,
) -> None:
    """Train an environment's tiny model again from its demonstrations (some minutes on one core)."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from sao_bench import registry, tiny

    env_class = registry.environment(name)
    updates = tiny.TinyConfig.of(env_class).updates
    columns = (
        "{task.description}",
        BarColumn(),
        TextColumn("loss {task.fields[loss]:.3f}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as bars:
        bar = bars.add_task(env_class.id, total=updates, loss=float("nan"))
        record = tiny.build(
            env_class, out, seed, lambda update, loss: bars.update(bar, completed=update, loss=loss)
        )
    print(
        f"{out}: {record['parameters']:,} parameters, held-out loss {record['heldout_loss']:.4f} nats a token"
    )


@app.command()
def path(name: Name) -> None:
    """Print the folder of an environment's tiny model; build it if there is none."""
    from sao_bench import registry, tiny

    print(tiny.checkpoint(registry.environment(name)))
