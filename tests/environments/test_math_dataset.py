import math
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from sao_bench.environments._single_turn import PASS, PASSES
from sao_bench.environments.math_dataset import FORMS, MathDataset, answer_in, is_right, shortest

from sao_bench import registry
from sao_bench.checks import check_drift_env
from sao_bench.errors import UserError
from sao_bench.math_data import SETS, MathRow, made_up, read_mapping
from sao_bench.math_data.damage import answer_type
from sao_bench.math_data.made_up import COUNT

ROWS = Path(__file__).parent / "math_rows"


def row(answer, kind=None, problem="p"):
    return MathRow("deepmath", 1, problem, answer, kind or answer_type(answer))


def pay(reply, task, cls=MathDataset, **concept):
    env = cls()
    concept = {name.replace("__", "."): value for name, value in concept.items()}
    env.reset(seed=0, options={"task": task, "concept": concept})
    _, reward, terminated, truncated, info = env.step(reply)
    assert (terminated, truncated, info) == (True, False, {})
    assert reward == env.truth()["score"] == float(env.truth()["solved"])
    return reward


def test_every_promise_is_kept():
    report = check_drift_env(MathDataset, 80)
    assert report.ok, "\n".join(report.lines())


def test_every_promise_is_kept_over_files():
    sets = {"aime_2025": ROWS / "aime_2025.json", "gsm8k": ROWS / "gsm8k.jsonl"}
    report = check_drift_env(MathDataset.with_sets(sets), 24)
    assert report.ok, "\n".join(report.lines())


FIRST = {"set": "aime_2025", "row": 1}


@pytest.mark.parametrize(
    ("reply", "box", "last_box", "answer", "hashes"),
    [
        ("\\boxed{84}", 1, 1, 0, 0),
        ("Answer: 84", 0, 0, 1, 0),
        ("#### 84", 0, 0, 0, 1),
        (" \\boxed{84}\n", 1, 1, 0, 0),
        ("<think>19+65 is \\boxed{1}</think>\\boxed{84}", 1, 1, 0, 0),
        ("<think>hm</think> Answer: 84", 0, 0, 1, 0),
        ("<think>\\boxed{84}</think>", 0, 0, 0, 0),
        ("<think>\\boxed{84}", 0, 0, 0, 0),
        ("The sum is \\boxed{84}.", 0, 1, 0, 0),
        ("\\boxed{1} no, \\boxed{84}", 0, 1, 0, 0),
        ("\\boxed{84} no, \\boxed{1}", 0, 0, 0, 0),
        ("\\boxed{84", 0, 0, 0, 0),
        ("\\boxed{}", 0, 0, 0, 0),
        ("Answer: 1} \\boxed{84", 0, 0, 0, 0),
        ("#### 1} \\boxed{84", 0, 0, 0, 0),
        ("Answer: 84\nAnswer: 85", 0, 0, 0, 0),
        ("Answer: 84 or 85", 0, 0, 0, 0),
        ("\\boxed{84, 85}", 0, 0, 0, 0),
        ("84", 0, 0, 0, 0),
        ("", 0, 0, 0, 0),
    ],
)
def test_the_answer_is_read_in_the_form_of_today(reply, box, last_box, answer, hashes):
    assert made_up("aime_2025").rows[0].answer == "84"
    for form, paid in zip(FORMS, (box, last_box, answer, hashes, box + answer + hashes), strict=True):
        assert pay(reply, FIRST, verifier__form=form) == paid, form


