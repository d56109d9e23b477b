import itertools
import math
import re
import statistics
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from sao_bench.environments.countdown import OPERATORS, TEMPLATES, Countdown, judge, reachable

from sao_bench.checks import check_drift_env
from sao_bench.environments import countdown as cd
from sao_bench.errors import UserError

NUMBERS, TARGET = (3, 7, 9), 36


def pay(reply, numbers=NUMBERS, target=TARGET, **concept):
    env = Countdown()
    concept = {name.replace("__", "."): value for name, value in concept.items()}
    env.reset(seed=0, options={"task": {"numbers": list(numbers), "target": target}, "concept": concept})
    _, reward, terminated, truncated, info = env.step(reply)
    assert (terminated, truncated, info) == (True, False, {})
    assert reward == env.truth()["score"] == float(env.truth()["solved"])
    return reward


def test_every_promise_is_kept():
    report = check_drift_env(Countdown)
    assert report.ok, "\n".join(report.lines())


@pytest.mark.parametrize(
    "reply", ["(7-3)*9", "9*(7-3)", " (7 - 3) * 9 ", "((7-3))*(9)", "7*9-3*9+0", "(7-3)*9 "]
)
def test_any_expression_of_the_numbers_is_graded_by_its_value(reply):
    assert pay(reply) == float(reply != "7*9-3*9+0")


@pytest.mark.parametrize(
    "reply",
    [
        "",
        " ",
        "36",
        "x",
        "3 7 9 -> 36",
        "7*3+9",  # 30
        "9*4",  # numbers that were not given
        "9*(7-3)*1",
        "9*(7-3)+7-7",  # a number twice
        "(7-3)9",  # a product without a sign
        "9(7-3)",
        "(7-3)(9)",
        "--9*(7-3)",
        "-9*(3-7)",  # a sign before a number
        "(7-3)*9=36",
        "(7-3)*9 zxqv",
        "(7-3)*9\n",
        "(7-3)*\n9",
        "(7-3)*9.0",
        "(7-3)\u00d79",
        "(7\u22123)*9",
        "(7-3)*\uff19",
        "[7-3]*9",
        "(7-3*9",
        "7-3)*9",
        "(7-3)**9",
        "9*(7-3)//1",
        "93-57",
        "3" * 100_000,
        "(" * 100_000,
        None,
        36,
    ],
)
@pytest.mark.parametrize("strictness", ["all", "any"])
def test_nothing_else_is_paid(reply, strictness):
    assert pay(reply, verifier__strictness=strictness) == 0


def test_fewer_numbers_count_under_any_alone():
    assert pay("4*9", (1, 4, 9), 36) == 0
    assert pay("4*9", (1, 4, 9), 36, verifier__strictness="any") == 1
    assert pay("9", (2, 2, 9), 9, verifier__strictness="any") == 1
    assert pay("3+3", (1, 2, 3), 6, verifier__strictness="any") == 0
    assert pay("6/(1-3/4)", (1, 3, 4, 6), 24) == 1  # over fractions, exactly


@pytest.mark.parametrize(
    ("operators", "minus", "times", "both"), [("all", 1, 1, 1), ("no_minus", 0, 1, 0), ("no_times", 1, 0, 0)]
)
def test_operators_that_are_not_allowed_are_not_paid(operators, minus, times, both):
    signs = OPERATORS[operators]
    assert math.prod(judge("7+5-3", (3, 5, 7), 9, "all", signs).values()) == minus
    assert math.prod(judge("2*3+5", (2, 3, 5), 11, "all", signs).values()) == times
    assert judge("(7-3)*9", NUMBERS, TARGET, "all", signs) == {
        "well_formed": 1,
        "on_numbers": 1,
        "on_operators": both,
        "on_target": 1,
    }


@pytest.mark.parametrize("operators", OPERATORS.values())
@pytest.mark.parametrize("numbers", [(5,), (4, 4), (1, 5, 7), (2, 3, 3), (1, 3, 4, 6), (9, 9, 9, 9)])
def test_reachable_values_are_the_values_of_their_expressions(numbers, operators):
    found = reachable(numbers, operators)
    for value, text in found.items():
        parts = judge(text, numbers, 0, "all", operators)
        assert (parts["well_formed"], parts["on_numbers"], parts["on_operators"]) == (1, 1, 1)
        # Python's own arithmetic over fractions, on our own text.
        assert eval(re.sub(r"([0-9]+)", r"Fraction(\1)", text)) == value


