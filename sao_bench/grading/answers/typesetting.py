"""Undo the typesetting of an answer: delimiters, spacing, fonts, synonyms of the same symbol."""

from __future__ import annotations

import re

WRAPPERS = (
    "text|textrm|textup|textnormal|mathrm|mbox|hbox|textbf|textit|textsf|texttt|emph|underline|uline|"
    "mathbf|mathit|mathsf|operatorname|boldsymbol|bm"
)
QUOTING = frozenset(["text", "textrm", "textup", "textnormal", "mathrm", "mbox", "hbox", "textbf", "textit"])
"""Wrappers whose content is prose: only there can a single letter be a unit beside a formula."""
QUOTE, UNQUOTE = "\ue000", "\ue001"
ROW = "⏎"
"""Stands for the end of a row, a double backslash."""

SPACING = re.compile(
    r"\\[,!;:> ]|~|\\(?:quad|qquad|thinspace|displaystyle|textstyle|limits|checkmark|blacksquare"
    r"|tiny|scriptsize|footnotesize|small|normalsize|large|Large|LARGE|huge|Huge)(?![a-zA-Z])"
)
SIZING = re.compile(r"\\(?:left|right|middle|[bB]igg?[lrm]?)(?![a-zA-Z])\.?")
COLOUR = re.compile(r"\\(?:text)?color\s*\{[^{}]*\}")
ALIGNED = re.compile(
    r"\\begin\s*\{(?P<name>aligned|gathered|split|array)\}(?:\{[lcr|]*\})?(.*)\\end\s*\{(?P=name)\}", re.S
)
WRAPPED = re.compile(rf"\\(?P<wrapper>{WRAPPERS})\s*\{{|\\.|(?P<left>\{{)|(?P<right>\}})", re.S)

FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
CHARACTERS: dict[int, int | str] = {
    **FULL_WIDTH,
    ord("｛"): "⦃",
    ord("｝"): "⦄",
    **dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2015\u2212\ufe63"), "-"),
    **dict.fromkeys(map(ord, "、"), ","),
    **dict.fromkeys(map(ord, "\u200b\u2060\ufeff"), ""),
    ord(QUOTE): "",
    ord(UNQUOTE): "",
    ord("⁄"): "/",
    ord("∕"): "/",
    ord("∶"): ":",
    ord("…"): "...",
    ord("′"): "'",
    ord("’"): "'",
    ord("Ω"): r"\Omega ",
}
VULGAR = {
    "½": "12",
    "⅓": "13",
    "⅔": "23",
    "¼": "14",
    "¾": "34",
    "⅕": "15",
    "⅖": "25",
    "⅗": "35",
    "⅘": "45",
    "⅙": "16",
    "⅚": "56",
    "⅐": "17",
    "⅛": "18",
    "⅜": "38",
    "⅝": "58",
    "⅞": "78",
    "⅑": "19",
}
RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿ", "0123456789+-()n")
LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋₍₎", "0123456789+-()")

SYNONYMS = (
    (re.compile(r"\\(?:[dtc]|nice|s)frac(?![a-zA-Z])"), r"\\frac"),
    (re.compile(r"\\[dt]binom(?![a-zA-Z])"), r"\\binom"),
    (re.compile(r"\\(?:neq|ne|not\s*=)(?![a-zA-Z])|≠|!="), "≠"),
    (re.compile(r"\\(?:leq|leqslant|le)(?![a-zA-Z])|≤|<="), "≤"),
    (re.compile(r"\\(?:geq|geqslant|ge)(?![a-zA-Z])|≥|>="), "≥"),
    (re.compile(r"\\lt(?![a-zA-Z])"), "<"),
    (re.compile(r"\\gt(?![a-zA-Z])"), ">"),
    (re.compile(r"\\(?:infty|infinity)(?![a-zA-Z])|\binfinity\b|\boo\b"), "∞"),
    (re.compile(r"\\(?:emptyset|varnothing)(?![a-zA-Z])"), "∅"),
    (re.compile(r"\\(?:cup|bigcup)(?![a-zA-Z])"), "∪"),
    (re.compile(r"\\(?:cap|bigcap)(?![a-zA-Z])"), "∩"),
    (re.compile(r"\\(?:setminus|smallsetminus|backslash)(?![a-zA-Z])"), "∖"),
    (re.compile(r"\\(?:lor|vee)(?![a-zA-Z])|∨"), " or "),
    (re.compile(r"\\(?:land|wedge)(?![a-zA-Z])|∧"), " and "),
    (re.compile(r"\\in(?![a-zA-Z])"), "∈"),
    (re.compile(r"\\(?:mathbb|mathbf)\s*(?:\{\s*R\s*\}|R(?![a-zA-Z]))|\\(?:R|Reals|reals)(?![a-zA-Z])"), "ℝ"),
    (re.compile(r"\\pm(?![a-zA-Z])"), "±"),
    (re.compile(r"\\mp(?![a-zA-Z])"), "∓"),
    (re.compile(r"\\(?:cdot|times|ast)(?![a-zA-Z])|[·×∗⋅]"), "*"),
    (re.compile(r"\\div(?![a-zA-Z])|÷"), "/"),
    (re.compile(r"\\(?:approx|simeq|doteq)(?![a-zA-Z])|[≈≃]"), "≈"),
    (re.compile(r"\\(?:l|c|d)?dots[cbmio]?(?![a-zA-Z])"), "..."),
    (re.compile(r"\\(?:lbrace(?![a-zA-Z])|\{)"), "⦃"),
    (re.compile(r"\\(?:rbrace(?![a-zA-Z])|\})"), "⦄"),
    (re.compile(r"\\(?:langle|lparen)(?![a-zA-Z])"), "("),
    (re.compile(r"\\(?:rangle|rparen)(?![a-zA-Z])"), ")"),
    (re.compile(r"\\lbrack(?![a-zA-Z])"), "["),
    (re.compile(r"\\rbrack(?![a-zA-Z])"), "]"),
    (re.compile(r"\\(?:lvert|rvert|vert|mid)(?![a-zA-Z])|∣"), "|"),
    (re.compile(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-zA-Z]))|\\degree(?![a-zA-Z])"), "°"),
    (re.compile(r"\^\s*(?:\{\s*\\prime\s*\}|\\prime(?![a-zA-Z]))"), "'"),
    (re.compile(r"\\colon(?![a-zA-Z])"), ":"),
    (re.compile(r"π"), r"\\pi "),
    (re.compile(r"√\s*(\d+(?:\.\d+)?|[a-zA-Z])"), r"\\sqrt{\1}"),
    (re.compile(r"√"), r"\\sqrt "),
    (re.compile(r"\*\*"), "^"),
)


