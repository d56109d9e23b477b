"""YAML 1.2 core, positions, keys written twice."""

import math

import pytest

from sao_bench.drift.yaml12 import parse, resolve
from sao_bench.errors import UserError


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1e-5", 1e-5), ("2E3", 2000.0), (".5", 0.5), ("5.", 5.0), ("-0.25", -0.25), ("+7", 7), ("007", 7),
        ("0o17", 15), ("0xfF", 255), ("off", "off"), ("on", "on"), ("yes", "yes"), ("No", "No"), ("y", "y"),
        ("12:30:00", "12:30:00"), ("1_000", "1_000"), ("2001-01-01", "2001-01-01"), ("=", "="), ("<<", "<<"),
        ("true", True), ("FALSE", False), ("null", None), ("~", None), ("", None), ("0b11", "0b11"),
        ("1e", "1e"), (".", "."), ("-.inf", -math.inf), ("1e5x", "1e5x"), ("0o8", "0o8"),
    ],
)  # fmt: skip
def test_core_schema(written, value):
    found = resolve(written)
    assert found == value and type(found) is type(value)


def test_not_a_number_is_a_float():
    assert math.isnan(resolve(".nan"))


def test_quotes_and_the_text_tag_make_text():
    assert parse("[1, '1', \"1e-5\", !!str 1, off]", "f").plain() == [1, "1", "1e-5", "1", "off"]


def test_positions_count_from_one():
    root = parse("a: 1\nbb:\n  - x\n  - {k: v}\n", "f.yaml")
    assert root.keys["bb"] == ("f.yaml", 2, 1)
    item = root.value["bb"].value[1]
    assert item.place == ("f.yaml", 4, 5)
    assert item.value["k"].place == ("f.yaml", 4, 9)


def test_aliases_are_followed():
    assert parse("a: &x {b: 1}\nc: *x", "f").plain() == {"a": {"b": 1}, "c": {"b": 1}}


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("a: 1\nb: 2\na: 3", "f:3:1: duplicate key 'a' (lines 1 and 3)"),
        ("a:\n  b: {c: 1,\n      c: 2}", "f:3:7: duplicate key 'c' (lines 2 and 3)"),
        ("a: *x", "f:1:4: alias *x has no anchor"),
        ("a: &x [*x]", "f:1:8: alias *x has no anchor"),
        ("a: !!int '3'", "f:1:4: tag tag:yaml.org,2002:int is not part"),
        ("a: 1\n---\nb: 1", "f:2:1: a second YAML document"),
        ("{a: 1}: 2", "f:1:1: a key must be plain text"),
        ("a: [1,", "f:1:7: not YAML"),
        ("a: b: c", "f:1:5: not YAML"),
        ("a:\n\t- 1", "f:2:1: not YAML"),
        ("", "f:1:1: the file is empty"),
        ("a: \x01", "not YAML"),
    ],
)
def test_refused(written, message):
    with pytest.raises(UserError) as error:
        parse(written, "f")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
