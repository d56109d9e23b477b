import json
import math
import statistics

import numpy as np
import pytest
from sao_bench.environments._code_grammar import FAMILIES
from sao_bench.environments._code_tasks import TaskKey, make_task
from sao_bench.environments._code_tools import (
    ERRORS,
    NAMES,
    REPORTS,
    SIGNATURES,
    write_edit,
)
from sao_bench.environments.code_repair import TEMPLATES, CodeRepair

from sao_bench import registry
from sao_bench.checks import check_drift_env
from sao_bench.errors import UserError

DEFAULT = CodeRepair.default_concept().values
TASK = {"seed": 0, "split": "train", "family": "operator", "difficulty": 1, "index": 0}


def start(template="short", task=None, **concept):
    env = CodeRepair(template)
    concept = {name.replace("__", "."): value for name, value in concept.items()}
    text, _ = env.reset(seed=0, options={"task": {**TASK, **(task or {})}, "concept": concept})
    return env, text


def say(env, *lines):
    """Say all lines; return the last observation and the summed reward."""
    total = 0.0
    for line in lines:
        observation, reward, *_ = env.step(line)
        total += reward
    return observation, total


def fix(env, **names):
    """Return the edit that restores the program, under the default tools."""
    edit = env._repair.next_edit("all")
    return write_edit(edit, {**DEFAULT, **names})


@pytest.mark.slow
def test_every_promise_is_kept():
    report = check_drift_env(CodeRepair, episodes=60)
    assert report.ok, "\n".join(report.lines())


def test_it_is_registered():
    assert registry.environment("sao_bench/CodeRepair-v0") is CodeRepair
    assert all(
        name in registry.schedules() for name in ("code_tools", "code_strictness", "code_bug_families")
    )


# -- an episode ----------------------------------------------------------------------------------------------


def test_an_episode_by_hand():
    env, text = start()
    task = make_task(TaskKey(**TASK))
    lines = task.base.splitlines()
    assert text.startswith(f"1 {lines[0]}\n2 {lines[1]}\nwant f: {task.words}\nf(")
    assert env.step("view") == (f"1 {lines[0]}\n2 {lines[1]}", 0.0, False, False, {})
    first, last = env.step("run_tests")[0].split("\n")
    assert first == text.split("\n")[-1] and last == "1 passed"
    gold = task.gold.splitlines()[1].strip()
    assert env.step(f"edit 2: {gold}") == ("ok", 0.0, False, False, {})
    assert env.step("run_tests")[0] == "2 passed"
    assert env.step("submit") == ("", 1.0, True, False, {})
    assert env.truth()["parts"] == {
        "label": "correct",
        "fail_to_pass": sum(test.fails for test in task.tests),
        "pass_to_pass": sum(not test.fails for test in task.tests),
        "errors": 0,
        "edits": 1,
        "test_runs": 2,
        "signs": [],
    }
    assert env.truth()["solved"] and env.truth()["task"] == TASK


def test_errors_cost_and_tell_the_usage():
    env, _ = start(tool__edit__name="patch", tool__submit__name="push")
    assert say(env, "edit 2: x")[0] == "no tool: patch N: TEXT"
    assert say(env, "patch 9: x")[0] == "no line: patch N: TEXT"
    assert say(env, "submit")[0] == "no tool: push"
    assert say(env, fix(env, **{"tool.edit.name": "patch"}), "push")[1] == pytest.approx(1 - 3 * 0.2)
    env, _ = start(tool__docs="none")
    assert [say(env, line)[0] for line in ("x", "edit x", "edit 9: x")] == ["no tool", "bad call", "no line"]
    env, text = start(tool__docs="prompt", tool__run_tests__name="check")
    assert text.startswith("[view | edit N: TEXT | check | submit]\n1 def")


def test_a_wrong_submission_and_none_are_paid_nothing():
    for lines in (["submit"], ["edit 2: return 12345", "submit"], ["edit 2: return (", "submit"]):
        env, _ = start()
        assert say(env, *lines)[1] == 0 and not env.truth()["solved"]
    assert env.truth()["parts"]["label"] == "error"
    env, _ = start()
    ends = [env.step(fix(env) if turn == 0 else "view")[2:4] for turn in range(6)]
    assert ends == [(False, False)] * 5 + [(False, True)]
    assert env.truth()["score"] == 0 and env.truth()["parts"]["label"] == "not submitted"


def test_visible_tests_suffice_under_visible_alone():
    for strictness, paid in (("visible", 1.0), ("hidden", 0.0), ("all", 0.0), ("exact", 0.0)):
        env, text = start(verifier__strictness=strictness)
        want = text.rpartition(" not ")[2]
        assert say(env, f"edit 2: return {want}", "submit")[1] == paid
    env, _ = start(verifier__strictness="visible")
    assert env.oracle_action() == f"edit 2: return {want}"


def test_lines_counted_from_zero_change_another_line_silently():
    task = {"family": "order", "index": 1}
    env, _ = start(task=task, tool__edit__signature="zero")
    lines = make_task(TaskKey(**{**TASK, **task})).base.splitlines()
    assert say(env, "edit 1: a=5", "view")[0].split("\n")[1] == "2  a=5"
    assert env.step("edit 2: a=6")[0] == "ok"
    assert env.step("view")[0] == f"1 {lines[0]}\n2  a=5\n3  a=6\n4 {lines[3]}"


def test_the_listing_can_be_left_to_view():
    env, text = start(obs__listing="view")
    assert "def f" not in text and text.startswith("want f: ")
    assert env.oracle_action() == "view"
    assert say(env, env.oracle_action())[0].startswith("1 def f(")
    assert env.oracle_action().startswith("edit 2: ")


