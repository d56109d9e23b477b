"""Every shipped schedule, against the environment that it is written for."""

from collections import Counter

import jsonschema
import pytest

from sao_bench import registry
from sao_bench.drift import load
from sao_bench.drift.schema import json_schema
from sao_bench.drift.yaml12 import read_file

EPISODES = 300
NAMES = sorted(registry.schedules())


def test_the_library_has_what_people_cite():
    assert len(NAMES) >= 17 and "stationary" in NAMES
    loaded = {name: load(name) for name in NAMES}
    assert len({schedule.hash for schedule in loaded.values()}) == len(NAMES)
    shapes = {change.shape for schedule in loaded.values() for change in schedule.changes()}
    assert shapes == {"step", "mix", "ramp", "cycle", "markov", "poisson", "walk", "blip", "burst", "replay"}
    assert [name for name, schedule in loaded.items() if not schedule.changes()] == ["stationary"]


@pytest.mark.parametrize("name", NAMES)
def test_described_versioned_and_accepted_by_the_schema(name):
    schedule = load(name)
    assert schedule.id == name.replace("_", "-") and schedule.version
    assert len(schedule.description) > 60 and len(schedule.shows) > 20
    assert schedule.probe is not None
    _, root = read_file(registry.schedules()[name])
    jsonschema.validate(root.plain(), json_schema())


@pytest.mark.parametrize("name", NAMES)
def test_realised_concepts_are_the_described_ones(name):
    """Play a few hundred episodes; count the concepts that the environment was in."""
    horizon = load(name).horizon
    schedule = load(name, time_scale=EPISODES / horizon)
    assert schedule.horizon == EPISODES
    environment = registry.environment(schedule.env)()
    realised: Counter[tuple] = Counter()
    phases: Counter[int] = Counter()
    for t in range(schedule.horizon):
        observation, _ = environment.reset(seed=t, options={"concept": schedule.at(t)})
        assert observation
        environment.step(environment.oracle_action())
        held = environment.concept.values
        realised[_key({c.name: held[c.name] for c in schedule.channels})] += 1
        phases[environment.concept.phase] += 1
    about = schedule.describe()
    assert realised == {_key(entry["values"]): entry["ticks"] for entry in about["concepts"]}
    assert phases == {phase["index"]: phase["ticks"] for phase in about["phases"]}


def _key(values):
    return tuple(sorted((name, str(value)) for name, value in values.items()))


def test_style_switch_is_three_equal_phases():
    schedule = load("style_switch")
    third = schedule.horizon // 3
    assert [(p.start, p.end, p.label) for p in schedule.phases()] == [
        (0, third, "reward.preference = cute"),
        (third, 2 * third, "reward.preference = chuunibyou"),
        (2 * third, 3 * third, "reward.preference = classical"),
    ]
    assert [entry["ticks"] for entry in schedule.describe()["concepts"]] == [third] * 3
    assert schedule.variation_budget()["total"] == 2
    assert (schedule.probe.every, schedule.probe.episodes) == (6400, 128)
    values = schedule.at(0).values
    assert (values["reward.base"], values["task.offers"]) == (0.2, 2)


def test_the_stationary_control_is_the_plain_environment():
    schedule = load("stationary")
    environment, plain = (registry.environment(schedule.env)() for _ in range(2))
    for t in (0, 17, schedule.horizon - 1):
        one = environment.reset(seed=t, options={"concept": schedule.at(t)})
        assert one == plain.reset(seed=t)
        action = plain.oracle_action()
        assert environment.step(action) == plain.step(action)
        assert environment.concept.hash == plain.concept.hash
