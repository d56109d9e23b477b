"""`env`: list, show, play and check environments."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sao_bench.files import read_text

if TYPE_CHECKING:
    from sao_bench.environment import TextEnv

GROUP = "env"
ESCAPED = re.compile(r"\\[n\\]")
app = typer.Typer(no_args_is_help=True, help="List, show, play and check environments.")
Name = Annotated[str, typer.Argument(help="An environment's id, or package.module:Class.")]


@app.command("list")
def list_environments() -> None:
    """Print every environment: id, channels, turns, what it is."""
    from sao_bench import registry

    for name, cls in sorted(registry.environments().items()):
        about = _headline(cls)
        print(f"{name}  channels {len(cls.channels)}, turns <= {cls.max_turns}: {about}")


@app.command()
def show(name: Name) -> None:
    """Print an environment's description, its channels, and its oracle and floor under the defaults."""
    from sao_bench import registry

    cls = registry.environment(name)
    with _theirs(name):
        _show(cls)


def _show(cls: type[TextEnv]) -> None:
    import inspect

    print(f"{cls.id}\n\n{inspect.getdoc(cls) or ''}\n")
    for channel in cls.channels:
        bounds = ", ".join(channel.choices) or f"{channel.low}..{channel.high}"
        allowed = "" if channel.type == "bool" else f" ({bounds})"
        print(
            f"{channel.name}: {channel.kind} {channel.type}{allowed}, default {json.dumps(channel.default)}"
        )
        print(f"    {channel.description}")
    values = cls.default_concept().values
    print(f"\ndefaults: oracle {cls.oracle(values):.4f}, floor {cls.floor(values):.4f}")


@app.command()
def play(
    name: Name,
    actions: Annotated[
        Path | None,
        typer.Option(
            help="File with one action a line (\\n is a newline, \\\\ a backslash); - is standard input."
        ),
    ] = None,
    oracle: Annotated[bool, typer.Option("--oracle", help="Let the oracle act.")] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Decides the task.")] = 0,
    concept: Annotated[
        list[str] | None, typer.Option("--set", help="A channel's value, name=value (JSON or text).")
    ] = None,
) -> None:
    """Play one episode: from the keyboard, from a file, or as the oracle; then print the truth."""
    from sao_bench import registry
    from sao_bench.errors import UserError

    if oracle and actions:
        raise UserError("--oracle and --actions exclude each other")
    cls = registry.environment(name)
    lines = _lines(actions)
    with _theirs(name):
        env = cls()
        observation, _ = env.reset(seed=seed, options={"concept": _values(concept or [])})
        print(f"observation: {observation}")
        _play(env, iter(env.oracle_action, None) if oracle else lines)
        print(f"truth: {json.dumps(env.truth(), sort_keys=True)}")


def _play(env: TextEnv, actions: Iterator[str]) -> None:
    """Step through actions until they or the episode end."""
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        print(f"action: {action}\nreward: {reward:g} after {env.latency_s:.3f} s")
        if observation:
            print(f"observation: {observation}")
        if terminated or truncated:
            print("terminated" if terminated else "truncated")
            return
    print("not ended: there are no more actions")


@app.command()
def check(
    name: Name,
    episodes: Annotated[int, typer.Option(min=8, help="Episodes of each statistical check.")] = 200,
) -> None:
    """Try every promise of an environment, a line each; exit 1 if one is broken."""
    from sao_bench import registry
    from sao_bench.checks import each_check
    from sao_bench.cli.check import tell

    tell(each_check(registry.environment(name), episodes))


def _headline(cls: type[TextEnv]) -> str:
    return (cls.__doc__ or "").strip().partition("\n")[0]


@contextmanager
def _theirs(name: str) -> Iterator[None]:
    """Tell in one line what somebody's environment raises."""
    from sao_bench.errors import UserError

    try:
        yield
    except (UserError, BrokenPipeError):
        raise
    except (Exception, SystemExit) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{name} raised {type(error).__name__}: {reason}; see `env check {name}`") from error


def _lines(file: Path | None) -> Iterator[str]:
    """Return actions, from a file that is read at once or from the keyboard as they come."""
    if file is None or str(file) == "-":
        given: Iterable[str] = (line.decode(errors="replace") for line in sys.stdin.buffer)
    else:
        given = read_text(file).splitlines()
    return (ESCAPED.sub(lambda m: "\n" if m[0] == "\\n" else "\\", line.rstrip("\n")) for line in given)


def _values(pairs: list[str]) -> dict[str, Any]:
    """Read name=value pairs; a value that is not JSON is text."""
    from sao_bench.errors import UserError

    values = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise UserError(f"--set {pair!r} is not of the form name=value")
        try:
            values[name] = json.loads(text)
        except (ValueError, RecursionError):
            values[name] = text
    return values
