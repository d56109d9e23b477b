"""Exact arithmetic for environments: a bounded parser over fractions and four notations of a number.

Nothing a model writes is ever given to Python's own `eval`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

MAX_LENGTH = 120
"""Characters of an expression. With it the recursion depth and the size of every number are bounded."""

MAX_VALUE = 10**12
"""Numerator and denominator of a result stay below this."""

NOTATIONS = ("decimal", "fraction", "words", "hex")

_TOKEN = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?|[-+*/()x])")
_DECIMAL = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?")
_RATIO = re.compile(r"(-?[0-9]{1,15})/([0-9]{1,15})")
_HEX = re.compile(r"(-?)0x([0-9a-f]{1,12})(?:/0x([0-9a-f]{1,12}))?")
_ONES, _TEENS, _TENS = (
    (
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
    ),
    ("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
    ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"),
)


class ExpressionError(ValueError):
    """A text is not an expression, or it has no value."""


@dataclass(frozen=True, slots=True)
class Linear:
    """`constant + slope * x`, the value of an expression in at most one unknown."""

    constant: Fraction | int
    slope: Fraction | int = 0


def combine(operator: str, left: Linear, right: Linear) -> Linear:
    """Return `left operator right` for + - * /.

    Raises:
        ExpressionError: division by zero or by x, or x times x.
    """
    match operator:
        case "+":
            return Linear(left.constant + right.constant, left.slope + right.slope)
        case "-":
            return Linear(left.constant - right.constant, left.slope - right.slope)
        case "*":
            if left.slope and right.slope:
                raise ExpressionError("x times x")
            slope = left.slope * right.constant + right.slope * left.constant
            return Linear(left.constant * right.constant, slope)
    if right.slope or not right.constant:
        raise ExpressionError("division by zero or by x")
    return Linear(Fraction(left.constant) / right.constant, Fraction(left.slope) / right.constant)


class _Parser:
    """Recursive descent: sum of products of factors; `3x` and `3(x)` are products."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        self.place = end = 0
        if len(text) > MAX_LENGTH:
            raise ExpressionError("too long")
        text = text.rstrip()
        while end < len(text):
            token = _TOKEN.match(text, end)
            if token is None:
                raise ExpressionError(f"no number or operator: {text[end : end + 10]!r}")
            self.tokens.append(token[1])
            end = token.end()

    def peek(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self) -> str:
        self.place += 1
        return self.tokens[self.place - 1] if self.place <= len(self.tokens) else ""

    def sum(self) -> Linear:
        value = self.product()
        while self.peek() in ("+", "-"):
            value = combine(self.take(), value, self.product())
        return value

    def product(self) -> Linear:
        value = self.factor()
        while (token := self.peek()) in ("*", "/", "x", "("):
            value = combine(self.take() if token in "*/" else "*", value, self.factor())
        return value

    def factor(self) -> Linear:
        match self.take():
            case "":
                raise ExpressionError("ends too early")
            case "-":
                return combine("-", Linear(0), self.factor())
            case "x":
                return Linear(0, 1)
            case "(":
                value = self.sum()
                if self.take() != ")":
                    raise ExpressionError("parenthesis not closed")
                return value
            case token if token[0].isdigit():
                return Linear(int(token) if token.isdigit() else Fraction(token))
            case token:
                raise ExpressionError(f"operand missing before {token!r}")


def linear(text: str) -> Linear:
    """Return the exact value of an expression of numbers, x, + - * / and parentheses.

    Raises:
        ExpressionError: it is no such expression, is longer than `MAX_LENGTH`, is not linear in x, or divides
            by zero.
    """
    parser = _Parser(text)
    value = parser.sum()
    if parser.peek():
        raise ExpressionError(f"unexpected {parser.peek()!r}")
    return value


def constant(value: Linear) -> Fraction:
    """Return the value of an expression without x.

    Raises:
        ExpressionError: x is in it, or it is not below `MAX_VALUE`.
    """
    if value.slope:
        raise ExpressionError("x has no value here")
    return _bounded(value.constant)


def root(left: Linear, right: Linear) -> Fraction:
    """Return the x with `left = right`.

    Raises:
        ExpressionError: there is none or more than one, or it is not below `MAX_VALUE`.
    """
    slope = left.slope - right.slope
    if not slope:
        raise ExpressionError("no single solution")
    return _bounded(Fraction(right.constant - left.constant) / slope)


def numbers(text: str) -> list[Fraction]:
    """Return the numbers that an expression is written with, in their order.

    Raises:
        ExpressionError: there are characters that no expression has.
    """
    return [Fraction(token) for token in _Parser(text).tokens if token[0].isdigit()]


def _bounded(value: Fraction | int) -> Fraction:
    if max(abs(value.numerator), value.denominator) >= MAX_VALUE:
        raise ExpressionError("too large")
    return Fraction(value)


# -- notations -----------------------------------------------------------------------------------------------


def write(value: Fraction, notation: str) -> str:
    """Return a number below `MAX_VALUE` in one of `NOTATIONS`.

    Decimals are rounded to 6 places; the other notations are exact. A fraction always shows its denominator.
    """
    top, bottom = value.numerator, value.denominator
    match notation:
        case "decimal":
            whole, rest = divmod(abs(scaled := round(value * 10**6)), 10**6)
            return f"{'-' if scaled < 0 else ''}{whole}" + f".{rest:06d}".rstrip("0").rstrip(".")
        case "fraction":
            return f"{top}/{bottom}"
        case "hex":
            return f"{top:#x}" if bottom == 1 else f"{top:#x}/{bottom:#x}"
    return f"{_spell(top)} over {_spell(bottom)}" if bottom > 1 else _spell(top)


def read(text: str) -> Fraction | None:
    """Return the number of a decimal, hexadecimal or fraction in lowest terms, or None.

    A fraction that can be reduced is a question, not an answer.
    """
    if _DECIMAL.fullmatch(text):
        return Fraction(text)
    if ratio := _RATIO.fullmatch(text):
        top, bottom = int(ratio[1]), int(ratio[2])
    elif parts := _HEX.fullmatch(text):
        top, bottom = int(parts[1] + parts[2], 16), int(parts[3] or "1", 16)
    else:
        return None
    return Fraction(top, bottom) if bottom and math.gcd(top, bottom) == 1 else None


def _spell(number: int) -> str:
    if number < 0:
        return f"minus {_spell(-number)}"
    for size, name in ((10**9, "billion"), (10**6, "million"), (1000, "thousand"), (100, "hundred")):
        if number >= size:
            rest = f" {_spell(number % size)}" if number % size else ""
            return f"{_spell(number // size)} {name}{rest}"
    if number < 20:
        return (*_ONES, *_TEENS)[number]
    return _TENS[number // 10 - 2] + (f"-{_ONES[number % 10]}" if number % 10 else "")
