"""Running programs of our own grammar, and judging what came of a call.

Only trees that the generator made are run here, in this process and without a sandbox: they are pure and their
loops are few. What is guarded is size: a mutant can square a number in every turn, or append to what it loops over.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from sao_bench.environments._code_mutations import clone

from sao_bench.grading.functions import Outcome
from sao_bench.grading.plain import equal

MAX_BITS = 96
MAX_ITEMS = 64
MAX_TURNS = 200


class TooLargeError(Exception):
    """A program of our own runs too long or makes too large a value: it is no use as a task."""


def run(tree: ast.Module, entry: str, inputs: Sequence[Sequence[Any]]) -> list[Outcome]:
    """Return what comes of each call of a generator-made program.

    Raises:
        TooLargeError: a value or the number of turns of a call goes beyond its bound.
    """
    turns = [0]

    def turn() -> None:
        turns[0] += 1
        if turns[0] > MAX_TURNS:
            raise TooLargeError("too many turns")

    guarded = _Guard().visit(clone(tree)) if _loops(tree.body) else tree
    space: dict[str, Any] = {"__builtins__": {"range": range}, "_size": _size, "_turn": turn}
    exec(compile(guarded, "generated", "exec"), space)
    outcomes = []
    for arguments in inputs:
        turns[0] = 0
        outcomes.append(_call(space[entry], arguments))
    return outcomes


def run_source(source: str, entry: str, inputs: Sequence[Sequence[Any]]) -> list[Outcome]:
    """Return what `run` does, from the source of a generator-made program."""
    return run(ast.parse(source), entry, inputs)


def alike(a: Outcome, b: Outcome) -> bool:
    """Return whether two outcomes are the same exception or the same data of the same types."""
    return a[0] == b[0] and (a[0] is not None or equal(a[1], b[1]))


def _loops(body: Sequence[ast.stmt]) -> bool:
    """Return whether any statement is or holds a loop; without one nothing can grow."""
    arms = (
        arm
        for statement in body
        for arm in (getattr(statement, "body", ()), getattr(statement, "orelse", ()))
    )
    return any(isinstance(statement, ast.For | ast.While) for statement in body) or any(map(_loops, arms))


def _call(function: Callable[..., Any], arguments: Sequence[Any]) -> Outcome:
    copies = [list(item) if isinstance(item, list) else item for item in arguments]
    try:
        return None, _size(function(*copies))
    except TooLargeError:
        raise
    except Exception as error:
        return type(error).__name__, None


def _size(value: Any) -> Any:
    """Return the value, unless it is too large to go on with."""
    if isinstance(value, list):
        large = len(value) > MAX_ITEMS or any(map(_is_large, value))
    else:
        large = _is_large(value)
    if large:
        raise TooLargeError("too large a value")
    return value


def _is_large(item: Any) -> bool:
    """Return whether an item is a large int or text, or a container (which might hold itself)."""
    if isinstance(item, int):
        return item.bit_length() > MAX_BITS
    return isinstance(item, list) or (isinstance(item, str) and len(item) > MAX_ITEMS)


class _Guard(ast.NodeTransformer):
    """Counts the turns of loops, and looks at every variable after each assignment to it."""

    def visit_For(self, node: ast.For) -> ast.For:
        self.generic_visit(node)
        node.body.insert(0, _statement("_turn", node))
        return node

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        return self._watched(node, node.targets[0])

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        return self._watched(node, node.target)

    def _watched(self, node: ast.stmt, target: ast.expr) -> list[ast.stmt]:
        assert isinstance(target, ast.Name)
        return [node, _statement("_size", node, ast.Name(target.id, ast.Load()))]


def _statement(function: str, place: ast.stmt, *arguments: ast.expr) -> ast.stmt:
    call = ast.Expr(ast.Call(ast.Name(function, ast.Load()), [*arguments], []))
    return ast.fix_missing_locations(ast.copy_location(call, place))
