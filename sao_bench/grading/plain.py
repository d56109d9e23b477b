"""Plain data as JSON that keeps types apart, and an equality that does too. Imports nothing heavy.

This file is also sent into sandboxes as source, so it stands alone.
"""

from __future__ import annotations

import math
from typing import Any

MAX_DEPTH = 100
MAX_NODES = 200_000
JSON_INT_BITS = 4096
MAX_COLLISIONS = 100
"""So many members of a set may share their hash with others. A set of numbers chosen to have one hash takes quadratic
time, which no limit bounds in this process; honest data has next to none."""


class MalformedError(ValueError):
    """The JSON is not an encoding of plain data."""


class _Encoder:
    def __init__(self) -> None:
        self.nodes = 0

    def encode(self, value: Any, depth: int = 0) -> Any:
        self.nodes += 1
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            return {"opaque": "too large"}
        kind = type(value)
        if value is None or kind in (bool, str):
            return value
        if kind is int:
            return value if value.bit_length() < JSON_INT_BITS else {"int": hex(value)}
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if kind is complex:
            return {"complex": [self.encode(value.real), self.encode(value.imag)]}
        if kind in (bytes, bytearray):
            return {kind.__name__: bytes(value).hex()}
        if kind is list:
            return [self.encode(item, depth + 1) for item in value]
        if kind in (tuple, set, frozenset):
            return {kind.__name__: [self.encode(item, depth + 1) for item in value]}
        if kind is dict:
            return {
                "dict": [[self.encode(k, depth + 1), self.encode(v, depth + 1)] for k, v in value.items()]
            }
        return {"opaque": kind.__name__}


def encode(value: Any) -> Any:
    """Return JSON for plain data: None, bool, int, float, complex, str, bytes and containers of them.

    Only exact types count: an instance of any other class, subclasses included, becomes `{"opaque": name}`,
    which equals nothing. No method of the value's own is called.
    """
    return _Encoder().encode(value)


class Opaque:
    """Stands for a value that is not plain data; equal to nothing, itself included."""

    def __init__(self, name: str):
        self.name = name


def decode(data: Any, depth: int = 0) -> Any:
    """Return the plain data of an encoding.

    Raises:
        MalformedError: it is none.
    """
    if depth > MAX_DEPTH + 1:
        raise MalformedError("too deep")
    if data is None or isinstance(data, bool | int | float | str):
        return data
    if isinstance(data, list):
        return [decode(item, depth + 1) for item in data]
    if not isinstance(data, dict) or len(data) != 1:
        raise MalformedError("not an encoding")
    ((kind, body),) = data.items()
    try:
        return _decode_tagged(kind, body, depth)
    except (TypeError, ValueError, OverflowError) as error:
        raise MalformedError(str(error)) from error


def _decode_tagged(kind: str, body: Any, depth: int) -> Any:
    match kind:
        case "int":
            return int(body, 16)
        case "float":
            return float(body)
        case "complex":
            return complex(*(decode(part) for part in body))
        case "bytes":
            return bytes.fromhex(body)
        case "bytearray":
            return bytearray.fromhex(body)
        case "tuple":
            return tuple(decode(item, depth + 1) for item in body)
        case "set":
            return set(_spread([decode(item, depth + 1) for item in body]))
        case "frozenset":
            return frozenset(_spread([decode(item, depth + 1) for item in body]))
        case "dict":
            keys = _spread([decode(key, depth + 1) for key, _ in body])
            return dict(zip(keys, [decode(value, depth + 1) for _, value in body], strict=True))
        case "opaque":
            return Opaque(str(body))
    raise MalformedError(f"unknown tag {kind!r}")


def _spread(items: list[Any]) -> list[Any]:
    """Return the items if their hashes differ, as those of honest data do."""
    if len(items) - len(set(map(hash, items))) > MAX_COLLISIONS:
        raise MalformedError("too many members with one hash")
    return items


def has_opaque(value: Any) -> bool:
    """Return whether a decoded value holds something that was not plain data."""
    if isinstance(value, Opaque):
        return True
    if isinstance(value, dict):
        return any(has_opaque(item) for pair in value.items() for item in pair)
    return isinstance(value, list | tuple | set | frozenset) and any(map(has_opaque, value))


def equal(a: Any, b: Any, tolerance: float = 0.0) -> bool:
    """Return whether two decoded values are the same data of the same types.

    1, True and 1.0 all differ, a tuple is not a list; NaN equals NaN; dicts compare without order, sets by
    typed elements. `tolerance` is a relative and absolute tolerance between floats outside sets and keys.
    """
    if type(a) is not type(b) or isinstance(a, Opaque):
        return False
    if isinstance(a, float):
        return (
            a == b
            or (math.isnan(a) and math.isnan(b))
            or math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance)
        )
    if isinstance(a, complex):
        return equal(a.real, b.real, tolerance) and equal(a.imag, b.imag, tolerance)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(equal(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if isinstance(a, set | frozenset):
        return len(a) == len(b) and sorted(map(_typed, a)) == sorted(map(_typed, b))
    if isinstance(a, dict):
        right = {_typed(key): value for key, value in b.items()}
        return len(a) == len(b) and all(
            _typed(key) in right and equal(value, right[_typed(key)], tolerance) for key, value in a.items()
        )
    return bool(a == b)


def _typed(value: Any) -> str:
    """Return a text that two hashable values share only if they are equal in value and type."""
    if isinstance(value, frozenset):
        return f"frozenset({sorted(map(_typed, value))})"
    if isinstance(value, tuple):
        return f"tuple({[_typed(item) for item in value]})"
    if isinstance(value, Opaque):
        return f"opaque {id(value)}"
    if type(value) is int:
        return f"int {value:x}"  # decimal digits are bounded, and slow
    return f"{type(value).__name__} {value!r}"
