"""Verdicts on words, and on the letter of a multiple-choice option."""

from __future__ import annotations

import re

from sao_bench.grading.answers.typesetting import unwrap_text

OPTION = re.compile(r"[a-j]")
CHOICE = re.compile(
    r"(?:(?:the )?(?:final |correct )?(?:answer|option|choice)(?: is)?:? )?([a-z])(?:$|[.:](?= |$)|\))(.*)"
)
ANOTHER = re.compile(r"(?<![a-z])\(?[a-z](?:\)|[.:](?: |$))|\b(?:or|and|not|either)\b|^ ?[,/&]")


def is_text(gold: str, given: str) -> bool:
    """Whether the words are the same; for an option's letter, whether it is the only option named."""
    right, found = _words(gold), _words(given)
    if OPTION.fullmatch(right):
        choice = CHOICE.fullmatch(found)
        return bool(choice and choice.group(1) == right and not ANOTHER.search(choice.group(2)))
    return squeezed(right) == squeezed(found)


def squeezed(text: str) -> str:
    """Drop spaces that part no numbers."""
    return re.sub(r"(?<!\d)\s+|\s+(?!\d)", "", text)


def _words(text: str) -> str:
    bare = unwrap_text(text).replace("{", "").replace("}", "").strip(" .'\"`“”")
    if option := re.fullmatch(r"\(([a-zA-Z])\)(.*)", bare):
        bare = f"{option.group(1)}){option.group(2)}" if option.group(2) else option.group(1)
    return re.sub(r"\s+", " ", bare).strip().casefold()