def test_reachable_by_hand():
    assert set(reachable((2, 4), "+-*/")) == {6, 2, -2, 8, Fraction(1, 2)}
    assert set(reachable((2, 4), "+/")) == {6, 2, Fraction(1, 2)}
    assert 24 in reachable((1, 3, 4, 6), "+-*/") and 24 not in reachable((1, 3, 4, 6), "+-*")


def every_task(size, largest, signs):
    """Return {(numbers, target): share} by listing every chain."""
    count = Counter()
    for numbers in itertools.product(range(1, largest + 1), repeat=size):
        for chosen in itertools.product(signs, repeat=size - 1):
            value, good = Fraction(numbers[0]), True
            for sign, number in zip(chosen, numbers[1:], strict=True):
                value = {"+": value + number, "-": value - number, "*": value * number, "/": value / number}[
                    sign
                ]
                good = good and value.denominator == 1 and 0 < value <= 999
            if good:
                count[tuple(sorted(numbers)), int(value)] += 1
    return {task: n / count.total() for task, n in count.items()}


@pytest.mark.parametrize(
    ("size", "largest", "strictness", "operators", "shares"),
    [
        (2, 9, "all", "all", {"sums": 0.5, "products": 0.5}),
        (2, 4, "any", "all", {"products": 1.0}),
        (3, 5, "all", "no_minus", {"sums": 0.3, "products": 0.7}),
        (3, 4, "any", "all", {"sums": 0.5, "products": 0.5}),
        (3, 4, "any", "no_times", {"products": 1.0}),
    ],
)
def test_the_floor_is_the_best_constant_expression(size, largest, strictness, operators, shares):
    signs = OPERATORS[operators]
    mass = Counter()
    for kind, share in shares.items():
        for task, p in every_task(size, largest, [s for s in cd.KINDS[kind] if s in signs]).items():
            mass[task] += share * p
    assert math.fsum(mass.values()) == pytest.approx(1)
    smallest = 1 if strictness == "any" else size
    constants = [
        text
        for count in range(smallest, size + 1)
        for numbers in itertools.combinations_with_replacement(range(1, largest + 1), count)
        for text in reachable(numbers, signs).values()
    ]
    best = 0.0
    for text in constants:
        value = cd.arithmetic.constant(cd.arithmetic.linear(text))
        hits = [(task, p) for task, p in mass.items() if task[1] == value]
        best = max(
            best, math.fsum(p for (ns, t), p in hits if all(judge(text, ns, t, strictness, signs).values()))
        )
    values = {
        "task.mixture": shares,
        "task.difficulty": size,
        "task.range": largest,
        "verifier.strictness": strictness,
        "verifier.operators": operators,
    }
    assert Countdown.floor(values) == pytest.approx(best, abs=1e-12)
    assert Countdown.oracle(values) == 1.0


def test_the_floor_by_hand():
    # Numbers 1 to 4, sums: 16 sums, 6 positive differences. 1+2 is given in 2 ways of 22; so is every unequal pair,
    # and no single task has more.
    values = {"task.mixture": {"sums": 1.0}, "task.difficulty": 2, "task.range": 4}
    assert Countdown.floor(values) == pytest.approx(2 / 22)
    # Under any, `1` is paid where 1 is given and is the target: 2-1 alone; `2` likewise for 4-2 alone.
    assert Countdown.floor(values | {"verifier.strictness": "any"}) == pytest.approx(2 / 22)


def test_tasks_are_drawn_from_the_listed_distribution():
    env, seen = Countdown(), Counter()
    concept = {"task.mixture": {"products": 1.0}, "task.difficulty": 2, "task.range": 4}
    for seed in range(4000):
        env.reset(seed=seed, options={"concept": concept})
        task = env.truth()["task"]
        seen[tuple(task["numbers"]), task["target"]] += 1
    exact = every_task(2, 4, "+-*/")
    assert set(seen) == set(exact)
    for task, p in exact.items():
        assert seen[task] / 4000 == pytest.approx(p, abs=5 * math.sqrt(p / 4000))


@pytest.mark.parametrize("operators", OPERATORS)
@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_oracle_is_paid_for_every_task(operators, size):
    env = Countdown()
    for seed in range(60):
        strictness = ("all", "any")[seed % 2]
        concept = {
            "verifier.operators": operators,
            "task.difficulty": size,
            "verifier.strictness": strictness,
        }
        env.reset(seed=seed, options={"concept": concept})
        assert len(env.oracle_action()) <= 20
        assert env.step(env.oracle_action())[1] == 1.0


