"""`env`: list, show, play and check environments."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sao_bench.files import read_text

if TYPE_CHECKING:
    from sao_bench.environment import TextEnv

GROUP = "env"
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
    import inspect

    from sao_bench import registry

    cls = registry.environment(name)
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
        Path | None, typer.Option(help="File with one action a line (\\n is a newline).")
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
    env = cls()
    observation, _ = env.reset(seed=seed, options={"concept": _values(concept or [])})
    print(f"observation: {observation}")
    for action in _actions(env, actions, oracle):
        observation, reward, terminated, truncated, _ = env.step(action)
        print(f"action: {action}\nreward: {reward:g} after {env.latency_s:.3f} s")
        if observation:
            print(f"observation: {observation}")
        if terminated or truncated:
            print("terminated" if terminated else "truncated")
            break
    print(f"truth: {json.dumps(env.truth(), sort_keys=True)}")


@app.command()
def check(
    name: Name,
    episodes: Annotated[int, typer.Option(min=8, help="Episodes of each statistical check.")] = 200,
) -> None:
    """Try every promise of an environment, a line each; exit 1 if one is broken."""
    from sao_bench import registry
    from sao_bench.checks import check_drift_env
    from sao_bench.cli.check import tell

    tell(check_drift_env(registry.environment(name), episodes))


def _headline(cls: type[TextEnv]) -> str:
    return (cls.__doc__ or "").strip().partition("\n")[0]


def _actions(env: TextEnv, file: Path | None, oracle: bool) -> Iterator[str]:
    """Yield actions until they run out (the caller stops at the end of the episode)."""
    while oracle:
        yield env.oracle_action()
    typed = (line.decode(errors="replace") for line in sys.stdin.buffer)
    for line in typed if file is None else read_text(file).splitlines():
        yield line.rstrip("\n").replace("\\n", "\n")


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
