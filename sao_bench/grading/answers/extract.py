"""From a reply to the text of its answer: drop the thinking, take the last box."""

from __future__ import annotations

import re

THINK_OPEN = re.compile(r"<(think|thinking|reasoning)>", re.I)
THINK_CLOSE = re.compile(r"</(think|thinking|reasoning)>", re.I)
BRACES = re.compile(
    r"\\(?P<box>(?:boxed|fbox)(?![a-zA-Z])\s*)(?P<open>\{)?"
    r"|\\\\(?!(?:boxed|fbox)(?![a-zA-Z]))|\\[{}]|(?P<left>\{)|(?P<right>\})"
)
BARE = re.compile(r"-?\d[\d.,]*\d|-?\d|\\[a-zA-Z]+|[^\s{}\\]")


def boxed_answer(reply: str) -> str | None:
    r"""Return the content of the last complete box after the thinking, or None.

    A thinking block that is never closed hides everything after its opening. `\boxed 5` counts. Of nested
    boxes the innermost counts, so the answer is the complete box that opens last; one pass over the text
    finds it, however many boxes are open.
    """
    text = after_thinking(reply)
    found = _spans(text)
    return text[slice(*max(found))].strip() if found else None


def boxes(text: str) -> list[str]:
    """Return the contents of all complete boxes, outermost ones, in order."""
    outer: list[tuple[int, int]] = []
    for start, end in sorted(_spans(text)):
        if not outer or start > outer[-1][1]:
            outer.append((start, end))
    return [text[start:end] for start, end in outer]


def _spans(text: str) -> list[tuple[int, int]]:
    """Return where the contents of all complete boxes begin and end, in one pass."""
    found: list[tuple[int, int]] = []
    opened: list[int | None] = []
    for match in BRACES.finditer(text):
        if match["open"]:
            opened.append(match.end())
        elif match["box"]:
            if bare := BARE.match(text, match.end()):
                found.append(bare.span())
        elif match["left"]:
            opened.append(None)
        elif match["right"] and opened:
            start = opened.pop()
            if start is not None:
                found.append((start, match.start()))
    return found


def after_thinking(reply: str) -> str:
    """Return what follows the thinking; a block that is never closed hides everything after its opening."""
    closings = list(THINK_CLOSE.finditer(reply))
    rest = reply[closings[-1].end() :] if closings else reply
    opening = THINK_OPEN.search(rest)
    return rest[: opening.start()] if opening else rest
