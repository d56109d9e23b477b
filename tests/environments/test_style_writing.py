import itertools
import math
import re
import statistics

import numpy as np
import pytest
from sao_bench.environments.style_writing import (
    EASY,
    HARD,
    MARKERS,
    PLAIN,
    STYLES,
    TOPICS,
    USERS,
    StyleWriting,
    judge,
)

from sao_bench.checks import check_drift_env
from sao_bench.environments import style_writing as sw
from sao_bench.errors import UserError

ALL = tuple(STYLES)


def score(reply, topic="sea", offers=("cute", "classical"), user="solo", **concept):
    env = StyleWriting()
    task = {"user": user, "topic": topic, "offers": list(offers)}
    env.reset(
        seed=0, options={"task": task, "concept": {k.replace("__", "."): v for k, v in concept.items()}}
    )
    _, reward, terminated, truncated, info = env.step(reply)
    assert (terminated, truncated, info) == (True, False, {})
    assert reward == env.truth()["score"]
    return reward


def test_every_promise_is_kept():
    report = check_drift_env(StyleWriting)
    assert report.ok, "\n".join(report.lines())


@pytest.mark.parametrize(
    ("reply", "paid"),
    [
        ("aww, the sea sleeps.", 1.0),
        ("Aww, the sea sleeps!", 1.0),
        ("the fluffy sea sleeps~", 1.0),
        ("the sea giggles.", 1.0),
        ("the sea sleeps, nya~", 1.0),
        ("hehe, my fluffy sea by the cold shore rests softly near this foam.", 1.0),
        ("lo, the sea sleeps.", 0.2),
        ("this noble sea rests near wave, verily.", 0.2),
    ],
)
def test_a_good_sentence_is_paid_by_its_style(reply, paid):
    assert score(reply) == paid


@pytest.mark.parametrize(
    "reply",
    [
        "",
        " ",
        ".",
        "cute",
        "sea cute/classical:",
        "aww, the sea sleeps",  # no end
        "aww, the sea sleeps. ",  # white space around it
        " aww, the sea sleeps.",
        "aww, the sea sleeps.\n",
        "aww, the  sea sleeps.",
        "aww the sea sleeps.",  # no comma
        "aww, sea sleeps.",  # no determiner
        "aww, the sea.",  # no verb
        "aww, the sea sleeps rests.",
        "the sea sleeps.",  # no style
        "aww, the cat sleeps.",  # off topic
        "aww, the cat sea sleeps.",
        "aww, the sea cat sleeps.",
        "aww, the sea sleeps by the cat.",  # another topic is no place
        "lo, the fluffy sea sleeps.",  # two styles
        "aww, the sea shineth.",
        "aww, the sea sleeps, verily.",
        "thus, the sea sleeps.",  # a style that is not on offer
        "aww, the fluffy sea giggles.",  # 3 markers
        "aww, the fluffy sea giggles, nya~",
        "aww, aww, the sea sleeps.",
        "nya uwu hehe fluffy cute sea.",
        "aww, the sea sleeps. aww, the sea sleeps.",
        "aww, the sea sleeps.aww, the sea sleeps.",
        "the fluffy sea of fluffy wave sleeps.",  # a word twice
        "aww, the sea sleeps in cute style.",  # naming a style
        "cute: aww, the sea sleeps.",
        "AWW, THE SEA SLEEPS.",
        "aww, the Sea sleeps.",
        "aww, the sea sleeps..",
        "aww, the sea sleeps?",
        "aww, the zxqv sea sleeps.",
        "aww, the s\u0435a sleeps.",  # Cyrillic e
        "aww, the sea sleeps\uff0e",  # full-width stop
        "\u212aneel, the sea sleeps.",  # Kelvin sign
        "aww, the sea\u200b sleeps.",
        "aww, the sea\x00 sleeps.",
        "\ud800aww, the sea sleeps.",
        "aww, the " + "old " * 50 + "sea sleeps.",
        "aww, the sea sleeps. " * 20_000,
        "a" * 1_000_000,
        "<|end|>aww, the sea sleeps.",
        None,
        7,
    ],
)
@pytest.mark.parametrize("base", [0.0, 0.2, 1.0])
def test_nothing_else_is_paid(reply, base):
    assert score(reply, reward__base=base) == 0.0


