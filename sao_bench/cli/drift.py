"""`drift`: validate, preview, compile, diff, list and new schedules."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from sao_bench.drift import DriftSchedule

GROUP = "drift"
app = typer.Typer(no_args_is_help=True, help="Check, draw, compile and compare drift schedules.")
File = Annotated[str, typer.Argument(help="A YAML file, or the name of a shipped schedule.")]
Scale = Annotated[float, typer.Option(help="Multiply everything that is measured in ticks.")]


@app.command()
def validate(
    files: Annotated[list[str], typer.Argument(help="YAML files, or names of shipped schedules.")],
) -> None:
    """Check schedules; exit with 2 if any is wrong."""
    from sao_bench.drift import load_all
    from sao_bench.errors import UserError

    wrong = 0
    for file in files:
        try:
            found = load_all(file)
        except UserError as error:
            wrong += 1
            print(f"error: {error}", file=sys.stderr)
            continue
        for schedule in found:
            print(
                f"ok: {schedule.id} ({schedule.env}, {schedule.horizon} ticks of {schedule.clock}, "
                f"{len(schedule.phases())} phases, {len(schedule.channels)} channels)"
            )
        for warning in dict.fromkeys(w for schedule in found for w in schedule.warnings):
            print(warning, file=sys.stderr)
    if wrong:
        raise typer.Exit(2)


@app.command()
def preview(
    file: File,
    out: Annotated[Path, typer.Option(help="Folder that the PNG goes to.")] = Path("out/drift"),
    time_scale: Scale = 1.0,
) -> None:
    """Draw a schedule: a PNG, and in the terminal a strip, the phases, the concepts and the variation budget."""
    from rich.console import Console

    from sao_bench.drift import load_all
    from sao_bench.drift.picture import draw
    from sao_bench.drift.strip import print_preview
    from sao_bench.files import make_folder

    console = Console()
    for schedule in load_all(file, time_scale=time_scale):
        path = make_folder(out) / f"{schedule.id}.png"
        draw(schedule, path)
        print_preview(schedule, console)
        for warning in schedule.warnings:
            print(warning, file=sys.stderr)
        print(f"picture: {path}")


@app.command("compile")
def compile_(
    file: File,
    out: Annotated[Path, typer.Option(help="Folder that the JSONL goes to.")] = Path("out/drift"),
    time_scale: Scale = 1.0,
) -> None:
    """Write the compiled schedule as JSONL beside its SHA-256 (in the form that `sha256sum --check` reads)."""
    import hashlib
    import json

    from sao_bench.drift import load_all
    from sao_bench.files import make_folder

    for schedule in load_all(file, time_scale=time_scale):
        lines = [json.dumps(line, sort_keys=True, allow_nan=False) for line in schedule.compiled_lines()]
        data = ("\n".join(lines) + "\n").encode()
        digest = hashlib.sha256(data).hexdigest()
        path = make_folder(out) / f"{schedule.id}.compiled.jsonl"
        path.write_bytes(data)
        path.with_suffix(".jsonl.sha256").write_text(f"{digest}  {path.name}\n")
        print(f"{path}  lines {len(lines)}  sha256 {digest}  schedule {schedule.hash}")


@app.command()
def diff(old: File, new: File) -> None:
    """Say how two schedules differ in what they do; exit with 1 if they do."""
    from sao_bench.drift import load
    from sao_bench.drift.compare import differences

    found = differences(load(old), load(new))
    for line in found:
        print(line)
    if found:
        raise typer.Exit(1)
    print("the same schedule")


@app.command("list")
def list_schedules() -> None:
    """Print the shipped schedules and what each is meant to show."""
    from sao_bench import registry
    from sao_bench.drift import load

    for name in registry.schedules():
        schedule = load(name)
        phases = len(schedule.phases())
        print(
            f"{name}  {schedule.env}, {schedule.horizon} ticks of {schedule.clock}, phases {phases}, "
            f"shapes {_shapes(schedule)}: {schedule.shows}"
        )


def _shapes(schedule: DriftSchedule) -> str:
    return ", ".join(dict.fromkeys(change.shape for change in schedule.changes())) or "none"


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Id of the new schedule, such as my-drift.")],
    env: Annotated[str, typer.Option(help="Environment whose channels it may move.")] = (
        "sao_bench/StyleWriting-v0"
    ),
    out: Annotated[Path, typer.Option(help="Folder that the file goes to.")] = Path("drift_schedules"),
) -> None:
    """Write a commented schedule to start from; it is valid as it stands."""
    from sao_bench.drift.template import write_template

    path = write_template(name, env, out)
    print(f"{path}\nnext: python -m sao_bench drift preview {path}")
