"""Runs conformance vectors: small cases with the values that an algorithm's parts must give.

A file is `{"schema": "sao-bench-conformance/1", "cases": [{id, op, inputs, params, expected, rtol, atol}]}`.
Arguments are named as in `inputs` and `params`; tensors are float64. `adv.*` and `metric.*` compare what
`expected` names; `loss.*` compares `loss` where given and `grad_logp`. An expected null means "undefined".
Extra outputs that `expected` does not name are not compared.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from sao_bench.conformance_ops import OPS
from sao_bench.errors import UserError, did_you_mean
from sao_bench.files import read_text

SCHEMA = "sao-bench-conformance/1"
VECTORS = Path(__file__).with_name("conformance_vectors.json")
"""The shipped vectors."""


class Verdict(NamedTuple):
    """The outcome of one case; `problem` is None if it passed."""

    id: str
    problem: str | None


def load(path: Path) -> list[dict[str, Any]]:
    """Read and check a vector file.

    Raises:
        UserError: it cannot be read, is not JSON, has another schema, or a case is malformed.
    """
    text = read_text(path)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON: {error}") from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise UserError(f"{path}: schema is {schema!r}, expected {SCHEMA!r}")
    cases = document.get("cases")
    if not isinstance(cases, list):
        raise UserError(f"{path}: 'cases' is not a list")
    for index, case in enumerate(cases):
        if problem := _malformed(case):
            raise UserError(f"{path}: cases[{index}]: {problem}")
    return cases


def _malformed(case: Any) -> str | None:
    if not isinstance(case, dict):
        return "not an object"
    for key, kind in (("id", str), ("op", str), ("inputs", dict), ("expected", dict)):
        if not isinstance(case.get(key), kind):
            return f"{key!r} is missing or not {'an object' if kind is dict else 'a string'}"
    if not case["expected"]:
        return "'expected' names nothing to compare"
    if not isinstance(case.get("params", {}), dict):
        return "'params' is not an object"
    tolerances = [case.get(key, 0.0) for key in ("rtol", "atol")]
    if not all(isinstance(x, int | float) and 0 <= x < math.inf for x in tolerances):
        return "'rtol' and 'atol' must be finite numbers of at least 0"
    return None


def run(cases: Iterable[dict[str, Any]]) -> list[Verdict]:
    """Run every case in order."""
    return [Verdict(case["id"], check(case)) for case in cases]


def check(case: dict[str, Any]) -> str | None:
    """Return why a case fails, or None. A refusal of the inputs (UserError) counts as undefined."""
    name = case["op"]
    if name not in OPS:
        return f"unknown op {name!r}{did_you_mean(name, OPS)}"
    arguments = {**case["inputs"], **case.get("params", {})}
    op = OPS[name]
    try:
        inspect.signature(op).bind(**arguments)
    except TypeError as error:
        return f"{name}: {error}"
    refusal = ""
    try:
        found = op(**arguments)
    except UserError as error:
        found, refusal = dict.fromkeys(case["expected"]), f" (refused: {error})"
    except Exception as error:
        # A case comes from outside: whatever its numbers break is that case's failure, not the program's.
        return f"{name}: {type(error).__name__}: {' '.join(str(error).split())}"
    for key, expected in case["expected"].items():
        if key not in found:
            return f"{name} gives no {key!r}; it gives {', '.join(found)}"
        if problem := difference(expected, found[key], case.get("rtol", 1e-7), case.get("atol", 1e-10)):
            return f"{key}{problem}{refusal}"
    return None


def difference(expected: Any, found: Any, rtol: float, atol: float) -> str | None:
    """Return the first place where two nested lists of numbers differ, or None.

    A number agrees within `atol + rtol |expected|`; null agrees with null and NaN alone.
    """
    if isinstance(found, Tensor | np.ndarray | np.generic):
        found = found.tolist()
    if isinstance(expected, list):
        if not isinstance(found, list) or len(found) != len(expected):
            size = len(found) if isinstance(found, list) else repr(found)
            return f": expected {len(expected)} entries, found {size}"
        for index, pair in enumerate(zip(expected, found, strict=True)):
            if problem := difference(*pair, rtol, atol):
                return f"[{index}]{problem}"
        return None
    if _undefined(expected) or _undefined(found):
        same = _undefined(expected) and _undefined(found)
    elif isinstance(expected, int | float) and isinstance(found, int | float):
        same = expected == found or abs(found - expected) <= atol + rtol * abs(expected)
    else:
        same = expected == found
    return None if same else f": expected {json.dumps(expected)}, found {found!r}"


def _undefined(x: Any) -> bool:
    return x is None or (isinstance(x, float) and math.isnan(x))