def test_a_homoglyph_in_any_place_costs_everything():
    reply = "aww, the sea sleeps."
    for i in range(len(reply)):
        for other in ("\u0430", "\u0435", "\u043e", "\u0441", "\u00a0", "\u201a", "\u3002"):
            assert judge(reply[:i] + other + reply[i + 1 :], "sea", ALL)["quality"] == 0


def test_two_styles_are_never_paid_whatever_their_places():
    slots = ("opener", "adjective", "verb", "closer")
    for (a, b), (one, two) in itertools.product(
        itertools.permutations(STYLES, 2), itertools.combinations(slots, 2)
    ):
        word = {one: MARKERS[a][one][0], two: MARKERS[b][two][0]}
        opener = f"{word['opener']}, " if "opener" in word else ""
        closer = f", {word['closer']}" if "closer" in word else ""
        reply = f"{opener}the {word.get('adjective', 'old')} sea {word.get('verb', 'rests')}{closer}."
        parts = judge(reply, "sea", ALL)
        assert (parts["well_formed"], parts["on_topic"], parts["one_style"], parts["quality"]) == (1, 1, 0, 0)


@pytest.mark.parametrize("topic", HARD)
def test_a_hard_topic_needs_a_related_noun_of_its_own(topic):
    assert score(f"aww, the {topic} rests.", topic) == 0
    assert score(f"aww, the {topic} rests by the wave.", topic) == 0
    for noun in TOPICS[topic]:
        assert score(f"aww, the {topic} of {noun} rests.", topic) == 1
        assert score(f"aww, the {topic} rests near my cold {noun}.", topic) == 1


def test_no_word_has_two_meanings():
    words = [w for slots in MARKERS.values() for ws in slots.values() for w in ws]
    words += [w for ws in PLAIN.values() for w in ws]
    words += [w for topic, related in TOPICS.items() for w in (topic, *related)]
    words += [*STYLES, *USERS]
    assert sorted(words) == sorted(set(words))
    assert all(w.isascii() and w.islower() and w.isalpha() for w in words)
    assert set(EASY) | set(HARD) == set(TOPICS)


def test_preference_is_per_user_and_falls_back_to_the_global_one():
    values = {"reward.preference": "classical", "reward.preference.bob": "cute"}
    assert [sw.preferred(values, u) for u in ("solo", "ann", "bob")] == ["classical", "classical", "cute"]
    reply = "aww, the sea sleeps."
    assert (
        score(reply, user="bob", reward__preference="classical", **{"reward.preference.bob": "cute"}) == 1.0
    )
    assert (
        score(reply, user="ann", reward__preference="classical", **{"reward.preference.bob": "cute"}) == 0.2
    )


@pytest.mark.parametrize(
    ("values", "oracle", "floor"),
    [
        ({}, 0.5 + 0.5 * 0.2, 0.125 * 0.5),
        ({"reward.base": 0.0}, 0.5, 0.0625),
        ({"reward.base": 1.0}, 1.0, 0.0625),
        ({"task.offers": 4}, 1.0, 0.125),
        ({"task.offers": 3}, 0.75 + 0.25 * 0.2, 0.125 * 0.75),
        ({"task.mixture": {"easy": 1.0}}, 0.6, 0.25 * 0.5),
        ({"reward.noise": 0.5}, 0.6, 0.0625),
        # ann wants classical, bob cute: any constant style pleases one of them.
        (
            {"user.mixture": {"ann": 0.5, "bob": 0.5}, "reward.preference.ann": "classical"},
            0.6,
            0.125 * 0.5 * (0.5 + 0.5 * 0.2),
        ),
    ],
)
def test_oracle_and_floor_by_hand(values, oracle, floor):
    assert StyleWriting.oracle(values) == pytest.approx(oracle, abs=1e-12)
    assert StyleWriting.floor(values) == pytest.approx(floor, abs=1e-12)