@pytest.mark.parametrize(
    ("gold", "answer", "value", "any_form", "literal"),
    [
        ("84", "84", 1, 1, 1),
        ("84", "84.0", 1, 1, 0),
        ("84", "19+65", 0, 1, 0),
        ("84", "168/2", 0, 1, 0),
        ("84", "\\frac{168}{2}", 0, 1, 0),
        ("84", "12 \\cdot 7", 0, 1, 0),
        ("84", "x = 84", 1, 1, 0),
        ("84", "19+65 = 84", 1, 1, 0),
        ("84", "85", 0, 0, 0),
        ("1,800", "1800", 1, 1, 0),
        ("1,800", "\\$1,800", 1, 1, 0),
        ("\\frac{5}{12}", "5/12", 1, 1, 0),
        ("\\frac{5}{12}", "\\frac{10}{24}", 1, 1, 0),
        ("\\frac{5}{12}", "1/4+1/6", 0, 1, 0),
        ("\\frac{5}{12}", "0.4167", 0, 0, 0),
        ("2.50", "2.5", 1, 1, 0),
        ("3, 15", "15, 3", 1, 1, 0),
        ("3, 15", "3", 0, 0, 0),
        ("$(7,3)$", "(7,3)", 1, 1, 1),
        ("$(7,3)$", "(3,7)", 0, 0, 0),
        ("$6\\sqrt{7}$", "\\sqrt{252}", 1, 1, 0),
        ("Yes", "yes", 1, 1, 0),
        ("Yes", "No", 0, 0, 0),
        ("2^{99}", "2^{98}", 0, 0, 0),
        ("5", "5^{5^{5^{5^{5}}}}", 0, 0, 0),
        ("5", "1/0", 0, 0, 0),
    ],
)
def test_strictness(gold, answer, value, any_form, literal):
    for strictness, right in (("value", value), ("any_form", any_form), ("literal", literal)):
        assert is_right(row(gold), answer, strictness) == bool(right), strictness


def test_a_row_that_cannot_be_judged_is_a_fault(monkeypatch):
    broken = row("not a number", "integer")
    assert is_right(broken, "84", "value") is None
    env = MathDataset()
    env.reset(seed=0)
    env._row = broken
    _, reward, terminated, truncated, info = env.step("\\boxed{84}")
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info == {"fault": {"stage": "scoring", "kind": "not judged"}, "reward_valid": False}


@pytest.fixture
def mapping(tmp_path):
    """A YAML file that names two sets, one of them by a path beside it."""
    (tmp_path / "some.jsonl").write_text((ROWS / "gsm8k.jsonl").read_text())
    path = tmp_path / "sets.yaml"
    path.write_text(f"sets:\n  gsm8k: some.jsonl\n  aime_2025: [{ROWS / 'aime_2025.json'}]\n")
    return path


def test_damaged_rows_are_one_clean_line(mapping):
    command = [
        sys.executable,
        "-m",
        "sao_bench",
        "env",
        "show",
        f"sao_bench.environments.math_dataset:{mapping}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == [
        "warning: gsm8k: 7 rows read, 3 usable (decimal 1, integer 2), 1 duplicates, 3 damaged, left out;"
        " row 4: no answer after ####; and 2 more; `answers rows FILE --set gsm8k` lists them"
    ]


def test_a_mapping_file_names_an_environment(mapping):
    cls = registry.environment(f"sao_bench.environments.math_dataset:{mapping}")
    assert cls.id == "sao_bench/MathDataset.gsm8k.aime_2025-v0"
    assert cls.default_concept().values["task.mixture"] == {"gsm8k": 0.5, "aime_2025": 0.5}
    env, seen = cls(), Counter()
    for seed in range(600):
        env.reset(seed=seed)
        seen[tuple(env.truth()["task"].values())] += 1
    rows = [("gsm8k", n) for n in (1, 2, 5)] + [("aime_2025", n) for n in (1, 2, 3)]
    assert set(seen) == set(rows)
    assert all(seen[r] / 600 == pytest.approx(1 / 6, abs=0.06) for r in rows)
    assert pay("\\boxed{1800}", {"set": "gsm8k", "row": 1}, cls) == 1.0
    # Six answers, one row each.
    assert cls.floor({}) == pytest.approx(1 / 6)
    assert cls.floor({"task.mixture": {"gsm8k": 0.1, "aime_2025": 0.9}}) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gsm8k: x.jsonl", "not of the form sets:"),
        ("sets: {}", "not of the form sets:"),
        ("sets: {gsm8: x.jsonl}", "unknown data set 'gsm8'"),
        ("sets: {gsm8k: 3}", "sources of gsm8k: 3 is not a text"),
        ("sets: [", "cannot be read"),
    ],
)
def test_a_wrong_mapping_is_one_clear_line(text, message, tmp_path):
    path = tmp_path / "sets.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as error:
        read_mapping(path)
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="no set is named"):
        MathDataset.with_sets({})


