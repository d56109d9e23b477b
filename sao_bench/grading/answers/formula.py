r"""A small reader of formulas: text after `extract.plain` to a tree of operators, numbers and names.

It reads LaTeX and plain notation alike: `\frac{1}{2}`, `\frac12`, `1/2`, `1\frac{1}{2}` (a mixed number),
`2x`, `x^{2}`, `x^10`, `\sqrt[3]{8}`, `sqrt(8)`, `\log_2 8`, `\sin^2 x`, `|x|`, `n!`, `\binom{n}{k}`,
`1e6`, `0.\overline{3}`. A tree is a tuple `(operator, operand, ...)`; leaves are `("number", Fraction)` and
`("name", str)`.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any, TypeAlias

Tree: TypeAlias = tuple[Any, ...]

MAX_CHARACTERS = 2000
MAX_DEPTH = 60
MAX_EXPONENT_DIGITS = 4

FUNCTIONS = frozenset(
    [
        "sin",
        "cos",
        "tan",
        "cot",
        "sec",
        "csc",
        "arcsin",
        "arccos",
        "arctan",
        "sinh",
        "cosh",
        "tanh",
        "ln",
        "log",
        "exp",
        "sqrt",
        "abs",
        "floor",
        "ceil",
    ]
)
ALIASES = {"lg": "log", "asin": "arcsin", "acos": "arccos", "atan": "arctan", "lnot": "", "dbinom": "binom"}
CONSTANTS = frozenset({"pi", "e", "i"})
GREEK = frozenset(
    [
        "alpha",
        "beta",
        "gamma",
        "delta",
        "epsilon",
        "varepsilon",
        "zeta",
        "eta",
        "theta",
        "vartheta",
        "iota",
        "kappa",
        "lambda",
        "mu",
        "nu",
        "xi",
        "rho",
        "sigma",
        "tau",
        "phi",
        "varphi",
        "chi",
        "psi",
        "omega",
        "Gamma",
        "Delta",
        "Theta",
        "Lambda",
        "Xi",
        "Pi",
        "Sigma",
        "Phi",
        "Psi",
        "Omega",
        "ell",
    ]
)
TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)|(?P<command>\\[a-zA-Z]+)"
    r"|(?P<word>[a-zA-Z]+)|(?P<mark>[-+*/^_!()\[\]{}|]))"
)
REPEATING = re.compile(r"(\d*)\.(\d*)\\overline\s*\{(\d+)\}")


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
    reader = _Reader(_tokens(REPEATING.sub(_repeating, text)))
    tree = reader.sum()
    if reader.peek() is not None:
        raise FormulaError(f"unexpected {reader.peek()!r}")
    return tree


def _repeating(match: re.Match[str]) -> str:
    whole, fixed, period = match.groups()
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
    if ALIASES.get(word, word) in FUNCTIONS or word in CONSTANTS:
        return [("command", word)]
    if len(word) > 3:
        raise FormulaError(f"unknown word {word!r}")
    return [("word", letter) for letter in word]


class _Reader:
    """Recursive descent over tokens; every method returns the tree of what it consumed."""

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

    def sum(self) -> Tree:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise FormulaError("too deep")
        tree = self.product()
        while self.kind() == "mark" and self.peek() in ("+", "-"):
            operator = self.next()
            tree = (operator, tree, self.product())
        self.depth -= 1
        return tree

    def product(self) -> Tree:
        tree = self.signed()
        while True:
            if self.kind() == "mark" and self.peek() in ("*", "/"):
                operator = self.next()
                tree = (operator, tree, self.signed())
            elif self.starts_factor():
                previous = self.tokens[self.position - 1]
                if self.kind() == "number" and previous[0] == "number":
                    raise FormulaError("two numbers without an operator")
                tree = ("*", tree, self.power())
            else:
                return tree

    def starts_factor(self) -> bool:
        if self.kind() in ("number", "word", "command"):
            return True
        return self.peek() in ("(", "[", "{") or (self.peek() == "|" and not self.bars)

    def signed(self) -> Tree:
        sign = False
        while self.kind() == "mark" and self.peek() in ("+", "-"):
            sign ^= self.next() == "-"
        tree = self.power()
        return ("neg", tree) if sign else tree

    def power(self) -> Tree:
        tree = self.atom()
        while self.accept("!"):
            tree = ("factorial", tree)
        if self.accept("^"):
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise FormulaError("too deep")
            tree = ("^", tree, self.signed())
            self.depth -= 1
        return tree

    def atom(self) -> Tree:
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
        tree = self.sum()
        self.bars = outer
        self.expect({"(": ")", "[": "]", "{": "}"}[opening])
        return tree

    def argument(self) -> Tree:
        """Read `{...}`, or the single digit or name that TeX takes without braces."""
        if self.accept("{"):
            return self.group("{")
        if self.kind() == "number":
            digits = self.next()
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
        if name in FUNCTIONS:
            return self.function(name)
        if name in CONSTANTS:
            return ("name", name)
        if name in GREEK:
            return self.name(name)
        raise FormulaError(f"unknown command {name!r}")

    def root(self) -> Tree:
        degree: Tree = ("number", Fraction(2))
        if self.accept("["):
            degree = self.group("[")
        return ("root", self.argument(), degree)

    def function(self, name: str) -> Tree:
        base = self.argument() if name == "log" and self.accept("_") else None
        exponent = self.argument_or_signed() if self.accept("^") else None
        if self.kind() == "mark" and self.peek() in ("(", "{", "["):
            tree = self.group(self.next())
        else:
            tree = self.signed()
            while self.kind() in ("word", "number") or self.peek() == "pi":
                tree = ("*", tree, self.power())
        call: Tree = (name, tree) if base is None else ("log", tree, base)
        return call if exponent is None else self.powered(call, exponent)

    def argument_or_signed(self) -> Tree:
        return self.signed() if self.peek() == "-" else self.argument()

    def powered(self, call: Tree, exponent: Tree) -> Tree:
        if exponent == ("neg", ("number", Fraction(1))) and f"arc{call[0]}" in FUNCTIONS:
            return (f"arc{call[0]}", call[1])
        return ("^", call, exponent)

    def name(self, letters: str) -> Tree:
        if not self.accept("_"):
            return ("name", letters)
        if self.accept("{"):
            subscript = ""
            while not self.accept("}"):
                subscript += self.next()
        else:
            subscript = self.next()
        return ("name", f"{letters}_{subscript}")


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
    if tree[0] == "name":
        return set() if tree[1] in CONSTANTS else {tree[1]}
    return set().union(*(names(child) for child in tree[1:] if isinstance(child, tuple)))
