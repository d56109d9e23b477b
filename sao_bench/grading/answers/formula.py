r"""A small reader of formulas: text after `typesetting.plain` to a tree of operators, numbers and names.

It reads LaTeX and plain notation alike: `\frac{1}{2}`, `\frac12`, `1/2`, `1\frac{1}{2}` (a mixed number),
`2x`, `x^{2}`, `x^10`, `\sqrt[3]{8}`, `sqrt(8)`, `\log_2 8`, `\sin^2 x`, `|x|`, `n!`, `\binom{n}{k}`,
`1e6`, `0.\overline{3}`. A tree is a tuple `(operator, operand, ...)`; leaves are `("number", Fraction)` and
`("name", str)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, TypeAlias

from sao_bench.grading.answers.vocabulary import (
    ACCENTS,
    ALIASES,
    CONSTANTS,
    ENDINGS,
    FUNCTIONS,
    GREEK,
    INFIX,
    LISTED,
)

Tree: TypeAlias = tuple[Any, ...]

MAX_CHARACTERS = 2000
MAX_DEPTH = 40
MAX_EXPONENT_DIGITS = 4

TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)|(?P<command>\\[a-zA-Z]+)"
    r"|(?P<word>[a-zA-Z]+)|(?P<mark>[-+*/^_!()\[\]{}|,'°⦃⦄]))"
)
REPEATING = re.compile(r"(?<![\d.])(\d*)\.(?:(\d*)\\(?:overline|bar|dot)\s*(?:\{(\d+)\}|(\d))|\((\d+)\))")
DOTTED = re.compile(r"\\dot\s*\{?(\d)\}?(\d*)\\dot\s*\{?(\d)\}?")
CONTINUED = re.compile(r"(?<![\d.])(\d*)\.(\d{2,60})\.\.\.$")
DIFFERENTIAL = r" ?(?:d|\\partial)(?:\^\{?\d\}?)? ?[a-zA-Z]?(?:\^\{?\d\}?)? ?"
DERIVATIVE = re.compile(
    rf"\\frac ?\{{{DIFFERENTIAL}\}} ?\{{{DIFFERENTIAL}\}}|(?<![a-zA-Z])d[a-zA-Z] ?/ ?d[a-zA-Z](?![a-zA-Z])"
)


class FormulaError(ValueError):
    """The text is not a formula that this reader knows."""


class TooLargeError(ValueError):
    """A number of the formula has more digits than any answer."""


def parse(text: str) -> Tree:
    """Return the tree of a formula.

    Raises:
        FormulaError: the text is something else (or too long or too deep).
        TooLargeError: a literal such as `1e999999`.
    """
    if len(text) > MAX_CHARACTERS:
        raise FormulaError("too long")
    text = DERIVATIVE.sub(_derivative, text)
    text = DOTTED.sub(r"\\overline{\1\2\3}", text)
    reader = _Reader(_tokens(CONTINUED.sub(_continued, REPEATING.sub(_repeating, text))))
    tree = reader.infix()
    if reader.peek() is not None:
        raise FormulaError(f"unexpected {reader.peek()!r}")
    return tree


def _derivative(match: re.Match[str]) -> str:
    """Make a derivative one name: its differentials do not cancel."""
    letters = re.findall(r"(?<![\\a-z])[a-zA-Z0-9]|(?<=d)[a-zA-Z]", match.group())
    return f"\\partial_{{{','.join(letters)}}}"


def _continued(match: re.Match[str]) -> str:
    """Read `0.1666...` as repeating if its last digits do: one digit three times, or several twice."""
    whole, digits = match.groups()
    for length in range(1, len(digits) // 2 + 1):
        times = 3 if length == 1 else 2
        if digits.endswith(digits[-length:] * times):
            return _period(whole, digits[: len(digits) - length * times], digits[-length:])
    raise FormulaError("a number that is cut off")


def _repeating(match: re.Match[str]) -> str:
    whole, fixed, *periods = match.groups()
    return _period(whole, fixed or "", next(period for period in periods if period))


def _period(whole: str, fixed: str, period: str) -> str:
    numerator = int(whole + fixed + period or "0") - int(whole + fixed or "0")
    return f"({numerator}/{10 ** len(fixed) * (10 ** len(period) - 1)})"


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    position = 0
    text = text.rstrip()
    while position < len(text):
        match = TOKEN.match(text, position)
        if not match:
            raise FormulaError(f"unexpected {text[position]!r}")
        kind = match.lastgroup or ""
        value = match.group(kind)
        tokens += _words(value) if kind == "word" else [(kind, value.removeprefix("\\"))]
        position = match.end()
    return tokens


def _words(word: str) -> list[tuple[str, str]]:
    """Split letters without a command: a known function or constant, else one name per letter."""
    if ALIASES.get(word, word) in FUNCTIONS | LISTED or word in CONSTANTS:
        return [("command", word)]
    if len(word) > 3:
        raise FormulaError(f"unknown word {word!r}")
    return [("word", letter) for letter in word]


class _Reader:
    """Recursive descent over tokens; every method returns the tree of what it consumed.

    Every recursion passes through `atom` or the exponent of `power`, which bound its depth. Long sums and
    products become balanced trees, so that their depth is small too.
    """

    def __init__(self, tokens: list[tuple[str, str]]):
        self.tokens = tokens
        self.position = 0
        self.depth = 0
        self.bars = 0

    def peek(self) -> str | None:
        return self.tokens[self.position][1] if self.position < len(self.tokens) else None

    def kind(self) -> str:
        return self.tokens[self.position][0] if self.position < len(self.tokens) else ""

    def next(self) -> str:
        if self.position >= len(self.tokens):
            raise FormulaError("ends too early")
        self.position += 1
        return self.tokens[self.position - 1][1]

    def accept(self, value: str) -> bool:
        found = self.kind() == "mark" and self.peek() == value
        self.position += found
        return found

    def expect(self, value: str) -> None:
        if not self.accept(value):
            raise FormulaError(f"{value!r} is missing")

    @contextmanager
    def deeper(self) -> Iterator[None]:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise FormulaError("too deep")
        yield
        self.depth -= 1

    def infix(self) -> Tree:
        r"""Read a sum, or `a \over b`, `n \choose k`, `a \bmod b`: each side is all of the group."""
        tree = self.sum()
        if self.kind() == "command" and self.peek() in INFIX:
            return (INFIX[self.next()], tree, self.sum())
        return tree

    def sum(self) -> Tree:
        terms = [self.product()]
        while self.kind() == "mark" and self.peek() in ("+", "-"):
            negative = self.next() == "-"
            term = self.product()
            terms.append(("neg", term) if negative else term)
        return _balanced("+", terms)

    def product(self) -> Tree:
        factors, divisors = [self.signed()], []
        while True:
            if self.accept("/"):
                divisors.append(self.signed())
            elif self.accept("*"):
                factors.append(self.signed())
            elif self.starts_factor():
                if self.kind() == "number" and self.tokens[self.position - 1][0] == "number":
                    raise FormulaError("two numbers without an operator")
                factors.append(self.power())
            else:
                top = _balanced("*", factors)
                return ("/", top, _balanced("*", divisors)) if divisors else top

    def starts_factor(self) -> bool:
        if self.kind() in ("number", "word", "command"):
            return self.kind() != "command" or self.peek() not in ENDINGS
        return self.peek() in ("(", "[", "{") or (self.peek() == "|" and not self.bars)

    def signed(self) -> Tree:
        sign = False
        while self.kind() == "mark" and self.peek() in ("+", "-"):
            sign ^= self.next() == "-"
        tree = self.power()
        return ("neg", tree) if sign else tree

    def power(self) -> Tree:
        tree = self.atom()
        marks = 0
        while self.accept("!"):
            marks += 1
        if marks > 2:
            raise FormulaError("a multiple factorial")
        if marks:
            tree = ("factorial" if marks == 1 else "double_factorial", tree)
        if self.accept("°"):
            tree = ("degrees", tree)
        if self.accept("^"):
            with self.deeper():
                tree = ("^", tree, self.signed())
        return tree

    def atom(self) -> Tree:
        with self.deeper():
            return self.primary()

    def primary(self) -> Tree:
        kind, value = self.kind(), self.next()
        if kind == "number":
            return self.mixed(number(value))
        if kind == "command":
            return self.command(ALIASES.get(value, value))
        if kind == "word":
            return self.name(value)
        if value in "([{":
            return self.group(value)
        if value == "|":
            self.bars += 1
            tree = self.sum()
            self.expect("|")
            self.bars -= 1
            return ("abs", tree)
        raise FormulaError(f"unexpected {value!r}")

    def mixed(self, whole: Fraction) -> Tree:
        r"""Read `1\frac{1}{2}` as one and a half; a fraction of anything but integers is a factor."""
        start = self.position
        if self.kind() == "command" and self.peek() == "frac" and whole.denominator == 1:
            self.next()
            top, bottom = self.argument(), self.argument()
            if top[0] == bottom[0] == "number" and bottom[1] and top[1] < bottom[1]:
                return ("number", whole + top[1] / bottom[1])
            self.position = start
        return ("number", whole)

    def group(self, opening: str) -> Tree:
        outer, self.bars = self.bars, 0
        tree = self.infix()
        self.bars = outer
        self.expect({"(": ")", "[": "]", "{": "}"}[opening])
        return tree

    def argument(self) -> Tree:
        """Read `{...}`, or the single digit or name that TeX takes without braces."""
        if self.accept("{"):
            return self.group("{")
        if self.kind() == "number":
            digits = self.next()
            if len(digits) > 1 and not digits.isdigit():
                raise FormulaError(f"{digits!r} without braces")
            if len(digits) > 1:
                self.position -= 1
                self.tokens[self.position] = ("number", digits[1:])
            return ("number", number(digits[0]))
        return self.atom()

    def command(self, name: str) -> Tree:
        if name == "frac":
            return ("/", self.argument(), self.argument())
        if name == "binom":
            return ("binom", self.argument(), self.argument())
        if name == "sqrt":
            return self.root()
        if name in ("lfloor", "lceil"):
            tree = self.sum()
            if self.next() != name.replace("l", "r", 1):
                raise FormulaError(f"{name} is not closed")
            return (name[1:], tree)
        if name in LISTED:
            return self.listed(name)
        if name in FUNCTIONS:
            return self.function(name)
        if name in CONSTANTS:
            return ("name", name)
        if name in GREEK:
            return self.name(name)
        if name in ACCENTS:
            return self.accented(name)
        raise FormulaError(f"unknown command {name!r}")

    def root(self) -> Tree:
        degree: Tree = ("number", Fraction(2))
        if self.accept("["):
            degree = self.group("[")
        return ("root", self.argument(), degree)

    def function(self, name: str) -> Tree:
        base: Tree | None = ("number", Fraction(10)) if name == "lg" else None
        if name == "log" and self.accept("_"):
            base = self.argument()
        exponent = self.argument_or_signed() if self.accept("^") else None
        if self.kind() == "mark" and self.peek() in ("(", "{", "["):
            tree = self.group(self.next())
        else:
            tree = self.signed()
            while self.continues_argument():
                tree = ("*", tree, self.power())
        call: Tree = (name, tree) if base is None else ("log", tree, base)
        return call if exponent is None else self.powered(call, exponent)

    def continues_argument(self) -> bool:
        if self.kind() in ("word", "number"):
            return True
        return self.kind() == "command" and (self.peek() == "pi" or self.peek() in GREEK)

    def listed(self, name: str) -> Tree:
        closing = {"(": ")", "⦃": "⦄", "{": "}"}.get(self.next())
        if closing is None:
            raise FormulaError(f"{name} has no arguments")
        items = [self.sum()]
        while self.accept(","):
            items.append(self.sum())
        self.expect(closing)
        return (name, *items)

    def argument_or_signed(self) -> Tree:
        return self.signed() if self.peek() == "-" else self.argument()

    def powered(self, call: Tree, exponent: Tree) -> Tree:
        if exponent == ("neg", ("number", Fraction(1))) and f"arc{call[0]}" in FUNCTIONS:
            return (f"arc{call[0]}", call[1])
        return ("^", call, exponent)

    def name(self, letters: str) -> Tree:
        letters += self.primes()
        if not self.accept("_"):
            return ("name", letters)
        if self.accept("{"):
            subscript = ""
            while not self.accept("}"):
                subscript += self.next()
        else:
            subscript = self.next()
        return ("name", f"{letters}_{subscript}{self.primes()}")

    def accented(self, accent: str) -> Tree:
        letters = "".join(self.letters() if self.accept("{") else [self.next()])
        if not letters.isalpha():
            raise FormulaError(f"{accent} over something else than a name")
        return self.name(f"{accent} {letters}")

    def letters(self) -> Iterator[str]:
        while not self.accept("}"):
            yield self.next()

    def primes(self) -> str:
        found = ""
        while self.accept("'"):
            found += "'"
        return found


def _balanced(operator: str, items: list[Tree]) -> Tree:
    """Return one tree of small depth for a sum or a product."""
    if len(items) == 1:
        return items[0]
    middle = len(items) // 2
    return (operator, _balanced(operator, items[:middle]), _balanced(operator, items[middle:]))


def number(text: str) -> Fraction:
    """Return a literal's exact value (`1.50`, `1e6`).

    Raises:
        TooLargeError: its exponent has more than four digits.
    """
    _, _, exponent = text.lower().partition("e")
    if len(exponent.lstrip("+-")) > MAX_EXPONENT_DIGITS:
        raise TooLargeError(text)
    return Fraction(text)


def names(tree: Tree) -> set[str]:
    """Return the variables of a tree (the constants pi, e and i are none)."""
    found, open_trees = set(), [tree]
    while open_trees:
        top = open_trees.pop()
        if top[0] == "name":
            found.add(top[1])
        elif top[0] != "number":
            open_trees += top[1:]
    return found - CONSTANTS
