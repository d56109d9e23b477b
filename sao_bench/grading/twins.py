"""Tests and their twins: the same test with one expectation made wrong, which therefore must fail.

A candidate's code runs in the process of the tests, so it can patch reports, compare equal to everything or
read the expected value from its caller's frame. It does the same in a twin, where the expectation is wrong,
and the twin passes: that gives it away. So nothing but computing the answer may tell a test from its twin:

- Every file that runs is a mixture. Each test on its own is true in one secret run and a twin in all others,
  so that no canary, count, order, size or outcome of another test says what holds for this one. Where there are few
  tests, fair coins decide in further runs, so that guessing does not pay either.
- Each process sees one version of each test, under a random name.
- Tests and twins are written alike: a wrong expectation has the form that a right one has. That can be had where the
  expectation is written down (a constant, an exception), not where it is computed or is a condition: there the form
  of a twin gives it away. So the runs of fair coins spoil written expectations alone, and a test has to have one.
"""

from __future__ import annotations

import ast
import builtins
import math
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeGuard

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
Change = Callable[[bool], None]
"""Writes an expectation out, made wrong or (False) as it was."""
ODDS = 10
"""One twin in so many of a test of a value is of a rarer form, so that a rare form is no sign of a true test."""

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
SWAPS = {
    "assertTrue": "assertFalse",
    "assertIn": "assertNotIn",
    "assertIs": "assertIsNot",
    "assertIsNone": "assertIsNotNone",
    "assertIsInstance": "assertNotIsInstance",
    "assertGreater": "assertLessEqual",
    "assertLess": "assertGreaterEqual",
}
SWAPS |= {opposite: name for name, opposite in SWAPS.items()}
EQUALITIES = frozenset({"assertEqual", "assertAlmostEqual", "assertCountEqual"})
EQUALITIES |= {f"assert{kind}Equal" for kind in ("List", "Tuple", "Set", "Dict", "Sequence", "MultiLine")}
CANARIES = 2


@dataclass(frozen=True, slots=True)
class _Expectation:
    """What a test expects in one place; `written`: by a constant or the name of an exception."""

    change: Change
    written: bool = False


@dataclass(frozen=True, slots=True)
class _Tolerance:
    """How far a number may be from an expected one and still be taken for it."""

    relative: float = 0.0
    absolute: float = 0.0

    def tells(self, a: complex, b: complex) -> bool:
        """Return whether two numbers are far enough apart, with room to spare."""
        return abs(a - b) > 2 * max(self.absolute, self.relative * max(abs(a), abs(b)))


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
        if any(_expectations(test, tree)):
            kept, turn = secrets.randbelow(count), secrets.randbelow(1 << 16)
            for run in range(count):
                if run != kept:
                    wrong[run][place] = turn + run - (run > kept)
    return [_version(source, turns) for turns in wrong]


def coin_flips(source: str) -> Version:
    """Return a version of a test file; of each test a fair coin says whether a written expectation is wrong."""
    tree = ast.parse(source)
    _rename(tree)
    wrong = {}
    for place, test in enumerate(_tests(tree)):
        written = [i for i, found in enumerate(_expectations(test, tree)) if found.written]
        if written and secrets.randbelow(2):
            wrong[place] = secrets.choice(written)
    return _version(source, wrong)


def written(source: str) -> set[str]:
    """Return the tests of a file, as `test_a` or `Class::test_a`, in which some expectation is written down."""
    tree = ast.parse(source)
    names = _rename(tree)
    return {names[test.name] for test in _tests(tree) if any(e.written for e in _expectations(test, tree))}


def _version(source: str, wrong: dict[int, int]) -> Version:
    """Rewrite a test file; `wrong` is the number of the expectation to spoil, counted round, by place of a test."""
    tree = ast.parse(source)
    false = set()
    names = _rename(tree)
    for place, node in enumerate(_tests(tree)):
        expected = list(_expectations(node, tree))
        spoiled = wrong[place] % len(expected) if place in wrong else None
        for number, expectation in enumerate(expected):
            expectation.change(number == spoiled)
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


