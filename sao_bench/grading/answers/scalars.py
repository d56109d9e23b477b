"""Single values: their sides, labels, units and the readings that a unit leaves open."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal, TypeAlias

from sao_bench.grading.answers.evaluate import InexactError, UndefinedError, exact, numeric
from sao_bench.grading.answers.formula import FormulaError, TooLargeError, Tree, parse
from sao_bench.grading.answers.typesetting import QUOTE, UNQUOTE, mark_text, unmark
from sao_bench.grading.answers.units import Measured, without_units
from sao_bench.grading.answers.vocabulary import FUNCTIONS, LISTED

OPENING, CLOSING = "([{⦃", ")]}⦄"
NAME = re.compile(
    r"(?:\\angle )?\\?[a-zA-Z]+'*(?: [a-zA-Z]+)*(?:_(?:\w|\{[^{}]*\}))?(?:\([a-zA-Z](?:, ?[a-zA-Z])*\))?"
)
LABEL = re.compile(
    r"(?:\\(?:overline|overrightarrow|overleftrightarrow|vec|widehat|hat|bar|angle|triangle|m\\angle) ?"
    r"(?:\{[a-zA-Z]+\}|[a-zA-Z]+)|\|[A-Z]+\||\[[A-Z]+\]"
    r"|\\(?:sin|cos|tan|cot|sec|csc) ?(?:\\?[a-zA-Z]+|[({][a-zA-Z +\-\\]+[)}])"
    r"|\\?(?P<call>[a-zA-Z]+)'*(?:_(?:\w|\{[^{}]*\}))?(?:\^\{-1\})?\([^()]*\)"
    r"|\\frac ?\{[a-zA-Z]+\} ?\{[a-zA-Z]+\})"
)
NOT_LABELS = re.compile(
    r"\\(?:pi|frac(?! ?\{)|sqrt|infty|sum|int|prod|lim|neg|lnot|not)(?![a-zA-Z])|\b(?:not|or|pi)\b"
)
LEAD = re.compile(rf"^{QUOTE}?\s*(?:the )?(?:final )?answer(?: is)?\s*:?\s*{UNQUOTE}?\s*(?=.)", re.I)
MODULUS = re.compile(rf"\\pmod ?(?:\{{\w+\}}|\w)$|{QUOTE}? ?\( ?mod \w+ ?\) ?{UNQUOTE}?$")
DOMAIN = re.compile(
    rf", ?(?:{QUOTE}? ?(?:for|where|with)?(?: all| any| some| every)?(?: integers?)? ?{UNQUOTE}? ?)?[a-zA-Z] ?∈ ?"
    r"(?:\\mathbb ?(?:\{ ?[ZNQC] ?\}|[ZNQC])|ℝ)(?: ?\^ ?\{?[+*]\}?)?$"
)
SIGN = re.compile(rf"^{QUOTE}? ?(?:negative|minus) ?{UNQUOTE}? ?(?=[\d.\\])")
THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:(?:,\d{3})+|(?: \d{3})+)(?![\d,])(?! \d)")
CURRENCY = re.compile(
    rf"^(-?)\s*(?:{QUOTE}\s*)?(?:[€£¥₹]|\\(?:pounds|euro)(?![a-zA-Z])|(?:US|USD|EUR|GBP|Rs\.?)(?=[\s\d{UNQUOTE}]))\s*{UNQUOTE}?\s*"
)
LITERAL = re.compile(
    r"([+-]?)(?:(\d+)(?:\.(\d*))?|\.(\d+))(?: ?[eE]([+-]?\d{1,4})| ?\* ?10 ?\^ ?\{? ?([+-]?\d{1,4}) ?\}?)?"
)

Mark: TypeAlias = Literal["", "percent", "degrees"]


class AnswerFormatError(ValueError):
    """The text is not a value of the wanted type."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a chain of equalities; `rounded` if an approximation sign is beside it."""

    text: str
    rounded: bool = False


@dataclass(frozen=True, slots=True)
class Scalar:
    """What a value can mean: as it stands, and with its mark taken at its word (hundredths, radians)."""

    body: str
    plain: Tree
    marked: Tree
    mark: Mark = ""


def split(text: str, separators: str = ",") -> list[str]:
    """Split at the separators outside every bracket; intervals' unlike brackets count as a pair."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character in OPENING) - (character in CLOSING)
        if character in separators and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [part.strip() for part in (*parts, text[start:])]


def chain(text: str, numbers: bool = False) -> list[Side]:
    """Split a chain of equalities and drop the sides that only name the unknown (`x = 5`, `5 = x`).

    Args:
        text: the answer.
        numbers: whether the answer is a number, so that `m+n` can only be a name for it.
    """
    text = LEAD.sub("", mark_text(text), count=1)
    if text.count(QUOTE) < text.count(UNQUOTE):
        text = text.replace(UNQUOTE, "")
    text = DOMAIN.sub("", text)
    if match := MODULUS.search(text):
        text = text[: match.start()].replace("\\equiv", "=")
    parts = split(text, "=≈")
    signs = [character for character in _outside(text) if character in "=≈"]
    sides = []
    for index, part in enumerate(parts):
        around = signs[max(index - 1, 0) : index + 1]
        cut = part.endswith("...")
        if part:
            sides.append(Side(part, "≈" in around or cut))
    if len(sides) <= 1:
        return sides or [Side("")]
    return [side for side in sides if not is_label(side.text, numbers)] or sides[-1:]


def sides(text: str) -> list[str]:
    """Return the texts of a chain's sides, names of the unknown left out."""
    return [side.text for side in chain(text)]


def _outside(text: str) -> str:
    """Return the characters outside every bracket."""
    depth, found = 0, []
    for character in text:
        depth += (character in OPENING) - (character in CLOSING)
        if depth == 0:
            found.append(character)
    return "".join(found)


