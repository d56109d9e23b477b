import json
import math
import os
import random
import statistics
import subprocess
import sys
import time

import numpy as np
import pytest

pytest.importorskip("reasoning_gym")

from sao_bench.environments._single_turn import PASS, PASSES
from sao_bench.environments.reasoning_gym import FORMATS, LIGHT, ReasoningGym

from sao_bench import registry
from sao_bench.checks import check_drift_env
from sao_bench.environments import _reasoning as reasoning
from sao_bench.environments import reasoning_gym as module
from sao_bench.errors import UserError

JUNK = ("{} zxqv", "zxqv {}", "{}\n{}", "{}\u2603", "the answer is {}", "{} or 17", "**{}**", "{}()")


def one(name, seed=0, level=0):
    return reasoning.draw(name, level, np.random.default_rng(seed))


def pay(task, reply, **concept):
    """Return what a reply to an item earns."""
    env = ReasoningGym.with_generators([task.generator])()
    concept = {name.replace("__", "."): value for name, value in concept.items()}
    given = {"generator": task.generator, "level": task.level, "number": task.number}
    env.reset(seed=0, options={"task": given, "concept": concept})
    _, reward, terminated, truncated, info = env.step(reply)
    assert (terminated, truncated, info) == (True, False, {})
    assert reward == env.truth()["score"] == float(env.truth()["solved"])
    return reward


def test_every_promise_is_kept():
    report = check_drift_env(ReasoningGym, 100)
    assert report.ok, "\n".join(report.lines())


@pytest.mark.slow
def test_every_promise_is_kept_with_several_right_answers():
    names = ["graph_color", "palindrome_generation", "shortest_path", "simple_integration"]
    report = check_drift_env(ReasoningGym.with_generators(names), 16)
    assert report.ok, "\n".join(report.lines())


@pytest.mark.parametrize(
    ("name", "question", "short"),
    [
        ("chain_sum", "State the final answer to the following arithmetic problem: 4 + 3 =", "4 + 3"),
        (
            "products",
            "Solve the following multiplication: 8 * 7. Give only the result as your final answer.",
            "8 * 7",
        ),
        ("spell_backward", "Spell this word backward (example: sun -> nus): sea", "reverse sea"),
        (
            "coin_flip",
            "What is the probability of getting at least 2 heads in 3 fair coin flips?",
            "P at least 2 of 3",
        ),
        (
            "gcd",
            "Find the Greatest Common Divisor (GCD) of these numbers: 6, 4. Give only the GCD",
            "gcd 6, 4",
        ),
        ("maze", "Navigate", "Navigate"),
    ],
)
def test_the_short_form_keeps_what_decides_the_answer(name, question, short):
    assert reasoning.Item(name, 0, 0, question, "1", {}).prompt == short


@pytest.mark.parametrize("name", sorted(reasoning.SHORT))
@pytest.mark.parametrize("level", range(reasoning.LEVELS))
def test_every_question_has_its_short_form(name, level):
    for seed in range(8):
        task = one(name, seed, level)
        assert task.prompt != task.question and len(task.prompt) < len(task.question)


def test_the_light_generators_are_light():
    for name in LIGHT:
        tasks = [one(name, seed) for seed in range(40)]
        assert max(len(t.prompt) for t in tasks) <= 40 and max(len(t.answer) for t in tasks) <= 16
        assert all((t.prompt + t.answer).isascii() for t in tasks)


def test_answers_of_light_tasks_are_right():
    # The reference against Python's own arithmetic.
    for seed in range(30):
        task = one("chain_sum", seed, 1)
        assert int(task.answer) == eval(task.prompt)
        task = one("products", seed, 1)
        assert int(task.answer) == eval(task.prompt)
        task = one("spell_backward", seed)
        assert task.answer == task.prompt.removeprefix("reverse ")[::-1]
        kind, need, flips = (
            one("coin_flip", seed).prompt.removeprefix("P ").replace(" of ", " ").rsplit(" ", 2)
        )
        need, flips = int(need), int(flips)
        hits = range(need, flips + 1) if kind == "at least" else [need]
        assert float(one("coin_flip", seed).answer) == sum(math.comb(flips, k) for k in hits) / 2**flips