def plain(answer: str) -> str:
    r"""Undo typesetting: math delimiters, spacing and sizing commands, synonyms of the same symbol.

    Set braces `\{ \}` become `⦃ ⦄`, so that they are not taken for grouping.
    """
    text = _plain_characters(answer.strip())
    text = text.replace("\\\\", ROW).replace("\\$", " ").replace("\\&", "&").replace("\\_", "_")
    text = re.sub(r"\\[()\[\]]|\$", " ", text)
    text = _join_digit_groups(text)
    text = re.sub(r"(?<=\d)\{,\}(?=\d)", ".", text)
    text = COLOUR.sub("", SPACING.sub(" ", SIZING.sub("", text)))
    if (aligned := ALIGNED.fullmatch(text.strip())) and "&" not in text and ROW not in text:
        text = aligned.group(2)
    for pattern, replacement in SYNONYMS:
        text = pattern.sub(replacement, text)
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r"^—(?=[\d.])", "-", text)
    return re.sub(r"(?<=[^.])\.$", "", text).strip()


def _plain_characters(text: str) -> str:
    """Replace characters that are another notation: full-width, raised and lowered digits, fractions."""
    if text.isascii():
        return text
    text = text.translate(CHARACTERS)
    for character, digits in VULGAR.items():
        text = text.replace(character, f"\\frac{{{digits[0]}}}{{{digits[1]}}}")
    text = re.sub(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿ]+", lambda m: f"^{{{m.group().translate(RAISED)}}}", text)
    return re.sub(r"[₀₁₂₃₄₅₆₇₈₉₊₋₍₎]+", lambda m: f"_{{{m.group().translate(LOWERED)}}}", text)


def _join_digit_groups(text: str) -> str:
    """Join `1{,}234{,}567` and its kin."""
    return re.sub(r"(?<=\d)\s*(?:\\,|\\!|\{,\}|,\\!)\s*(?=\d{3}(?!\d))", "", text)


def mark_text(text: str) -> str:
    r"""Replace the command and braces of `\text{...}` and its kin by marks around the content.

    Fonts of formulas (`\mathbf{...}`) leave no mark. One pass, whatever the nesting.
    """
    pieces: list[str] = []
    closers: list[str] = []
    position = quoted = 0
    for match in WRAPPED.finditer(text):
        pieces.append(text[position : match.start()])
        position = match.end()
        if match["wrapper"]:
            quoting = match["wrapper"] in QUOTING and not quoted
            quoted += quoting
            pieces.append(QUOTE if quoting else " ")
            closers.append(UNQUOTE if quoting else " ")
        elif match["left"]:
            pieces.append("{")
            closers.append("}")
        elif match["right"]:
            pieces.append(closers.pop() if closers else "}")
            quoted -= pieces[-1] == UNQUOTE
        else:
            pieces.append(match.group())
    pieces.append(text[position:])
    return re.sub(r"\s+", " ", "".join(pieces)).strip()


def unmark(text: str) -> str:
    """Drop the marks around prose."""
    return re.sub(r"\s+", " ", text.replace(QUOTE, " ").replace(UNQUOTE, " ")).strip()


def unwrap_text(text: str) -> str:
    r"""Replace `\text{...}` and its kin by their content."""
    return unmark(mark_text(text))
