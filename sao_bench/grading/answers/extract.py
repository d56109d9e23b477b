"""From a reply to the text of its answer: drop the thinking, take the last box, undo typesetting."""

from __future__ import annotations

import re

THINK_OPEN = re.compile(r"<(think|thinking|reasoning)>", re.I)
THINK_CLOSE = re.compile(r"</(think|thinking|reasoning)>", re.I)
BOX = re.compile(r"\\(?:boxed|fbox)\b\s*")
WRAPPERS = r"text|textbf|textit|textrm|mathrm|mathbf|mathit|mathsf|mbox|operatorname|boldsymbol|bm"
SPACING = re.compile(r"\\[,!;:> ]|\\(?:quad|qquad|thinspace|displaystyle|textstyle|limits)(?![a-zA-Z])|~")
SIZING = re.compile(r"\\(?:left|right|middle|[bB]igg?[lrm]?)(?![a-zA-Z])\.?")
SYNONYMS = (
    (re.compile(r"\\[dtc]frac(?![a-zA-Z])"), r"\\frac"),
    (re.compile(r"\\(?:leq|leqslant|le)(?![a-zA-Z])|≤|<="), "≤"),
    (re.compile(r"\\(?:geq|geqslant|ge)(?![a-zA-Z])|≥|>="), "≥"),
    (re.compile(r"\\lt(?![a-zA-Z])"), "<"),
    (re.compile(r"\\gt(?![a-zA-Z])"), ">"),
    (re.compile(r"\\(?:infty|infinity)(?![a-zA-Z])|\binfinity\b|\boo\b"), "∞"),
    (re.compile(r"\\(?:emptyset|varnothing)(?![a-zA-Z])"), "∅"),
    (re.compile(r"\\(?:cup|bigcup)(?![a-zA-Z])"), "∪"),
    (re.compile(r"\\in(?![a-zA-Z])"), "∈"),
    (re.compile(r"\\pm(?![a-zA-Z])"), "±"),
    (re.compile(r"\\(?:cdot|times|ast)(?![a-zA-Z])|[·×∗]"), "*"),
    (re.compile(r"\\div(?![a-zA-Z])|÷"), "/"),
    (re.compile(r"\\(?:approx|simeq|doteq)(?![a-zA-Z])|≈"), "≈"),
    (re.compile(r"\\(?:lbrace|\{)"), "⦃"),
    (re.compile(r"\\(?:rbrace|\})"), "⦄"),
    (re.compile(r"\\(?:langle|lparen)(?![a-zA-Z])"), "("),
    (re.compile(r"\\(?:rangle|rparen)(?![a-zA-Z])"), ")"),
    (re.compile(r"\\lbrack(?![a-zA-Z])"), "["),
    (re.compile(r"\\rbrack(?![a-zA-Z])"), "]"),
    (re.compile(r"\\(?:lvert|rvert|vert|mid)(?![a-zA-Z])"), "|"),
    (re.compile(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ)|\\degree(?![a-zA-Z])|°"), ""),
    (re.compile("[\u2212\u2013\ufe63\uff0d]"), "-"),
    (re.compile(r"π"), r"\\pi "),
    (re.compile(r"\*\*"), "^"),
)


def boxed_answer(reply: str) -> str | None:
    r"""Return the content of the last complete box after the thinking, or None.

    A thinking block that is never closed hides everything after its opening. `\boxed 5` counts.
    """
    found = boxes(after_thinking(reply))
    if not found:
        return None
    inner = boxed_answer(found[-1])
    return found[-1].strip() if inner is None else inner


def boxes(text: str) -> list[str]:
    """Return the contents of all complete boxes, outermost ones, in order."""
    found = []
    position = 0
    while match := BOX.search(text, position):
        position = match.end()
        content, end = _argument(text, position)
        if content is not None:
            found.append(content)
            position = end
    return found


def after_thinking(reply: str) -> str:
    """Return what follows the thinking; a block that is never closed hides everything after its opening."""
    closings = list(THINK_CLOSE.finditer(reply))
    rest = reply[closings[-1].end() :] if closings else reply
    opening = THINK_OPEN.search(rest)
    return rest[: opening.start()] if opening else rest


def _argument(text: str, start: int) -> tuple[str | None, int]:
    """Read `{...}` with balanced braces, or one token without braces, from `start`."""
    if not text.startswith("{", start):
        token = re.compile(r"-?\d[\d.,]*\d|-?\d|\\[a-zA-Z]+|[^\s{}\\]").match(text, start)
        return (token.group(), token.end()) if token else (None, start)
    depth = 0
    position = start
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 2
            continue
        depth += (character == "{") - (character == "}")
        position += 1
        if depth == 0:
            return text[start + 1 : position - 1], position
    return None, start


def plain(answer: str) -> str:
    r"""Undo typesetting: math delimiters, spacing and sizing commands, synonyms of the same symbol.

    Set braces `\{ \}` become `⦃ ⦄`, so that they are not taken for grouping.
    """
    text = answer.strip().replace("\\$", " ").replace("\\&", "&").replace("\\_", "_")
    text = re.sub(r"\\[()\[\]]|\$", " ", text)
    text = _join_digit_groups(text)
    text = re.sub(r"(\d)\{,\}(\d)", r"\1.\2", text)
    text = SPACING.sub(" ", SIZING.sub("", text))
    for pattern, replacement in SYNONYMS:
        text = pattern.sub(replacement, text)
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"(?<=[^.])\.$", "", text).strip()


def _join_digit_groups(text: str) -> str:
    """Join `1{,}234{,}567` and its kin; from the right, since a group is followed by no further digit."""
    joined = re.sub(r"(\d)\s*(?:\\,|\\!|\{,\}|,\\!)\s*(\d{3})(?!\d)", r"\1\2", text)
    return text if joined == text else _join_digit_groups(joined)


def unwrap_text(text: str) -> str:
    r"""Replace `\text{...}` and its kin by their content."""
    previous = ""
    while previous != text:
        previous = text
        text = re.sub(rf"\\(?:{WRAPPERS})\s*\{{([^{{}}]*)\}}", r" \1 ", text)
    return re.sub(r"\s+", " ", text).strip()
