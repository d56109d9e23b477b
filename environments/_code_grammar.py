"""A seeded grammar of small pure functions, each with the words of what it computes.

Programs are pure, loops run over arguments or a small `range`, nothing recurses and nothing is imported, so that
every program of this grammar, and every mutant of one, can be trusted to end. Difficulty 1 is one expression or two
updates; 2 a few statements; 3 a loop over a list, a text or a range; 4 a loop that calls a helper; 5 two
helpers, a loop with branches and a guard on the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

FAMILIES = ("operator", "constant", "condition", "branch", "variable", "order")
"""The six families of bugs: swapped operator, off-by-one constant, inverted condition, removed branch, wrong
variable, shuffled lines."""

DIFFICULTIES = (1, 2, 3, 4, 5)
OPERATORS = {"+": "plus", "-": "minus", "*": "times", "//": "over", "%": "mod"}
RELATIONS = {
    ">": "above",
    "<": "below",
    ">=": "at least",
    "<=": "at most",
    "==": "equal to",
    "!=": "other than",
}
LETTERS = "abc"


@dataclass(frozen=True, slots=True)
class Program:
    """A module of one or more functions, the last of which is the entry.

    Attributes:
        source: Python with one space of indentation per level.
        kinds: one of `int`, `list`, `text`, `count` (a small int) per parameter of the entry.
        words: what the entry computes, in a phrase.
        entry: its name.
    """

    source: str
    kinds: tuple[str, ...]
    words: str
    entry: str = "f"


class Writer:
    """Writes programs from one generator."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng

    # -- parts -----------------------------------------------------------------------------------------------

    def of(self, *options: str) -> str:
        """Draw one of some texts."""
        return options[int(self.rng.integers(len(options)))]

    def number(self, low: int = 2, high: int = 9) -> str:
        """Draw a whole number, both ends included."""
        return str(int(self.rng.integers(low, high + 1)))

    def two(self, *options: str) -> tuple[str, str]:
        """Draw two different texts."""
        first = self.of(*options)
        return first, self.of(*(option for option in options if option != first))

    def relation(self, left: str, right: str, strict: bool = False) -> tuple[str, str]:
        """Return a comparison and its words."""
        sign = self.of(">", "<") if strict else self.of(*RELATIONS)
        return f"{left}{sign}{right}", f"{left} {RELATIONS[sign]} {right}"

    def sides(self, *names: str) -> tuple[str, str]:
        """Draw two operands: two names, or a name and a number."""
        if len(names) > 1 and self.rng.random() < 0.6:
            return self.two(*names)
        return self.of(*names), self.number()

    def binary(self, *names: str) -> tuple[str, str]:
        """Return an operation of two operands and its words."""
        sign = self.of(*OPERATORS)
        left, right = self.sides(*names)
        return f"{left}{sign}{right}", f"{left} {OPERATORS[sign]} {right}"

    def update(self, name: str, *names: str) -> tuple[str, str]:
        """Return an update of a variable and its words."""
        sign, right = self.of("+", "-", "*"), self.of(*names, self.number())
        return f"{name}{sign}={right}", f"{OPERATORS[sign]} {right}"

    def updates(self, name: str) -> tuple[str, str, str]:
        """Return two updates that do not commute, and their words."""
        first, second = self.of("+", "-"), self.of("*", "//", "%")
        if self.rng.random() < 0.5:
            first, second = second, first
        m, n = self.number(), self.number()
        words = f"{name} {OPERATORS[first]} {m}, then {OPERATORS[second]} {n}"
        return f"{name}{first}={m}", f"{name}{second}={n}", words

    # -- difficulty 1 ----------------------------------------------------------------------------------------

    def names_operation(self) -> Program:
        """Return an operation of two parameters."""
        sign, (left, right) = self.of(*OPERATORS), self.two("a", "b")
        return self._plain("a,b", f"return {left}{sign}{right}", f"{left} {OPERATORS[sign]} {right}")

    def number_operation(self) -> Program:
        """Return an operation of a parameter and a number."""
        sign, number = self.of(*OPERATORS), self.number()
        return self._plain("a", f"return a{sign}{number}", f"a {OPERATORS[sign]} {number}")

    def choice(self) -> Program:
        """Return one of two values."""
        condition, told = self.relation(*self.two("a", "b"))
        yes, no = self.two("a", "b", self.number(1))
        return self._plain("a,b", f"return {yes} if {condition} else {no}", f"{yes} if {told}, else {no}")

    def number_choice(self) -> Program:
        """Return one of two values by a comparison with a number."""
        condition, told = self.relation("a", self.number(1), strict=True)
        yes, no = self.two("a", self.number(1))
        return self._plain("a", f"return {yes} if {condition} else {no}", f"{yes} if {told}, else {no}")

    def two_updates(self) -> Program:
        """Return a parameter after two updates."""
        first, second, words = self.updates("a")
        return self._plain("a", f"{first}\n{second}\nreturn a", words)

    def _plain(self, names: str, body: str, words: str) -> Program:
        return Program(_function("f", names, body), ("int",) * len(names.split(",")), words)

    # -- difficulty 2 ----------------------------------------------------------------------------------------

    def three_terms(self) -> Program:
        """Return an operation on an operation."""
        inner, told = self.binary("a", "b")
        sign, last = self.of(*OPERATORS), self.of("c", self.number())
        return self._plain(
            "a,b,c", f"return ({inner}){sign}{last}", f"{told}, all that {OPERATORS[sign]} {last}"
        )

    def steps(self) -> Program:
        """Return a local variable after two updates."""
        start, told = self.binary("a", "b")
        first, second, words = self.updates("c")
        return self._plain(
            "a,b", f"c={start}\n{first}\n{second}\nreturn c", f"c is {told}; the result is {words}"
        )

    def guarded(self) -> Program:
        """Return one of two operations by a guard."""
        condition, told = self.relation("a", self.of("b", self.number(1)), strict=True)
        (yes, yes_told), (no, no_told) = self.binary("a", "b"), self.binary("a", "b")
        body = f"if {condition}:\n return {yes}\nreturn {no}"
        return self._plain("a,b", body, f"{yes_told} if {told}, else {no_told}")

    def clamped(self) -> Program:
        """Return an operation on a parameter that is bounded first."""
        bound, (value, told) = self.number(2, 7), self.binary("a", "b")
        sign, most = ("<", "least") if self.rng.random() < 0.5 else (">", "most")
        body = f"if a{sign}{bound}:\n a={bound}\nreturn {value}"
        return self._plain("a,b", body, f"{told}, with a at {most} {bound}")

    # -- difficulty 3: `term` is what a loop makes of each item, or a call of a helper ------------------------

    def fold(self, term: tuple[str, str] | None = None) -> Program:
        """Return a number gathered over a list."""
        start = self.number(0, 3)
        value, told = term or self.binary("x", "k")
        condition, when = self.relation("x", self.of("k", self.number(0, 4)), strict=True)
        body = f"r={start}\nfor x in xs:\n if {condition}:\n  r+={value}\nreturn r"
        words = f"{start} and, for each x of xs {when[2:]}, also {told}"
        return Program(_function("f", "xs,k", body), ("list", "int"), f"the sum of {words}")

    def kept(self, term: tuple[str, str] | None = None) -> Program:
        """Return a list made from a list."""
        value, told = term or self.binary("x", "k")
        condition, when = self.relation("x", self.number(0, 4))
        body = f"r=[]\nfor x in xs:\n if {condition}:\n  x={value}\n r.append(x)\nreturn r"
        return Program(
            _function("f", "xs,k", body), ("list", "int"), f"xs with each x {when[2:]} made {told}"
        )

    def best(self) -> Program:
        """Return what is done with the largest or the smallest item; an empty list is an IndexError."""
        sign, most = self.of("<", ">"), {"<": "smallest", ">": "largest"}
        first, second, words = self.updates("r")
        body = f"r=xs[0]\nfor x in xs:\n if x{sign}r:\n  r=x\n{first}\n{second}\nreturn r"
        return Program(_function("f", "xs", body), ("list",), f"r, the {most[sign]} of xs, made {words}")

    def repeated(self, term: tuple[str, str] | None = None) -> Program:
        """Return a number that is updated several times."""
        value, told = term or self.binary("i", "k")
        last, words = self.update("r", "i")
        condition, when = self.relation("r", self.number(5), strict=True)
        body = f"r=k\nfor i in range(n):\n r+={value}\n if {condition}:\n  {last}\nreturn r"
        told = f"k, updated for i from 0 to n-1: plus {told}, then, if {when}, {words}"
        return Program(_function("f", "n,k", body), ("count", "int"), told)

    def text(self) -> Program:
        """Return a text made from a text."""
        letter, times = self.of(*LETTERS), self.number(2, 3)
        sign = self.of("==", "!=")
        tail, told = {"+=c": ("r+=c", "kept"), "=c+r": ("r=c+r", "put in front of the others")}[
            self.of("+=c", "=c+r")
        ]
        body = f"r=''\nfor c in s:\n if c{sign}'{letter}':\n  c=c*{times}\n {tail}\nreturn r"
        words = f"s with each c {RELATIONS[sign]} '{letter}' taken {times} times, and each {told}"
        return Program(_function("f", "s", body), ("text",), words)

    # -- difficulty 4 and 5 ----------------------------------------------------------------------------------

    def helped(self) -> Program:
        """Return a loop that calls a helper."""
        helper = self._helper("g", self.of("two_updates", "choice", "guarded", "clamped", "steps"))
        term = ("g(x,k)", "g of x and k") if len(helper.kinds) == 2 else ("g(x)", "g of x")
        loop = self.fold(term) if self.rng.random() < 0.5 else self.kept(term)
        return replace(loop, source=helper.source + loop.source, words=f"{loop.words}; {helper.words}")

    def branched(self) -> Program:
        """Return a loop that branches between two helpers, with a guard on its result."""
        g = self._helper("g", self.of("steps", "guarded", "clamped"))
        h = self._helper("h", self.of("guarded", "clamped", "choice"))
        low, high, limit = self.number(0, 2), self.number(4, 6), self.number(15, 40)
        first, second, words = self.updates("r")
        body = (
            f"r=0\nfor x in xs:\n if x<{low}:\n  r+=g(x,k)\n elif x<{high}:\n  r+=h(x,k)\n else:\n  r+=x\n"
            f"if r>{limit}:\n r={limit}\n{first}\n{second}\nreturn r"
        )
        told = (
            f"r, the sum over xs of g of x and k where x below {low}, h of x and k where x below {high}, else x;"
            f" at most {limit}; made {words}; {g.words}; {h.words}"
        )
        return Program(g.source + h.source + _function("f", "xs,k", body), ("list", "int"), told)

    def _helper(self, name: str, shape: str) -> Program:
        made: Program = getattr(self, shape)()
        names = ("a", "b")[: len(made.kinds)]
        source = made.source.replace("def f(", f"def {name}(", 1)
        return replace(
            made, source=source, words=f"{name} of {' and '.join(names)} is {made.words}", entry=name
        )


