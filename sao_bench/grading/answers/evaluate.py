"""Values of formula trees.

Exact over the rationals wherever the formula allows it (so 1/2^99 is not 1/2^98), else at 400 digits.
Guards bound every intermediate number, so that no nested power can run away.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import mpmath

from sao_bench.grading.answers.formula import TooLargeError, Tree

MAX_BITS = 20_000
MAX_MAGNITUDE = 1e5
DIGITS = 400
MAX_ANGLE = 1e40
REAL_LIMIT = mpmath.mpf(10) ** 150
"""Between this and its inverse no cancellation costs more than 300 of the 400 digits."""
MAX_REAL_FACTORIAL = 100

ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul}


class InexactError(ValueError):
    """The value is not a rational number, or not known to be one."""


class UndefinedError(ValueError):
    """The formula has no value at this point (division by zero, logarithm of zero)."""


def exact(tree: Tree, at: Mapping[str, Fraction] | None = None) -> Fraction:
    """Return the rational value of a tree, with its variables bound to `at`.

    Raises:
        InexactError: a part of it is not rational, or a variable is not bound.
        UndefinedError: a division by zero.
        TooLargeError: a number of more than 20,000 bits.
    """
    kind = tree[0]
    if kind == "number":
        return tree[1]
    if kind == "name":
        if at is None or tree[1] not in at:
            raise InexactError(tree[1])
        return at[tree[1]]
    try:
        values = [exact(child, at) for child in tree[1:]]
    except RecursionError as error:
        raise TooLargeError("too deep") from error
    if kind in ARITHMETIC:
        return _bounded(ARITHMETIC[kind](*values))
    if kind not in _EXACT:
        raise InexactError(kind)
    return _bounded(_EXACT[kind](*values))


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise TooLargeError("more than 20,000 bits")
    return value


def _divide(a: Fraction, b: Fraction) -> Fraction:
    if not b:
        raise UndefinedError("division by zero")
    return a / b


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        return _power(_root(base, Fraction(exponent.denominator)), Fraction(exponent.numerator))
    if base == 0 and exponent < 0:
        raise UndefinedError("division by zero")
    bits = max(abs(base.numerator).bit_length(), base.denominator.bit_length()) - 1
    if bits and abs(exponent) * bits > MAX_BITS:
        raise TooLargeError("power")
    if base in (0, 1, -1):
        exponent = Fraction(exponent.numerator % 2 or 2 * (exponent != 0))
    return Fraction(base ** int(exponent))


def _root(value: Fraction, degree: Fraction) -> Fraction:
    if degree.denominator != 1 or not 1 <= degree <= 64 or value < 0:
        raise InexactError("root")
    return Fraction(*(_integer_root(part, int(degree)) for part in (value.numerator, value.denominator)))


def _integer_root(value: int, degree: int) -> int:
    low, high = 0, 1 << (value.bit_length() // degree + 1)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if middle**degree < value else (low, middle)
    if low**degree != value:
        raise InexactError("root")
    return low


def _factorial(n: Fraction) -> Fraction:
    if n.denominator != 1 or n < 0:
        raise InexactError("factorial")
    if n > 2400:
        raise TooLargeError("factorial")
    return Fraction(math.factorial(int(n)))


def _double_factorial(n: Fraction) -> Fraction:
    if n.denominator != 1 or n < 0:
        raise InexactError("double factorial")
    if n > 4000:
        raise TooLargeError("double factorial")
    return Fraction(math.prod(range(int(n), 0, -2)))


def _binomial(n: Fraction, k: Fraction) -> Fraction:
    if n.denominator != 1 or k.denominator != 1 or n < 0 or k < 0:
        raise InexactError("binomial")
    if n > MAX_BITS:
        raise TooLargeError("binomial")
    return Fraction(math.comb(int(n), int(k)))


def _remainder(a: Fraction, b: Fraction) -> Fraction:
    if not b:
        raise UndefinedError("remainder of a division by zero")
    return a % b


def _integers(values: tuple[Fraction, ...]) -> list[int]:
    if any(value.denominator != 1 for value in values):
        raise InexactError("not an integer")
    return [int(value) for value in values]


_EXACT: dict[str, Any] = {
    "/": _divide,
    "^": _power,
    "root": _root,
    "neg": operator.neg,
    "abs": abs,
    "floor": lambda x: Fraction(math.floor(x)),
    "ceil": lambda x: Fraction(math.ceil(x)),
    "factorial": _factorial,
    "double_factorial": _double_factorial,
    "binom": _binomial,
    "mod": _remainder,
    "max": max,
    "min": min,
    "gcd": lambda *values: Fraction(math.gcd(*_integers(values))),
    "lcm": lambda *values: Fraction(math.lcm(*_integers(values))),
}


def numeric(tree: Tree, at: Mapping[str, Fraction] | None = None, digits: int = DIGITS) -> Any:
    """Return the value of a tree as an mpmath number of 400 digits (complex where it is).

    Raises:
        InexactError: a variable is not bound.
        UndefinedError: no finite value here.
        TooLargeError: a magnitude beyond e^100000.
    """
    with mpmath.workdps(digits):
        try:
            return _numeric(tree, {name: as_number(value) for name, value in (at or {}).items()})
        except RecursionError as error:
            raise TooLargeError("too deep") from error
        except (ArithmeticError, ValueError, TypeError, mpmath.libmp.NoConvergence) as error:
            if isinstance(error, InexactError | TooLargeError):
                raise
            raise UndefinedError(str(error)) from error


def real(tree: Tree, at: Mapping[str, Fraction]) -> Any:
    """Return the value of a tree by real arithmetic alone: a fraction, or an mpmath number of 100 sure digits.

    Raises:
        UndefinedError: a part of it has no real value here, or none that is sure to so many digits.
    """
    with mpmath.workdps(DIGITS):
        try:
            return _real(tree, at)
        except UndefinedError:
            raise
        except (
            ArithmeticError,
            ValueError,
            TypeError,
            RecursionError,
            mpmath.libmp.NoConvergence,
        ) as error:
            raise UndefinedError(str(error)) from error


def _real(tree: Tree, at: Mapping[str, Fraction]) -> Any:
    kind = tree[0]
    if kind == "number":
        return tree[1]
    if kind == "name":
        return at[tree[1]] if tree[1] in at else _sure(_numeric(tree, {}))
    values = [_real(child, at) for child in tree[1:]]
    if all(isinstance(value, Fraction) for value in values):
        try:
            return exact((kind, *(("number", value) for value in values)))
        except InexactError:
            pass
    numbers = [_sure(as_number(value)) for value in values]
    if kind in ("factorial", "double_factorial", "binom") and not all(
        0 <= value <= MAX_REAL_FACTORIAL for value in numbers
    ):
        raise UndefinedError(kind)
    if kind in ("floor", "ceil"):
        numbers = [_snapped(value) for value in numbers]
    if kind not in _NUMERIC:
        raise InexactError(kind)
    return _sure(_NUMERIC[kind](*numbers))


def _sure(value: Any) -> Any:
    if mpmath.im(value) != 0 or (value and not 1 / REAL_LIMIT <= abs(value) <= REAL_LIMIT):
        raise UndefinedError("not real, or lost in rounding")
    return mpmath.re(value)


def _snapped(value: Any) -> Any:
    """Take what rounding has moved off a whole number back to it: log10(1000) may fall short of 3."""
    nearest = mpmath.nint(value)
    return nearest if abs(value - nearest) < 1 / REAL_LIMIT else value


def as_number(value: Any) -> Any:
    """Return an mpmath number for a fraction, at the precision in force; mpmath numbers as they are."""
    return mpmath.mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else value


def _numeric(tree: Tree, at: Mapping[str, Any]) -> Any:
    kind = tree[0]
    if kind == "number":
        return as_number(tree[1])
    if kind == "name":
        if tree[1] in at:
            return at[tree[1]]
        if tree[1] not in _CONSTANTS:
            raise InexactError(tree[1])
        return +_CONSTANTS[tree[1]]
    if kind not in _NUMERIC:
        raise InexactError(kind)
    value = _NUMERIC[kind](*(_numeric(child, at) for child in tree[1:]))
    if not mpmath.isfinite(value):
        raise UndefinedError(kind)
    return value


def _guarded_power(base: Any, exponent: Any) -> Any:
    if base and abs(exponent * mpmath.log(abs(base))) > MAX_MAGNITUDE:
        raise TooLargeError("power")
    return mpmath.power(base, exponent)


def _guarded(function: Any, limit: float = MAX_MAGNITUDE) -> Any:
    """Refuse arguments for which the function's cost or value grows without bound."""

    def call(*arguments: Any) -> Any:
        if any(abs(x) > limit for x in arguments):
            raise TooLargeError("argument")
        return function(*arguments)

    return call


