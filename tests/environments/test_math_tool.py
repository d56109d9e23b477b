import itertools
import math
import statistics
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from sao_bench.environments.math_tool import KINDS, NAMES, SIGNATURES, MathTool

from sao_bench import tiny
from sao_bench.checks import check_drift_env
from sao_bench.environments import _arithmetic as arithmetic
from sao_bench.environments import math_tool as mt
from sao_bench.errors import UserError
from sao_bench.types import Concept

TASK = {"expression": "12*7"}


def start(expression="12*7", template="short", **concept):
    """Start an episode of one task, under infix unless the concept says otherwise."""
    env = MathTool(template)
    concept = {"tool__calc__signature": "infix"} | concept
    concept = {name.replace("__", "."): value for name, value in concept.items()}
    text, _ = env.reset(seed=0, options={"task": {"expression": expression}, "concept": concept})
    return env, text


def say(env, *lines):
    """Say all lines; return the last observation and the summed reward."""
    total = 0.0
    for line in lines:
        observation, reward, *_ = env.step(line)
        total += reward
    return observation, total


def test_every_promise_is_kept():
    report = check_drift_env(MathTool)
    assert report.ok, "\n".join(report.lines())


# -- the episode ---------------------------------------------------------------------------------------------


def test_a_call_and_its_result():
    env, text = start()
    assert text == "12*7"
    assert env.step("calc 12*7") == ("84", 0.0, False, False, {})
    assert env.step("answer 84") == ("", 1.0, True, False, {})
    assert env.truth() == {
        "score": 1.0,
        "solved": True,
        "task": {"expression": "12*7"},
        "parts": {"right": 1, "errors": 0},
    }


@pytest.mark.parametrize("line", ["calc(12*7)", "calc  12*7", " calc 12 * 7\n", "calc (12)*(7)"])
def test_a_call_may_be_spaced_and_parenthesised(line):
    env, _ = start()
    assert env.step(line)[0] == "84"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("other", NAMES)
def test_only_todays_name_is_answered(name, other):
    env, _ = start(tool__calc__name=name)
    assert env.step(f"{other} 12*7")[0] == ("84" if other == name else f"no tool: {name} a+b")


@pytest.mark.parametrize(
    ("docs", "template", "first", "errors"),
    [
        ("none", "terse", "12*7", ("no tool", "bad call")),
        ("error", "terse", "12*7", ("no tool: compute + b a", "bad call: compute + b a")),
        ("prompt", "code", "[compute + b a] >>> 12*7", None),
        (
            "error",
            "words",
            "what is 12*7?",
            ("i know no such tool, try compute + b a", "that did not work, try compute + b a"),
        ),
        (
            "error",
            "code",
            ">>> 12*7",
            ("NameError, usage: compute + b a", "SyntaxError, usage: compute + b a"),
        ),
    ],
)
def test_wording_and_docs(docs, template, first, errors):
    env, text = start(
        tool__calc__name="compute",
        tool__calc__signature="swapped",
        tool__calc__docs=docs,
        obs__template=template,
    )
    assert text == first
    if errors:
        assert (say(env, "calc 12*7")[0], say(env, "compute 12*7")[0]) == errors
    result = {"terse": "84", "words": "it is 84", "code": "out: 84"}[template]
    assert say(env, "compute * 7 12")[0] == result


def test_a_swapped_order_is_wrong_without_an_error():
    env, _ = start("12-7", tool__calc__signature="swapped")
    assert say(env, "calc - 12 7", "answer -5") == ("", 0.0)
    assert env.truth()["parts"] == {"right": 0, "errors": 0}
    env, _ = start("12-7", tool__calc__signature="swapped")
    assert say(env, "calc - 7 12") == ("5", 0.0)
    assert say(env, "answer 5") == ("", 1.0)


@pytest.mark.parametrize(("errors", "paid"), [(0, 1.0), (1, 0.8), (2, 0.6), (3, 0.4)])
def test_an_error_costs_a_turn_and_a_fifth(errors, paid):
    env, _ = start()
    assert say(env, *["hm"] * errors, "answer 84")[1] == pytest.approx(paid)
    assert env.truth()["score"] == pytest.approx(paid)
    assert env.truth()["solved"]


