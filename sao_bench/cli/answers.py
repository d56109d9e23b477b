"""`answers`: hold the judge of maths answers against cases, and look at data sets and their files."""

from pathlib import Path
from typing import Annotated

import typer

GROUP = "answers"
app = typer.Typer(help="Typed maths answers and their judge.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="JSON list or JSON lines of {gold, type, reply, verdict}")],
) -> None:
    """Judge every case of FILE; print a line per wrong verdict and exit 1 if there is any."""
    from sao_bench.grading.answers import check as judged
    from sao_bench.grading.answers import read_cases

    cases = read_cases(file)
    failed = 0
    for case, judgement in judged(cases):
        if judgement.verdict != case.verdict:
            failed += 1
            print(
                f"case {case.number}: {judgement.verdict}, should be {case.verdict}: "
                f"{case.type} {case.gold!r}, answer {judgement.answer!r} ({judgement.reason})"
            )
    print(f"{len(cases) - failed} passed, {failed} failed")
    raise typer.Exit(1 if failed else 0)


@app.command()
def sets() -> None:
    """Print the data sets that are known: columns, id on the hub, rows."""
    from sao_bench.math_data import SETS

    for item in SETS.values():
        columns = f"{'|'.join(item.problem)} -> {'|'.join(item.answer)}"
        where = f"hub {item.hub}, split {item.split}" if item.hub else "file or hub id"
        print(f"{item.name}  {item.about}: {columns}; {where}; {item.size or 'any number of'} rows")


@app.command()
def rows(
    source: Annotated[str, typer.Argument(help="JSON lines, JSON, CSV or parquet file, folder, or hub id.")],
    name: Annotated[str, typer.Option("--set", help="Which data set it is; `answers sets` lists them.")],
    show: Annotated[int, typer.Option(min=0, help="How many usable rows to print.")] = 0,
) -> None:
    """Read SOURCE; print every damaged row with its reason, then the counts; exit 1 if a row is damaged.

    Where no row is usable, the first 10 are printed. A file of a folder that cannot be read counts as damaged.
    """
    from sao_bench.math_data import math_set, survey

    found = survey(name, source)
    for row in found.rows[:show]:
        print(f"row {row.number}: {row.type} {row.answer!r}: {' '.join(row.problem.split())[:100]}")
    for line in found.complaints(None if found.rows else 10):
        print(line)
    print(found.summary)
    expected = math_set(name).size
    if expected and len(found.rows) != expected:
        print(f"the whole set has {expected} rows")
    raise typer.Exit(1 if found.damaged or found.unread else 0)