SHAPES: dict[int, dict[str, tuple[Callable[[Writer], Program], ...]]] = {
    1: {
        "operator": (Writer.names_operation, Writer.number_operation),
        "constant": (Writer.number_operation, Writer.number_choice),
        "condition": (Writer.choice, Writer.number_choice),
        "branch": (Writer.choice, Writer.number_choice),
        "variable": (Writer.names_operation, Writer.choice),
        "order": (Writer.two_updates,),
    },
    2: {
        "operator": (Writer.three_terms, Writer.steps, Writer.guarded, Writer.clamped),
        "constant": (Writer.three_terms, Writer.steps, Writer.guarded, Writer.clamped),
        "condition": (Writer.guarded, Writer.clamped),
        "branch": (Writer.guarded, Writer.clamped),
        "variable": (Writer.three_terms, Writer.guarded, Writer.clamped),
        "order": (Writer.steps,),
    },
    3: {
        **dict.fromkeys(
            ("operator", "condition", "branch", "variable"),
            (Writer.fold, Writer.kept, Writer.best, Writer.repeated, Writer.text),
        ),
        "constant": (Writer.fold, Writer.kept, Writer.best, Writer.repeated),
        "order": (Writer.best, Writer.kept, Writer.repeated, Writer.text),
    },
    4: dict.fromkeys(FAMILIES, (Writer.helped,)),
    5: dict.fromkeys(FAMILIES, (Writer.branched,)),
}
"""Difficulty -> family -> the shapes of programs that a bug of the family fits into."""


