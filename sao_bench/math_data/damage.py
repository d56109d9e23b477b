"""What is wrong with a row, and of which type an answer is."""

from __future__ import annotations

import re

from sao_bench.grading.answers import judge
from sao_bench.grading.answers.typesetting import plain, unwrap_text
from sao_bench.math_data.sets import MathSet

MAX_ANSWER = 500
"""Characters; a longer one is a solution, not an answer."""

MAX_PROBLEM = 20_000
"""Characters; a longer one is several rows run together, or no problem."""

_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_DATE = re.compile(
    rf"\d{{1,2}}[-/ ]{_MONTH}(?:[-/ ]\d{{2,4}})?|{_MONTH}[-/ ]\d{{1,4}}"
    r"|\d{1,2}月\d{1,2}日|\d{4}-\d{1,2}-\d{1,2}(?:[ T]\d\d:\d\d(?::\d\d)?)?"
    r"|\d{1,2}/\d{1,2}/\d{4}(?: \d\d:\d\d(?::\d\d)?)?",
    re.I,
)
_INTEGER = re.compile(r"[-+]?(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.0*)?")
_DECIMAL = re.compile(r"[-+]?(?:\d+|\d{1,3}(?:,\d{3})+)?\.\d+")
_RATIONAL = re.compile(r"[-+]?(?:\d+ ?/ ?\d+|\\frac ?\{[-+]?\d+\} ?\{[-+]?\d+\}|\\frac ?\d ?\d)")
_ZERO_BELOW = re.compile(r".*(?:[/{] ?0+\}?|\\frac ?\d ?0)")
_WORDS = re.compile(r"(?:[A-Za-z]{2,}[ ,.'-]*)+|[A-Z]")

_SPREADSHEET = re.compile(r"(?<!\\)#(?:[A-ZÀ-Ý]{3,}(?:/0)?[!?]|N/[A-Z]+|GETTING_DATA)|^#+$")
"""What a spreadsheet puts in place of a value: `#REF!`, `#NAME?`, `#DIV/0!`, `#N/A`, or `###` for want of room."""
_ROUNDED = re.compile(
    r"(?<![\w.\\])(?:\d+(?:[.,]\d+)?(?:E[-+]?\d+|e\d+|e[-+]\d\d+)|\d+[.,]\d+e[-+]\d)(?![\w.])"
)
"""`1.23E+15`; not `2e-3`, which may be a formula in e."""
_MISSING = re.compile(r"nan|nat|null|n/a|<na>", re.I)
_LISTED = re.compile(r"[\[{]\s*['\"].*|[^\[]*['\"]\s*\]", re.S)
"""A list or object that became text, or an end of one."""
_VALUE = re.compile(r"[^\W_]|[∞∅⦃]")