@pytest.mark.parametrize("form", FORMATS)
def test_only_the_form_of_today_is_paid(form):
    task = one("products", 3)
    for before, after in FORMATS.values():
        reply = f"{before}{task.answer}{after}"
        taken = form == "any" or before == FORMATS[form][0]
        assert pay(task, reply, verifier__format=form) == float(taken)
        assert pay(task, f" {reply}\n", verifier__format=form) == float(taken)
        assert pay(task, f"{reply} {reply}", verifier__format=form) == 0
    before, after = FORMATS[form]
    assert pay(task, f"{before}{after}", verifier__format=form) == 0
    assert pay(task, f"{before}{int(task.answer) + 1}{after}", verifier__format=form) == 0


def test_loose_minds_neither_case_nor_idle_space():
    task = reasoning.Item("complex_arithmetic", 0, 0, "q", "8.0 + 3.0i", {})
    for answer, exact, loose in [
        ("8.0 + 3.0i", 1, 1),
        ("8.0+3.0i", 0, 1),
        ("8.0 + 3.0I.", 0, 1),
        ("8.0 + 3.0 i", 0, 0),
        ("8.0 - 3.0i", 0, 0),
        ("8.0 + 3.0i 3", 0, 0),
    ]:
        assert (reasoning.is_right(task, answer, False), reasoning.is_right(task, answer, True)) == (
            exact,
            loose,
        )
    # White space that separates numbers does matter.
    assert reasoning.squeezed("1 2\n3") == "1 2 3" != reasoning.squeezed("12 3")


@pytest.mark.parametrize(
    ("numbers", "target", "answer", "right"),
    [
        ([4, 7, 8, 8], 24, "(7-8/8)*4", True),
        ([4, 7, 8, 8], 24, "4*(7 - 8/8)", True),
        ([4, 7, 8, 8], 24, "24", False),
        ([4, 7, 8, 8], 24, "3*8", False),
        ([4, 7, 8, 8], 24, "8+8+8", False),
        ([1, 2, 3, 8], 24, "8*3+1/2", False),  # 24.5, which reasoning-gym's own scorer takes
        ([1, 2, 3, 8], 24, "8*3*(2-1)", True),
        ([1, 2, 3, 8], 24, "8*3*(2-1) ", True),
        ([1, 2, 3, 8], 24, "8*3**(2-1)", False),
        ([1, 2, 3, 8], 24, "(8*3*(2-1)", False),
        ([9, 9, 9, 9], 24, "9**9**9**9", False),
        ([2, 3], 24, "__import__('os').getcwd()", False),
    ],
)
def test_number_games_are_exact(numbers, target, answer, right):
    entry = {"metadata": {"numbers": numbers, "target": target}}
    for name in reasoning.GAMES:
        assert reasoning.is_right(reasoning.Item(name, 0, 0, "q", "none", entry), answer, False) is right


def test_integrals_are_compared_as_functions():
    task = reasoning.Item("simple_integration", 0, 0, "q", "x**3/3 + 2*x + C", {"metadata": {}})
    for answer, right in [
        ("C + 2*x + x**3/3", True),
        ("x^3/3 + 2x + C", True),
        ("x**3/3 + 2*x", False),
        ("x**3/3 + C", False),
        ("x**3/3 + 2*x + C zxqv", False),
        ("x**3/3 + 2*x + C + 0*y", False),
        ("__import__('os')", False),
    ]:
        assert reasoning.is_right(task, answer, False) is right


def test_another_right_answer_is_paid():
    task = one("palindrome_generation", 1)
    half = task.answer[: len(task.answer) // 2]
    middle = task.answer[len(half) : -len(half)]
    other = half[::-1] + middle + half
    assert other != task.answer and pay(task, other) == 1.0 and pay(task, half + middle + half) == 0
    task = one("graph_color", 1)
    colours = json.loads(task.answer)
    renamed = {1: 2, 2: 1}
    assert pay(task, json.dumps({k: renamed.get(v, v) for k, v in colours.items()})) == 1.0
    assert pay(task, json.dumps(dict.fromkeys(colours, 1))) == 0
    assert pay(task, json.dumps(colours | {"zxqv": "note"})) == 0


@pytest.mark.parametrize(
    "name", sorted({*reasoning.SEVERAL, *reasoning.GAMES, *reasoning.FORMULAS} - {"rubiks_cube"})
)
def test_long_and_nested_answers_cost_little(name):
    task = one(name, 1)
    long = ["(" * 3000, "¬" * 2000 + "P", "9*" * 1500 + "9", "[[" * 900, "{" * 2000, "x**9**9**9", "Q" * 2000]
    long += ["(" * 40 + "1" + ")" * 40, "¬" * 91 + "P"]
    began = time.perf_counter()
    assert not any(reasoning.is_right(task, reply, True) for reply in long)
    assert time.perf_counter() - began < 5


class Scorer:
    """A data set whose scorer fails in a given way."""

    def __init__(self, payment):
        self.payment = payment

    def score_answer(self, answer, entry):
        return self.payment(answer, entry["answer"])


def _raise(*_):
    raise ValueError("scorer")


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.5, 1.5, "1.0", None, [1], _raise])
def test_garbage_from_a_scorer_is_never_paid(monkeypatch, value):
    task = reasoning.Item("sokoban", 0, 0, "q", "LUR", {"answer": "LUR", "metadata": {}})
    foul = value if callable(value) else (lambda answer, reference: value)
    # It fails on the candidate's text alone: the candidate is wrong.
    scorer = Scorer(lambda answer, reference: 1.0 if answer == reference else foul(answer, reference))
    monkeypatch.setattr(reasoning, "_dataset", lambda *_: scorer)
    assert reasoning.is_right(task, "LLR", False) is False
    # It fails on its own reference: nobody can be judged.
    monkeypatch.setattr(reasoning, "_dataset", lambda *_: Scorer(foul))
    with pytest.raises(reasoning.ScorerFaultError, match="sokoban"):
        reasoning.is_right(task, "LLR", False)
    assert reasoning.is_right(task, "LUR", False) is True


