"""The drift clock that an exported environment keeps, and what an adapter says without its package."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from sao_bench import registry, traces
from sao_bench.adapters import require
from sao_bench.adapters.dispatch import DriftClock
from sao_bench.drift import load
from sao_bench.errors import UserError
from sao_bench.seeding import derive
from tests.adapters import schedules
from tests.adapters.environments import Toll

TOLL = "tests.adapters.environments:Toll"
STYLE = "sao_bench/StyleWriting-v0"


@pytest.fixture
def clock(tmp_path: Path) -> DriftClock:
    return DriftClock.load(TOLL, schedules.write(tmp_path), seed=7, group_size=2)


def test_a_dispatch_is_what_a_trainer_would_dispatch(tmp_path: Path):
    """Index, seed, concept, prompt and task are those of `Rollout.begin`, member by member of a group."""
    pytest.importorskip("torch")
    from sao_bench import tiny
    from sao_bench.chat import ChatFormat
    from sao_bench.models import load_policy
    from sao_bench.rollout import Rollout

    path = schedules.write(tmp_path, schedules.STYLE)
    clock, env = DriftClock.load(STYLE, path, seed=5, group_size=2), registry.environment(STYLE)
    policy, tokenizer = load_policy(tiny.checkpoint(env))
    rollout = Rollout(env, ChatFormat(tokenizer, policy.generation_config), 5, 48, 1024)
    schedule = load(path)
    for first in range(0, 8, 2):
        concept, task = env.complete_concept(schedule.at(first)), None
        for index in (first, first + 1):
            theirs = rollout.begin(index, concept, group=first, t=first, task=task)
            task = theirs.task
            dispatch = clock.at(index)
            play = clock.begin(dispatch)
            assert (dispatch.seed, dispatch.t, dispatch.concept) == (theirs.seed, first, concept)
            assert play.observation == theirs.prompt
            assert play.env.truth()["task"] == theirs.task
            assert play.latency_s == theirs.latency_s


def test_a_group_shares_tick_and_task_and_has_seeds_of_its_own(clock: DriftClock):
    assert clock.horizon == 8
    dispatches = [clock.at(index) for index in range(8)]
    assert [d.t for d in dispatches] == [0, 0, 2, 2, 4, 4, 6, 6]
    assert [d.group for d in dispatches] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [d.seed for d in dispatches] == [derive(7, "train", index) for index in range(8)]
    assert [d.concept.values["tax"] for d in dispatches] == [0, 0, 0, 0, 3, 3, 3, 3]
    tasks = [clock.begin(d).env.truth()["task"] for d in dispatches]
    assert tasks[0] == tasks[1] != tasks[2] == tasks[3]


def test_an_odd_horizon_ends_with_the_last_whole_group(tmp_path: Path):
    clock = DriftClock.load(TOLL, schedules.write(tmp_path), group_size=3)
    assert clock.horizon == 6
    with pytest.raises(UserError, match=r"episode 6 is outside the schedule's 0\.\.5"):
        clock.at(6)


def test_what_is_declared_holds_no_value_of_a_channel(clock: DriftClock):
    told = clock.at(5).declared()
    assert told == {
        "clock": "episode",
        "index": 5,
        "group": 2,
        "t": 4,
        "stream": "train",
        "seed": derive(7, "train", 5),
        "phase": 1,
        "concept": Toll.complete_concept({"tax": 3}).hash,
    }


def test_streams_never_meet(clock: DriftClock):
    assert clock.at(3, "probe").seed == derive(7, "probe", 3) != clock.at(3).seed
    assert clock.at(3, "probe").concept == clock.at(3).concept


def test_a_play_tells_ends_apart(clock: DriftClock):
    ends = {}
    for name, said in (("fault", "break"), ("terminated", "stop"), ("cut", "1")):
        play = clock.begin(clock.at(0))
        play.act(said)
        if name == "cut":
            play.cut("max_total_tokens")
        record = play.record()
        ends[name] = (
            record["terminated"],
            record["truncated"],
            record["stop_reason"],
            record["reward_valid"],
        )
    assert ends == {
        "fault": (False, True, "fault", False),
        "terminated": (True, False, "terminated", True),
        "cut": (False, True, "max_total_tokens", True),
    }


def test_a_play_keeps_rewards_and_latencies_by_turn(clock: DriftClock):
    play = clock.begin(clock.at(4))
    while not play.ended:
        play.act(play.env.oracle_action() if len(play.turns) != 1 else "wrong")
    record = play.record()
    assert [turn["reward"] for turn in record["turns"]] == [0.5, 0.0, 0.5]
    assert [turn["latency_s"] for turn in record["turns"]] == [0.25, 0.5, 0.75]
    assert (record["reward"], record["score"], record["solved"]) == (1.0, 1.0, False)
    assert (record["stop_reason"], record["parts"]) == ("turns", {"paid": 1.0})


@pytest.mark.parametrize("name", ["MathTool-v0", "ToolAPI-v0", "Countdown-v0", "StyleWriting-v0"])
def test_a_play_is_the_episode_that_we_would_play(name: str):
    clock = DriftClock.load(f"sao_bench/{name}", seed=11)
    for index in range(4):
        ours = traces.play(clock.make(), derive(11, "train", index), None, traces.oracle_actor)
        play = clock.begin(clock.at(index))
        shown = [play.observation]
        for action in ours.actions:
            play.act(action)
            shown.append(play.observation)
        assert tuple(shown) == ours.observations
        assert tuple(turn["reward"] for turn in play.turns) == ours.rewards
        assert tuple(turn["latency_s"] for turn in play.turns) == ours.latencies[1:]
        assert (play.ended, play.terminated, play.truncated) == (True, *ours.ends[-1])
        assert play.record()["score"] == ours.score


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"env": "sao_bench/StyleWritin-v0"}, "did you mean 'sao_bench/StyleWriting-v0'?"),
        (
            {"env": STYLE},
            "is written for tests.adapters.environments:Toll, not for sao_bench/StyleWriting-v0",
        ),
        ({"group_size": 0}, "group size 0"),
        ({"env_options": {"size": 3}}, "tests/Toll-v0: options {'size': 3}"),
        ({"drift": "no_such"}, "unknown drift schedule 'no_such'"),
    ],
)
def test_a_wrong_clock_is_one_line(tmp_path: Path, arguments: dict[str, Any], said: str):
    with pytest.raises(UserError) as caught:
        DriftClock.load(**{"env": TOLL, "drift": schedules.write(tmp_path), **arguments})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_clock_that_the_other_side_cannot_keep_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match="cannot keep the clock 'optimizer_step'; allowed: episode"):
        DriftClock.load(TOLL, schedules.write(tmp_path, clock="optimizer_step"))


@pytest.mark.parametrize(
    ("module", "extra", "adapter"),
    [
        ("openenv.core", "openenv", "from_openenv"),
        ("openenv.core", "openenv", "to_openenv"),
        ("verifiers.v1", "verifiers", "from_verifiers"),
        ("verifiers.v1", "verifiers", "to_verifiers"),
    ],
)
def test_a_missing_package_is_one_line_that_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, module: str, extra: str, adapter: str
):
    import importlib

    package = module.partition(".")[0]
    for name in [n for n in sys.modules if n.partition(".")[0] == package or f"adapters.{adapter}" in n]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_Hidden(package), *sys.meta_path])
    with pytest.raises(UserError) as caught:
        found = importlib.import_module(f"sao_bench.adapters.{adapter}")
        if adapter == "from_openenv":
            found.from_openenv("http://localhost:1", id="x", max_turns=1)
        found.from_verifiers("x", max_turns=1)
    assert (
        str(caught.value) == f"this adapter needs the package {package!r}: pip install 'sao-bench[{extra}]'"
    )


def test_a_broken_package_stays_a_bug():
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        require("tests.adapters.broken", "openenv")


class _Hidden:
    """An import hook that hides a package."""

    def __init__(self, package: str):
        self.package = package

    def find_spec(self, name: str, *_: Any) -> None:
        if name.partition(".")[0] == self.package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
