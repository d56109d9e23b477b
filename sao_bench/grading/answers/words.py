"""Verdicts on words, and on the letter of a multiple-choice option."""

from __future__ import annotations

import re
from itertools import pairwise

from sao_bench.grading.answers.typesetting import unwrap_text

OPTION = re.compile(r"[a-j]")
CHOICE = re.compile(
    r"(?:(?:the )?(?:final |correct )?(?:answer|option|choice)(?: is)?:? )?([a-z])(?:$|[.:](?= |$)|\))(.*)",
    re.I,
)
LISTED = re.compile(r"(?<![a-z])\(?[a-j](?:\)|[.:](?: |$))|^ ?[,/&]", re.I)
"""Another choice in the same notation."""
LETTER = re.compile(
    r"(?<![a-z\\])(?:[b-hj](?![a-z'’])|[ai](?= ?(?:$|[^\sa-z'’])"
    r"| (?:is|was|are|as|or|and|also|too|instead|but|not|would|seems|should|must)\b))",
    re.I,
)
"""A letter that stands for a choice; `a` and `I` before other words are words themselves."""
NEGATION = re.compile(r"\b(?:not?|nor|neither|none|wrong|false|incorrect|\w+n['’]t)\b", re.I)
REVISION = re.compile(
    r"\b(?:actually|instead|rather|wait|sorry|oops|correction|no|wrong|false|incorrect)\b", re.I
)
ALTERNATION = re.compile(
    r"\b(?:or|and|but|also|too|either|both|perhaps|maybe|possibly|alternatively|otherwise|as well|answer"
    r"|(?:is|are) (?:right|correct|true))\b",
    re.I,
)


def is_text(gold: str, given: str) -> bool:
    """Whether the words are the same; for an option's letter, whether it is the only option named."""
    right, found = _words(gold), _words(given)
    if OPTION.fullmatch(right.casefold()):
        choice = CHOICE.fullmatch(found)
        return bool(
            choice
            and choice.group(1).casefold() == right.casefold()
            and not _taken_back(choice.group(1), choice.group(2))
        )
    return _spaced(right.casefold()) == _spaced(found.casefold())


def _taken_back(choice: str, rest: str) -> bool:
    """Whether what follows a choice names another one beside it or instead of it, or denies it.

    A letter alone is the choice's own text (`C. Vitamin D`); small letters beside a capital choice are
    names of other things unless the choice is plainly revised.
    """
    if LISTED.search(rest):
        return True
    revised = bool(REVISION.search(rest))
    letters = LETTER.findall(rest)
    if choice.isupper() and not revised:
        letters = [letter for letter in letters if letter.isupper()]
    if {letter.casefold() for letter in letters} - {choice.casefold()} and (
        revised or ALTERNATION.search(rest)
    ):
        return True
    return bool(letters and NEGATION.search(rest))


def _spaced(text: str) -> str:
    """Keep only the spaces that part two words or two numbers (not those of `2 : 1`, `5 pm`, `M W F`)."""
    words = text.split(" ")
    pieces = words[:1]
    for before, after in pairwise(words):
        letters = before[-1:].isalpha() and after[:1].isalpha() and len(before + after) > 2
        numbers = before[-1:].isdigit() and after[:1].isdigit()
        pieces += [" ", after] if letters or numbers else [after]
    return "".join(pieces)


def squeezed(text: str) -> str:
    """Drop spaces that part no numbers."""
    return re.sub(r"(?<!\d)\s+|\s+(?!\d)", "", text)


def _words(text: str) -> str:
    bare = unwrap_text(text).replace("{", "").replace("}", "").strip(" .'\"`“”")
    if option := re.fullmatch(r"\(([a-zA-Z])\)(.*)", bare):
        bare = f"{option.group(1)}){option.group(2)}" if option.group(2) else option.group(1)
    return re.sub(r"\s+", " ", bare).strip()
