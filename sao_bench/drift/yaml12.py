"""YAML 1.2 core with positions: `1e-5` is a number, `off` is text, a key written twice is refused.

ruamel.yaml reads the text into events; tags are resolved here, by the core schema of YAML 1.2.2
(section 10.3.2) and nothing else, since ruamel's own resolver also takes `1_000` and dates.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from sao_bench.errors import UserError
from sao_bench.files import read_text

Scalar: TypeAlias = bool | int | float | str | None

_NULL = re.compile(r"(?:~|null|Null|NULL|)\Z")
_BOOL = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
_INT = re.compile(r"[-+]?[0-9]+\Z|0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_INF = re.compile(r"([-+]?)\.(?:inf|Inf|INF)\Z")
_NAN = re.compile(r"\.(?:nan|NaN|NAN)\Z")
_TEXT_TAG = "tag:yaml.org,2002:str"

MAX_DIGITS = 200
"""An integer with more is out of every range: it is read as an infinity, which nothing accepts."""

MAX_BYTES = 2_000_000
MAX_DEPTH = 50
MAX_VALUES = 200_000
"""Values of a file, each alias counted with all that it stands for."""


class Place(NamedTuple):
    """Where something stands in a file; line and column count from 1."""

    file: str
    line: int
    column: int

    def error(self, message: str) -> UserError:
        """Return the error `file:line:column: message`."""
        return UserError(f"{self.file}:{self.line}:{self.column}: {message}")


@dataclass(slots=True, eq=False)
class Node:
    """One value of a file: a scalar, a list of nodes or a mapping from text to nodes.

    `keys` are the places of a mapping's keys; `text` is a scalar as written and `quoted` whether it
    stood in quotes.
    """

    value: Any
    place: Place
    keys: dict[str, Place] = field(default_factory=dict)
    text: str = ""
    quoted: bool = False

    def error(self, message: str) -> UserError:
        """Return the error `file:line:column: message` at this node."""
        return self.place.error(message)

    def found(self) -> str:
        """Say in words what stands here."""
        match self.value:
            case dict():
                return "a mapping"
            case list():
                return "a list"
            case None:
                return "nothing"
            case str():
                return f"the text {_short(self.value)!r}"
            case _:
                return _short(self.text)

    def plain(self) -> Any:
        """Return the value as ordinary lists, dicts and scalars."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        return [node.plain() for node in self.value] if isinstance(self.value, list) else self.value


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"


def resolve(text: str) -> Scalar:
    """Return the value of an unquoted scalar by the core schema of YAML 1.2."""
    if _NULL.match(text):
        return None
    if _BOOL.match(text):
        return text.lower() == "true"
    if _INT.match(text):
        if len(text) > MAX_DIGITS:
            return -math.inf if text[0] == "-" else math.inf
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if _FLOAT.match(text):
        return float(text)
    if infinite := _INF.match(text):
        return float(infinite[1] + "inf")
    return float("nan") if _NAN.match(text) else text


def read_file(path: Path) -> tuple[str, Node]:
    """Read a YAML file; return its text and its root node.

    Raises:
        UserError: the file cannot be read, is not YAML, or writes a key twice.
    """
    text = read_text(path, MAX_BYTES)
    return text, parse(text, str(path))


def parse(text: str, file: str) -> Node:
    """Parse YAML text; `file` is the name that errors give.

    Raises:
        UserError: the text is not one YAML document, or writes a key twice.
    """
    try:
        return _Builder(iter(YAML(typ="safe", pure=True).parse(text)), file).document()
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise UserError(f"{file}:{line}:{column}: not YAML: {error.problem}") from error
    except YAMLError as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{file}:1:1: not YAML: {reason}") from error


class _Builder:
    """Builds nodes from parse events."""

    def __init__(self, events: Iterator[Any], file: str) -> None:
        self.events = events
        self.file = file
        self.anchors: dict[str, tuple[Node, int]] = {}
        self.depth = 0
        self.values = 0

    def document(self) -> Node:
        root = None
        for event in self.events:
            if type(event).__name__ == "DocumentStartEvent":
                if root is not None:
                    raise self._place(event).error("a second YAML document; one file holds one schedule")
                root = self._node(next(self.events))
        if root is None:
            raise Place(self.file, 1, 1).error("the file is empty; it must hold a mapping")
        return root

    def _place(self, event: Any) -> Place:
        return Place(self.file, event.start_mark.line + 1, event.start_mark.column + 1)

    def _node(self, event: Any) -> Node:
        place = self._place(event)
        name = type(event).__name__
        if name == "AliasEvent":
            if event.anchor not in self.anchors:
                raise place.error(f"alias *{event.anchor} has no anchor before it")
            node, values = self.anchors[event.anchor]
            self._count(values, place)
            return node
        before = self.values
        self._count(1, place)
        if event.tag not in (None, "!", _TEXT_TAG):
            raise place.error(f"tag {event.tag} is not part of the drift language; remove it")
        if name == "ScalarEvent":
            node = self._scalar(event, place)
        else:
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise place.error(f"nested more than {MAX_DEPTH} deep")
            node = self._sequence(place) if name == "SequenceStartEvent" else self._mapping(place)
            self.depth -= 1
        if event.anchor:
            self.anchors[event.anchor] = (node, self.values - before)
        return node

    def _count(self, values: int, place: Place) -> None:
        self.values += values
        if self.values > MAX_VALUES:
            raise place.error(f"more than {MAX_VALUES} values, aliases written out")

    def _sequence(self, place: Place) -> Node:
        return Node([self._node(event) for event in self._until("SequenceEndEvent")], place)

    def _scalar(self, event: Any, place: Place) -> Node:
        if "\0" in event.value:
            raise place.error("a text with a NUL character; remove it")
        quoted = not event.implicit[0]
        return Node(event.value if quoted else resolve(event.value), place, text=event.value, quoted=quoted)

    def _mapping(self, place: Place) -> Node:
        items: dict[str, Node] = {}
        keys: dict[str, Place] = {}
        for event in self._until("MappingEndEvent"):
            at = self._place(event)
            if type(event).__name__ != "ScalarEvent":
                raise at.error("a key must be plain text")
            if event.value in keys:
                first = keys[event.value].line
                raise at.error(
                    f"duplicate key {event.value!r} (lines {first} and {at.line}); keep one of them"
                )
            keys[event.value] = at
            items[event.value] = self._node(next(self.events))
        return Node(items, place, keys)

    def _until(self, end: str) -> Iterator[Any]:
        for event in self.events:
            if type(event).__name__ == end:
                return
            yield event