def _expectations(test: FunctionNode, tree: ast.Module) -> Iterator[_Expectation]:
    """Yield the expectations of a test of a module; the change of each makes just that one wrong."""
    for node in list(ast.walk(test)):
        if isinstance(node, ast.Assert):
            yield _of_assert(node, test, tree)
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                if _is_call(item.context_expr, "raises") or _is_call(item.context_expr, "assertRaises"):
                    yield _of_raises(node, item, test, tree)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            expectation = _of_unittest(node.value, test)
            if expectation is not None:
                yield expectation


def _of_assert(node: ast.Assert, test: FunctionNode, tree: ast.Module) -> _Expectation:
    condition = node.test
    if isinstance(condition, ast.Compare) and len(condition.ops) == 1:
        if isinstance(condition.ops[0], ast.Eq | ast.Is):
            operands = [condition.left, *condition.comparators]
            target = _expected(operands, test)
            if target is not None and (isinstance(condition.ops[0], ast.Eq) or _is_bool(target[0])):
                return _Expectation(_rare(node, condition, operands, test, tree, _spoiled(*target)), True)
        if isinstance(condition.ops[0], ast.Eq):
            return _Expectation(_compared(condition))

    def change(wrong: bool) -> None:
        if wrong:
            node.test = _opposite(condition)

    return _Expectation(change)


def _is_bool(places: list[ast.expr]) -> bool:
    return all(isinstance(place, ast.Constant) and isinstance(place.value, bool) for place in places)


def _rare(
    node: ast.Assert,
    condition: ast.Compare,
    operands: list[ast.expr],
    test: FunctionNode,
    tree: ast.Module,
    usual: Change,
) -> Change:
    """Write some twins of a test of a value as a test of an exception, or as `!=`."""
    calls = [
        operand for operand in operands if isinstance(operand, ast.Call) and not _is_call(operand, "approx")
    ]

    def change(wrong: bool) -> None:
        draw = secrets.randbelow(ODDS) if wrong and len(calls) == 1 else ODDS
        if draw == 0 and _imports_pytest(tree):
            name = secrets.choice([*_raised(tree), "Exception"])
            block = ast.parse(f"with pytest.raises({name}):\n    pass").body[0]
            assert isinstance(block, ast.With)
            block.body = [ast.Expr(calls[0])]
            _put(test, node, block)
        elif draw == 1:
            condition.ops[:] = [OPPOSITES[type(condition.ops[0])]()]
        else:
            usual(wrong)

    return change


def _put(test: FunctionNode, old: ast.stmt, new: ast.stmt) -> None:
    """Replace a statement of a test, wherever it stands."""
    for node in ast.walk(test):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list) and old in body:
                body[body.index(old)] = new


def _imports_pytest(tree: ast.Module) -> bool:
    return any(
        isinstance(n, ast.Import) and any(a.name == "pytest" and not a.asname for a in n.names)
        for n in tree.body
    )


def _raised(tree: ast.Module) -> list[str]:
    """Return the exceptions by a plain name that the tests of a module expect."""
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and _is_call(n, "raises") and n.args]
    return sorted({call.args[0].id for call in calls if isinstance(call.args[0], ast.Name)})


def _opposite(condition: ast.expr) -> ast.expr:
    """Return what fails where a condition holds, as a person would write it: `x not in y`, not `not x in y`."""
    if isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Not):
        return condition.operand
    if isinstance(condition, ast.Compare):
        # Of a chain the first link is enough.
        opposite = OPPOSITES[type(condition.ops[0])]
        return ast.Compare(condition.left, [opposite()], condition.comparators[:1])
    if isinstance(condition, ast.BoolOp) and isinstance(condition.op, ast.Or):
        return ast.BoolOp(ast.And(), [_opposite(value) for value in condition.values])
    if isinstance(condition, ast.BoolOp):
        place = secrets.randbelow(len(condition.values))
        values = [_opposite(v) if i == place else v for i, v in enumerate(condition.values)]
        return ast.BoolOp(ast.And(), values)
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


