"""Answers of several values: the items of sets and tuples, with the names that a reply gives them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from sao_bench.grading.answers.scalars import CLOSING, OPENING, AnswerFormatError, sides, split, unmark_value
from sao_bench.grading.answers.typesetting import QUOTE, UNQUOTE, mark_text, unmark

UNKNOWN = r"\\?[a-zA-Z]+(?:_(?:\w|\{\w+\}))?"
NAMED = re.compile(rf"\( ?({UNKNOWN}(?: ?, ?{UNKNOWN})*) ?\) ?(?:=|∈) ?(.*)")
JOINING = re.compile(rf",? ?{QUOTE} ?(?:and|or) ?{UNQUOTE} ?|,? ?(?<![a-zA-Z])(?:and|or)(?![a-zA-Z]) ?")


NOTHING = re.compile(r"no (?:real )?(?:solutions?|roots?)|(?:the )?empty set", re.I)


@dataclass(frozen=True, slots=True)
class Item:
    """An element, and the unknown it is the value of, if the answer says so."""

    text: str
    name: str = ""


def matched(text: str) -> bool:
    """Whether the text opens with a bracket that closes at the last character."""
    depth = 0
    if text[:1] not in OPENING or not text:
        return False
    for position, character in enumerate(text):
        depth += (character in OPENING) - (character in CLOSING)
        if depth == 0:
            return position == len(text) - 1
    return False


def balanced(text: str) -> bool:
    """Whether as many brackets open as close."""
    return sum(text.count(b) for b in OPENING) == sum(text.count(b) for b in CLOSING)


def after_membership(text: str) -> str:
    """Drop `x ∈`, `S =` and `(x, y) ∈` before a value."""
    match = re.fullmatch(r"\\?[a-zA-Z]\w*\s*(?:∈|=)\s*(.*)", text) or re.fullmatch(
        rf"\( ?{UNKNOWN}(?: ?, ?{UNKNOWN})* ?\) ?(?:∈|=) ?(.*)", text
    )
    return match.group(1) if match else text


def _joined(text: str) -> str:
    """Put commas for `and`, `or` and semicolons."""
    return JOINING.sub(",", text).replace(";", ",")


def set_items(text: str) -> list[Item]:
    """Return the elements of `{a, b}`, of a union of such, of a bare list `a, b` (also with and / or) or `± a`.

    Raises:
        AnswerFormatError: the text is a tuple, an interval or another bracketed thing.
    """
    text = unmark_value(mark_text(text))
    bare = after_membership(text)
    union = split(bare, "∪")
    if len(union) > 1:
        if not all(matched(part) and part[0] in "⦃{" for part in union):
            raise AnswerFormatError("a union of something else than sets")
        return [item for part in union for item in set_items(part)]
    if bare in ("∅", "⦃⦄", "⦃ ⦄", "{}") or NOTHING.fullmatch(unmark(bare)):
        return []
    if (bare[:1], bare[-1:]) in (("⦃", "⦄"), ("{", "}")) and matched(bare):
        bare = bare[1:-1]
    elif matched(bare) or not balanced(bare):
        raise AnswerFormatError("a tuple or an interval, not a set")
    if named := _named_items(_joined(bare if matched(text) else text)):
        return named
    return [Item(found) for part in split(_joined(bare)) for found in both_signs(sides(part)[-1])]


def both_signs(text: str) -> list[str]:
    """Return the two values of a text with ± (and ∓), else the text itself."""
    if "±" not in text and "∓" not in text:
        return [text]
    return [text.replace("±", one).replace("∓", other) for one, other in ("+-", "-+")]


def _named_items(text: str) -> list[Item]:
    """Read `x = 1, y = 2` with a different letter for each value, none for any other list."""
    items = []
    for part in split(text):
        name, sign, value = part.partition("=")
        if not sign or not re.fullmatch(UNKNOWN, unmark(name)) or "±" in value:
            return []
        items.append(Item(sides(value)[-1], unmark(name)))
    letters = {item.name[:1] if item.name[:1] != "\\" else item.name.partition("_")[0] for item in items}
    return items if len(items) > 1 and len(letters) == len(items) else []


def tuple_items(text: str) -> list[Item]:
    """Return the entries of `(a, b)` or of a bare list `a, b`, in order.

    Raises:
        AnswerFormatError: the text is a set or an interval, or its brackets do not match.
    """
    text = unmark_value(mark_text(text))
    names: list[str] = []
    if match := NAMED.fullmatch(text):
        names = [name.strip() for name in match.group(1).split(",")]
        text = match.group(2)
    elif match := re.fullmatch(r"[a-zA-Z] ?= ?(\(.*)", text):
        text = match.group(1)
    if not balanced(text):
        raise AnswerFormatError("brackets that do not match")
    if text[:1] == "(" and text[-1:] == ")" and matched(text):
        text = text[1:-1]
    elif text[:1] in ("⦃", "[") or text[-1:] in ("⦄", "]"):
        raise AnswerFormatError("a set or an interval, not a tuple")
    text = _joined(text)
    if named := _named_items(text) or _subscripted_items(text):
        return named
    items = [sides(item)[-1] for item in split(text)]
    if len(names) == len(items):
        return [Item(item, name) for item, name in zip(items, names, strict=True)]
    return [Item(item) for item in items]


def _subscripted_items(text: str) -> list[Item]:
    """Read `x_2 = 5, x_1 = 3`."""
    found = [re.fullmatch(rf"({UNKNOWN}) ?= ?([^=]*)", part) for part in split(text)]
    items = [Item(match.group(2), match.group(1)) for match in found if match]
    distinct = {item.name for item in items}
    return items if len(items) == len(found) and len(distinct) == len(items) > 1 else []


def in_order(items: list[Item], like: list[Item]) -> list[Item]:
    """Put named entries into the order of the other answer's names, or into the usual one.

    Consecutive letters (x, y, z) and subscripts have a usual order; other names stay as they were written.
    """
    names = [item.name for item in items]
    if not all(names) or len(set(names)) < len(names):
        return items
    order = [item.name for item in like]
    if sorted(order) != sorted(names):
        order = sorted(names) if _consecutive(sorted(names)) else names
    return sorted(items, key=lambda item: order.index(item.name))


def _consecutive(names: list[str]) -> bool:
    letters = [name.partition("_")[0] for name in names]
    if len(set(letters)) == 1:
        return True
    return all(len(a) == len(b) == 1 and ord(b) - ord(a) == 1 for a, b in pairwise(names))
