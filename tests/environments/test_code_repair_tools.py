import ast
import itertools

import pytest
from sao_bench.environments._code_grammar import FAMILIES
from sao_bench.environments._code_tasks import TaskKey, make_task
from sao_bench.environments._code_tools import (
    NAMES,
    REPORTS,
    SIGNATURES,
    TOOLS,
    Call,
    Misuse,
    changed,
    parse,
    repair,
    report,
    shown,
    usage,
    write_edit,
)
from sao_bench.environments.code_repair import CodeRepair

from sao_bench.grading.plain import Opaque

DEFAULT = CodeRepair.default_concept().values


@pytest.mark.parametrize(
    ("signature", "arguments", "edit"),
    [
        ("colon", "2: return a-b", (2, 2, "return a-b")),
        ("colon", "2:return a-b", (2, 2, "return a-b")),
        ("colon", "2-3: a*=3\na+=2", (2, 3, "a*=3\na+=2")),
        ("colon", "2:", (2, 2, "")),
        ("colon", "2:  x", (2, 2, " x")),
        ("zero", "2: x", (3, 3, "x")),
        ("zero", "0-1: x", (1, 2, "x")),
        ("at", "return a-b @2", (2, 2, "return a-b")),
        ("at", "return a@b @2-3", (2, 3, "return a@b")),
        ("at", "a*=3\na+=2 @2", (2, 2, "a*=3\na+=2")),
        ("json", '{"line": 2, "text": "x\\ny"}', (2, 2, "x\ny")),
        ("json", '{"text": "x", "line": "2-3"}', (2, 3, "x")),
    ],
)
def test_edits_are_read_in_the_signature_of_today_alone(signature, arguments, edit):
    values = {**DEFAULT, "tool.edit.signature": signature}
    assert parse(f"edit {arguments}", values) == Call("edit", "", *edit)
    for other in set(SIGNATURES) - {signature}:
        assert parse(f"edit {arguments}", {**DEFAULT, "tool.edit.signature": other}) != Call(
            "edit", "", *edit
        )


@pytest.mark.parametrize("signature", SIGNATURES)
@pytest.mark.parametrize("file", ["", "shop/rates.py"])
@pytest.mark.parametrize("name", NAMES["edit"])
def test_an_edit_that_is_written_is_read_back(signature, file, name):
    values = {**DEFAULT, "tool.edit.signature": signature, "tool.edit.name": name}
    for first, last, text in itertools.product((1, 2), (2, 3), ("x", " x=': '", "a\n b @2", "1: x", "")):
        call = Call("edit", file, first, last, text)
        assert parse(write_edit(call, values), values) == call


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_answers_to_its_name_alone(tool):
    for name, other in itertools.product(NAMES[tool], repeat=2):
        call = name + (" 1: x" if tool == "edit" else "")
        found = parse(call, {**DEFAULT, f"tool.{tool}.name": other})
        assert isinstance(found, Call) == (name == other)
        assert found.tool == tool
    assert not set(NAMES[tool]) & {name for other in TOOLS if other != tool for name in NAMES[other]}


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("", Misuse("name", "edit")),
        ("Submit", Misuse("name", "edit")),
        ("submit now", Misuse("call", "submit")),
        ("submit\nedit 1: x", Misuse("call", "submit")),
        ("run_tests all", Misuse("call", "run_tests")),
        ("test", Misuse("name", "run_tests")),
        ("edit", Misuse("call", "edit")),
        ("edit two: x", Misuse("call", "edit")),
        ("edit 2 x", Misuse("call", "edit")),
        ("edit -1: x", Misuse("call", "edit")),
        ("view a b", Misuse("call", "view")),
        ("submit()", Call("submit")),
        ("view()", Call("view")),
    ],
)
def test_lines_that_are_no_calls(line, error):
    assert parse(line, DEFAULT) == error


@pytest.mark.parametrize(
    "arguments",
    [
        "{",
        "[]",
        "2",
        '{"line": 2}',
        '{"line": true, "text": "x"}',
        '{"line": 2.0, "text": "x"}',
        "[" * 100_000,
        *['{"line": -2, "text": "x"}', '{"line": 2, "text": 3}', '{"line": 2, "text": "x", "n": 1}'],
    ],
)
def test_json_that_is_no_edit(arguments):
    assert parse(f"edit {arguments}", {**DEFAULT, "tool.edit.signature": "json"}) == Misuse("call", "edit")