def _of_raises(
    block: ast.With | ast.AsyncWith, item: ast.withitem, test: FunctionNode, tree: ast.Module
) -> _Expectation:
    """Expect another exception, or a value in place of one."""
    call = item.context_expr
    assert isinstance(call, ast.Call)
    usual = getattr(builtins, ast.unparse(call.args[0]), None) if call.args else None
    # What an exception of the package's own is a kind of is not known here, so no other is sure to be wrong.
    known = isinstance(usual, type)
    others = [name for name in SURPRISES if known and not _related(getattr(builtins, name), usual)]
    alone = (
        isinstance(block, ast.With)
        and len(block.items) == len(block.body) == 1
        and item.optional_vars is None
    )
    said = block.body[0].value if alone and isinstance(block.body[0], ast.Expr) else None

    def change(wrong: bool) -> None:
        if not wrong:
            return
        if said is not None and (not others or secrets.randbelow(2)):
            value = secrets.choice(_values(tree) or [secrets.randbelow(13)])
            _put(test, block, ast.Assert(ast.Compare(said, [ast.Eq()], [ast.Constant(value)]), None))
        else:
            call.args[:1] = [ast.Name(secrets.choice(others or ["KeyboardInterrupt"]), ast.Load())]

    return _Expectation(change, bool(others) or said is not None)


def _values(tree: ast.Module) -> list[Any]:
    """Return the constants that tests of a module compare with."""
    compared = [n for n in ast.walk(tree) if isinstance(n, ast.Compare) and isinstance(n.ops[0], ast.Eq)]
    return [c.value for n in compared for c in n.comparators if isinstance(c, ast.Constant)]


def _related(a: type[BaseException], b: Any) -> bool:
    return isinstance(b, type) and (issubclass(a, b) or issubclass(b, a))


def _of_unittest(call: ast.Call, test: FunctionNode) -> _Expectation | None:
    function = call.func
    if not isinstance(function, ast.Attribute):
        return None
    if function.attr in SWAPS:
        return _Expectation(lambda wrong: setattr(function, "attr", SWAPS[function.attr]) if wrong else None)
    if function.attr in EQUALITIES:
        target = _expected(call.args[:2], test)
        if target is None:
            return None
        places, usual = target
        tolerance = _almost(call) if function.attr == "assertAlmostEqual" else usual
        return None if tolerance is None else _Expectation(_spoiled(places, tolerance), True)
    return None


def _almost(call: ast.Call) -> _Tolerance | None:
    """Return the tolerance of `assertAlmostEqual(a, b, places=7, delta=None)`, or None if it is computed."""
    given = {"places": 7, **_numbers(call, (None, None, "places", None, "delta"))}
    if None in given.values():
        return None
    return _Tolerance(absolute=given["delta"] if "delta" in given else 0.5 * 10.0 ** -given["places"])


def _numbers(call: ast.Call, names: tuple[str | None, ...]) -> dict[str, Any]:
    """Return the arguments of these places and names that are numbers; None for one that is something else."""
    given = {name: value for name, value in zip(names, call.args, strict=False) if name}
    given |= {word.arg: word.value for word in call.keywords if word.arg and word.arg in names}
    known = {}
    for name, value in given.items():
        number = value.value if isinstance(value, ast.Constant) else None
        known[name] = number if isinstance(number, int | float) else None
    return known


def _is_call(node: ast.expr, name: str) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return ast.unparse(node.func).rpartition(".")[2] == name


