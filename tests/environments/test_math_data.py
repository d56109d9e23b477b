"""Reading sets of maths problems: every row is accounted for, every wrong file is one clear line."""

import json
import os
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from sao_bench.environments.math_dataset import is_right, shortest
from typer.testing import CliRunner

from sao_bench.cli.answers import app
from sao_bench.errors import UserError
from sao_bench.math_data import SETS, load, made_up, take
from sao_bench.math_data.damage import answer_type
from sao_bench.math_data.made_up import COUNT, raw

ROWS = Path(__file__).parent / "math_rows"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("-1,234", "integer"),
        ("90^\\circ", "integer"),
        ("3.14", "decimal"),
        ("\\dfrac{1}{2}", "rational"),
        ("1/2", "rational"),
        ("1, 2", "set"),
        ("12, 345", "set"),
        ("\\{1,2\\}", "set"),
        ("\\pm 2", "set"),
        ("(1,2),(3,4)", "set"),
        ("(1,2)", "tuple"),
        ("(0,1]", "interval"),
        ("(0,\\infty)", "interval"),
        ("x > 3", "interval"),
        ("x^2+y^2=1", "equation"),
        ("x=5", "expression"),
        ("2^{99}", "expression"),
        ("(a+b)(c+d)", "expression"),
        ("\\text{Yes}", "text"),
    ],
)
def test_the_type_is_told_by_the_notation(answer, kind):
    assert answer_type(answer) == kind


@pytest.mark.parametrize("name", SETS)
def test_made_up_rows_are_whole_short_and_right(name):
    rows = made_up(name)
    assert (rows.read, len(rows.rows), rows.damaged, rows.duplicates) == (COUNT, COUNT, (), 0)
    assert all(r.problem.isascii() and len(r.problem) <= 60 for r in rows.rows)
    assert raw(name) == raw(name)
    for r in rows.rows:
        assert is_right(r, shortest(r), "value") and is_right(r, r.answer, "any_form")


def test_made_up_answers_by_hand():
    def numbers(name):
        for r in made_up(name).rows:
            yield [int(n) for n in re.findall(r"\d+", r.problem)], r.answer

    assert all(int(a) == n[0] % n[1] for n, a in numbers("aime_2024"))
    assert all(int(a) == n[0] + n[1] for n, a in numbers("aime_2025"))
    assert all(int(a) == n[0] ** n[1] for n, a in numbers("beyond_aime"))
    assert all(int(a) == n[0] * n[1] for n, a in numbers("dapo"))
    assert all(int(a.replace(",", "")) == n[0] * n[1] for n, a in numbers("gsm8k"))
    for n, a in numbers("hmmt_feb_2025"):
        assert Fraction(a.replace("\\frac{", "").replace("}{", "/").strip("}")) == Fraction(
            1, n[1]
        ) + Fraction(1, n[3])
    for n, a in numbers("hmmt_nov_2025"):
        assert all(int(x) ** 2 - n[1] * int(x) + n[2] == 0 for x in a.split(", "))
    primes = {n for n in range(2, 500) if all(n % d for d in range(2, n))}
    assert all((a == "Yes") == (n[0] in primes) for n, a in numbers("deepmath"))


@pytest.mark.parametrize(
    ("file", "name", "read", "usable", "duplicates", "damaged"),
    [
        (
            "gsm8k.jsonl",
            "gsm8k",
            7,
            {1: "1,800", 2: "42", 5: "2.50"},
            1,
            {4: "no answer after ####", 6: "no problem", 7: "a date in place of a number: '4-May'"},
        ),
        (
            "imo_answerbench.csv",
            "imo_answerbench",
            10,
            {1: "$\\sqrt{2}$", 2: "1024", 8: "$(1,2)$, $(2,1)$"},
            0,
            {
                3: "shifted columns: 7 of 6 fields",
                4: "a date in place of a number: '1-Mar'",
                5: "a lost dollar: '",
                6: "shifted columns: category '",
                7: "a lost dollar in the problem",
                9: "unbalanced braces",
                10: "a date in place of a number: '2001-02-07 00:00:00'",
            },
        ),
        (
            "aime_2024.csv",
            "aime_2024",
            4,
            {1: "24", 2: "025"},
            0,
            {3: "1000 is outside 0 to 999", 4: "not a whole number: '3.5'"},
        ),
        ("aime_2025.json", "aime_2025", 3, {1: "56", 2: "72", 3: "81"}, 0, {}),
        (
            "dapo.jsonl",
            "dapo",
            4,
            {1: "81", 3: "16"},
            1,
            {4: "the problem of row 3 with another answer: '16', '8'"},
        ),
    ],
)
def test_every_row_is_accounted_for(file, name, read, usable, duplicates, damaged):
    found = load(name, ROWS / file)
    assert {r.number: r.answer for r in found.rows} == usable
    assert (found.read, found.duplicates) == (read, duplicates)
    assert [d.number for d in found.damaged] == list(damaged)
    assert all(d.reason.startswith(damaged[d.number]) for d in found.damaged)
    assert found.read == len(found.rows) + len(found.damaged) + found.duplicates


