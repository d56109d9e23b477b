import itertools
import math
import statistics

import numpy as np
import pytest
from sao_bench.environments.tool_api import FORMS, GIVES_UP, KINDS, NAMES, SHAPES, ToolAPI

from sao_bench.checks import check_drift_env
from sao_bench.environments import tool_api as ta
from sao_bench.errors import UserError

ASKS = {"price": "kvt price?", "stock": "kvt stock?", "order": "3 kvt please"}


def start(kind="price", template="short", **concept):
    env = ToolAPI(template)
    task = {"kind": kind, "item": "kvt", "count": 3, "value": 42}
    concept = {name.replace("__", "."): value for name, value in concept.items()}
    text, _ = env.reset(seed=0, options={"task": task, "concept": concept})
    return env, text


def say(env, *lines):
    """Say all lines; return what was observed after each, and the summed reward."""
    steps = [env.step(line) for line in lines]
    return [step[0] for step in steps], math.fsum(step[1] for step in steps)


def test_every_promise_is_kept():
    report = check_drift_env(ToolAPI)
    assert report.ok, "\n".join(report.lines())


@pytest.mark.parametrize(
    ("kind", "call"), [("price", "price kvt"), ("stock", "stock kvt"), ("order", "order kvt 3")]
)
def test_a_request_is_served(kind, call):
    env, text = start(kind)
    assert text == ASKS[kind]
    assert env.step(call) == ("42", 0.0, False, False, {})
    assert env.step("answer 42") == ("", 1.0, True, False, {})
    assert env.truth() == {
        "score": 1.0,
        "solved": True,
        "task": {"kind": kind, "item": "kvt", "count": 3, "value": 42},
        "parts": {"done": 1, "errors": 0, "warnings": 0, "orders": int(kind == "order")},
    }


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("price kvt", ta.Call("price", "price", "plain", "kvt", 0)),
        ("cost(kvt)", ta.Call("price", "cost", "plain", "kvt", 0)),
        ("left item=kvt", ta.Call("stock", "left", "item", "kvt", 0)),
        ("order kvt 3", ta.Call("order", "order", "plain", "kvt", 3)),
        ("order(kvt,3)", ta.Call("order", "order", "plain", "kvt", 3)),
        ("buy( kvt , 3)", "call"),
        ("buy 3, kvt", ta.Call("order", "buy", "swapped", "kvt", 3)),
        ("cart item=kvt  n=3", ta.Call("order", "cart", "item", "kvt", 3)),
        ("cart(sku=kvt, qty=3)", ta.Call("order", "cart", "sku", "kvt", 3)),
        ("cart sku=kvt n=3", "call"),
        ("cart n=3 item=kvt", "call"),
        ("order kvt", "call"),
        ("order kvt -3", "call"),
        ("order kvt 3 3", "call"),
        ("price kvt 3", "call"),
        ("price KVT", "call"),
        ("price", "name"),
        ("prices kvt", "name"),
        ("answer", "name"),
        ("", "name"),
    ],
)
def test_a_line_is_a_call_of_some_version_or_an_error(line, found):
    assert ta.parse(line) == found


def test_no_name_belongs_to_two_tools_and_no_form_reads_as_another():
    names = [name for tool in KINDS for name in NAMES[tool]]
    assert len(set(names)) == len(names) and "answer" not in names
    for tool, name in itertools.product(KINDS, names):
        for signature, form in FORMS[tool].items():
            call = ta.parse(f"{name} {form.format(item='kvt', count=3)}")
            if name in NAMES[tool]:
                assert (call.tool, call.name, call.signature, call.item) == (tool, name, signature, "kvt")


@pytest.mark.parametrize("kind", KINDS)
def test_today_is_one_of_all_versions(kind):
    for name, signature in itertools.product(NAMES[kind], FORMS[kind]):
        concept = {f"tool__{kind}__name": name, f"tool__{kind}__signature": signature}
        for other, form in itertools.product(NAMES[kind], FORMS[kind].items()):
            env, _ = start(kind, **concept)
            seen = env.step(f"{other} {form[1].format(item='kvt', count=3)}")[0]
            if (other, form[0]) == (name, signature):
                assert seen == "42"
            else:
                error = "bad call" if other == name else "no tool"
                assert seen == f"{error}: {name} {FORMS[kind][signature].format(item='item', count='n')}"


