"""Answers as values: scalars with their readings, sets, tuples, unions of intervals."""

from __future__ import annotations

import re
from fractions import Fraction

from sao_bench.grading.answers.evaluate import InexactError, UndefinedError, exact, numeric
from sao_bench.grading.answers.extract import unwrap_text
from sao_bench.grading.answers.formula import FormulaError, Tree, parse

OPENING, CLOSING = "([{⦃", ")]}⦄"
NAME = re.compile(
    r"(?:\\angle )?\\?[a-zA-Z]+'*(?: [a-zA-Z]+)*(?:_(?:\w|\{\w+\}))?(?:\([a-zA-Z](?:, ?[a-zA-Z])*\))?"
)
THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:(?:,\d{3})+|(?: \d{3})+)(?![\d,])")
SHORT_UNITS = frozenset(
    [
        "m",
        "s",
        "g",
        "h",
        "l",
        "L",
        "N",
        "J",
        "W",
        "V",
        "A",
        "K",
        "C",
        "F",
        "Hz",
        "kg",
        "mg",
        "cm",
        "mm",
        "km",
        "nm",
        "ft",
        "in",
        "yd",
        "mi",
        "lb",
        "oz",
        "hr",
        "min",
        "sec",
        "ms",
        "mL",
        "ml",
        "kW",
        "kJ",
        "kN",
        "Pa",
        "mph",
        "kph",
        "rad",
        "deg",
        "sq",
        "cu",
        "pt",
        "am",
        "pm",
        "USD",
        "EUR",
    ]
)
NOT_UNITS = frozenset(
    [
        "or",
        "and",
        "not",
        "to",
        "than",
        "about",
        "either",
        "maybe",
        "pi",
        "sin",
        "cos",
        "tan",
        "log",
        "ln",
        "exp",
        "sqrt",
        "mod",
    ]
)
MULTIPLIERS = {"dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9}
CURRENCY = re.compile(r"^(-?)\s*(?:[€£¥]|\\(?:pounds|euro)(?![a-zA-Z]))\s*")


class AnswerFormatError(ValueError):
    """The text is not a value of the wanted type."""


def split(text: str, separators: str = ",") -> list[str]:
    """Split at the separators outside every bracket; intervals' unlike brackets count as a pair."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character in OPENING) - (character in CLOSING)
        if character in separators and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [part.strip() for part in (*parts, text[start:])]


def sides(text: str) -> list[str]:
    """Split a chain of equalities and drop the sides that only name the unknown (`x = 5`, `5 = x`)."""
    parts = [part for part in split(text, "=≈") if part] or [""]
    if len(parts) == 1:
        return parts
    return [part for part in parts if not NAME.fullmatch(part)] or parts[-1:]


def number_readings(text: str) -> list[Tree]:
    """Return what a scalar can mean: its units dropped, a percentage as it stands and as hundredths.

    Raises:
        AnswerFormatError: it is not a number or formula.
    """
    text = CURRENCY.sub(r"\1", unwrap_text(text))
    text = THOUSANDS.sub(lambda match: re.sub(r"[ ,]", "", match.group()), text)
    text, factor = _without_units(text)
    if mixed := re.fullmatch(r"(-?)(\d+) (\d+)/(\d+)", text):
        sign, whole, top, bottom = mixed.groups()
        text = f"{sign}({whole}+{top}/{bottom})"
    percent = re.fullmatch(r"(.*?)\s*(?:\\?%|percent)", text)
    try:
        tree = parse(percent.group(1) if percent else text)
    except FormulaError as error:
        raise AnswerFormatError(str(error)) from error
    if factor != 1:
        tree = ("*", tree, ("number", Fraction(factor)))
    return [tree, ("/", tree, ("number", Fraction(100)))] if percent else [tree]


def _without_units(text: str) -> tuple[str, int]:
    """Split `5 square metres` or `3 million dollars` after the number; the multiplier comes back apart."""
    match = re.fullmatch(r"(.*[\d)}])\s*((?:[a-zA-Z]+ ?(?:\^\{?\d\}?)?[ /.]*)+)", text)
    if not match:
        return text, 1
    body, tail = match.groups()
    factor = 1
    for word in re.findall(r"[a-zA-Z]+", tail):
        if word.lower() in MULTIPLIERS:
            factor *= MULTIPLIERS[word.lower()]
        elif word == "percent":
            return f"{body} %", factor
        elif word.lower() in NOT_UNITS or (len(word) < 3 and word not in SHORT_UNITS):
            return text, 1
    return body, factor


def set_items(text: str) -> list[str]:
    """Return the elements of `{a, b}`, of a bare list `a, b` (also with and / or) or of `x = ± a`.

    Raises:
        AnswerFormatError: the text is a tuple, an interval or another bracketed thing.
    """
    text = _after_membership(unwrap_text(text))
    if text in ("∅", "⦃⦄", "⦃ ⦄", "{}"):
        return []
    if (text[:1], text[-1:]) in (("⦃", "⦄"), ("{", "}")) and _matched(text):
        text = text[1:-1]
    elif _matched(text) or sum(text.count(b) for b in OPENING) != sum(text.count(b) for b in CLOSING):
        raise AnswerFormatError("a tuple or an interval, not a set")
    text = re.sub(r",?\s*\b(?:and|or)\b\s*", ",", text).replace(";", ",")
    return [item for part in split(text) for item in _both_signs(sides(part)[-1])]


def _both_signs(item: str) -> list[str]:
    return [item.replace("±", sign, 1) for sign in "+-"] if "±" in item else [item]


def _after_membership(text: str) -> str:
    match = re.fullmatch(r"[a-zA-Z]\w*\s*(?:∈|=)\s*(.*)", text)
    return match.group(1) if match else text


def _matched(text: str) -> bool:
    """Whether the text opens with a bracket that closes at the last character."""
    depth = 0
    if text[:1] not in OPENING:
        return False
    for position, character in enumerate(text):
        depth += (character in OPENING) - (character in CLOSING)
        if depth == 0:
            return position == len(text) - 1
    return False


def tuple_items(text: str) -> list[str]:
    """Return the entries of `(a, b)` or of a bare list `a, b`, in order.

    Raises:
        AnswerFormatError: the text is a set or an interval.
    """
    text = unwrap_text(text)
    match = re.fullmatch(r"\([a-zA-Z](?:_\w)?(?:, ?[a-zA-Z](?:_\w)?)*\) ?= ?(.*)|[a-zA-Z] ?= ?(\(.*)", text)
    text = next((group for group in match.groups() if group), text) if match else text
    if text[:1] == "(" and text[-1:] == ")" and _matched(text):
        text = text[1:-1]
    elif text[:1] in ("⦃", "[") or text[-1:] in ("⦄", "]"):
        raise AnswerFormatError("a set or an interval, not a tuple")
    return [sides(item)[-1] for item in split(text.replace(";", ","))]


def intervals(text: str) -> list[tuple[str, bool, str, bool]]:
    r"""Return (low, closed, high, closed) for each part of a union of intervals, ends as text.

    Reads `(0,1]`, `]0,1]`, `x ∈ (0,1]`, `0 < x ≤ 1`, `x > 3`, `\mathbb{R}` and singletons `{a}`.

    Raises:
        AnswerFormatError: it is something else.
    """
    text = _after_membership(unwrap_text(text))
    if text.replace(" ", "") in ("\\mathbb{R}", "ℝ", "\\R"):
        return [("-∞", False, "∞", False)]
    if text in ("∅", "⦃⦄"):
        return []
    found = []
    for part in re.split(r"∪|\bor\b|\bU\b", text):
        found += _interval(part.strip())
    return found


def _interval(part: str) -> list[tuple[str, bool, str, bool]]:
    if re.search(r"[<>≤≥]", part):
        return [_inequality(part)]
    if part[:1] in ("⦃", "{") and part[-1:] in ("⦄", "}"):
        return [(item, True, item, True) for item in split(part[1:-1])]
    match = re.fullmatch(r"([(\[\]])(.*)([)\[\]])", part)
    ends = re.split(r"[,;]", match.group(2)) if match else []
    if not match or len(ends) != 2:
        raise AnswerFormatError("not an interval")
    return [(ends[0].strip(), match.group(1) == "[", ends[1].strip(), match.group(3) == "]")]


def _inequality(part: str) -> tuple[str, bool, str, bool]:
    pieces = [piece.strip() for piece in re.split(r"([<>≤≥])", part)]
    if any(sign in ">≥" for sign in pieces[1::2]):
        flip = {">": "<", "≥": "≤", "<": ">", "≤": "≥"}
        pieces = [flip.get(piece, piece) for piece in reversed(pieces)]
    if any(sign in ">≥" for sign in pieces[1::2]) or len(pieces) not in (3, 5):
        raise AnswerFormatError("not a chain of inequalities in one direction")
    if len(pieces) == 5 and NAME.fullmatch(pieces[2]):
        return pieces[0], pieces[1] == "≤", pieces[4], pieces[3] == "≤"
    if len(pieces) == 3 and NAME.fullmatch(pieces[0]):
        return "-∞", False, pieces[2], pieces[1] == "≤"
    if len(pieces) == 3 and NAME.fullmatch(pieces[2]):
        return pieces[0], pieces[1] == "≤", "∞", False
    raise AnswerFormatError("not an inequality for one unknown")


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
    return Fraction((-1) ** sign * int(mantissa)) * Fraction(2) ** int(exponent)
