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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "case 1: not an object"),
        ("{", "not a JSON list"),
        ('[{"gold": "1"}]', "case 1: 'type' is missing"),
        ('[{"gold":"1","type":"int","reply":"","verdict":"correct"}]', "type 'int' is not one of integer"),
        ('[{"gold":"1","type":"text","reply":"","verdict":"right"}]', "verdict 'right' is not one of"),
        ('[{"gold":"1","type":"text","reply":3,"verdict":"correct"}]', "reply 3 is not a string"),
    ],
)
def test_a_damaged_file_is_one_clear_line(tmp_path, text, message):
    path = tmp_path / "cases.json"
    path.write_text(text)
    result = run("check", path)
    assert isinstance(result.exception, UserError)
    assert message in str(result.exception)


def test_a_missing_file_is_a_user_error(tmp_path):
    assert isinstance(run("check", tmp_path / "none.json").exception, UserError)
