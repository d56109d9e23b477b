"""The tools of the repair tasks: what they can be called, how an edit is written, how a failed test is reported."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sao_bench.types import Value

NAMES = {
    "view": ("view", "show", "cat"),
    "edit": ("edit", "set", "patch"),
    "run_tests": ("run_tests", "test", "check"),
    "submit": ("submit", "done", "push"),
}
"""Tool -> the names it can have. No name belongs to two tools."""

TOOLS = tuple(NAMES)
SIGNATURES = {
    "colon": "{0}N: TEXT",
    "at": "TEXT @{0}N",
    "json": '{{{1}"line": N, "text": TEXT}}',
    "zero": "{0}N: TEXT (N from 0)",
}
"""Signature of `edit` -> its usage; {0} and {1} are where the file goes, if there are several. Under `zero` lines
are counted from 0, so that a call in the form `colon` changes another line and no error says so."""

ERRORS = {"name": "no tool", "call": "bad call", "line": "no line", "file": "no file"}
REPORTS = ("terse", "line", "traceback", "json")
MAX_SHOWN = 60

_TOOL_OF = {name: tool for tool, names in NAMES.items() for name in names}
_ACTION = re.compile(r"([a-z_]+)(?:\s*\(\s*\)|(?:\s(.*))?)", re.DOTALL)
_LINES = r"(?P<first>[0-9]{1,5})(?:-(?P<last>[0-9]{1,5}))?"
_COLON = re.compile(rf"(?:(?P<file>[^\s:@]+) )?{_LINES}: ?(?P<text>.*)", re.DOTALL)
_AT = re.compile(rf"(?P<text>.*?) ?@(?:(?P<file>[^\s:@]+) )?{_LINES}", re.DOTALL)
_RANGE = re.compile(_LINES)


@dataclass(frozen=True, slots=True)
class Call:
    """A call that is well formed today: the tool, a file (or none named) and, of an edit, lines from 1 and text."""

    tool: str
    file: str = ""
    first: int = 0
    last: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True)
class Misuse:
    """A line that is no call today: which error it is, and the tool that was probably meant."""

    error: str
    tool: str


def parse(action: str, values: Mapping[str, Value]) -> Call | Misuse:
    """Read a line under the names and the signature of today.

    Args:
        action: what was said, without white space at its ends.
        values: the concept's `tool.<tool>.name` and `tool.edit.signature`.
    """
    found = _ACTION.fullmatch(action)
    named = _TOOL_OF.get(found[1], "edit") if found else "edit"
    if not found or found[1] != values[f"tool.{named}.name"]:
        return Misuse("name", named)
    arguments = found[2] or ""
    if named == "edit":
        return _parse_edit(arguments, str(values["tool.edit.signature"])) or Misuse("call", named)
    if re.search(r"\s", arguments) or (arguments and named != "view"):
        return Misuse("call", named)
    return Call(named, arguments)


def write_edit(edit: Call, values: Mapping[str, Value]) -> str:
    """Return the line that makes an edit under the name and the signature of today (`parse`'s inverse)."""
    name, signature = values["tool.edit.name"], values["tool.edit.signature"]
    shift = 1 if signature == "zero" else 0
    first, last = edit.first - shift, edit.last - shift
    lines = str(first) if first == last else f"{first}-{last}"
    file = f"{edit.file} " if edit.file else ""
    if signature == "at":
        return f"{name} {edit.text} @{file}{lines}"
    if signature == "json":
        named = {"file": edit.file} if edit.file else {}
        return f"{name} {json.dumps({**named, 'line': first if first == last else lines, 'text': edit.text})}"
    return f"{name} {file}{lines}: {edit.text}"


def usage(tool: str, values: Mapping[str, Value], files: bool = False) -> str:
    """Return today's usage of a tool, such as `edit N: TEXT`; `files`: where there are several."""
    name = str(values[f"tool.{tool}.name"])
    if tool == "edit":
        file, named = ("FILE ", '"file": FILE, ') if files else ("", "")
        return f"{name} {SIGNATURES[str(values['tool.edit.signature'])].format(file, named)}"
    return f"{name} FILE" if tool == "view" and files else name


def changed(lines: list[str], edit: Call) -> list[str] | None:
    """Return the lines after an edit, or None where there are no such lines.

    The text replaces lines `first` to `last`, both included; no text removes them (of a whole file an empty line
    is left). Unless it begins with a space, it
    is indented as the first of them was.
    """
    if not 1 <= edit.first <= edit.last <= len(lines):
        return None
    new = edit.text.split("\n") if edit.text.strip() else []
    if new and not new[0].startswith((" ", "\t")):
        old = lines[edit.first - 1]
        margin = old[: len(old) - len(old.lstrip())]
        new = [margin + line if line.strip() else line for line in new]
    return [*lines[: edit.first - 1], *new, *lines[edit.last :]] or [""]


def repair(before: str, after: str, file: str = "") -> Call:
    """Return the one edit that turns a source into another: the smallest stretch of lines that holds it all."""
    old, new = before.splitlines(), after.splitlines()
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    if head + tail == len(old):  # only new lines: the line after them, or the last one, is written anew
        head, tail = (head, tail - 1) if tail else (head - 1, tail)
    text = new[head : len(new) - tail]
    margin = len(old[head]) - len(old[head].lstrip())
    if text and all(line.startswith(" " * margin) for line in text) and not text[0][margin:].startswith(" "):
        text = [line[margin:] for line in text]
    return Call("edit", file, head + 1, len(old) - tail, "\n".join(text))


def numbered(lines: list[str]) -> str:
    """Return lines with their numbers from 1."""
    return "\n".join(f"{i} {line}" for i, line in enumerate(lines, 1))


def report(style: str, place: int, call: str, want: str, got: str) -> str:
    """Return the report of one failed test.

    Args:
        style: one of `REPORTS`.
        place: number of the test, from 1.
        call: what was called, as source.
        want: what should have come of it, as source; `raises X` for an exception.
        got: what came of it; `raises X` for an exception, the kind of failure where there was no result.
    """
    match style:
        case "line":
            return f"tests:{place}: {call} is {got}, not {want}"
        case "traceback":
            return f"Traceback:\n test {place}: assert {call} == {want}\nAssertionError: {got}"
        case "json":
            return json.dumps({"test": place, "call": call, "got": got, "want": want}, separators=(",", ":"))
    return f"{call} is {got} not {want}"


def shown(raised: str | None, value: Any) -> str:
    """Return an outcome as reports write it, cut where it is long."""
    text = f"raises {raised}" if raised is not None else _written(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _written(value: Any) -> str:
    """Return plain values and lists as source; of anything else its type, as sets have no order of their own."""
    if type(value) is list:
        return f"[{', '.join(map(_written, value))}]"
    if value is not None and type(value) not in (bool, int, float, str):
        return f"some {type(value).__name__.lower()}"
    try:
        return repr(value)
    except ValueError:  # more digits than Python writes
        return "a large number"


def _parse_edit(arguments: str, signature: str) -> Call | None:
    if signature == "json":
        return _parse_json(arguments)
    found = (_AT if signature == "at" else _COLON).fullmatch(arguments)
    if found is None:
        return None
    return _edit(found, found["text"], found["file"] or "", 1 if signature == "zero" else 0)


def _parse_json(arguments: str) -> Call | None:
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    if not isinstance(given, dict) or not {"line", "text"} <= set(given) <= {"file", "line", "text"}:
        return None
    file, line, text = given.get("file", ""), given["line"], given["text"]
    found = _RANGE.fullmatch(str(line)) if type(line) in (int, str) else None
    if found is None or not isinstance(file, str) or not isinstance(text, str):
        return None
    return _edit(found, text, file, 0)


def _edit(found: re.Match[str], text: str, file: str, shift: int) -> Call:
    first = int(found["first"]) + shift
    last = int(found["last"]) + shift if found["last"] else first
    return Call("edit", file, first, last, text)