def test_the_oracle_uses_no_more_than_it_must():
    env = Countdown()
    for numbers, target, fewest in (([2, 2, 9], 9, "9"), ([1, 4, 9], 36, "4*9")):
        options = {"task": {"numbers": numbers, "target": target}, "concept": {"verifier.strictness": "any"}}
        env.reset(seed=0, options=options)
        assert env.oracle_action() == fewest
        env.reset(seed=0, options={"task": options["task"]})
        assert len(re.findall("[0-9]", env.oracle_action())) == 3


def test_wordings_and_the_long_instruction():
    seen = {}
    for template, form in TEMPLATES.items():
        env = Countdown()
        options = {"task": {"numbers": [9, 3, 7], "target": 36}, "concept": {"obs.template": template}}
        seen[template], _ = env.reset(seed=0, options=options)
        assert form.format("3 7 9", 36) == seen[template]
    assert seen["arrow"] == "3 7 9 -> 36" and len(set(seen.values())) == 3
    text, _ = Countdown(template="chat").reset(seed=0, options=options)
    assert text.endswith(f"\n\n{seen['equation']}") and "(7-3)*9" in text
    with pytest.raises(UserError, match="template 'long' is not one of: short, chat"):
        Countdown(template="long")


def test_noise_and_latency():
    env, paid, logs = Countdown(), [], []
    for seed in range(1500):
        concept = {"reward.noise": 0.3, "latency.reply": 3.0, "latency.tail": 1.5, "task.difficulty": 2}
        env.reset(seed=seed, options={"concept": concept})
        assert env.latency_s == 0
        paid.append(env.step(env.oracle_action())[1])
        logs.append(math.log(env.latency_s / 3.0))
        assert env.truth()["score"] == 1.0
    assert statistics.fmean(paid) == pytest.approx(0.85, abs=0.037)
    assert statistics.median(logs) == pytest.approx(0.0, abs=0.2)
    assert statistics.stdev(logs) == pytest.approx(1.5, abs=0.12)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("3 7 9", "is not of the form"),
        ({"numbers": [3, 7, 9]}, "is not of the form"),
        ({"numbers": [3], "target": 3}, "task numbers \\[3\\]"),
        ({"numbers": [3, 0], "target": 3}, "task numbers \\[3, 0\\]"),
        ({"numbers": [3, True], "target": 3}, "task numbers \\[3, True\\]"),
        ({"numbers": "37", "target": 3}, "task numbers '37'"),
        ({"numbers": [3, 7], "target": 21.0}, "task target 21.0"),
        ({"numbers": [3, 7], "target": 22}, "22 cannot be reached from \\[3, 7\\] with"),
    ],
)
def test_a_wrong_task_is_one_clear_line(task, message):
    with pytest.raises(UserError, match=message):
        Countdown().reset(seed=0, options={"task": task})


def test_a_task_must_be_solvable_with_the_operators_of_today():
    options = {"task": {"numbers": [3, 7], "target": 21}, "concept": {"verifier.operators": "no_times"}}
    with pytest.raises(UserError, match=r"21 cannot be reached from \[3, 7\] with \+-/"):
        Countdown().reset(seed=0, options=options)


def test_demonstrations_keep_to_the_form_and_nearly_half_of_them_to_the_rules():
    rng, right, formed, whole = np.random.default_rng(0), [], [], []
    for _ in range(1000):
        prompt, reply = (message["content"] for message in Countdown.demonstration(rng))
        numbers = [int(n) for n in re.findall("[0-9]+", prompt)]
        target = numbers.pop(0 if "=" in prompt or "make" in prompt else -1)
        parts = judge(reply, tuple(numbers), target, "any", "+-*/")
        formed.append(parts["well_formed"] * parts["on_numbers"])
        right.append(math.prod(parts.values()))
        whole.append(math.prod(judge(reply, tuple(numbers), target, "all", "+-*/").values()))
    assert statistics.fmean(formed) == 1
    # All of the careful, a few of the guesses; by a number or a pair more are right where those are taken.
    assert 0.43 < statistics.fmean(whole) < 0.53 < 0.55 < statistics.fmean(right) < 0.75
