"""Tests and their twins: the same test with one expectation made wrong, which therefore must fail.

A candidate's code runs in the process of the tests, so it can patch reports, compare equal to everything or
read the expected value from its caller's frame. It does the same in a twin, where the expectation is wrong,
and the twin passes: that gives it away. Names are random and each process sees one version of each test, so
that nothing but computing the answer tells a test from its twin.
"""

from __future__ import annotations

import ast
import builtins
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
SURPRISES = ("ZeroDivisionError", "UnicodeError", "BufferError", "StopIteration", "MemoryError", "EOFError")
CANARIES = 2


@dataclass(frozen=True, slots=True)
class Version:
    """One rewritten test file: its source, and random name -> original name of each test function.

    `canaries` are names of functions that cannot pass; `false` are the random names whose expectation was
    made wrong (empty for the true version).
    """

    source: str
    names: dict[str, str]
    canaries: frozenset[str] = frozenset()
    false: frozenset[str] = field(default_factory=frozenset)


def true_version(source: str) -> Version:
    """Return the test file with random names and canaries among them."""
    tree = ast.parse(source)
    names = _rename(tree)
    canaries = []
    for _ in range(CANARIES):
        name, number = _random_name(), secrets.randbelow(900) + 10
        canaries.append(name)
        canary = ast.parse(
            f"def {name}():\n    assert {number} == {number + 1 + secrets.randbelow(9)}\n"
        ).body
        tree.body += canary
    return Version(ast.unparse(ast.fix_missing_locations(tree)), names, frozenset(canaries))


def false_version(source: str, turn: int) -> Version:
    """Return the test file with one expectation of each test made wrong: number `turn`, counted round."""
    tree = ast.parse(source)
    false = set()
    names = _rename(tree)
    for node in _tests(tree):
        changes = list(_changes(node))
        if changes:
            changes[turn % len(changes)]()
            false.add(node.name)
    return Version(ast.unparse(ast.fix_missing_locations(tree)), names, false=frozenset(false))


def expectations(source: str) -> int:
    """Return the largest number of expectations of any test in a file (how many twins tell them all)."""
    return max((len(list(_changes(node))) for node in _tests(ast.parse(source))), default=0)


def _random_name() -> str:
    return f"test_{secrets.token_hex(5)}"


def _tests(tree: ast.Module) -> Iterator[FunctionNode]:
    for node in tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        for item in inner:
            if isinstance(item, FunctionNode) and item.name.startswith("test"):
                yield item


def _rename(tree: ast.Module) -> dict[str, str]:
    names = {}
    for node in _tests(tree):
        name = _random_name()
        names[name] = node.name
        node.name = name
    return names


def _changes(test: FunctionNode) -> Iterator[Callable[[], None]]:
    """Yield one change for each expectation of a test; each makes just that one wrong."""
    for node in ast.walk(test):
        if isinstance(node, ast.Assert):
            yield _wrong_assert(node, test)
        elif isinstance(node, ast.With):
            yield from (
                _wrong_raises(i.context_expr) for i in node.items if _is_call(i.context_expr, "raises")
            )
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            change = _wrong_unittest(node.value, test)
            if change is not None:
                yield change


def _wrong_assert(node: ast.Assert, test: FunctionNode) -> Callable[[], None]:
    condition = node.test
    if (
        isinstance(condition, ast.Compare)
        and len(condition.ops) == 1
        and isinstance(condition.ops[0], ast.Eq)
    ):
        operands = [condition.left, *condition.comparators]
        target = _expected(operands, test)
        if target is not None:
            return lambda: _spoil(target)

    def negate() -> None:
        node.test = ast.UnaryOp(ast.Not(), condition)

    return negate


def _wrong_raises(call: ast.expr) -> Callable[[], None]:
    assert isinstance(call, ast.Call)

    def change() -> None:
        usual = getattr(builtins, ast.unparse(call.args[0]), None) if call.args else None
        fresh = [name for name in SURPRISES if not _related(getattr(builtins, name), usual)]
        call.args[:1] = [ast.Name(secrets.choice(fresh or ["KeyboardInterrupt"]), ast.Load())]

    return change


def _related(a: type[BaseException], b: Any) -> bool:
    return isinstance(b, type) and (issubclass(a, b) or issubclass(b, a))


def _wrong_unittest(call: ast.Call, test: FunctionNode) -> Callable[[], None] | None:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    function = call.func
    swap = {"assertTrue": "assertFalse", "assertFalse": "assertTrue", "assertIn": "assertNotIn"}
    if name in swap and isinstance(function, ast.Attribute):
        return lambda: setattr(function, "attr", swap[name])
    if name in ("assertEqual", "assertAlmostEqual", "assertListEqual", "assertDictEqual"):
        target = _expected(call.args[:2], test)
        if target is not None:
            return lambda: _spoil(target)
    return None


def _is_call(node: ast.expr, name: str) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return ast.unparse(node.func).rpartition(".")[2] == name


def _expected(operands: list[ast.expr], test: FunctionNode) -> list[ast.expr] | None:
    """Return where the expected value is written: an operand, a variable's literal, a parameter's column."""
    for operand in reversed(operands):
        if isinstance(operand, ast.Name):
            places = _literals_of(operand.id, test)
            if places:
                return places
        elif _constants(operand):
            return [operand]
    return None


def _literals_of(name: str, test: FunctionNode) -> list[ast.expr]:
    places = [
        node.value
        for node in ast.walk(test)
        if isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
        and _constants(node.value)
    ]
    for decorator in test.decorator_list:
        if (
            _is_call(decorator, "parametrize")
            and isinstance(decorator, ast.Call)
            and len(decorator.args) >= 2
        ):
            places += _column(name, decorator.args[0], decorator.args[1])
    return places


def _column(name: str, header: ast.expr, table: ast.expr) -> list[ast.expr]:
    try:
        columns = ast.literal_eval(header)
    except ValueError:
        return []
    columns = [part.strip() for part in columns.split(",")] if isinstance(columns, str) else list(columns)
    if name not in columns or not isinstance(table, ast.List | ast.Tuple):
        return []
    index = columns.index(name)
    rows = [row.args if _is_call(row, "param") and isinstance(row, ast.Call) else row for row in table.elts]
    if len(columns) == 1:
        return [row for row in rows if isinstance(row, ast.expr) and _constants(row)]
    cells = [
        row if isinstance(row, list) else row.elts
        for row in rows
        if isinstance(row, list | ast.Tuple | ast.List)
    ]
    return [row[index] for row in cells if len(row) == len(columns) and _constants(row[index])]


def _constants(node: ast.expr) -> list[ast.Constant]:
    """Return the constants of an expected value; none where it is computed by a call (approx aside)."""
    if isinstance(node, ast.Call):
        return _constants(node.args[0]) if _is_call(node, "approx") and node.args else []
    if isinstance(node, ast.Constant):
        return [node]
    if isinstance(node, ast.Dict):
        return [c for value in node.values for c in _constants(value)]
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return [c for item in node.elts for c in _constants(item)]
    return _constants(node.operand) if isinstance(node, ast.UnaryOp) else []


def _spoil(places: list[ast.expr]) -> None:
    """Change one constant in each place to another value of its type."""
    for place in places:
        constant = secrets.choice(_constants(place))
        constant.value = _other(constant.value)


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float | complex):
        return value + secrets.randbelow(3) + 1
    if isinstance(value, str):
        letter = secrets.choice("abcdefghijklmnopqrstuvwxyz")
        return value[:-1] + letter if value and value[-1] != letter else value + letter
    if isinstance(value, bytes):
        return value + b"a"
    return 0
