"""AST mutations: the six families of bugs, and the wider neighbourhood that a repair can be looked up in."""

from __future__ import annotations

import ast
import io
import keyword
import tokenize
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, TypeVar

Node = TypeVar("Node", bound=ast.AST)
Site = tuple[ast.AST, str, int | None]
"""A node, one of its fields, and the place in that field if it is a list."""
Change = tuple[str, Site, Any]
"""The family of a bug, where it goes, and what is put there."""

ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)
INVERSE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}


def mutants(tree: ast.Module) -> Iterator[tuple[str, ast.Module]]:
    """Yield every program with one bug, and the family of the bug, always in the same order.

    Each is the tree itself, changed in place and restored before the next: whoever keeps one takes a `clone`.
    """
    return _variants(tree, _bugs)


def neighbours(tree: ast.Module) -> Iterator[ast.Module]:
    """Yield every program that one substitution makes: the mutants, and any operator, name and digit.

    In place, as `mutants` does.
    """
    return (variant for _, variant in _variants(tree, _substitutions))


def same(a: ast.AST, b: ast.AST) -> bool:
    """Return whether two programs are the same tree, wherever their tokens stand."""
    return ast.dump(a) == ast.dump(b)


def clone(node: Node) -> Node:
    """Return a copy of a tree that shares operators alone (many times faster than `copy.deepcopy`)."""
    if not node._fields:
        return node
    new = type(node)()
    for name, value in node.__dict__.items():
        if isinstance(value, ast.AST):
            value = clone(value)
        elif isinstance(value, list):
            value = [clone(item) if isinstance(item, ast.AST) else item for item in value]
        setattr(new, name, value)
    return new


def text_of(tree: ast.Module) -> str:
    """Return the compact source of a tree: one space per level, none around operators."""
    lines: list[list[str]] = [[]]
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO(ast.unparse(tree)).readline):
        if token.type == tokenize.INDENT:
            depth += 1
        elif token.type == tokenize.DEDENT:
            depth -= 1
        elif token.type == tokenize.NEWLINE:
            lines.append([])
        elif token.string.strip():
            line = lines[-1]
            if not line:
                line.append(" " * depth)
            elif _apart(line[-1], token.string):
                line.append(" ")
            line.append(token.string)
    return "".join("".join(line) + "\n" for line in lines if line)


def _apart(left: str, right: str) -> bool:
    """Return whether two tokens need a space between them, or read better with one."""
    words = [text[0].isalnum() or text[0] in "_'\"" for text in (left[-1:] or " ", right)]
    if all(words):
        return True
    return (keyword.iskeyword(left) and right not in (":", ",", ")")) or (
        keyword.iskeyword(right) and left not in ("(", "[")
    )


def _variants(
    tree: ast.Module, changes: Callable[[ast.Module], Iterator[Change]]
) -> Iterator[tuple[str, ast.Module]]:
    """Make each change in place, yield the tree and undo it."""
    for family, (node, field, index), new in list(changes(tree)):
        place: Any = getattr(node, field) if index is not None else node.__dict__
        key: Any = index if index is not None else field
        old = place[key]
        place[key] = new
        try:
            yield family, tree
        finally:
            place[key] = old


def _bugs(tree: ast.Module) -> Iterator[Change]:
    for node, names in _nodes(tree):
        if isinstance(node, ast.BinOp | ast.AugAssign):
            yield from (("operator", (node, "op", None), op()) for op in _others(node.op, ARITHMETIC))
        elif isinstance(node, ast.Compare):
            yield "condition", (node, "ops", 0), INVERSE[type(node.ops[0])]()
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            near = [value for value in (node.value - 1, node.value + 1) if value >= 0]
            yield from (("constant", (node, "value", None), value) for value in near)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names:
            yield from (("variable", (node, "id", None), name) for name in names if name != node.id)
        yield from _branches(node)
        yield from _shuffles(node)


def _substitutions(tree: ast.Module) -> Iterator[Change]:
    yield from _bugs(tree)
    for node, _ in _nodes(tree):
        if isinstance(node, ast.Compare):
            yield from (("condition", (node, "ops", 0), op()) for op in _others(node.ops[0], tuple(INVERSE)))
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            digits = [value for value in range(10) if value != node.value]
            yield from (("constant", (node, "value", None), value) for value in digits)


def _nodes(tree: ast.Module) -> Iterator[tuple[ast.AST, tuple[str, ...]]]:
    """Yield every node inside the functions of a module, with the variables of its function."""
    for function in tree.body:
        assert isinstance(function, ast.FunctionDef)
        nodes = list(ast.walk(function))
        stored = [n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
        names = tuple(dict.fromkeys([argument.arg for argument in function.args.args] + stored))
        yield from ((node, names) for node in nodes)


def _others(op: ast.AST, options: tuple[type[Any], ...]) -> list[type[Any]]:
    return [option for option in options if not isinstance(op, option)]


def _branches(node: ast.AST) -> Iterator[Change]:
    """Yield the removal of each `if`, or of its condition alone, and of one arm of a conditional expression."""
    for field, value in ast.iter_fields(node):
        if isinstance(value, ast.IfExp):
            yield from (("branch", (node, field, None), arm) for arm in (value.body, value.orelse))
        if isinstance(value, list):
            for i, item in enumerate(value):
                if isinstance(item, ast.If):
                    left = [[*value[:i], *arm, *value[i + 1 :]] for arm in (item.body, item.orelse)]
                    yield from (("branch", (node, field, None), rest) for rest in left if rest)


def _shuffles(node: ast.AST) -> Iterator[Change]:
    """Yield the exchange of two neighbouring statements; what follows a return would be dead."""
    body = getattr(node, "body", None)
    if not isinstance(body, list) or isinstance(node, ast.Module):
        return
    for i, (first, second) in enumerate(pairwise(body)):
        if not isinstance(second, ast.Return):
            yield "order", (node, "body", None), [*body[:i], second, first, *body[i + 2 :]]