def test_a_wasted_but_good_call_costs_a_turn_only():
    env, _ = start()
    assert say(env, "calc 1+1", "calc 12*7", "answer 84")[1] == 1.0


def test_four_turns_without_an_answer_are_truncated_and_unpaid():
    env, _ = start(reward__noise=1.0)
    for _ in range(3):
        assert env.step("calc 12*7")[1:4] == (0.0, False, False)
    assert env.step("calc 12*7")[1:4] == (0.0, False, True)
    assert not env.truth()["solved"]


@pytest.mark.parametrize(
    ("text", "tolerance", "exact", "format_"),
    [
        ("252", 1, 1, 1),
        ("252.0", 1, 1, 0),
        ("252/1", 1, 1, 0),
        ("0xfc", 1, 1, 0),
        ("two hundred fifty-two", 1, 1, 0),
        ("253", 1, 0, 0),
        ("254.52", 1, 0, 0),  # 1.01 x 252
        ("254.53", 0, 0, 0),
        ("249.48", 1, 0, 0),  # 0.99 x 252
        ("249.47", 0, 0, 0),
        ("504/2", 0, 0, 0),
        ("36*7", 0, 0, 0),
        ("calc 36*7", 0, 0, 0),
        ("+252", 0, 0, 0),
        ("-252", 0, 0, 0),
        ("252 zxqv", 0, 0, 0),
        ("252 253", 0, 0, 0),
        ("252\n252", 0, 0, 0),
        ("two hundred and fifty-two", 0, 0, 0),
        ("Infinity", 0, 0, 0),
        ("nan", 0, 0, 0),
        ("0xFC", 0, 0, 0),
        ("252/0", 0, 0, 0),
        ("\uff12\uff15\uff12", 0, 0, 0),  # full-width digits
        ("2" * 100_000, 0, 0, 0),
        ("", 0, 0, 0),
    ],
)
def test_what_the_verifier_takes(text, tolerance, exact, format_):
    for strictness, paid in (("tolerance", tolerance), ("exact", exact), ("format", format_)):
        env, _ = start("36*7", verifier__strictness=strictness)
        assert say(env, f"answer {text}")[1] == paid
        assert mt.right_answer(text, Fraction(252), strictness) == bool(paid)


def test_a_zero_has_no_tolerance():
    assert mt.right_answer("0", Fraction(0), "tolerance")
    assert not mt.right_answer("0.000001", Fraction(0), "tolerance")


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("12*7", "84"),
        ("12-57", "-45"),
        ("84/7", "12"),
        ("3x+4=10", "2"),
        ("2x-3=8", "5.5"),
        ("4x=-2", "-0.5"),
    ],
)
@pytest.mark.parametrize("signature", SIGNATURES)
@pytest.mark.parametrize("notation", arithmetic.NOTATIONS)
def test_the_oracle_solves_every_kind_under_every_usage(expression, value, signature, notation):
    for strictness in ("tolerance", "exact", "format"):
        env, _ = start(
            expression,
            tool__calc__signature=signature,
            tool__calc__result_format=notation,
            verifier__strictness=strictness,
        )
        env.step(env.oracle_action())
        answer = env.oracle_action()
        assert env.step(answer)[1:3] == (1.0, True)
        if strictness == "format":
            assert answer == f"answer {value}"


def test_the_oracle_recovers_from_lines_that_others_said():
    for lines in (["hm"], ["hm", "calc 1+1"], ["calc 1+1", "calc 1+1", "calc 2"]):
        env, _ = start()
        say(env, *lines)
        while not env.step(env.oracle_action())[2]:
            pass
        assert env.truth()["solved"]


# -- oracle and floor ----------------------------------------------------------------------------------------


def brute_force(kind, digits):
    """Return {value: probability} by listing every task of a kind."""
    low, high = 10 ** (digits - 1), 10**digits
    found = {}
    for a in range(low, high):
        if kind == "linear":
            values = {Fraction(a): 0.8, a + Fraction(1, 2): 0.2}
        elif kind == "div":
            values = {Fraction(a): 1.0}
        else:
            others = range(low, high) if digits < 3 or kind != "mul" else range(10, 100)
            values = {}
            for b in others:
                value = Fraction({"add": a + b, "sub": a - b, "mul": a * b}[kind])
                values[value] = values.get(value, 0.0) + 1 / len(others)
        for value, p in values.items():
            found[value] = found.get(value, 0.0) + p / (high - low)
    return found