@pytest.mark.parametrize(
    ("rule", "seen", "paid", "errors", "warnings"),
    [
        ("reject", "no tool: buy n item", 0.0, 1, 0),
        ("ignore", "ok", 0.0, 0, 0),
        ("coerce", "42", 1.0, 0, 0),
        ("warn", "42 (old: use buy n item)", 0.9, 0, 1),
    ],
)
def test_what_becomes_of_an_old_call(rule, seen, paid, errors, warnings):
    new = {"tool__order__name": "buy", "tool__order__signature": "swapped", "tool__deprecation": rule}
    env, _ = start("order", **new)
    assert say(env, "order kvt 3", "answer 42") == ([seen, ""], pytest.approx(paid))
    parts = env.truth()["parts"]
    assert (parts["errors"], parts["warnings"]) == (errors, warnings)
    assert parts["orders"] == int(rule in ("coerce", "warn"))
    env, _ = start("order", **new)
    assert say(env, "buy 3 kvt", "answer 42") == (["42", ""], 1.0)
    if rule in ("reject", "ignore"):
        env, _ = start("order", **new)
        _, reward = say(env, "order kvt 3", "buy 3 kvt", "answer 42")
        assert reward == pytest.approx(0.8 if rule == "reject" else 1.0)


@pytest.mark.parametrize(
    "calls",
    [
        [],
        ["order kvt 4"],
        ["order kvz 3"],
        ["order kvt 3", "order kvt 3"],
        ["order kvt 3", "order kvt 1"],
        ["order kvt 1", "order kvt 3"],
        ["price kvt"],
    ],
)
def test_only_exactly_what_was_ordered_counts(calls):
    env, _ = start("order")
    _, reward = say(env, *calls, "answer 42")
    assert reward == 0 and not env.truth()["solved"]


def test_an_order_nobody_asked_for_spoils_a_question():
    env, _ = start("price")
    assert say(env, "price kvt", "order kvt 3", "answer 42")[1] == 0
    env, _ = start("price")
    assert say(env, "stock kvt", "price kvt", "answer 42") == (["89", "42", ""], 1.0)


def test_a_wrong_call_tells_another_value():
    for kind, wrong in (("price", "stock kvt"), ("stock", "price kvt"), ("order", "order kvt 4")):
        for value in range(10, 100):
            env = ToolAPI()
            env.reset(seed=0, options={"task": {"kind": kind, "item": "kvt", "count": 3, "value": value}})
            told = int(env.step(wrong)[0])
            assert told != value and 10 <= told < 100
    env, _ = start("price")
    assert env.step("price kvz")[0] == "no item: price item"


@pytest.mark.parametrize(
    ("kind", "shape", "text"),
    [
        ("price", "bare", "42"),
        ("price", "record", "{price: 42}"),
        ("price", "list", "[kvt, 42]"),
        ("price", "cents", "4200"),
        ("stock", "record", "{stock: 42}"),
        ("stock", "text", "42 left"),
        ("order", "record", "{receipt: 42}"),
        ("order", "text", "no. 42"),
    ],
)
def test_return_shapes(kind, shape, text):
    env, _ = start(kind, **{f"tool__{kind}__result_format": shape})
    assert env.step(env.oracle_action())[0] == text
    assert env.step("answer 42")[1] == 1.0
    assert shape in SHAPES[kind]


@pytest.mark.parametrize(
    "answer", ["4200", "42.0", "042", "+42", "42 kvt", "{price: 42}", "43", "", "\u0664\u0662"]
)
def test_an_answer_is_the_number_alone(answer):
    env, _ = start("price")
    assert say(env, "price kvt", f"answer {answer}")[1] == 0


@pytest.mark.parametrize(
    ("docs", "first", "error"),
    [
        ("none", "kvt price?", "no tool"),
        ("error", "kvt price?", "no tool: cost sku=item"),
        ("prompt", "[cost sku=item] kvt price?", "no tool: cost sku=item"),
    ],
)
def test_where_the_usage_is_told(docs, first, error):
    env, text = start("price", tool__price__name="cost", tool__price__signature="sku", tool__docs=docs)
    assert text == first
    assert env.step("hm")[0] == env.step("price kvt")[0] == error
    assert env.truth()["parts"]["errors"] == 2
    assert say(env, "cost sku=kvt", "answer 42") == (["42", ""], pytest.approx(0.6))