def test_the_dapo_instruction_is_dropped():
    assert [r.problem for r in load("dapo", ROWS / "dapo.jsonl").rows] == ["Find $3^4$.", "Find $2^4$."]


def test_a_hundredfold_file_is_read_once():
    rows = raw("dapo")[:20] * 100
    found = take("dapo", rows)
    assert (found.read, len(found.rows), found.duplicates, found.damaged) == (2000, 20, 1980, ())


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_files_of_every_kind_hold_the_same_rows(name, suffix, tmp_path):
    rows, path = raw(name), tmp_path / f"rows{suffix}"
    match suffix:
        case ".jsonl":
            path.write_text("\n".join(map(json.dumps, rows)) + "\n")
        case ".json":
            path.write_text(json.dumps({"version": "0", "data": rows}))
        case ".parquet":
            pyarrow = pytest.importorskip("pyarrow")
            from pyarrow import parquet

            parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    assert load(name, path).rows == made_up(name).rows
    assert load(name, tmp_path).rows == made_up(name).rows


def test_line_separators_inside_json_do_not_split_a_line(tmp_path):
    path = tmp_path / "rows.jsonl"
    line = json.dumps({"question": "one\u2028two = ?", "final_answer": "3"}, ensure_ascii=False)
    path.write_text(f"{line}\n{line}\n", encoding="utf-8")
    assert (load("deepmath", path).read, load("deepmath", path).duplicates) == (2, 1)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.jsonl", "{}\n{", "2 read; row 1: no problem: .*; row 2: not JSON: .*, character 2\\)"),
        ("rows.jsonl", "1\n" * 5, "row 3: not an object; and 2 more\\)"),
        ("rows.json", "{", "cannot be read"),
        ("rows.json", '{"a": 1}', "not a list of rows"),
        ("rows.json", "[" * 100_000, "cannot be read"),
        ("rows.json", "[1, 2]", "2 read; row 1: not an object; row 2: not an object"),
        ("rows.csv", "a\0,b\n1,2\n", "cannot be read: no line of column names"),
        ("rows.json", "[]", "no usable row of gsm8k \\(0 read\\)"),
        ("rows.csv", "", "no usable row of gsm8k \\(0 read\\)"),
        ("rows.csv", "a,b\n1,2\n", "no usable row of gsm8k \\(1 read; row 1: no problem: column question is"),
        ("rows.parquet", "zxqv", "not a parquet file"),
        ("rows.txt", "zxqv", "not a file of: .jsonl, .json, .csv, .parquet"),
    ],
)
def test_a_wrong_file_is_one_clear_line(name, content, message, tmp_path):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(UserError, match=message) as error:
        load("gsm8k", path)
    assert "\n" not in str(error.value) and str(path) in str(error.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nothing.jsonl", "gsm8k: nothing.jsonl: no such file, and not an id on the hub"),
        ("nothing", "no such file, and not an id"),
        (".", "has no file of: .jsonl"),
    ],
)
def test_a_source_that_is_not_there_is_one_clear_line(source, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        load("gsm8k", source)
    with pytest.raises(UserError, match="imo_answerbench has no id of its own"):
        load("imo_answerbench", "hub")
    with pytest.raises(UserError, match=r"unknown data set 'gsm8' \(did you mean 'gsm8k'\?\)"):
        load("gsm8", source)


def test_a_hub_id_that_cannot_be_loaded_is_one_clear_line():
    pytest.importorskip("datasets")
    code = (
        "from sao_bench.math_data import load\nfrom sao_bench.errors import UserError\n"
        "try:\n    load('gsm8k', 'nobody/no-such-set')\nexcept UserError as e:\n    print(e)\n"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.startswith("gsm8k: cannot load 'nobody/no-such-set' from the hub: ")
    assert done.stdout.count("\n") == 1 and "Traceback" not in done.stderr


WITHOUT = """
import sys
sys.modules["datasets"] = sys.modules["pyarrow"] = None
from sao_bench.errors import UserError
from sao_bench.math_data import load
from sao_bench.environments.math_dataset import MathDataset
MathDataset().reset(seed=0)
for source in ("hub", sys.argv[1]):
    try:
        load("gsm8k", source)
    except UserError as error:
        print(error)
"""


def test_without_the_extra_only_the_hub_and_parquet_are_missing(tmp_path):
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"PAR1")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(path)], capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 2 and all("pip install 'sao-bench[datasets]'" in line for line in lines)


def test_the_verbs():
    run = CliRunner().invoke
    done = run(app, ["rows", str(ROWS / "aime_2024.csv"), "--set", "aime_2024", "--show", "1"])
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        "row 1: integer '24': Find the remainder of $2^{10}$ modulo $1000$.",
        "row 3: 1000 is outside 0 to 999",
        "row 4: not a whole number: '3.5'",
        "aime_2024: 4 rows read, 2 usable (integer 2), 0 duplicates, 2 damaged",
        "the whole set has 30 rows",
    ]
    done = run(app, ["rows", str(ROWS / "aime_2025.json"), "--set", "aime_2025"])
    assert done.exit_code == 0
    done = run(app, ["sets"])
    assert done.exit_code == 0 and [line.split()[0] for line in done.stdout.splitlines()] == list(SETS)