def _expected(operands: list[ast.expr], test: FunctionNode) -> tuple[list[ast.expr], _Tolerance] | None:
    """Return where the expected value is written (an operand, a variable's literal, a column), and its tolerance."""
    for operand in reversed(operands):
        if isinstance(operand, ast.Name):
            places = _literals_of(operand.id, test)
            if places:
                return places, _Tolerance()
        elif _constants(operand):
            tolerance = _Tolerance()
            for call in ast.walk(operand):
                if isinstance(call, ast.Call):
                    given = {"rel": 1e-6, "abs": 1e-12, **_numbers(call, (None, "rel", "abs"))}
                    if None in given.values():
                        return None
                    tolerance = _Tolerance(given["rel"], given["abs"])
            return [operand], tolerance
    return None


def _literals_of(name: str, test: FunctionNode) -> list[ast.expr]:
    places = [
        node.value
        for node in ast.walk(test)
        if isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
        and _constants(node.value)
    ]
    for node in ast.walk(test):
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name | ast.Tuple):
            targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
            places += _column(name, [ast.unparse(target) for target in targets], node.iter)
    for decorator in test.decorator_list:
        if (
            _is_call(decorator, "parametrize")
            and isinstance(decorator, ast.Call)
            and len(decorator.args) >= 2
        ):
            places += _column(name, _header(decorator.args[0]), decorator.args[1])
    return places


def _header(header: ast.expr) -> list[str]:
    """Return the names in the first argument of `parametrize`."""
    try:
        columns = ast.literal_eval(header)
    except ValueError:
        return []
    return [part.strip() for part in columns.split(",")] if isinstance(columns, str) else list(columns)


def _column(name: str, columns: list[str], table: ast.expr) -> list[ast.expr]:
    """Return the literals that a table of rows, written as a list, has for one of its columns."""
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


def _spoiled(places: list[ast.expr], tolerance: _Tolerance) -> Change:
    """Change one constant in each place to another value of its type."""

    def change(wrong: bool) -> None:
        for place in places if wrong else ():
            constant = secrets.choice(_constants(place))
            constant.value = _other(constant.value, tolerance)

    return change


def _other(value: Any, tolerance: _Tolerance) -> Any:
    """Return another value, which nothing tells from a right one: no larger, no longer; at times it is None."""
    if value is None:
        return secrets.choice((0, 1, 2, -1, "", True, False))
    if tolerance == _Tolerance() and not secrets.randbelow(ODDS):
        return None
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return _other_number(value, tolerance)
    if isinstance(value, complex):
        return value + secrets.choice((-3, -2, -1, 1, 2, 3))
    if isinstance(value, str):
        return _other_text(value)
    if isinstance(value, bytes):
        return _other_text(value.decode("latin-1")).encode("latin-1")
    return 0


def _other_number(value: float, tolerance: _Tolerance) -> float:
    """Return a number near by or with another digit that is no right answer, even within the tolerance."""
    if not math.isfinite(value):
        return 0.0
    near = [value + step for step in (-3, -2, -1, 1, 2, 3)] if isinstance(value, int) else []
    digits = repr(value)
    end = digits.find("e") if "e" in digits else len(digits)
    changed = [
        type(value)(digits[:i] + digit + digits[i + 1 :])
        for i in range(end)
        if digits[i].isdigit()
        for digit in "0123456789"
        if digit != digits[i]
    ]
    alike = [other for other in changed if len(repr(other)) == len(digits)]
    for others in (near, alike, changed):
        fine = [other for other in others if other != value and tolerance.tells(value, other)]
        if fine:
            return secrets.choice(fine)
    return value + secrets.choice((-1, 1)) * math.ceil(
        3 * (tolerance.absolute + tolerance.relative * abs(value)) + 1
    )


def _other_text(value: str) -> str:
    """Return the text with one letter or digit, where it has any, replaced by another of its kind."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    kinds = [letters, letters.upper(), "0123456789"]
    places = [(i, kind) for i, letter in enumerate(value) for kind in kinds if letter in kind]
    if not places:
        return value + secrets.choice(letters)
    place, kind = secrets.choice(places)
    return value[:place] + secrets.choice(kind.replace(value[place], "")) + value[place + 1 :]