@pytest.mark.parametrize("template", ta.TEMPLATES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_wording_names_the_item(template, kind):
    _, text = start(kind, obs__template=template)
    assert "kvt" in text and ("3" in text) == (kind == "order") and len(text) <= 30


def test_five_turns_without_an_answer_are_truncated_and_unpaid():
    env, _ = start(reward__noise=1.0)
    for _ in range(4):
        assert env.step("price kvt")[1:4] == (0.0, False, False)
    assert env.step("price kvt")[1:4] == (0.0, False, True)


@pytest.mark.parametrize(
    ("shares", "floor"),
    [
        ({"price": 1.0}, 1 / 90),
        ({"order": 1.0}, 0.0),
        ({"price": 0.25, "stock": 0.25, "order": 0.5}, 0.5 / 90),
    ],
)
def test_floor_by_hand_and_by_playing_every_value(shares, floor):
    assert ToolAPI.floor({"task.mixture": shares}) == pytest.approx(floor)
    env, best = ToolAPI(), 0.0
    for answer in (10, 57, 99):
        earned = 0.0
        for kind, share in shares.items():
            for value in range(10, 100):
                env.reset(seed=0, options={"task": {"kind": kind, "item": "kvt", "count": 3, "value": value}})
                earned += share / 90 * env.step(f"answer {answer}")[1]
        best = max(best, earned)
    assert best == pytest.approx(floor)
    assert ToolAPI.oracle({}) == 1.0


def test_values_and_kinds_are_drawn_as_they_say():
    env, tasks = ToolAPI(), []
    concept = {"task.mixture": {"price": 0.2, "order": 0.8}, "task.difficulty": 5}
    for seed in range(2000):
        env.reset(seed=seed, options={"concept": concept})
        tasks.append(env.truth()["task"])
    assert {task["value"] for task in tasks} == set(range(10, 100))
    assert {task["count"] for task in tasks} == set(range(1, 10))
    assert {len(task["item"]) for task in tasks} == {5}
    assert statistics.fmean(task["kind"] == "order" for task in tasks) == pytest.approx(0.8, abs=0.036)


def test_noise_and_latency():
    env, paid, logs = ToolAPI(), [], []
    for seed in range(1500):
        concept = {"reward.noise": 0.3, "latency.tool": 3.0, "latency.tail": 1.5}
        env.reset(seed=seed, options={"concept": concept})
        env.step(env.oracle_action())
        logs.append(math.log(env.latency_s / 3.0))
        paid.append(env.step(env.oracle_action())[1])
        assert env.latency_s == 0
        assert env.truth()["score"] == 1.0
    assert statistics.fmean(paid) == pytest.approx(0.85, abs=0.037)
    assert statistics.median(logs) == pytest.approx(0.0, abs=0.2)
    assert statistics.stdev(logs) == pytest.approx(1.5, abs=0.12)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("kvt", "is not of the form"),
        ({"kind": "price", "item": "kvt", "count": 3}, "is not of the form"),
        ({"kind": "sell", "item": "kvt", "count": 3, "value": 42}, "task kind 'sell'"),
        ({"kind": [], "item": "kvt", "count": 3, "value": 42}, "task kind \\[\\]"),
        ({"kind": "price", "item": "k v", "count": 3, "value": 42}, "task item 'k v'"),
        ({"kind": "price", "item": "kvt", "count": True, "value": 42}, "task count True"),
        ({"kind": "price", "item": "kvt", "count": 3, "value": 100}, "task value 100"),
    ],
)
def test_a_wrong_task_is_one_clear_line(task, message):
    with pytest.raises(UserError, match=message):
        ToolAPI().reset(seed=0, options={"task": task})


def test_the_long_instruction_names_every_version():
    _, text = start("order", template="chat")
    assert text.endswith("\n\n3 kvt please")
    for tool in KINDS:
        assert all(name in text for name in NAMES[tool])
        assert all(form.format(item="ITEM", count="COUNT") in text for form in FORMS[tool].values())
    with pytest.raises(UserError, match="template 'long' is not one of: short, chat"):
        ToolAPI(template="long")


def test_demonstrations_show_every_version_and_end_in_an_answer():
    rng = np.random.default_rng(0)
    firsts, answered, made_up = dict.fromkeys((name for tool in KINDS for name in NAMES[tool]), 0), 0, []
    for _ in range(1200):
        lines = [message["content"] for message in ToolAPI.demonstration(rng)]
        assert len(lines) <= 8 and max(map(len, lines)) <= 60
        if lines[2:] and lines[2].startswith(("no tool", "bad call")):
            made_up.append(lines[3].startswith("answer"))
        if not lines[0].startswith("["):
            firsts[lines[1].split()[0]] += 1
        answered += lines[-1].startswith("answer")
    total = sum(firsts.values())
    for count in firsts.values():
        assert count / total == pytest.approx(1 / 9, abs=0.045)
    assert answered == 1200
    # An error is met by a made-up number about as often as the text says.
    assert np.mean(made_up) == pytest.approx(GIVES_UP, abs=0.06)
