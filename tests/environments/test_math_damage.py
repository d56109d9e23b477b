"""Damaged rows of maths sets: each kind is told with its reason, and none takes another row with it."""

import json

import pytest
from typer.testing import CliRunner

from sao_bench.cli.answers import app
from sao_bench.math_data import load, survey, take

COLUMNS = {
    "imo_answerbench": ("Problem", "Short Answer"),
    "gsm8k": ("question", "answer"),
    "deepmath": ("question", "final_answer"),
    "dapo": ("prompt", "answer"),
    "aime_2024": ("problem", "answer"),
}
TEXT = "How many are there?"


def one(name, answer, problem=TEXT):
    """Return the gold answer of a single row, or the reason why it is damaged."""
    found = take(name, [dict(zip(COLUMNS[name], (problem, answer), strict=True))])
    assert found.read == len(found.rows) + len(found.damaged) == 1
    reason = found.damaged[0].reason if found.damaged else ""
    assert "\n" not in reason and len(reason) < 200 and reason.isprintable()
    return found.rows[0].answer if found.rows else f"damaged: {reason}"


@pytest.mark.parametrize("name", ["imo_answerbench", "deepmath", "dapo"])
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        *((f"#{e}", "a spreadsheet's error") for e in ("REF!", "N/A", "VALUE!", "NAME?", "DIV/0!", "NUM!")),
        *((e, "a spreadsheet's error") for e in ("#NULL!", "$#REF!$", "2 + #REF!", "########", "#WERT!")),
        *((n, "a number that was rounded") for n in ("1.23E+15", "-1.5E-7", "2E10", "1e999", "1e-05")),
        ("\\sqrt{\ufffd}", "a character that could not be decoded (U+FFFD)"),
        ("1\0", "a NUL character"),
        ("\ud800", "half a character"),
        ("\x0crac{1}{2}", "a control character"),
        ("NaN", "a missing value"),
        ("['3']", "a list that became text"),
        ("3']", "a list that became text"),
        ("1/0", "a fraction over 0"),
        ("\\frac{1}{0}", "a fraction over 0"),
        ("$ $", "no value"),
        ("?", "no value"),
        ("\\boxed{1} or \\boxed{2}", "2 boxed answers: '1', '2'"),
        (["3"], "the answer is neither text nor a number: ['3']"),
        ({"a": 3}, "the answer is neither text nor a number"),
        (True, "the answer is neither text nor a number: True"),
        (None, "no answer"),
        (float("nan"), "the answer is no finite number"),
        (float("inf"), "the answer is no finite number"),
        (1.23e30, "a whole number that was rounded"),
        ("x" * 501, "an answer of 501 characters"),
    ],
)
def test_a_damaged_answer(name, answer, reason):
    assert one(name, answer).startswith(f"damaged: {reason}")


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        *((a, a) for a in ("2e-3", "2e+1", "1/10", "\\frac{1}{100}", "[1, 2]", "\\{1, 2\\}", "f'(x)", "Yes")),
        *((a, a) for a in ("None", "\\emptyset", "\\#S", "\\infty", "A", "x^2-e")),
        (3, "3"),
        (3.0, "3"),
        (0.00001, "0.00001"),
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("$\\boxed{7}$", "7"),
    ],
)
def test_a_sound_answer(answer, gold):
    assert one("deepmath", answer) == gold


@pytest.mark.parametrize("answer", ["NaN", "1e999", "1,23", "5 apples", "3']", "1.", "x", "5\nso 5", "50%"])
def test_a_gsm8k_gold_is_a_number(answer):
    found = one("gsm8k", f"2 + 3 = 5\n#### {answer}")
    assert found == "1." if answer == "1." else found.startswith("damaged: ")


def test_gsm8k_golds():
    for answer in ("5", "-5", "1,234", "2.50", "1,234.5", "1/2"):
        assert one("gsm8k", f"so\n#### {answer}") == answer
    assert one("gsm8k", "#### $5") == one("gsm8k", "#### \\boxed{5}") == "5"
    assert one("gsm8k", "#### 5 apples") == "damaged: not a number: '5 apples'"
    assert one("gsm8k", "#### 1 #### 2") == "damaged: 2 answers: #### is there 2 times"
    assert one("gsm8k", "####  ") == "damaged: no answer after ####"


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        ("", "no problem"),
        (" \n", "no problem"),
        ("what is " * 2501, "a problem of 20007 characters"),
        ("what is\0 1+1", "a NUL character in the problem"),
        ("what is \udc00", "half a character (a lone surrogate) in the problem"),
        ("what is \ufffd", "a character that could not be decoded (U+FFFD) in the problem"),
        ("#NAME?", "a spreadsheet's error in place of the problem"),
        (["a", "b"], "the problem is not text"),
        (True, "the problem is not text: True"),
    ],
)
@pytest.mark.parametrize("name", COLUMNS)
def test_a_damaged_problem(name, problem, reason):
    assert one(name, "#### 3" if name == "gsm8k" else "3", problem).startswith(f"damaged: {reason}")