def test_usages_are_those_of_today():
    values = {**DEFAULT, "tool.edit.name": "set", "tool.edit.signature": "at"}
    assert usage("edit", values) == "set TEXT @N"
    assert usage("edit", values, files=True) == "set TEXT @FILE N"
    assert usage("edit", {**values, "tool.edit.signature": "json"}, files=True) == (
        'set {"file": FILE, "line": N, "text": TEXT}'
    )
    assert usage("edit", {**values, "tool.edit.signature": "zero"}) == "set N: TEXT (N from 0)"
    assert usage("view", values, files=True) == "view FILE" and usage("submit", values) == "submit"


def test_edits_replace_lines_and_keep_the_margin():
    lines = ["def f(a):", "  if a:", "    a=1", "  return a"]
    assert changed(lines, Call("edit", "", 3, 3, "a=2")) == [*lines[:2], "    a=2", lines[3]]
    assert changed(lines, Call("edit", "", 3, 3, "a=2\na+=1")) == [
        *lines[:2],
        "    a=2",
        "    a+=1",
        lines[3],
    ]
    assert changed(lines, Call("edit", "", 3, 3, " a=2")) == [*lines[:2], " a=2", lines[3]]
    assert changed(lines, Call("edit", "", 2, 3, "")) == [lines[0], lines[3]]
    assert changed(lines, Call("edit", "", 1, 4, "")) == [""]
    assert lines[2] == "    a=1"
    for first, last in ((0, 1), (5, 5), (2, 1), (1, 5)):
        assert changed(lines, Call("edit", "", first, last, "x")) is None


@pytest.mark.parametrize(
    ("before", "after", "edit"),
    [
        ("a\nb\nc\n", "a\nx\nc\n", (2, 2, "x")),
        ("a\nb\nc\n", "a\nc\n", (2, 2, "")),
        ("a\n return b\n", "a\n x\n return b\n", (2, 2, "x\nreturn b")),
        ("a\n b\n", "a\n b\n c\n", (2, 2, "b\nc")),
        ("d:\n a\n b\n", "d:\n b\n a\n", (2, 3, "b\na")),
        ("d:\n return b\n", "d:\n if a:\n  a=3\n return b\n", (2, 2, "if a:\n a=3\nreturn b")),
        ("d:\n a\n  b\n", "d:\n a\n b\n", (3, 3, " b")),
        ("a\n", "b\n", (1, 1, "b")),
        ("\n", "b\nc\n", (1, 1, "b\nc")),
    ],
)
def test_a_repair_is_the_smallest_edit(before, after, edit):
    found = repair(before, after)
    assert found == Call("edit", "", *edit)
    assert changed(before.splitlines(), found) == after.splitlines()


def test_every_task_is_repaired_by_one_edit_from_any_of_its_programs():
    for family, difficulty in itertools.product(FAMILIES, (1, 2, 3, 4)):
        task = make_task(TaskKey(1, "train", family, difficulty, 0))
        for before, after in itertools.permutations((task.base, task.gold, task.hard_coded), 2):
            if before != after:
                lines = changed(before.splitlines(), repair(before, after))
                assert ast.dump(ast.parse("\n".join(lines))) == ast.dump(ast.parse(after))


def test_reports_by_hand():
    given = (1, "f(7,2)", "5", "raises KeyError")
    assert {style: report(style, *given) for style in REPORTS} == {
        "terse": "f(7,2) is raises KeyError not 5",
        "line": "tests:1: f(7,2) is raises KeyError, not 5",
        "traceback": "Traceback:\n test 1: assert f(7,2) == 5\nAssertionError: raises KeyError",
        "json": '{"test":1,"call":"f(7,2)","got":"raises KeyError","want":"5"}',
    }


def test_outcomes_are_shown_short_and_without_addresses():
    assert [shown(None, value) for value in (3, "a", [1, [True]], None, 0.5)] == [
        "3",
        "'a'",
        "[1, [True]]",
        "None",
        "0.5",
    ]
    assert shown("KeyError", None) == "raises KeyError"
    assert shown(None, [Opaque("X")]) == "[some opaque]" and shown(None, {1, 2}) == "some set"
    assert shown(None, 1 << 99_999) == "a large number"
    assert shown(None, "x" * 500) == "'" + "x" * 59 + "..."