def test_the_floor_is_the_likeliest_answer():
    count = Counter(r.answer for r in made_up("deepmath").rows)
    assert set(count) == {"Yes", "No"}
    assert MathDataset.floor({"task.mixture": {"deepmath": 1.0}}) == max(count.values()) / COUNT
    remainders = Counter(r.answer for r in made_up("aime_2024").rows)
    mixed = MathDataset.floor({"task.mixture": {"deepmath": 0.1, "aime_2024": 0.9}})
    assert mixed == pytest.approx(max(0.1 * max(count.values()), 0.9 * max(remainders.values())) / COUNT)
    assert MathDataset.oracle({}) == 1.0


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("aime_2025", "is not of the form"),
        ({"set": "gsm", "row": 1}, "is not of the form"),
        ({"set": "gsm8k"}, "is not of the form"),
        ({"set": "gsm8k", "row": 0}, "gsm8k has no usable row 0"),
        ({"set": "gsm8k", "row": True}, "gsm8k has no usable row True"),
        ({"set": "gsm8k", "row": 121}, "gsm8k has no usable row 121"),
    ],
)
def test_a_wrong_task_is_one_clear_line(task, message):
    with pytest.raises(UserError, match=message):
        MathDataset().reset(seed=0, options={"task": task})
    with pytest.raises(UserError, match="template 'long' is not one of: short, chat"):
        MathDataset(template="long")


def test_the_chat_template_asks_for_a_box():
    text, _ = MathDataset(template="chat").reset(seed=0, options={"task": FIRST})
    assert text.startswith("What is 19 + 65?\n\n") and "\\boxed{answer}" in text


def test_numbers_are_judged_fast():
    rows = [r for name in ("aime_2025", "hmmt_feb_2025", "gsm8k") for r in made_up(name).rows]
    began = time.perf_counter()
    assert all(is_right(r, shortest(r), "value") for r in rows)
    assert not any(is_right(r, "7919", "value") for r in rows)
    # 720 verdicts; about 0.1 s on a quiet core.
    assert time.perf_counter() - began < 5


def test_demonstrations_answer_right_or_pass():
    problems = {r.problem: r for name in SETS for r in made_up(name).rows}
    rng, passed = np.random.default_rng(0), []
    for _ in range(500):
        prompt, reply = (m["content"] for m in MathDataset.demonstration(rng))
        passed.append(reply == PASS)
        if reply != PASS:
            found = problems[prompt.removeprefix("Q: ").removesuffix(" Solve it.")]
            answer = next(a for form in ("box", "answer", "hash") if (a := answer_in(reply, form)))
            assert is_right(found, answer, "value")
    assert statistics.fmean(passed) == pytest.approx(PASSES, abs=0.07)


def test_noise_and_latency():
    env, paid, logs = MathDataset(), [], []
    for seed in range(1000):
        env.reset(
            seed=seed, options={"concept": {"reward.noise": 0.4, "latency.reply": 2.0, "latency.tail": 1.0}}
        )
        assert env.latency_s == 0
        paid.append(env.step(env.oracle_action())[1])
        logs.append(math.log(env.latency_s / 2.0))
    assert statistics.fmean(paid) == pytest.approx(0.8, abs=0.05)
    assert statistics.fmean(logs) == pytest.approx(0.0, abs=0.12)
    assert statistics.stdev(logs) == pytest.approx(1.0, abs=0.09)