def test_a_failing_scorer_is_a_fault_of_the_episode(monkeypatch):
    env = ReasoningGym.with_generators(["shortest_path"])()
    env.reset(seed=1)
    monkeypatch.setattr(reasoning, "_dataset", lambda *_: Scorer(_raise))
    _, reward, terminated, truncated, info = env.step("up down")
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info == {
        "fault": {"stage": "scoring", "kind": "scorer of shortest_path"},
        "reward_valid": False,
    }


def test_partial_marks_are_not_paid(monkeypatch):
    task = reasoning.Item("sokoban", 0, 0, "q", "LUR", {"answer": "LUR", "metadata": {}})
    monkeypatch.setattr(reasoning, "_dataset", lambda *_: Scorer(lambda answer, reference: 0.999))
    assert reasoning.is_right(task, "LLR", False) is False


def test_items_leave_no_trace_and_see_no_global_state():
    for name in ("list_functions", "pool_matrix", "codeio", "bf"):
        random.seed(5)
        np.random.seed(5)
        before = random.getstate(), np.random.get_state()[1].tobytes()
        first = [one(name, seed) for seed in range(3)]
        assert (random.getstate(), np.random.get_state()[1].tobytes()) == before
        random.seed(6)
        np.random.seed(6)
        again = [one(name, seed) for seed in range(3)]
        assert [(t.question, t.answer) for t in first] == [(t.question, t.answer) for t in again]


def test_nothing_is_printed(capfd):
    for seed in range(3):
        one("bf", seed)
    one("sokoban")
    assert capfd.readouterr().out == ""


def test_neighbouring_seeds_share_no_item():
    env, seen = ReasoningGym(), []
    for seed in range(400):
        env.reset(seed=seed)
        seen.append(env.truth()["task"]["number"])
    assert len(set(seen)) == 400
    assert not set(seen) & {n + 1 for n in seen}


def test_levels_grow():
    lengths = [
        statistics.fmean(len(one("chain_sum", s, level).prompt) for s in range(40)) for level in range(4)
    ]
    assert lengths == sorted(lengths) and lengths[3] > lengths[0] + 5


def test_other_generators_by_name():
    cls = ReasoningGym.with_generators(["maze", "gcd"])
    assert registry.environment("sao_bench.environments.reasoning_gym:maze+gcd") is cls
    assert cls.id == "sao_bench/ReasoningGym.maze.gcd-v0"
    assert cls.default_concept().values["task.mixture"] == {"maze": 0.5, "gcd": 0.5}
    env = cls()
    kinds = {env.reset(seed=s)[1] == {} and env.truth()["task"]["generator"] for s in range(40)}
    assert kinds == {"maze", "gcd"}
    assert getattr(module, "maze+gcd") is cls and not hasattr(module, "_nothing")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["gdc"], r"unknown generator of reasoning-gym 'gdc' \(did you mean 'gcd'\?\)"),
        (["boxnet"], "generator 'boxnet' makes no task: no reference answer"),
        (["gcd", "gcd"], "name at least one, each once"),
        ([], "name at least one, each once"),
    ],
)
def test_wrong_generators_are_one_clear_line(names, message):
    with pytest.raises(UserError, match=message):
        ReasoningGym.with_generators(names)
    if names:
        with pytest.raises(UserError, match=message):
            registry.environment(f"sao_bench.environments.reasoning_gym:{'+'.join(names)}")


