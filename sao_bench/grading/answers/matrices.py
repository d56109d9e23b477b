r"""Matrices: the entries of `\begin{pmatrix} ... \end{pmatrix}`."""

from __future__ import annotations

import re

from sao_bench.grading.answers.typesetting import ROW

MATRIX = re.compile(
    r"\\begin ?\{(?P<name>[pbB]?matrix|smallmatrix|array)\}(?: ?\{[lcr|]*\})?(.*)\\end ?\{(?P=name)\}"
)
OUTER = re.compile(r"([\[(]) ?(\\begin ?\{(?:array|matrix|smallmatrix)\}.*) ?[\])]")


def matrix(text: str) -> list[list[str]] | None:
    """Return the rows of entries; None if the text is no matrix."""
    text = re.sub(r"^[A-Z] ?= ?", "", text)
    if outer := OUTER.fullmatch(text):
        text = outer.group(2).strip()
    match = MATRIX.fullmatch(text)
    if not match or "\\begin" in match.group(2):
        return None
    rows = [[entry.strip() for entry in row.split("&")] for row in match.group(2).split(ROW) if row.strip()]
    return rows or None
