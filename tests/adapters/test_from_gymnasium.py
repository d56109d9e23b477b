"""A Gymnasium text environment as ours plays as the original does."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import sao_bench  # noqa: F401  (registers the environments)
from sao_bench import registry
from sao_bench.adapters.from_gymnasium import from_gymnasium
from sao_bench.checks import check_drift_env
from sao_bench.errors import UserError
from sao_bench.traces import oracle_actor, play, replay
from sao_bench.types import Channel
from tests.adapters.environments import Echo

PAY = Channel("pay", "float", "real", 1.0, "payment of a right word", 0.0, 2.0)


def say_it(env: object) -> str:
    return env.original.unwrapped.word  # type: ignore[attr-defined]


def test_rewards_ends_and_observations_are_the_originals():
    cls = from_gymnasium(Echo, id="echo", max_turns=5, oracle=4.5, oracle_policy=say_it)
    original = Echo()
    first, _ = original.reset(seed=11)
    trace = play(cls(), 11, None, oracle_actor)
    assert trace.observations[0] == first
    for turn, action in enumerate(trace.actions):
        observation, reward, terminated, truncated, _ = original.step(action)
        assert (observation, reward, (terminated, truncated)) == (
            trace.observations[turn + 1],
            trace.rewards[turn],
            trace.ends[turn],
        )
    assert trace.rewards == (1.5, 1.5, 1.5)
    assert trace.ends[-1] == (True, False)
    assert trace.score == 4.5


def test_a_registered_environment_keeps_its_time_limit_as_truncation():
    cls = from_gymnasium("sao_bench_tests/Echo-v0", oracle_policy=say_it, bonus=0.0)
    assert (cls.id, cls.max_turns) == ("sao_bench_tests/Echo-v0", 2)
    trace = play(cls(), 5, None, oracle_actor)
    assert trace.rewards == (1.0, 1.0)
    assert trace.ends == ((False, False), (False, True))


def test_solved_is_what_info_says_and_info_is_for_the_evaluator():
    env = from_gymnasium(Echo, id="echo", max_turns=5, oracle_policy=say_it)()
    env.reset(seed=0)
    for action in (env.oracle_action(), "aaaa", None):
        _, _, terminated, _, info = env.step(env.oracle_action() if action is None else action)
        assert info == {}
    assert terminated
    truth = env.truth()
    assert truth["solved"] is False  # though it scored 3.0, above the 1.0 that counts otherwise
    assert truth["score"] == 3.0
    assert truth["parts"]["info"] == {"success": False, "seen": 3}


def test_a_channel_is_a_reset_option():
    env = from_gymnasium(Echo, id="echo", max_turns=3, channels=[PAY], oracle_policy=say_it)()
    env.reset(seed=0, options={"concept": {"pay": 2.0}})
    assert env.step(env.oracle_action())[1] == 2.5
    with pytest.raises(UserError, match="outside"):
        env.reset(seed=0, options={"concept": {"pay": 3.0}})


def test_a_raise_inside_is_a_fault_and_an_illegal_action_costs_a_turn():
    env = from_gymnasium(Echo, id="echo", max_turns=3, oracle_policy=say_it)()
    env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step("no such letters, and far too long")
    assert observation.startswith("error: 'no such letters")
    assert (reward, terminated, truncated, info, env.turn) == (0.0, False, False, {}, 1)
    assert env.original.unwrapped.turn == 0
    _, _, terminated, truncated, info = env.step("hhhh")
    assert (terminated, truncated) == (False, True)
    assert info == {"fault": {"stage": "step", "kind": "RuntimeError"}, "reward_valid": False}


def test_parse_makes_text_of_a_discrete_environment():
    cls = from_gymnasium("FrozenLake-v1", parse=int, is_slippery=False, oracle=1.0)
    trace = play(cls(), 0, None, replay(["down", "1", "1", "2", "2", "1", "2"]))
    assert trace.observations[1].startswith("error: 'down' is not an action")
    assert trace.rewards[-1] == 1.0
    assert trace.ends[-1] == (True, False)
    assert [int(o) for o in trace.observations[2:]] == [4, 8, 9, 10, 14, 15]


@pytest.mark.parametrize("name", ["sao_bench/StyleWriting-v0", "sao_bench/Countdown-v0"])
def test_ours_through_gymnasium_and_back_is_the_same(name: str):
    back, own = from_gymnasium(name), registry.environment(name)
    concept = {"reward.noise": 0.5}
    for seed in range(6):
        trace = play(back(), seed, concept, oracle_actor)
        same = play(gymnasium.make(name), seed, concept, oracle_actor)
        assert trace.difference(same) is None
        assert trace.actions == same.actions
        assert trace.score == same.score
    assert back.oracle({"reward.noise": 0.0}) == own.oracle({"reward.noise": 0.0})
    assert back.channels == own.channels


def test_an_import_keeps_the_promises_of_an_environment():
    cls = from_gymnasium(
        Echo, id="tests/Echo-v0", max_turns=5, channels=[PAY], oracle_policy=say_it,
        oracle=lambda values: 3 * (float(values.get("pay", 1.0)) + 0.5),  # type: ignore[arg-type]
        floor=lambda values: 0.1,
    )  # fmt: skip
    report = check_drift_env(cls, 16)
    # It has no demonstrations, and "oracle + junk" is an illegal action that costs a turn but not the episode.
    assert {check.name for check in report.failures} <= {"demonstrations", "info"}, report.lines()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("sao_bench_tests/Nothing-v0",), "cannot make 'sao_bench_tests/Nothing-v0'"),
        (("CartPole-v1",), "its actions are Discrete(2), not text; pass parse="),
        ((Echo,), "nothing bounds its episodes; pass max_turns="),
    ],
)
def test_what_cannot_be_imported_is_one_line(arguments: tuple, said: str):
    with pytest.raises(UserError) as caught:
        from_gymnasium(*arguments)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_task_given_back_is_the_same_episode_and_a_wrong_one_is_refused():
    env = from_gymnasium(Echo, id="echo", max_turns=3)()
    first, _ = env.reset(seed=4)
    assert env.truth()["task"] == {"seed": 4}
    assert env.reset(seed=99, options={"task": {"seed": 4}})[0] == first
    with pytest.raises(UserError, match="unknown task key 'sed'; known: seed, options"):
        env.reset(seed=0, options={"task": {"sed": 4}})
    with pytest.raises(UserError, match="is not a mapping"):
        env.reset(seed=0, options={"task": 4})


def test_what_an_import_cannot_know_is_refused():
    cls = from_gymnasium(Echo, id="echo", max_turns=3)
    with pytest.raises(UserError, match="pass oracle_policy="):
        cls().oracle_action()
    with pytest.raises(UserError, match="without demonstrations"):
        cls.demonstration(np.random.default_rng(0))