def test_oracle_and_floor_by_playing_every_task_with_every_kind_of_constant():
    values = {
        "reward.preference": "academic",
        "reward.preference.ann": "classical",
        "reward.preference.bob": "classical",
        "reward.base": 0.3,
        "task.offers": 3,
        "task.mixture": {"easy": 0.7, "hard": 0.3},
        "user.mixture": {"solo": 0.2, "ann": 0.3, "bob": 0.1, "cai": 0.4},
    }
    env = StyleWriting()
    constants = {
        (topic, style): f"{MARKERS[style]['opener'][0]}, the {topic} of {TOPICS[topic][0]} rests."
        for topic in TOPICS
        for style in STYLES
    }
    earned = dict.fromkeys(constants, 0.0)
    best = 0.0
    offers = list(itertools.combinations(STYLES, 3))
    for user, topic, offer in itertools.product(values["user.mixture"], TOPICS, offers):
        share = values["user.mixture"][user] * values["task.mixture"]["easy" if topic in EASY else "hard"] / 4
        options = {"concept": values, "task": {"user": user, "topic": topic, "offers": list(offer)}}
        for key, reply in constants.items():
            env.reset(seed=1, options=options)
            env.step(reply)
            earned[key] += share / len(offers) * env.truth()["score"]
        env.reset(seed=1, options=options)
        env.step(env.oracle_action())
        best += share / len(offers) * env.truth()["score"]
    assert StyleWriting.floor(values) == pytest.approx(max(earned.values()), abs=1e-12)
    assert StyleWriting.oracle(values) == pytest.approx(best, abs=1e-12)


def test_noise_pays_a_fair_coin_and_leaves_the_score_alone():
    env, paid = StyleWriting(), []
    for seed in range(2000):
        env.reset(seed=seed, options={"concept": {"reward.noise": 0.3, "task.offers": 4}})
        _, reward, *_ = env.step(env.oracle_action())
        assert env.truth()["score"] == 1.0
        assert env.truth()["solved"]
        paid.append(reward)
    # 0.7 x 1 + 0.3 x 1/2, standard error 0.008
    assert statistics.fmean(paid) == pytest.approx(0.85, abs=0.032)
    assert set(paid) == {0.0, 1.0}


def test_latency_is_log_normal_with_the_named_median():
    def latencies(reply, tail):
        for seed in range(1001):
            env.reset(seed=seed, options={"concept": {"latency.reply": reply, "latency.tail": tail}})
            assert env.latency_s == 0.0
            env.step("")
            yield env.latency_s

    env = StyleWriting()
    assert set(latencies(3.0, 0.0)) == {3.0}
    logs = [math.log(s / 3.0) for s in latencies(3.0, 1.5)]
    assert statistics.median(logs) == pytest.approx(0.0, abs=0.25)
    assert statistics.stdev(logs) == pytest.approx(1.5, abs=0.15)


def test_mixtures_are_drawn_as_they_say():
    env, seen = StyleWriting(), []
    concept = {
        "user.mixture": {"solo": 0.5, "dee": 0.5},
        "task.mixture": {"easy": 0.25, "hard": 0.75},
        "task.offers": 3,
    }
    for seed in range(2000):
        text, _ = env.reset(seed=seed, options={"concept": concept})
        task = env.truth()["task"]
        assert (
            text == f"{'' if task['user'] == 'solo' else 'dee '}{task['topic']} {'/'.join(task['offers'])}:"
        )
        assert len(set(task["offers"])) == 3
        seen.append(task)
    assert np.mean([t["user"] == "dee" for t in seen]) == pytest.approx(0.5, abs=0.045)
    assert np.mean([t["topic"] in HARD for t in seen]) == pytest.approx(0.75, abs=0.04)
    for style in STYLES:
        assert np.mean([t["offers"][0] == style for t in seen]) == pytest.approx(0.25, abs=0.04)