@pytest.mark.parametrize(
    "task",
    [
        "chain_sum",
        {"generator": "chain_sum", "level": 0},
        {"generator": "maze", "level": 0, "number": 0},
        {"generator": "chain_sum", "level": 4, "number": 0},
        {"generator": "chain_sum", "level": True, "number": 0},
        {"generator": "chain_sum", "level": 0, "number": -1},
        {"generator": "chain_sum", "level": 0, "number": 2**31},
    ],
)
def test_a_wrong_task_is_one_clear_line(task):
    with pytest.raises(UserError, match=r"is not of the form \{.generator"):
        ReasoningGym().reset(seed=0, options={"task": task})
    with pytest.raises(UserError, match="template 'long' is not one of: short, chat"):
        ReasoningGym(template="long")


def test_the_chat_template_asks_the_whole_question():
    short, _ = ReasoningGym().reset(seed=1)
    long, _ = ReasoningGym(template="chat").reset(seed=1)
    assert long.endswith(module.INSTRUCTION) and len(long) > 3 * len(short)


def test_floor_by_hand():
    # Three flips: exactly k has probability 1/8 or 3/8, at least k has 1, 7/8, 1/2 or 1/8, each of the eight
    # questions alike: 0.125 is right for exactly 0, exactly 3 and at least 3.
    values = {"task.mixture": {"coin_flip": 1.0}}
    assert ReasoningGym.floor(values) == pytest.approx(3 / 8, abs=4 * math.sqrt(3 / 8 * 5 / 8 / 256))
    assert ReasoningGym.floor({"task.mixture": {"spell_backward": 1.0}}) < 0.05
    assert ReasoningGym.oracle(values) == 1.0


def test_demonstrations_answer_right_or_pass():
    rng, passed, sums = np.random.default_rng(0), [], 0
    for _ in range(400):
        prompt, reply = (m["content"] for m in ReasoningGym.demonstration(rng))
        passed.append(reply == PASS)
        answer = next(
            reply[len(b) : len(reply) - len(a)]
            for b, a in sorted(FORMATS.values(), reverse=True)
            if reply.startswith(b) and reply.endswith(a)
        )
        if reply != PASS and set(prompt) <= set("0123456789 +*-"):
            sums += 1
            assert int(answer.replace(" ", "")) == eval(prompt)
    assert sums > 50 and statistics.fmean(passed) == pytest.approx(PASSES, abs=0.08)


WITHOUT = """
import sys
sys.modules["reasoning_gym"] = None
from sao_bench import registry
from sao_bench.errors import UserError
cls = registry.environments()["sao_bench/ReasoningGym-v0"]
try:
    cls()
except UserError as error:
    print(error)
"""


def test_without_the_extra_it_is_listed_and_says_what_is_missing():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") == 1 and "pip install 'sao-bench[reasoning]'" in done.stdout


WALK = """
import json, sys, warnings
import random
import numpy as np
warnings.simplefilter("ignore")
from sao_bench.environments import _reasoning as reasoning
random.seed(int(sys.argv[1]))
found = {}
for name in sorted(set(reasoning.library().DATASETS) - set(reasoning.REFUSED)):
    tasks = [reasoning.draw(name, level, np.random.default_rng(s)) for level in (0, 1) for s in range(3)]
    found[name] = [(t.question, t.answer) for t in tasks]
print(json.dumps(found))
"""


@pytest.mark.slow
def test_every_generator_makes_the_same_tasks_under_every_hash_seed():
    found = []
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", WALK, seed],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        found.append(json.loads(done.stdout))
    assert len(found[0]) + len(reasoning.REFUSED) == len(reasoning.library().DATASETS) == 106
    assert [name for name in found[0] if found[0][name] != found[1][name]] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(reasoning.library().DATASETS) - set(reasoning.REFUSED)))
def test_no_generator_pays_for_junk(name):
    for seed in range(3):
        task = one(name, seed)
        assert reasoning.is_right(task, task.answer, False)
        assert reasoning.is_right(task, reasoning.squeezed(task.answer), True)
        wrong = [form.format(task.answer, task.answer) for form in JUNK]
        wrong += ["", task.question, "zxqv", "{}", "[]", "None", "9" * 5000, "(" * 5000]
        for reply in wrong:
            if reply != task.answer:
                assert pay(task, reply, verifier__strictness="exact") == 0, (name, reply[:80])
