import json
import threading
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sao_bench.cli import build
from sao_bench.errors import UserError
from sao_bench.grading.answers import judge, read_cases
from sao_bench.grading.answers.symbolic import Algebra

pytestmark = pytest.mark.alone

CASES = Path(__file__).parent / "cases"


def pytest_generate_tests(metafunc):
    if "case" in metafunc.fixturenames:
        files = sorted(CASES.glob("answers*.json"))
        cases = [(f"{path.stem}:{case.number}", case) for path in files for case in read_cases(path)]
        metafunc.parametrize("case", [case for _, case in cases], ids=[name for name, _ in cases])


def test_the_verdict_is_right(case):
    if case.note == "computer algebra":
        pytest.importorskip("math_verify", reason="needs sao-bench[math]")
    judgement = case.judged()
    assert judgement.verdict == case.verdict, judgement.reason


def test_towers_of_powers_are_decided_at_once():
    start = time.monotonic()
    assert judge("5", "\\boxed{5^{5^{5^{5^{5}}}}}", "integer").verdict == "incorrect"
    assert judge("5", "\\boxed{((9!)!)!}", "integer").verdict == "incorrect"
    assert judge("x", "\\boxed{x^{9^{9^{9}}}}", "expression").verdict == "incorrect"
    assert time.monotonic() - start < 2


def test_computer_algebra_is_killed_at_its_deadline_and_answers_again():
    pytest.importorskip("math_verify", reason="needs sao-bench[math]")
    algebra = Algebra()
    assert algebra.same("\\int_0^1 x dx", "\\frac12") is True
    start = time.monotonic()
    assert algebra.same("9^{9^{9^{9}}}", "3", deadline_s=1.0) is None
    assert time.monotonic() - start < 4
    assert algebra.same("\\int_0^1 x dx", "\\frac13") is False
    algebra.close()


def sines(factors):
    return "+".join(f"\\sin({k}x)" for k in factors)


@pytest.mark.parametrize(
    ("gold", "type", "answer", "verdict"),
    [
        ("900", "expression", "+".join(["1"] * 900), "correct"),
        ("900", "expression", "+".join(["1"] * 901), "incorrect"),
        ("1", "expression", "/".join(["1"] * 900), "correct"),
        ("2", "expression", "\\sqrt" * 390 + "2", "incorrect"),
        ("2", "expression", "\\frac" * 390 + "2", "incorrect"),
        ("2", "expression", "\\sin " * 390 + "2", "incorrect"),
        ("2", "expression", "2^" * 900 + "3", "incorrect"),
        ("2", "expression", "|" * 900 + "2", "incorrect"),
        ("3", "integer", "3" + "!" * 1900, "incorrect"),
        ("3", "integer", "\\boxed{" * 1500 + "3" + "}" * 1500, "correct"),
        ("3", "integer", "\\boxed{" * 50_000, "incorrect"),
        ("5", "integer", "\\text{" * 900 + "5" + "}" * 900, "correct"),
        ("5", "integer", "\\text{" * 3000 + "5" + "}" * 3000, "incorrect"),
        ("5", "integer", "5" + "{,}234" * 1200, "incorrect"),
        ("7", "integer", "7 " + "a" * 9000 + "!", "incorrect"),
        ("7", "integer", "7 " + "cm " * 3000 + "!", "incorrect"),
        ("(1,2)", "tuple", "(" * 4000 + "," + ")" * 4000, "incorrect"),
        ("{1}", "set", "\\{" * 2000 + "1" + "\\}" * 2000, "incorrect"),
        ("{1}", "set", ",".join(["1"] * 4000), "correct"),
        ("(0,1)", "interval", "(0,1)" + "\\cup(0,1)" * 900, "correct"),
        ("y=x", "equation", "y=" + "+".join(["x"] * 800), "incorrect"),
        ("1" + "0" * 3000, "integer", "1", "not_judged"),
        (sines(range(1, 140)), "expression", sines(range(139, 0, -1)), "correct"),
        ("y=" + sines(range(1, 140)), "equation", "y=" + sines(range(139, 0, -1)), "correct"),
    ],
)
def test_long_and_deep_answers_are_judged_at_once(gold, type, answer, verdict):
    start = time.process_time()
    assert judge(gold, f"\\boxed{{{answer}}}", type).verdict == verdict
    assert time.process_time() - start < 2