def shown(value: object) -> str:
    """Return a value as it is shown in a reason: short, on one line."""
    text = repr(value[:60] if isinstance(value, str) else value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def wrong_characters(text: str, control: bool = False) -> str:
    """Return which characters of a text no sound row has, or "": `control` adds those of a lost backslash."""
    if "\ufffd" in text:
        return "a character that could not be decoded (U+FFFD)"
    if "\0" in text:
        return "a NUL character"
    if re.search("[\ud800-\udfff]", text):
        return "half a character (a lone surrogate)"
    if control and re.search(r"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]", text):
        return "a control character"
    return ""


def problem_of_problem(problem: str, which: MathSet) -> str:
    """Return what is wrong with the text of a problem, or ""."""
    if len(problem) > MAX_PROBLEM:
        return f"a problem of {len(problem)} characters"
    if _SPREADSHEET.fullmatch(problem):
        return f"a spreadsheet's error in place of the problem: {shown(problem)}"
    if len(problem.split()) < 2 and not re.search(r"[=+*/^?\\]", problem):
        return f"shifted columns: the problem is {problem[:40]!r}"
    if which.latex and _dollars(problem) % 2:
        return "a lost dollar in the problem: an odd number of them"
    return ""


def problem_of_answer(answer: str, which: MathSet) -> str:
    """Return what is wrong with an answer, or ""."""
    if len(answer) > MAX_ANSWER:
        return f"an answer of {len(answer)} characters: a solution, or shifted columns"
    if reason := _problem_of_table(answer.strip("$ ")) or _problem_of_text(answer, which):
        return f"{reason}: {shown(answer)}"
    kind = which.answer_type or answer_type(answer)
    if kind == "integer" and which.answer_type == "integer":
        return _problem_of_integer(answer, which)
    if which.numeric and not _is_number(plain(answer)):
        return f"not a number: {shown(answer)}"
    if kind == "rational" and _ZERO_BELOW.fullmatch(plain(answer)):
        return f"a fraction over 0: {shown(answer)}"
    if kind not in ("expression", "text") and _unjudged(answer, kind):
        return f"not a value of type {kind}: {shown(answer)}"
    return ""


def _problem_of_table(answer: str) -> str:
    """Return what a spreadsheet or a table's reader did to an answer, or ""."""
    if _DATE.fullmatch(answer):
        return "a date in place of a number"
    if _SPREADSHEET.search(answer):
        return "a spreadsheet's error"
    if _ROUNDED.search(answer):
        return "a number that was rounded"
    if _MISSING.fullmatch(answer):
        return "a missing value"
    if _LISTED.fullmatch(answer):
        return "a list that became text"
    return ""


def _problem_of_text(answer: str, which: MathSet) -> str:
    """Return what is wrong with an answer as a formula, or ""."""
    if which.latex and _dollars(answer) % 2:
        return "a lost dollar"
    if not _balanced(answer):
        return "unbalanced braces"
    if not _VALUE.search(plain(answer)):
        return "no value"
    return ""


def _is_number(text: str) -> bool:
    return any(number.fullmatch(text) for number in (_INTEGER, _DECIMAL, _RATIONAL))


def _problem_of_integer(answer: str, which: MathSet) -> str:
    bare = plain(answer).replace("°", "")
    if not _INTEGER.fullmatch(bare):
        return f"not a whole number: {shown(answer)}"
    value = int(bare.replace(",", "").split(".")[0])
    low, high = which.low, which.high
    if (low is not None and value < low) or (high is not None and value > high):
        return f"{value} is outside {low} to {high}"
    return ""


def _unjudged(answer: str, kind: str) -> bool:
    """Whether the judge cannot take this as the right answer (it is asked about another one)."""
    if kind in ("integer", "decimal", "rational") and _is_number(answer):
        return False
    other = "(7919, 7907)" if kind == "tuple" else "7919"
    return judge(answer, f"\\boxed{{{other}}}", kind).verdict == "not_judged"


def answer_type(answer: str) -> str:
    """Tell the type of an answer by its notation.

    `(a, b)` is a tuple (an open interval compares alike), a bare list or braces a set, brackets of an interval
    or an inequality an interval, words text; what is none of these is an expression.
    """
    text = unwrap_text(plain(answer)).replace("°", "").strip()
    squeezed = text.replace(" ", "")
    if _INTEGER.fullmatch(text):
        return "integer"
    if _DECIMAL.fullmatch(text):
        return "decimal"
    if _RATIONAL.fullmatch(text):
        return "rational"
    if _WORDS.fullmatch(text):
        return "text"
    if re.search(r"[<>≤≥∪]|\\mathbb", text) or (
        re.fullmatch(r"[\[(\]].*,.*[\])\[]", squeezed)
        and (squeezed[0] != "(" or squeezed[-1] != ")" or "∞" in squeezed)
    ):
        return "interval"
    if squeezed.startswith("⦃") or "±" in squeezed:
        return "set"
    if re.fullmatch(r"\(.*,.*\)", squeezed) and squeezed.count("(") == squeezed.count(")"):
        return "tuple" if _one_group(squeezed) else "set"
    if "," in re.sub(r"\([^()]*\)|\{[^{}]*\}", "", squeezed) or re.search(r"\b(?:and|or)\b", text):
        return "set"
    if "=" in squeezed and not re.match(r"\\?[A-Za-z]\w*(?:\([a-z]\))?=", squeezed):
        return "equation"
    return "expression"


def _one_group(text: str) -> bool:
    """Whether the first parenthesis closes with the last character."""
    depth = 0
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if not depth:
            return place == len(text) - 1
    return False


def _dollars(text: str) -> int:
    """Count dollar signs that are not escaped."""
    return len(re.findall(r"(?<!\\)\$", text))


def _balanced(text: str) -> bool:
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", text.replace("\\\\", "")):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return False
    return not depth