def test_a_chat_has_a_problem_of_the_user():
    system, user = ({"role": r, "content": f"{r}: {TEXT}"} for r in ("system", "user"))
    assert one("dapo", "3", [system]) == "damaged: no problem: a chat without a user's turn"
    assert one("dapo", "3", json.dumps([system])) == "damaged: no problem: a chat without a user's turn"
    assert one("dapo", "3", str([system, user])) == "damaged: no problem: a chat that is not JSON"
    assert one("dapo", "3", [{"role": "user", "content": None}]) == "damaged: the problem is not text: None"
    assert one("dapo", "3", [{"role": "user", "content": " "}]) == "damaged: an empty problem"
    row = {"prompt": [system, user, {"role": "assistant", "content": "3"}], "answer": "3"}
    assert take("dapo", [row]).rows[0].problem == user["content"]


def test_an_aime_answer_may_be_boxed():
    assert one("aime_2024", "\\boxed{7}") == one("aime_2024", "$\\boxed{\\boxed{7}}$") == "7"
    assert one("aime_2024", "\\boxed{3.5}") == "damaged: not a whole number: '3.5'"
    assert one("aime_2024", "1,23") == "damaged: not a whole number: '1,23'"
    rows = [
        {"problem": f"{i}: {TEXT}", "solution": text}
        for i, text in enumerate(
            (
                "12",
                "We add $a$ and {b}, " + "and so on " * 80 + "to get $\\boxed{12}$.",
                "\\boxed{12}, thus \\boxed{12}",
                "\\boxed{1} and \\boxed{2}",
                "It is 12.",
            )
        )
    ]
    found = take("aime_2025", [*rows, {"problem": "again: " + TEXT, "answer": "", "solution": "12"}])
    assert [(r.number, r.answer) for r in found.rows] == [(n, "12") for n in (1, 2, 3, 6)]
    assert [d.reason for d in found.damaged] == [
        "2 boxed answers: '1', '2'",
        "not a whole number: 'It is 12.'",
    ]


GOOD = json.dumps({"question": TEXT, "final_answer": "3"}).encode()


def rows(path, name="deepmath"):
    done = CliRunner().invoke(app, ["rows", str(path), "--set", name])
    return done.exit_code, done.stdout.splitlines()


def test_a_wrong_line_takes_no_other_with_it(tmp_path):
    path = tmp_path / "rows.jsonl"
    wrong = [b"{oops", b"[1,2]", b"null", b'{"question": "\xff"}', b"[" * 100_000, b"9" * 5000]
    path.write_bytes(b"\n".join([*wrong, GOOD]))
    status, lines = rows(path)
    assert status == 1 and lines[:4] == [
        "row 1: not JSON: Expecting property name enclosed in double quotes, character 2",
        "row 2: not an object",
        "row 3: not an object",
        "row 4: not JSON: byte 15 is not UTF-8",
    ]
    assert lines[4].startswith("row 5: not JSON: ") and lines[5].startswith("row 6: not JSON: ")
    assert lines[6].startswith("deepmath: 7 rows read, 1 usable (integer 1), 0 duplicates, 6 damaged")
    assert load("deepmath", path).rows[0].number == 7


def test_a_wrong_row_of_a_list_or_table_takes_no_other_with_it(tmp_path):
    path = tmp_path / "rows.json"
    path.write_bytes(b"[1, " + GOOD + b"]")
    assert rows(path)[1][0] == "row 1: not an object" and len(load("deepmath", path).rows) == 1
    path = tmp_path / "rows.csv"
    path.write_bytes(b"question,final_answer,by\nwhat is 1?,1,x\nwhat is \xff?,2,x\nwhat is 3?,3,\xff\n,\n")
    status, lines = rows(path)
    assert status == 1 and lines[:2] == [
        "row 2: a character that could not be decoded (U+FFFD) in the problem",
        "row 4: shifted columns: 2 of 3 fields",
    ]
    assert [r.number for r in load("deepmath", path).rows] == [1, 3]


def test_a_csv_field_that_is_too_long_is_one_row(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(f"question,final_answer\n{'x' * 10_000_001},1\nwhat is 3?,3\n")
    found = load("deepmath", path)
    assert found.damaged[0].reason.startswith("not CSV: field larger") and found.rows[0].answer == "3"


def test_without_a_usable_row_the_first_ten_are_listed(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("null\n" * 12)
    status, lines = rows(path)
    assert status == 1 and lines[:11] == [*(f"row {n}: not an object" for n in range(1, 11)), "and 2 more"]
    assert lines[11] == "deepmath: 12 rows read, 0 usable (none), 0 duplicates, 12 damaged"


def test_a_broken_file_of_a_folder_takes_no_other_with_it(tmp_path):
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "b.jsonl").write_bytes(GOOD)
    (tmp_path / "c.parquet").write_text("zxqv")
    (tmp_path / "d.jsonl").mkdir()
    status, lines = rows(tmp_path)
    assert status == 1 and len(lines) == 5
    assert lines[0].startswith(f"{tmp_path / 'a.json'}: cannot be read: Expecting property name")
    assert lines[1].startswith(f"{tmp_path / 'c.parquet'}: ") and lines[2].startswith(
        f"{tmp_path / 'd.jsonl'}"
    )
    assert lines[3].endswith("1 rows read, 1 usable (integer 1), 0 duplicates, 0 damaged, 3 files not read")
    assert len(survey("deepmath", tmp_path).unread) == 3
