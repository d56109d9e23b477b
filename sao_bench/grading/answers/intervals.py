"""Unions of intervals, from brackets, inequalities, set builders and words."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TypeAlias

from sao_bench.grading.answers.scalars import NAME, AnswerFormatError, approximate, scalar, split
from sao_bench.grading.answers.typesetting import unwrap_text
from sao_bench.grading.answers.values import after_membership

Cut: TypeAlias = tuple[Fraction, int]
"""(value, -1 / 0 / 1): just below, at or just above it."""
Parts: TypeAlias = list[tuple[Cut, Cut]]

INFINITY = Fraction(10) ** 7000
"""Stands for an infinite end: larger than any number that `approximate` returns."""
ALL: Parts = [((-INFINITY, 1), (INFINITY, -1))]
HALVES = {
    ">0": ((Fraction(0), 1), (INFINITY, -1)),
    "≥0": ((Fraction(0), -1), (INFINITY, -1)),
    "<0": ((-INFINITY, 1), (Fraction(0), -1)),
    "≤0": ((-INFINITY, 1), (Fraction(0), 1)),
}
SIGNED = {"+": ">0", "-": "<0"}
EVERYTHING = re.compile(
    r"(?:for )?(?:all|any|every) (?:real|reals|real numbers?|real values?)(?: of)?(?: \w)?", re.I
)
BUILDER = re.compile(r"⦃ ?(?P<name>\\?[a-zA-Z]\w*)(?: ?∈ ?(?P<domain>[^|:]*))? ?[|:](?P<condition>.*)⦄")
DISTANCE = re.compile(
    r"\| ?(?:\\?[a-zA-Z]\w*) ?(?:(?P<shift>[-+].*?))? ?\| ?(?P<sign>[<>≤≥]) ?(?P<radius>.+)"
)
UNEQUAL = re.compile(r"\\?[a-zA-Z]\w* ?≠ ?(.+)")
NEVER: Parts = []


def interval_set(text: str, strict: bool = False) -> Parts:
    r"""Return the disjoint parts, in order, of a union of intervals.

    Reads `(0,1]`, `]0,1]`, `x ∈ (0,1]`, `0 < x ≤ 1`, `x > 3`, `|x| < 2`, `x ≠ 0`, `\{x : 0 < x < 1\}`,
    `\mathbb{R} \setminus \{0\}`, singletons `{a}` and words for all real numbers.

    Args:
        text: the answer.
        strict: refuse an interval whose ends are in the wrong order; else it is empty.

    Raises:
        AnswerFormatError: it is something else.
        TooLargeError: an end is beyond any answer.
    """
    text = after_membership(unwrap_text(text))
    if builder := BUILDER.fullmatch(text):
        domain = builder["domain"]
        found = interval_set(builder["condition"].strip(), strict)
        return (
            intersection(found, interval_set(domain.strip(), strict)) if domain and domain.strip() else found
        )
    parts: Parts = []
    for piece in re.split(r"\bor\b|\bU\b", text):
        first, *others = (_union(member.strip(), strict) for member in re.split(r"\band\b", piece))
        for other in others:
            first = intersection(first, other)
        parts += first
    return merged(parts)


def _union(text: str, strict: bool) -> Parts:
    parts: Parts = []
    for piece in re.split(r"∪", text):
        first, *others = re.split(r"(?=[∩∖])", piece)
        whole = _one(first.strip(), strict)
        for other in others:
            right = _one(other[1:].strip(), strict)
            whole = intersection(whole, right if other[0] == "∩" else complement(right))
        parts += whole
    return merged(parts)


def _one(text: str, strict: bool) -> Parts:
    text = after_membership(text)
    squeezed = re.sub(r"[ {}]", "", text)
    if squeezed == "ℝ" or EVERYTHING.fullmatch(text):
        return ALL
    if squeezed[:2] in ("ℝ^", "ℝ_"):
        half = SIGNED.get(squeezed[2:], squeezed[2:])
        if half not in HALVES:
            raise AnswerFormatError("not a half of the real line")
        return [HALVES[half]]
    if text in ("∅", "⦃⦄", "⦃ ⦄"):
        return NEVER
    if unequal := UNEQUAL.fullmatch(text):
        points = [_point(item) for item in split(unequal.group(1))]
        return complement(merged([((value, -1), (value, 1)) for value in points]))
    if distance := DISTANCE.fullmatch(text):
        return _distance(distance)
    if re.search(r"[<>≤≥]", text):
        return _part(*_inequality(text), strict)
    if text[:1] in ("⦃", "{") and text[-1:] in ("⦄", "}"):
        return merged([_part(item, True, item, True, strict)[0] for item in split(text[1:-1])])
    match = re.fullmatch(r"([(\[\]])(.*)([)\[\]])", text)
    ends = re.split(r"[,;]", match.group(2)) if match else []
    if not match or len(ends) != 2:
        raise AnswerFormatError("not an interval")
    return _part(ends[0].strip(), match.group(1) == "[", ends[1].strip(), match.group(3) == "]", strict)


def _part(low: str, low_closed: bool, high: str, high_closed: bool, strict: bool) -> Parts:
    start = (_end(low), -1 if low_closed else 1)
    stop = (_end(high), 1 if high_closed else -1)
    if strict and start[0] > stop[0]:
        raise AnswerFormatError("the ends of an interval are in the wrong order")
    return [(start, stop)] if start < stop else []


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


def _distance(match: re.Match[str]) -> Parts:
    """Return where |x - a| is below or above a radius."""
    shift = match["shift"]
    centre = -_point(shift.replace(" ", "")) if shift else Fraction(0)
    radius = _point(match["radius"])
    closed = 1 if match["sign"] in "≤≥" else -1
    if match["sign"] in "<≤":
        start, stop = (centre - radius, -closed), (centre + radius, closed)
        return [(start, stop)] if start < stop else NEVER
    if radius < 0:
        return ALL
    inside: Parts = [((centre - radius, closed), (centre + radius, -closed))]
    return complement([part for part in inside if part[0] < part[1]])


def _point(text: str) -> Fraction:
    value = approximate(scalar(text).plain)
    return value.limit_denominator(10**30) if value.denominator.bit_length() > 100 else value


def _end(text: str) -> Fraction:
    bare = text.replace(" ", "").lstrip("+")
    if bare in ("∞", "-∞"):
        return INFINITY if bare == "∞" else -INFINITY
    return _point(text)


def merged(parts: Parts) -> Parts:
    """Return disjoint parts in order."""
    found: Parts = []
    for start, stop in sorted(parts):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], stop))
        else:
            found.append((start, stop))
    return found


def intersection(some: Parts, others: Parts) -> Parts:
    """Return what two unions have in common."""
    both = [(max(a[0], b[0]), min(a[1], b[1])) for a in some for b in others]
    return merged([part for part in both if part[0] < part[1]])


def complement(parts: Parts) -> Parts:
    """Return the real numbers outside of disjoint parts in order."""
    found, start = [], ALL[0][0]
    for low, high in parts:
        if start < low:
            found.append((start, low))
        start = max(start, high)
    if start < ALL[0][1]:
        found.append((start, ALL[0][1]))
    return found