@pytest.mark.parametrize("digits", [1, 2])
@pytest.mark.parametrize(
    "shares", [*({kind: 1.0} for kind in KINDS), dict.fromkeys(KINDS, 0.2), {"mul": 0.3, "sub": 0.7}]
)
def test_the_floor_is_the_best_constant_answer(digits, shares):
    mass = {}
    for kind, share in shares.items():
        for value, p in brute_force(kind, digits).items():
            mass[value] = mass.get(value, 0.0) + share * p
    values = {"task.mixture": shares, "task.difficulty": digits}
    assert math.fsum(mass.values()) == pytest.approx(1)
    assert MathTool.floor(values) == pytest.approx(max(mass.values()), abs=1e-12)
    assert MathTool.floor(values | {"verifier.strictness": "format"}) == MathTool.floor(values)
    if digits == 1:
        # A best t can be moved to 1.01 times some value; try each of them.
        ts = [value * Fraction(101, 100) for value in mass]
        best = max(math.fsum(p for v, p in mass.items() if abs(t - v) * 100 <= abs(v)) for t in ts)
        assert MathTool.floor(values | {"verifier.strictness": "tolerance"}) == pytest.approx(best, abs=1e-12)


def test_the_floor_by_hand():
    # One digit, sums: 10 is the likeliest, 9 of 81. Differences: 0, 9 of 81. Quotients: 1 of 9 each.
    for kind in ("add", "sub", "div"):
        assert MathTool.floor({"task.mixture": {kind: 1.0}, "task.difficulty": 1}) == pytest.approx(1 / 9)
    # Products: 6, 8, 12, 18 and 24 in 4 ways of 81.
    assert MathTool.floor({"task.mixture": {"mul": 1.0}, "task.difficulty": 1}) == pytest.approx(4 / 81)
    # Whole solutions 0.8 / 9.
    assert MathTool.floor({"task.mixture": {"linear": 1.0}, "task.difficulty": 1}) == pytest.approx(0.8 / 9)
    # Two digits within 1%: 98.98 = 1.01 x 98 takes 98 and 99; three numbers never fit.
    window = {"verifier.strictness": "tolerance", "task.mixture": {"div": 1.0}}
    assert MathTool.floor(window) == pytest.approx(2 / 90)
    assert MathTool.oracle({}) == 1.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("digits", [1, 2, 3, 4])
def test_tasks_have_their_size_and_a_decimal_value(kind, digits):
    env, values = MathTool(), []
    for seed in range(200):
        concept = {"task.mixture": {kind: 1.0}, "task.difficulty": digits}
        text, _ = env.reset(seed=seed, options={"concept": concept})
        assert len(text) <= 16
        assert mt.calculate(text, "infix") == env._value
        assert arithmetic.read(arithmetic.write(env._value, "decimal")) == env._value
        values.append(env._value)
    low, high = 10 ** (digits - 1), 10**digits
    whole = [v for v in values if v.denominator == 1]
    if kind in ("div", "linear"):
        assert all(low <= v < high for v in values)
        assert len(values) - len(whole) == pytest.approx(40 if kind == "linear" else 0, abs=22)
        assert all(v.denominator <= 2 for v in values)
    else:
        assert len(whole) == len(values)
        bound = {"add": 2 * high, "sub": high, "mul": high * min(high, 100)}[kind]
        assert all(abs(v) < bound for v in values)


# -- noise, latency, tasks, demonstrations -------------------------------------------------------------------


def test_noise_pays_a_fair_coin_and_leaves_the_score_alone():
    env, paid = MathTool(), []
    for seed in range(2000):
        env.reset(seed=seed, options={"task": TASK, "concept": {"reward.noise": 0.3}})
        paid.append(env.step("answer 84")[1])
        assert env.truth()["score"] == 1.0
    assert statistics.fmean(paid) == pytest.approx(0.85, abs=0.032)
    assert set(paid) == {0.0, 1.0}


