"""Tests and their twins: the same test with one expectation made wrong, which therefore must fail.

A candidate's code runs in the process of the tests, so it can patch reports, compare equal to everything or
read the expected value from its caller's frame. It does the same in a twin, where the expectation is wrong,
and the twin passes: that gives it away. So nothing but computing the answer may tell a test from its twin:

- Every file that runs is a mixture. Each test on its own is true in one secret run and a twin in all others,
  so that no canary, count, order, size or outcome of another test says what holds for this one. Where there are few
  tests, fair coins decide in further runs, so that guessing does not pay either.
- Each process sees one version of each test, under a random name.
- Tests and twins are written alike: a wrong expectation has the form that a right one has.
"""

from __future__ import annotations

import ast
import builtins
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeGuard

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
Change = Callable[[bool], None]
"""Writes an expectation out, made wrong or (False) as it was."""

SURPRISES = (
    "ValueError",
    "TypeError",
    "KeyError",
    "IndexError",
    "ZeroDivisionError",
    "RuntimeError",
    "OSError",
)
OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
CANARIES = 2


@dataclass(frozen=True, slots=True)
class Version:
    """One rewritten test file: its source, and random name -> original `test_a` or `Class::test_a`.

    `canaries` are names of functions that cannot pass; `false` are the random names of the tests that have an
    expectation made wrong.
    """

    source: str
    names: dict[str, str]
    canaries: frozenset[str] = frozenset()
    false: frozenset[str] = field(default_factory=frozenset)

    @property
    def true(self) -> frozenset[str]:
        """Random names of the tests that are as they were."""
        return frozenset(self.names) - self.false


def true_version(source: str) -> Version:
    """Return the test file with random names and canaries, and every expectation as it was."""
    return _version(source, {})


def mixtures(source: str, count: int) -> list[Version]:
    """Return `count` versions of a test file; each test is true in exactly one of them, drawn for each anew.

    In the others one of its expectations is wrong, each in its turn. A test without any is true in all.
    """
    wrong: list[dict[int, int]] = [{} for _ in range(count)]
    tree = ast.parse(source)
    _rename(tree)
    for place, test in enumerate(_tests(tree)):
        if any(_changes(test)):
            kept, turn = secrets.randbelow(count), secrets.randbelow(1 << 16)
            for run in range(count):
                if run != kept:
                    wrong[run][place] = turn + run - (run > kept)
    return [_version(source, turns) for turns in wrong]


def coin_flips(source: str) -> Version:
    """Return a version of a test file; for each test a fair coin says whether one of its expectations is wrong."""
    tree = ast.parse(source)
    _rename(tree)
    drawn = {
        place: secrets.randbelow(1 << 16) for place, test in enumerate(_tests(tree)) if any(_changes(test))
    }
    return _version(source, {place: turn for place, turn in drawn.items() if secrets.randbelow(2)})


def expectations(source: str) -> int:
    """Return the largest number of expectations of any test in a file (how many twins tell them all)."""
    return max((len(list(_changes(node))) for node in _tests(ast.parse(source))), default=0)


def _version(source: str, wrong: dict[int, int]) -> Version:
    """Rewrite a test file; `wrong` is the number of the expectation to spoil, counted round, by place of a test."""
    tree = ast.parse(source)
    false = set()
    names = _rename(tree)
    for place, node in enumerate(_tests(tree)):
        changes = list(_changes(node))
        spoiled = wrong[place] % len(changes) if place in wrong else None
        for number, change in enumerate(changes):
            change(number == spoiled)
        if spoiled is not None:
            false.add(node.name)
    canaries = _add_canaries(tree)
    return Version(ast.unparse(ast.fix_missing_locations(tree)), names, canaries, frozenset(false))


def _add_canaries(tree: ast.Module) -> frozenset[str]:
    canaries = set()
    for _ in range(CANARIES):
        name, number = _random_name(), secrets.randbelow(900) + 10
        canaries.add(name)
        tree.body += ast.parse(
            f"def {name}():\n    assert {number} == {number + 1 + secrets.randbelow(9)}\n"
        ).body
    return frozenset(canaries)


def _random_name() -> str:
    return f"test_{secrets.token_hex(5)}"


def _is_test(node: ast.stmt) -> TypeGuard[FunctionNode]:
    return isinstance(node, FunctionNode) and node.name.startswith("test")


def _bodies(tree: ast.Module) -> Iterator[tuple[list[ast.stmt], str]]:
    """Yield the bodies that hold tests, with what comes before their names in an id."""
    yield tree.body, ""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.body, f"{node.name}::"


def _tests(tree: ast.Module) -> Iterator[FunctionNode]:
    for body, _ in _bodies(tree):
        yield from filter(_is_test, body)