@pytest.mark.parametrize("type", ["set", "tuple", "integer"])
def test_the_deadline_is_one_for_all_parts_of_an_answer(type):
    pytest.importorskip("math_verify", reason="needs sao-bench[math]")
    judge("6", "\\boxed{\\sum_{k=1}^{3} k}", "integer")
    sums = [f"\\sum_{{k=1}}^{{10^{{10}}}} {i} k!" for i in range(6)]
    gold = "(1,2,3,4,5,6)" if type == "tuple" else "5"
    separator = "=" if type == "integer" else ","
    start, spent = time.monotonic(), time.process_time()
    judgement = judge(gold, f"\\boxed{{{separator.join(sums)}}}", type, deadline_s=2.0)
    assert judgement.verdict == "incorrect"
    assert time.process_time() - spent < 2
    assert time.monotonic() - start < 60, "one deadline and at most one new child, on a busy machine too"


def test_judging_works_from_a_thread():
    verdicts = []
    thread = threading.Thread(
        target=lambda: verdicts.append(judge("6", "\\boxed{\\sum_{k=1}^{3} k}", "integer").verdict)
    )
    thread.start()
    thread.join()
    pytest.importorskip("math_verify", reason="needs sao-bench[math]")
    assert verdicts == ["correct"]


def test_an_unknown_type_is_a_user_error():
    with pytest.raises(UserError, match=r"unknown answer type 'integr'.*did you mean 'integer'"):
        judge("1", "\\boxed{1}", "integr")


def run(*arguments):
    return CliRunner().invoke(build(), ["answers", *map(str, arguments)])


def test_check_passes_on_right_verdicts_and_lists_wrong_ones(tmp_path):
    assert run("check", CASES / "answers.json").exit_code == 0
    rows = json.loads((CASES / "answers.json").read_text())
    rows[1]["verdict"] = "incorrect"
    path = tmp_path / "cases.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    result = run("check", path)
    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert lines[0].startswith("case 2: correct, should be incorrect: integer '7'")
    assert lines[-1] == "11 passed, 1 failed"


def row(**values):
    fields = {"gold": '"1"', "type": '"decimal"', "reply": '""', "verdict": '"incorrect"', **values}
    return "{" + ",".join(f'"{key}": {value}' for key, value in fields.items()) + "}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "case 1: not an object"),
        ("{", "not a JSON list"),
        ('[{"gold": "1"}]', "case 1: 'type' is missing"),
        ('[{"gold":"1","type":"int","reply":"","verdict":"correct"}]', "type 'int' is not one of integer"),
        ('[{"gold":"1","type":"text","reply":"","verdict":"right"}]', "verdict 'right' is not one of"),
        ('[{"gold":"1","type":"text","reply":3,"verdict":"correct"}]', "reply 3 is not a string"),
        ("", "no case in it"),
        ("[]", "no case in it"),
        ("[" * 100_000, "not a JSON list"),
        ("[" + "9" * 5000 + "]", "not a JSON list"),
        *((row(gold=value), "case 1: gold ") for value in ("null", "true", "NaN", "1e400", "[1]", "{}")),
        *(
            (row(tolerance=value), "case 1: tolerance ")
            for value in ("true", "Infinity", "NaN", "1e400", "-1", '"1"')
        ),
    ],
)
def test_a_damaged_file_is_one_clear_line(tmp_path, text, message):
    path = tmp_path / "cases.json"
    path.write_text(text)
    result = run("check", path)
    assert isinstance(result.exception, UserError)
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)


def test_lines_end_at_line_feeds_only_and_a_gold_answer_may_be_a_number(tmp_path):
    path = tmp_path / "cases.jsonl"
    path.write_text(
        row(gold="5", reply='"\u2028 \\\\boxed{5}"', verdict='"correct"') + "\n\n" + row(gold="0.5"),
        encoding="utf-8",
    )
    assert [(case.gold, case.judged().verdict) for case in read_cases(path)] == [
        ("5", "correct"),
        ("0.5", "incorrect"),
    ]


def test_a_missing_file_is_a_user_error(tmp_path):
    assert isinstance(run("check", tmp_path / "none.json").exception, UserError)