def is_label(side: str, numbers: bool) -> bool:
    r"""Whether a side of an equality only names what is asked for: `x`, `\text{Area}`, `P(X=1)`, `|AB|`."""
    text = unmark(side)
    if NOT_LABELS.search(text):
        return False
    parts = [part.strip() for part in re.split(r"[-+*]", text)] if numbers else [text]
    return _is_name(text) or all(map(_is_name, parts))


def _is_name(text: str) -> bool:
    if NAME.fullmatch(text):
        return True
    found = LABEL.fullmatch(text)
    return bool(found) and found["call"] not in FUNCTIONS | LISTED | {"binom"}  # type: ignore[index]


def measured(text: str, letters: bool) -> Measured:
    """Drop what is around a value: currency, thousands separators, units."""
    text = mark_text(text)
    prose = unmark_value(text)
    found = without_units(CURRENCY.sub(r"\1", SIGN.sub("-", prose)), letters or prose != text)
    value = THOUSANDS.sub(lambda match: re.sub(r"[ ,]", "", match.group()), unmark(found.value))
    if percent := re.fullmatch(r"(.*?) ?\\?%", value):
        return Measured(percent.group(1), found.factor, percent=True)
    return Measured(value, found.factor, found.percent)


def unmark_value(text: str) -> str:
    r"""Drop marks around a whole value (`\text{7}`); other prose stays marked and is no formula."""
    bare = text.strip()
    if bare[:1] == QUOTE and bare.find(UNQUOTE) == len(bare) - 1:
        return bare[1:-1].strip()
    return bare


@lru_cache(maxsize=512)
def scalar(text: str, letters: bool = False) -> Scalar:
    """Read a value.

    Raises:
        AnswerFormatError: it is not a number or formula.
        TooLargeError: a literal is beyond any answer.
    """
    found = measured(text, letters)
    value = found.value
    if mixed := re.fullmatch(r"(-?)(\d+) (\d+)/(\d+)", value):
        sign, whole, top, bottom = mixed.groups()
        value = f"{sign}({whole}+{top}/{bottom})"
    try:
        tree = parse(value)
    except FormulaError as error:
        raise AnswerFormatError(str(error)) from error
    if found.factor != 1:
        tree = ("*", tree, ("number", Fraction(found.factor)))
    if found.percent:
        return Scalar(value, tree, ("/", tree, ("number", Fraction(100))), "percent")
    bare = _without_degrees(tree)
    return Scalar(value, bare, tree, "degrees" if bare != tree else "")


def _without_degrees(tree: Tree) -> Tree:
    """Take degrees as mere numbers, except as the argument of a function."""
    if tree[0] == "degrees":
        return tree[1]
    if tree[0] in ("+", "-", "neg", "*", "/"):
        return (tree[0], *(_without_degrees(child) for child in tree[1:]))
    return tree


def pairs(right: Scalar, given: Scalar) -> list[tuple[Tree, Tree]]:
    """Return the readings to compare: like with like, and a mark on one side only may be left out.

    A percentage may go without its sign only from 1 on: `0.5%` is no half.
    """
    if right.mark == given.mark:
        return [(right.plain, given.plain)]
    if right.mark and given.mark:
        return [(right.marked, given.marked)]
    found = [(right.marked, given.marked)]
    if "percent" not in (right.mark, given.mark) or _at_least_one(right.plain):
        found.append((right.plain, given.plain))
    return found


def _at_least_one(tree: Tree) -> bool:
    try:
        return abs(approximate(tree)) >= 1
    except (AnswerFormatError, TooLargeError):
        return False


def approximate(tree: Tree) -> Fraction:
    """Return the real value of a tree, exact if it is rational, else from 400 digits.

    Raises:
        AnswerFormatError: it has variables or is not real.
        TooLargeError: it is beyond any answer.
    """
    try:
        return exact(tree)
    except InexactError:
        pass
    except UndefinedError as error:
        raise AnswerFormatError(str(error)) from error
    try:
        value = numeric(tree)
    except (InexactError, UndefinedError) as error:
        raise AnswerFormatError(str(error)) from error
    if getattr(value, "imag", 0) != 0:
        raise AnswerFormatError("not real")
    sign, mantissa, exponent, _ = value.real._mpf_
    if abs(exponent) > 1_000_000:
        raise TooLargeError("exponent")
    return Fraction((-1) ** sign * int(mantissa)) * Fraction(2) ** int(exponent)


def last_place(body: str) -> tuple[Fraction, int] | None:
    """Return the value of a literal's last digit and its count of significant digits; None for formulas."""
    match = LITERAL.fullmatch(body.strip())
    if not match:
        return None
    _, whole, fraction, bare_fraction, *exponents = match.groups()
    decimals = fraction or bare_fraction or ""
    exponent = int(next((found for found in exponents if found), "0"))
    digits = ((whole or "") + decimals).lstrip("0")
    return Fraction(10) ** (exponent - len(decimals)), len(digits)


def rounds_to(exact_value: Fraction, side: str) -> bool:
    """Whether a side is a decimal that this value is rounded or cut off to."""
    found = measured(side.removesuffix("..."), letters=True)
    place = last_place(found.value)
    if place is None or (place[1] == 0 and exact_value != 0):
        return False
    try:
        unit, value = place[0] * found.factor, exact(parse(found.value)) * found.factor
    except (FormulaError, TooLargeError):
        return False
    if found.percent:
        unit, value = unit / 100, value / 100
    cut_off = 0 <= abs(exact_value) - abs(value) < unit and exact_value * value >= 0
    return abs(exact_value - value) <= unit / 2 or cut_off