def _rename(tree: ast.Module) -> dict[str, str]:
    """Give every test a random name; return random name -> its own, behind that of its class."""
    names = {}
    for body, prefix in _bodies(tree):
        # Of two tests of one name only the last runs; under names of their own both would.
        last = {item.name: item for item in body if _is_test(item)}
        body[:] = [item for item in body if not _is_test(item) or last[item.name] is item]
        for own, test in last.items():
            test.name = _random_name()
            names[test.name] = prefix + own
    return names


def _changes(test: FunctionNode) -> Iterator[Change]:
    """Yield one change for each expectation of a test; each makes just that one wrong."""
    for node in list(ast.walk(test)):
        if isinstance(node, ast.Assert):
            yield _change_of_assert(node, test)
        elif isinstance(node, ast.With):
            yield from (
                _change_of_raises(i.context_expr) for i in node.items if _is_call(i.context_expr, "raises")
            )
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            change = _change_of_unittest(node.value, test)
            if change is not None:
                yield change


def _change_of_assert(node: ast.Assert, test: FunctionNode) -> Change:
    condition = node.test
    if (
        isinstance(condition, ast.Compare)
        and len(condition.ops) == 1
        and isinstance(condition.ops[0], ast.Eq)
    ):
        target = _expected([condition.left, *condition.comparators], test)
        return _spoiled(target) if target is not None else _compared(condition)

    def change(wrong: bool) -> None:
        if wrong:
            node.test = _opposite(condition)

    return change


def _opposite(condition: ast.expr) -> ast.expr:
    """Return the negation as a person would write it: `x not in y`, not `not x in y`."""
    if isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Not):
        return condition.operand
    if isinstance(condition, ast.Compare) and len(condition.ops) == 1:
        opposite = OPPOSITES[type(condition.ops[0])]
        return ast.Compare(condition.left, [opposite()], condition.comparators)
    return ast.UnaryOp(ast.Not(), condition)


def _compared(condition: ast.Compare) -> Change:
    """Compare with a computed value, or with a list of it: what equals everything equals both."""
    (operand,) = condition.comparators

    def change(wrong: bool) -> None:
        first = secrets.choice((True, False))
        body, place = ("v, [v]", int(wrong)) if first else ("[v], v", int(not wrong))
        call = ast.parse(f"(lambda v: ({body}))(0)[{place}]", mode="eval").body
        assert isinstance(call, ast.Subscript) and isinstance(call.value, ast.Call)
        call.value.args[0] = operand
        condition.comparators = [call]

    return change


def _change_of_raises(call: ast.expr) -> Change:
    assert isinstance(call, ast.Call)

    def change(wrong: bool) -> None:
        if wrong:
            usual = getattr(builtins, ast.unparse(call.args[0]), None) if call.args else None
            fresh = [name for name in SURPRISES if not _related(getattr(builtins, name), usual)]
            call.args[:1] = [ast.Name(secrets.choice(fresh or ["KeyboardInterrupt"]), ast.Load())]

    return change


def _related(a: type[BaseException], b: Any) -> bool:
    return isinstance(b, type) and (issubclass(a, b) or issubclass(b, a))


def _change_of_unittest(call: ast.Call, test: FunctionNode) -> Change | None:
    function = call.func
    swap = {"assertTrue": "assertFalse", "assertFalse": "assertTrue", "assertIn": "assertNotIn"}
    if not isinstance(function, ast.Attribute):
        return None
    if function.attr in swap:
        return lambda wrong: setattr(function, "attr", swap[function.attr]) if wrong else None
    if function.attr in ("assertEqual", "assertAlmostEqual", "assertListEqual", "assertDictEqual"):
        target = _expected(call.args[:2], test)
        return None if target is None else _spoiled(target)
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


def _spoiled(places: list[ast.expr]) -> Change:
    """Change one constant in each place to another value of its type."""

    def change(wrong: bool) -> None:
        for place in places if wrong else ():
            constant = secrets.choice(_constants(place))
            constant.value = _other(constant.value)

    return change


def _other(value: Any) -> Any:
    """Return another value of the same kind, which nothing tells from a right one: no larger, no longer."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float | complex):
        return value + secrets.choice((-3, -2, -1, 1, 2, 3))
    if isinstance(value, str):
        return _other_text(value)
    if isinstance(value, bytes):
        return _other_text(value.decode("latin-1")).encode("latin-1")
    return 0


def _other_text(value: str) -> str:
    """Return the text with one letter or digit, where it has any, replaced by another of its kind."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    kinds = [letters, letters.upper(), "0123456789"]
    places = [(i, kind) for i, letter in enumerate(value) for kind in kinds if letter in kind]
    if not places:
        return value + secrets.choice(letters)
    place, kind = secrets.choice(places)
    return value[:place] + secrets.choice(kind.replace(value[place], "")) + value[place + 1 :]
