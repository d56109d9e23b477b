"""`answers check FILE`: does the judge of maths answers say what a file of cases says?"""

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
