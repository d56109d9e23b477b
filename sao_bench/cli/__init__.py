"""The command line: one module per verb or group of verbs, each with a typer app called `app`.

A `UserError` anywhere becomes one line on stderr and exit status 2; nothing else is caught.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from importlib.metadata import version
from typing import Annotated, NoReturn

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
    def _root(
        _: Annotated[
            bool,
            typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True),
        ] = False,
    ) -> None:
        pass

    return root


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"sao_bench {version('sao-bench')}")
        raise typer.Exit


def main() -> None:
    """Run the command line."""
    from sao_bench.errors import UserError

    try:
        status = typer.main.get_command(build()).main(standalone_mode=False)
    except UserError as error:
        _refuse(str(error))
    except BrokenPipeError:
        sys.exit(141)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except Exception as error:
        # Usage errors (an unknown option, a missing argument) become one line too.
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        text = message() or "no command given; see --help"
        if text.startswith("Usage:"):  # a group without a command: its help is all there is to say
            print(text, file=sys.stderr)
            sys.exit(2)
        _refuse(text)
    else:
        sys.exit(status if isinstance(status, int) else 0)


def _refuse(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)