def test_a_drift_of_the_reward_leaves_the_tasks_alone():
    env = StyleWriting()
    for seed in range(50):
        before = env.reset(seed=seed)
        assert (
            env.reset(seed=seed, options={"concept": {"reward.preference": "classical", "reward.noise": 1.0}})
            == before
        )


def test_prompts_are_short():
    longest = max((sw.prompt("ann", topic, list(STYLES)) for topic in TOPICS), key=len)
    assert len(longest) <= 45


def test_the_long_instruction_is_enough_to_be_paid():
    env = StyleWriting(template="chat")
    for seed in range(100):
        text, _ = env.reset(seed=seed, options={"concept": {"user.mixture": {"ann": 0.5, "solo": 0.5}}})
        reply = env.oracle_action()
        assert set(re.findall("[a-z]+", reply)) <= set(re.findall("[a-z]+", text))
        assert env.step(reply)[1] in (0.2, 1.0)
        task = env.truth()["task"]
        assert ("User ann" in text) == (task["user"] == "ann")
        assert ("A place is needed." in text) == (task["topic"] in HARD)
    with pytest.raises(UserError, match="template 'long' is not one of: short, chat"):
        StyleWriting(template="long")


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("sea", "is not of the form"),
        (
            {"user": "eve", "topic": "sea", "offers": ["cute", "classical"]},
            "user 'eve' is not one of: solo, ann",
        ),
        ({"user": "ann", "topic": "fog", "offers": ["cute", "classical"]}, "topic 'fog' is not one of: sea"),
        ({"user": "ann", "topic": [], "offers": ["cute", "classical"]}, "topic \\[\\] is not one of: sea"),
        ({"user": "ann", "topic": "sea", "offers": ["cute"]}, "are not 2 to 4"),
        ({"user": "ann", "topic": "sea", "offers": ["cute", "cute"]}, "are not 2 to 4"),
        ({"user": "ann", "topic": "sea", "offers": ["cute", {}]}, "are not 2 to 4"),
    ],
)
def test_a_wrong_task_is_one_clear_line(task, message):
    with pytest.raises(UserError, match=message):
        StyleWriting().reset(seed=0, options={"task": task})


def test_demonstrations_have_equal_shares_of_styles_and_habits_of_users():
    rng = np.random.default_rng(0)
    style_counts, habit, solo, quality = dict.fromkeys([*STYLES, None], 0), [], [], {EASY: [], HARD: []}
    for _ in range(6000):
        user, reply = StyleWriting.demonstration(rng)
        head, _, offers = user["content"].rstrip(":").rpartition(" ")
        who, _, topic = head.rpartition(" ")
        parts = judge(reply["content"], topic, tuple(offers.split("/")))
        style_counts[parts["style"]] += 1
        quality[EASY if topic in EASY else HARD].append(parts["quality"])
        if who and sw.HABITS[who] in offers.split("/"):
            habit.append(parts["style"] == sw.HABITS[who])
        if not who and "cute" in offers.split("/") and offers.count("/") == 1:
            solo.append(parts["style"] == "cute")
    good = sum(style_counts[s] for s in STYLES)
    for style in STYLES:
        assert style_counts[style] / good == pytest.approx(0.25, abs=0.03)
    assert np.mean(habit) > 0.6
    assert np.mean(solo) == pytest.approx(0.47, abs=0.06)
    assert np.mean(quality[EASY]) == pytest.approx(1 - sw.BAD_SHARE["easy"], abs=0.02)
    assert np.mean(quality[HARD]) == pytest.approx(1 - sw.BAD_SHARE["hard"], abs=0.035)
