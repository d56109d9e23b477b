"""The runner passes the shipped vectors, and fails every case that is made wrong."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sao_bench import conformance
from sao_bench.cli.conformance import app
from sao_bench.conformance import OPS, VECTORS, Verdict, check, difference
from sao_bench.errors import UserError

CASES = conformance.load(VECTORS)
BY_HAND = conformance.load(Path(__file__).with_name("conformance_by_hand.json"))


def written(tmp_path, cases, schema=conformance.SCHEMA):
    path = tmp_path / "vectors.json"
    path.write_text(json.dumps({"schema": schema, "cases": cases}), encoding="utf-8")
    return path


def nudged(x):
    """Change one number of an expectation, or define what is undefined."""
    if x is None or isinstance(x, bool):
        return 0.5
    return [nudged(x[0]), *x[1:]] if isinstance(x, list) else x + 1e-3 * max(1, abs(x))


def test_every_shipped_case_passes():
    assert [v for v in conformance.run(conformance.load(VECTORS)) if v.problem] == []
    assert len(CASES) == 76


@pytest.mark.parametrize("index", range(len(CASES)))
def test_every_expectation_is_compared(index):
    for key in CASES[index]["expected"]:
        wrong = copy.deepcopy(CASES[index])
        wrong["expected"][key] = nudged(wrong["expected"][key])
        assert check(wrong).startswith(key)


def case(op, inputs, params=None, **expected):
    return {"id": "x", "op": op, "inputs": inputs, "params": params or {}, "expected": expected}


LOSS = {
    "logp": [[-0.7, -0.7]],
    "behavior_logp": [[-0.7, -0.7]],
    "advantages": [[1.0, -2.0]],
    "action_mask": [[1, 1]],
}
GRADIENT = [[-0.5, 1.0]]


@pytest.mark.parametrize(
    "op", sorted(name for name in OPS if name.startswith("loss.") and name != "loss.value")
)
def test_every_loss_is_the_policy_gradient_on_policy(op):
    """At r = 1 all losses have the gradient of -A log pi over the two tokens."""
    advantages = [[1.0, 1.0]] if op == "loss.gspo" else LOSS["advantages"]
    gradient = [[-0.5, -0.5]] if op == "loss.gspo" else GRADIENT
    params = {"norm_constant": 2.0} if op == "loss.dr_grpo" else {}
    assert check(case(op, {**LOSS, "advantages": advantages}, params, grad_logp=gradient)) is None


@pytest.mark.parametrize("by_hand", BY_HAND, ids=[c["id"] for c in BY_HAND])
def test_operations_beside_the_shipped_vectors(by_hand):
    """Small enough to work out in the head; each fails when its expectation is changed."""
    assert check(by_hand) is None
    for key, value in by_hand["expected"].items():
        assert check({**by_hand, "expected": {key: nudged(value)}}).startswith(key)


def test_every_operation_has_a_case():
    covered = {c["op"] for c in CASES + BY_HAND}
    aliases = {name for name in OPS if any(OPS[name] is OPS[other] for other in covered)}
    assert {name for name in OPS if not name.startswith("loss.")} <= aliases


class TestProblems:
    def test_unknown_op_names_the_nearest(self):
        assert (
            check(case("adv.emma", {"rewards": []}, x=0)) == "unknown op 'adv.emma' (did you mean 'adv.ema'?)"
        )

    @pytest.mark.parametrize(
        ("inputs", "params", "expected", "words"),
        [
            ({"reward": [1]}, {}, {"advantages": [1]}, "adv.ema: missing a required argument: 'rewards'"),
            (
                {"rewards": [1]},
                {"d": 1},
                {"advantages": [1]},
                "adv.ema: got an unexpected keyword argument 'd'",
            ),
            ({"rewards": [1]}, {}, {"values": [1]}, "adv.ema gives no 'values'; it gives advantages"),
            ({"rewards": ["one"]}, {}, {"advantages": [1]}, "adv.ema: ValueError: could not convert string"),
            ({"rewards": [1]}, {}, {"advantages": [1, 2]}, "advantages: expected 2 entries, found 1"),
            (
                {"rewards": [1, 0]},
                {"decay": 0.5},
                {"advantages": [1, 0]},
                "advantages[1]: expected 0, found -0.5",
            ),
            (
                {"rewards": [1]},
                {"decay": 2},
                {"advantages": [1]},
                "(refused: decay of the moving average is 2",
            ),
        ],
    )
    def test_a_broken_case_fails_alone_with_its_reason(self, inputs, params, expected, words):
        cases = [case("adv.ema", inputs, params, **expected), CASES[0]]
        first, second = conformance.run(cases)
        assert words in first.problem and "\n" not in first.problem
        assert second == Verdict(CASES[0]["id"], None)

    def test_tolerance_is_absolute_plus_relative(self):
        assert difference(100.0, 100.9, 0.01, 0.0) is None
        assert difference(100.0, 101.1, 0.01, 0.0) is not None
        assert difference(0.0, 0.1, 0.5, 0.1) is None
        assert difference(0.0, 0.11, 0.5, 0.1) is not None
        assert difference([None, 1.0], [float("nan"), 1.0], 0.0, 0.0) is None
        assert difference(1.0, float("nan"), 1.0, 1.0) is not None
        assert difference(None, 0.0, 1.0, 1.0) is not None
        assert difference(1.0, float("inf"), 1.0, 1.0) is not None


class TestCommand:
    def test_passes(self):
        result = CliRunner().invoke(app, [str(VECTORS)])
        assert (result.exit_code, result.output) == (0, "76 passed, 0 failed\n")

    def test_a_line_per_failure_and_status_1(self, tmp_path):
        cases = [case("adv.ema", {"rewards": [1]}, advantages=[2]), CASES[0], case("nothing", {}, x=1)]
        result = CliRunner().invoke(app, [str(written(tmp_path, cases))])
        assert result.exit_code == 1
        assert result.output.splitlines() == [
            "FAIL x: advantages[0]: expected 2, found 1.0",
            "FAIL x: unknown op 'nothing'",
            "1 passed, 2 failed",
        ]

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("{", "is not JSON"),
            ("[" * 100_000, "is not JSON"),
            ("[]", "schema is None, expected 'sao-bench-conformance/1'"),
            ('{"schema": "sao-bench-conformance/2", "cases": []}', "schema is 'sao-bench-conformance/2'"),
            ('{"schema": "sao-bench-conformance/1"}', "'cases' is not a list"),
            ('{"schema": "sao-bench-conformance/1", "cases": [3]}', "cases[0]: not an object"),
            (
                '{"schema": "sao-bench-conformance/1", "cases": [{"id": "a", "op": "adv.ema", "inputs": {}}]}',
                "cases[0]: 'expected' is missing or not an object",
            ),
        ],
    )
    def test_a_wrong_file_is_refused(self, tmp_path, text, words):
        path = tmp_path / "vectors.json"
        path.write_text(text, encoding="utf-8")
        with pytest.raises(UserError) as refusal:
            conformance.load(path)
        assert words in str(refusal.value) and str(path) in str(refusal.value)

    @pytest.mark.parametrize(
        "change", [{"expected": {}}, {"rtol": -1}, {"atol": "tight"}, {"params": []}, {"id": 3}, {"op": None}]
    )
    def test_a_malformed_case_is_refused(self, tmp_path, change):
        with pytest.raises(UserError, match=r"cases\[1\]"):
            conformance.load(written(tmp_path, [CASES[0], {**CASES[0], **change}]))

    def test_unreadable_file_is_one_line_and_status_2(self, tmp_path):
        command = [sys.executable, "-m", "sao_bench", "conformance", str(tmp_path / "none.json")]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 2 and result.stdout == ""
        assert result.stderr == f"error: cannot read '{tmp_path / 'none.json'}': no such file\n"