@pytest.mark.parametrize("style", REPORTS)
@pytest.mark.parametrize("template", TEMPLATES)
def test_issues_in_every_wording(style, template):
    env, text = start(obs__template=template, tool__run_tests__result_format=style)
    entry, words, failed = env._repair.issue(style)
    assert text.endswith(TEMPLATES[template].format(entry=entry, words=words, report=failed))
    assert failed in env.step("run_tests")[0]
    if style == "json":
        assert json.loads(failed)["test"] == 1


def test_chat_has_instructions_and_wide_code():
    env, text = start("chat", task={"difficulty": 3, "family": "order"})
    assert all(name in text for names in NAMES.values() for name in names)
    assert "\n2     " in text and env.step("view")[0] in text
    assert say(env, fix(env), "submit")[1] == 1.0
    for options, message in (
        ({"template": "long"}, "template 'long' is not one of: short, chat"),
        ({"size": "big"}, "size 'big' is not one of: function, repository"),
        ({"split": "dev"}, "split 'dev' is not one of: train, test"),
        ({"seed": -1}, "seed -1 is not a whole number from 0"),
    ):
        with pytest.raises(UserError, match=message):
            CodeRepair(**options)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("x", "task 'x' is not a mapping of seed, split, family, difficulty, index"),
        ({"seed": 0}, "is not a mapping of"),
        ({**TASK, "family": "typo"}, "task family 'typo' is not one of"),
        ({**TASK, "index": "0"}, "index '0' must be whole numbers"),
        ({**TASK, "difficulty": [1]}, r"task difficulty \[1\] is not one of"),
    ],
)
def test_a_wrong_task_is_one_clear_line(task, message):
    with pytest.raises(UserError, match=message):
        CodeRepair().reset(seed=0, options={"task": task})


def test_tasks_follow_mixture_difficulty_split_and_seed():
    seen = set()
    for seed in range(12):
        concept = {"task.mixture": {"order": 0.5, "branch": 0.5}, "task.difficulty": 2}
        env = CodeRepair(split="test", seed=7)
        env.reset(seed=seed, options={"concept": concept})
        task = env.truth()["task"]
        seen.add(task["family"])
        assert (task["difficulty"], task["split"], task["seed"]) == (2, "test", 7)
    assert seen == {"order", "branch"}


@pytest.mark.parametrize("signature", SIGNATURES)
@pytest.mark.parametrize("difficulty", [1, 2, 3, 4])
def test_the_oracle_is_paid_for_every_family(signature, difficulty):
    env = CodeRepair()
    for seed, family in enumerate(FAMILIES):
        strictness = ("visible", "hidden", "all", "exact")[seed % 4]
        concept = {
            "tool.edit.signature": signature,
            "task.difficulty": difficulty,
            "task.mixture": {family: 1.0},
            "verifier.strictness": strictness,
            "obs.listing": ("prompt", "view")[seed % 2],
        }
        env.reset(seed=seed, options={"concept": concept})
        paid, done = 0.0, False
        while not done:
            _, reward, terminated, truncated, _ = env.step(env.oracle_action())
            paid, done = paid + reward, terminated or truncated
        assert paid == 1.0


def test_noise_and_latency():
    env, paid, logs = CodeRepair(), [], []
    for seed in range(600):
        concept = {"reward.noise": 0.5, "latency.reply": 3.0, "latency.tail": 1.5}
        env.reset(seed=seed, options={"task": TASK, "concept": concept})
        assert env.latency_s == 0
        env.step("view")
        logs.append(math.log(env.latency_s / 3.0))
        paid.append(env.step("submit")[1])
        assert env.latency_s > 0 and env.truth()["score"] == 0
    assert statistics.fmean(paid) == pytest.approx(0.25, abs=0.07)
    assert statistics.median(logs) == pytest.approx(0.0, abs=0.3)
    assert statistics.stdev(logs) == pytest.approx(1.5, abs=0.2)


def test_constant_replies_earn_the_floor():
    assert CodeRepair.floor({}) == 0.0 and CodeRepair.oracle({}) == 1.0
    for line in ("submit", "edit 2: return a+b", "run_tests"):
        for seed in range(5):
            env = CodeRepair()
            env.reset(seed=seed)
            done = False
            while not done:
                _, reward, terminated, truncated, _ = env.step(line)
                done = terminated or truncated
                assert reward == 0


def test_demonstrations_are_short_and_right_less_than_half_the_time(monkeypatch):
    rng, solved, names, lengths = np.random.default_rng(0), [], dict.fromkeys(NAMES["edit"], 0), []
    forms = dict.fromkeys(ERRORS.values(), 0)
    noted = []
    original = CodeRepair.respond
    monkeypatch.setattr(CodeRepair, "respond", lambda env, action: noted.append(env) or original(env, action))
    for _ in range(300):
        said = [message["content"] for message in CodeRepair.demonstration(rng)]
        assert max(map(len, said[1::2])) <= CodeRepair.max_reply_tokens + 24
        lengths.append(sum(map(len, said)) + 2 * len(said))
        solved.append(noted[-1].truth()["solved"])
        for line in said[1::2]:
            if line.split()[0] in names:
                names[line.split()[0]] += 1
                break
        for form in forms:
            forms[form] += any(text.startswith(form) for text in said[2::2])
    assert 0.33 < statistics.fmean(solved) < 0.53
    assert max(lengths) < 900 and statistics.median(lengths) < 350
    assert min(names.values()) > 0.25 * sum(names.values())
    assert forms["no tool"] > 80 and forms["bad call"] > 30 and forms["no line"] > 2
