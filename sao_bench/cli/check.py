"""`check NAME`: hold an environment or an algorithm to its promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sao_bench.checks import Check

app = typer.Typer()


@app.command()
def check(
    name: Annotated[
        str, typer.Argument(help="An environment's id, an algorithm's name, or package.module:Class.")
    ],
    episodes: Annotated[
        int, typer.Option(min=8, help="Episodes of each statistical check of an environment.")
    ] = 200,
) -> None:
    """Try every promise of an environment or of an algorithm, a line each; exit 1 if one is broken.

    An algorithm's are its invariances (micro-batches, padding, order, truncation, ...) and the conformance
    vectors of its estimator and its loss.
    """
    from sao_bench import registry
    from sao_bench.environment import TextEnv

    cls = registry.environment_or_algorithm(name)
    if issubclass(cls, TextEnv):
        from sao_bench import checks

        tell(checks.each_check(cls, episodes))
    else:
        from sao_bench import algorithm_checks

        tell(algorithm_checks.each_check(cls))


def tell(checks: Iterable[Check]) -> None:
    """Print a line per promise as it is tried, and exit with 1 if one is broken."""
    broken = 0
    for check in checks:
        print(check, flush=True)
        broken += not check.passed
    if broken:
        raise typer.Exit(1)
