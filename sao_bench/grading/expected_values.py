"""Where a test has its expected values written down, and other values for them."""

from __future__ import annotations

import ast
import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
Change = Callable[[bool], None]
"""Writes an expectation out, made wrong or (False) as it was."""
ODDS = 10
"""One twin in so many of a test of a value is of a rarer form, so that a rare form is no sign of a true test."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a number may be from an expected one and still be taken for it."""

    relative: float = 0.0
    absolute: float = 0.0

    def tells(self, a: complex, b: complex) -> bool:
        """Return whether two numbers are far enough apart, with room to spare."""
        return abs(a - b) > 2 * max(self.absolute, self.relative * max(abs(a), abs(b)))


def is_call(node: ast.expr, name: str) -> bool:
    """Return whether an expression calls a function of this name, wherever it is imported from."""
    if not isinstance(node, ast.Call):
        return False
    return ast.unparse(node.func).rpartition(".")[2] == name


def numbers(call: ast.Call, names: tuple[str | None, ...]) -> dict[str, Any]:
    """Return the numbers among a call's arguments of these places and names; None for what is something else."""
    given = {name: value for name, value in zip(names, call.args, strict=False) if name}
    given |= {word.arg: word.value for word in call.keywords if word.arg and word.arg in names}
    known = {}
    for name, value in given.items():
        number = value.value if isinstance(value, ast.Constant) else None
        known[name] = number if isinstance(number, int | float) else None
    return known


def expected(operands: list[ast.expr], test: FunctionNode) -> tuple[list[ast.expr], Tolerance] | None:
    """Return where the expected value is written (an operand, a variable's literal, a column), and its tolerance."""
    for operand in reversed(operands):
        if isinstance(operand, ast.Name):
            places = _literals_of(operand.id, test)
            if places:
                return places, Tolerance()
        elif _constants(operand):
            tolerance = Tolerance()
            for call in ast.walk(operand):
                if isinstance(call, ast.Call):
                    given = {"rel": 1e-6, "abs": 1e-12, **numbers(call, (None, "rel", "abs"))}
                    if None in given.values():
                        return None
                    tolerance = Tolerance(given["rel"], given["abs"])
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
        if is_call(decorator, "parametrize") and isinstance(decorator, ast.Call) and len(decorator.args) >= 2:
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
    rows = [row.args if is_call(row, "param") and isinstance(row, ast.Call) else row for row in table.elts]
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
        return _constants(node.args[0]) if is_call(node, "approx") and node.args else []
    if isinstance(node, ast.Constant):
        return [node]
    if isinstance(node, ast.Dict):
        return [c for value in node.values for c in _constants(value)]
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return [c for item in node.elts for c in _constants(item)]
    return _constants(node.operand) if isinstance(node, ast.UnaryOp) else []


def spoiled(places: list[ast.expr], tolerance: Tolerance) -> Change:
    """Change one constant in each place to another value of its type."""

    def change(wrong: bool) -> None:
        for place in places if wrong else ():
            constant = secrets.choice(_constants(place))
            constant.value = _other(constant.value, tolerance)

    return change


def _other(value: Any, tolerance: Tolerance) -> Any:
    """Return another value, which nothing tells from a right one: no larger, no longer; at times it is None."""
    if value is None:
        return secrets.choice((0, 1, 2, -1, "", True, False))
    if tolerance == Tolerance() and not secrets.randbelow(ODDS):
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


def _other_number(value: float, tolerance: Tolerance) -> float:
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