def test_only_the_tool_takes_time_log_normal_with_the_named_median():
    env, logs = MathTool(), []
    for seed in range(1000):
        env.reset(seed=seed, options={"concept": {"latency.tool": 3.0, "latency.tail": 1.5}})
        env.step("calc + 1 1")
        logs.append(math.log(env.latency_s / 3.0))
        env.step("hm")
        assert env.latency_s > 0
        env.step("answer 1")
        assert env.latency_s == 0
    assert statistics.median(logs) == pytest.approx(0.0, abs=0.25)
    assert statistics.stdev(logs) == pytest.approx(1.5, abs=0.15)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("12*7", "is not of the form"),
        ({"expression": 84}, "task expression 84 is not of the form"),
        ({"expression": "12*7*2"}, "is not of the form"),
        ({"expression": "12*7", "kind": "mul"}, "is not of the form"),
        ({"expression": "1/0"}, "has no value: division by zero"),
        ({"expression": "0x+1=1"}, "has no value: no single solution"),
        ({"expression": "1/3"}, "the value 1/3 of '1/3' is no decimal"),
    ],
)
def test_a_wrong_task_is_one_clear_line(task, message):
    with pytest.raises(UserError, match=message):
        MathTool().reset(seed=0, options={"task": task})


def test_the_long_instruction_names_every_usage():
    _, text = start(template="chat", obs__template="words")
    assert text.endswith("\n\nwhat is 12*7?")
    assert all(name in text for name in NAMES) and "answer VALUE" in text
    for example, signature in (
        ("12*7", "infix"),
        ("* 12 7", "prefix"),
        ("* 7 12", "swapped"),
        ("12 7 *", "postfix"),
    ):
        assert f"{example} ({signature}" in text
        assert mt.calculate(example, signature) == 84
    with pytest.raises(UserError, match="template 'long' is not one of: short, chat"):
        MathTool(template="long")


def test_demonstrations_know_every_usage_and_prefer_no_name():
    rng = np.random.default_rng(0)
    names, solved, followed = dict.fromkeys(NAMES, 0), 0, []
    for _ in range(1500):
        lines = [message["content"] for message in MathTool.demonstration(rng)]
        assert len(lines) <= 8 and max(map(len, lines)) <= 60
        first = lines[1].split()[0]
        if first in names and not lines[0].startswith("["):
            names[first] += 1
        if lines[2:] and lines[2].startswith(("no tool: ", "bad call: ")):
            followed.append(lines[3].startswith(lines[2].split(": ")[1].split()[0]))
        solved += lines[-1].startswith("answer")
    total = sum(names.values())
    for count in names.values():
        assert count / total == pytest.approx(0.25, abs=0.05)
    assert 0.5 < solved / 1500 < 0.95
    assert 0.7 < statistics.fmean(followed) < 0.95


def test_it_is_fast():
    env, concept = MathTool(), MathTool.default_concept()

    def episodes(count):
        begun = time.process_time()
        for seed in range(count):
            env.reset(seed=seed, options={"concept": concept})
            while not env.step(env.oracle_action())[2]:
                pass
        return count / (time.process_time() - begun)

    def steps(count):
        """Answers alone: no tool, no reset."""
        spent = 0.0
        for seed in range(count):
            env.reset(seed=seed, options={"concept": concept})
            begun = time.process_time()
            env.step("answer 5")
            spent += time.process_time() - begun
        return count / spent

    assert max(episodes(300) for _ in range(3)) >= 1000
    assert max(steps(300) for _ in range(3)) >= 20_000


def test_a_concept_given_whole_is_taken_as_it_is():
    values = MathTool.complete_concept({"tool.calc.name": "solve"}).values
    for name, concept in itertools.product(("calc", "solve"), (Concept.of(values), dict(values))):
        env = MathTool()
        env.reset(seed=0, options={"task": TASK, "concept": concept})
        assert (env.step(f"{name} * 12 7")[0] == "84") == (name == "solve")


def test_the_shipped_model_is_that_of_todays_demonstrations():
    folder = tiny.checkpoint(MathTool)
    assert folder == Path(tiny.__file__).parent / "checkpoints" / "math_tool"
    assert tiny.heldout_loss(MathTool, folder) == pytest.approx(0.2329, abs=2e-3)