def _numeric_root(value: Any, degree: Any) -> Any:
    odd = mpmath.isint(degree) and int(degree.real) % 2
    if odd and mpmath.im(value) == 0 and mpmath.re(value) < 0:
        return -_guarded_power(-value, 1 / degree)
    return _guarded_power(value, 1 / degree)


_CONSTANTS = {"pi": mpmath.pi, "e": mpmath.e, "i": mpmath.mpc(0, 1)}
_NUMERIC: dict[str, Any] = {
    **ARITHMETIC,
    "/": operator.truediv,
    "^": _guarded_power,
    "root": _numeric_root,
    "neg": operator.neg,
    "abs": abs,
    "factorial": _guarded(mpmath.factorial),
    "double_factorial": _guarded(mpmath.fac2),
    "binom": _guarded(mpmath.binomial),
    "degrees": lambda x: x * mpmath.pi / 180,
    "max": max,
    "min": min,
    "ln": mpmath.log,
    "log": lambda x, base=None: mpmath.log(x) if base is None else mpmath.log(x) / mpmath.log(base),
    "arcsin": mpmath.asin,
    "arccos": mpmath.acos,
    "arctan": mpmath.atan,
    **{name: _guarded(getattr(mpmath, name)) for name in ["sinh", "cosh", "tanh", "exp", "floor", "ceil"]},
    **{
        name: _guarded(getattr(mpmath, name), MAX_ANGLE)
        for name in ["sin", "cos", "tan", "cot", "sec", "csc"]
    },
}
