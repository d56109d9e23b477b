"""What a test expects, and how each expectation is made wrong."""

from __future__ import annotations

import ast
import builtins
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sao_bench.grading.expected_values import (
    ODDS,
    Change,
    FunctionNode,
    Tolerance,
    expected,
    is_call,
    numbers,
    spoiled,
)

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


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a test expects in one place; `written`: by a constant or the name of an exception."""

    change: Change
    written: bool = False


def expectations(test: FunctionNode, tree: ast.Module) -> Iterator[Expectation]:
    """Yield the expectations of a test of a module; the change of each makes just that one wrong."""
    for node in list(ast.walk(test)):
        if isinstance(node, ast.Assert):
            yield _of_assert(node, test, tree)
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                if is_call(item.context_expr, "raises") or is_call(item.context_expr, "assertRaises"):
                    yield _of_raises(node, item, test, tree)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            expectation = _of_unittest(node.value, test)
            if expectation is not None:
                yield expectation


def _of_assert(node: ast.Assert, test: FunctionNode, tree: ast.Module) -> Expectation:
    condition = node.test
    if isinstance(condition, ast.Compare) and len(condition.ops) == 1:
        if isinstance(condition.ops[0], ast.Eq | ast.Is):
            operands = [condition.left, *condition.comparators]
            target = expected(operands, test)
            if target is not None and (isinstance(condition.ops[0], ast.Eq) or _is_bool(target[0])):
                return Expectation(_rare(node, condition, operands, test, tree, spoiled(*target)), True)
        if isinstance(condition.ops[0], ast.Eq):
            return Expectation(_compared(condition))

    def change(wrong: bool) -> None:
        if wrong:
            node.test = _opposite(condition)

    return Expectation(change)


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
        operand for operand in operands if isinstance(operand, ast.Call) and not is_call(operand, "approx")
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
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and is_call(n, "raises") and n.args]
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
) -> Expectation:
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

    return Expectation(change, bool(others) or said is not None)


def _values(tree: ast.Module) -> list[Any]:
    """Return the constants that tests of a module compare with."""
    compared = [n for n in ast.walk(tree) if isinstance(n, ast.Compare) and isinstance(n.ops[0], ast.Eq)]
    return [c.value for n in compared for c in n.comparators if isinstance(c, ast.Constant)]


def _related(a: type[BaseException], b: Any) -> bool:
    return isinstance(b, type) and (issubclass(a, b) or issubclass(b, a))


def _of_unittest(call: ast.Call, test: FunctionNode) -> Expectation | None:
    function = call.func
    if not isinstance(function, ast.Attribute):
        return None
    if function.attr in SWAPS:
        return Expectation(lambda wrong: setattr(function, "attr", SWAPS[function.attr]) if wrong else None)
    if function.attr in EQUALITIES:
        target = expected(call.args[:2], test)
        if target is None:
            return None
        places, usual = target
        tolerance = _almost(call) if function.attr == "assertAlmostEqual" else usual
        return None if tolerance is None else Expectation(spoiled(places, tolerance), True)
    return None


def _almost(call: ast.Call) -> Tolerance | None:
    """Return the tolerance of `assertAlmostEqual(a, b, places=7, delta=None)`, or None if it is computed."""
    given = {"places": 7, **numbers(call, (None, None, "places", None, "delta"))}
    if None in given.values():
        return None
    return Tolerance(absolute=given["delta"] if "delta" in given else 0.5 * 10.0 ** -given["places"])
