"""The command line: one module per verb or group of verbs, each with a typer app called `app`.

A `UserError` anywhere becomes one line on stderr and exit status 2; nothing else is caught.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys

import typer


def build() -> typer.Typer:
    """Assemble the command line from the modules of this package.

    A module with one command adds that command; a module that sets `GROUP = "name"` adds a group.
    """
    root = typer.Typer(
        name="sao_bench",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        help="Online learning in LLM reinforcement learning: agents learn while the world drifts.",
    )
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        module = importlib.import_module(f"{__name__}.{info.name}")
        if group := getattr(module, "GROUP", None):
            root.add_typer(module.app, name=group)
        elif hasattr(module, "app"):
            root.registered_commands += module.app.registered_commands

    @root.callback()
    def _root() -> None:
        pass

    return root


def main() -> None:
    """Run the command line."""
    from sao_bench.errors import UserError

    try:
        build()()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(141)