def write(rng: np.random.Generator, difficulty: int, family: str) -> Program:
    """Draw a program of a difficulty that a bug of a family fits into."""
    shapes = SHAPES[difficulty][family]
    return shapes[int(rng.integers(len(shapes)))](Writer(rng))


def inputs(rng: np.random.Generator, kinds: tuple[str, ...], count: int) -> list[list[int | str | list[int]]]:
    """Draw different argument lists, the plainest (0, the empty list, the empty text) as the last."""
    plain: dict[str, int | str | list[int]] = {"int": 0, "count": 0, "list": [], "text": ""}
    last = [plain[kind] for kind in kinds]
    found: list[list[int | str | list[int]]] = []
    for _ in range(4 * count):
        drawn = [_input(rng, kind) for kind in kinds]
        if drawn != last and drawn not in found:
            found.append(drawn)
        if len(found) == count - 1:
            break
    return [*found, last]


def _input(rng: np.random.Generator, kind: str) -> int | str | list[int]:
    match kind:
        case "int":
            return int(rng.integers(0, 10))
        case "count":
            return int(rng.integers(0, 6))
        case "list":
            return rng.integers(-3, 10, int(rng.integers(0, 6))).tolist()
    return "".join(LETTERS[i] for i in rng.integers(0, len(LETTERS), int(rng.integers(0, 7))))


def _function(name: str, parameters: str, body: str) -> str:
    """Return a function from its body, each line of which goes one level deeper."""
    lines = "".join(f" {line}\n" for line in body.split("\n"))
    return f"def {name}({parameters}):\n{lines}"
