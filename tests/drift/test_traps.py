"""Faults seen in public projects, each of which must stay impossible here."""

import itertools

from drift_world import load_text, one, text, values

from sao_bench import registry
from sao_bench.drift import load


def test_a_memoryless_scheduler_fires_after_its_own_start():
    """Waiting times that count from 0 put the first event before the start, where it never fires."""
    for seed in range(50):
        schedule = one("{at: 5000, shape: poisson, values: [0.1, 0.2], rate: 10}", horizon=10000, seed=seed)
        switches = schedule.phase_starts.tolist()
        assert switches[1] == 5000 and len(switches) > 20 and min(switches[1:]) >= 5000
        assert schedule.at(switches[2]).values["reward.noise"] == 0.2


def test_a_sigmoid_mix_is_over_when_its_window_is():
    """A bare logistic curve is below 1 at the closing edge and leaks the old concept for ever."""
    for curve, width in itertools.product(("sigmoid", "linear"), (1, 2, 3, 200)):
        schedule = one(
            f"{{at: 400, shape: mix, width: {width}, curve: {curve}, to: academic}}",
            "reward.preference",
            horizon=20000,
        )
        assert schedule.share("reward.preference", 400) == 0.0
        assert schedule.share("reward.preference", 400 + width) == 1.0
        assert set(values(schedule, "reward.preference", range(400 + width, 20001))) == {"academic"}
        assert set(values(schedule, "reward.preference", range(401))) == {"cute"}


def test_drift_does_not_accumulate():
    """A value that is moved by each call depends on how often it was asked for."""
    schedule = one("{at: 0, shape: ramp, width: 1000, to: 1}")
    for _ in range(100):
        schedule.at(500)
    assert schedule.at(500).values["reward.noise"] == 0.5
    assert [schedule.at(t).values["reward.noise"] for t in (999, 1, 999, 1)] == [0.999, 0.001, 0.999, 0.001]


def test_drifts_do_not_share_a_generator():
    """With one default seed for all, channels that should be independent move in step."""
    event = "{at: 0, shape: mix, width: 1000, to: %s}"
    body = f"  reward.noise: {{events: [{event % 1}]}}\n  tool.ready: {{events: [{event % 'true'}]}}"
    schedule = load_text(text(body))
    pairs = [tuple(schedule.at(t).values.values()) for t in range(300, 700)]
    differ = sum(bool(a) != bool(b) for a, b in pairs)
    # Independent draws near one half differ in about half of 400 ticks (sd 10); one generator gives 0.
    assert 140 < differ < 260
    twice = load_text(
        text(
            "  reward.noise: {events: [{at: 0, shape: mix, width: 500, to: 1}, "
            "{at: 500, shape: mix, width: 500, to: 0}]}"
        )
    )
    first = [v == 1 for v in values(twice, "reward.noise", range(500))]
    second = [v == 0 for v in values(twice, "reward.noise", range(500, 1000))]
    assert sum(a != b for a, b in zip(first, second, strict=True)) > 80


RANDOM = {
    "mix": ("reward.preference", "{at: 0, shape: mix, width: 1000, to: academic}"),
    "jitter": ("reward.noise", "{at: 0, shape: cycle, period: 50, values: [0, 1], jitter: 20}"),
    "markov": ("reward.noise", "{at: 0, shape: markov, values: [0, 1], stay: 0.5, dwell: 20}"),
    "poisson": ("reward.noise", "{at: 0, shape: poisson, values: [0, 1], rate: 50}"),
    "walk": ("reward.noise", "{at: 0, shape: walk, step: 0.1, every: 5}"),
    "ou": ("reward.noise", "{at: 0, shape: walk, step: 0.1, every: 5, pull: 0.2}"),
}


def test_the_drift_seed_reaches_every_generator():
    """Reseeding must change every random shape, and the same seed must give the same drift."""
    for name, (channel, event) in RANDOM.items():
        paths = [tuple(values(one(event, channel, seed=seed), channel, range(1000))) for seed in (0, 1, 2, 0)]
        assert len(set(paths)) == 3 and paths[0] == paths[3], name
    more = "repeat: {times: 10, jitter: 20}"
    body = "  reward.noise: {events: [{at: 30, shape: step, to: 1}]}"
    paths = [tuple(load_text(text(body, seed=seed, more=more)).phase_starts) for seed in (0, 1, 0)]
    assert paths[0] == paths[2] != paths[1]


def test_comments_and_other_channels_do_not_reach_a_generator():
    channel, event = RANDOM["walk"]
    alone = one(event, channel)
    told = load_text(
        text(
            f"  # a comment\n  tool.ready: {{start: true}}\n  {channel}: {{events: [{event}], start: 0.0}}",
            more="description: other words\nshows: nothing\nversion: 9",
        )
    )
    assert values(alone, channel, range(1000)) == values(told, channel, range(1000))


def test_what_is_reported_as_changed_reaches_the_environment():
    """The concept that an environment holds after `reset` is the one that the schedule gave."""
    for name in registry.schedules():
        schedule = load(name)
        environment = registry.environment(schedule.env)()
        ticks = sorted({t for c in schedule.changes() for t in (c.start, min(c.end, schedule.horizon - 1))})[
            :40
        ]
        for t in ticks:
            concept = schedule.at(t)
            environment.reset(seed=t, options={"concept": concept})
            held = environment.concept.values
            assert {key: held[key] for key in concept.values} == concept.values
            assert set(held) == {channel.name for channel in environment.channels}


def test_every_declared_change_changes_the_concept():
    """A change line without a changed value would be a mark in a figure at which nothing happened."""
    body = (
        "  reward.noise: {events: [{at: 10, shape: markov, values: [0, 1], stay: 0.9, dwell: 7}]}\n"
        "  task.level: {events: [{at: 100, shape: burst, width: 3, every: 9, count: 5, to: 4}]}\n"
        "  tool.ready: {events: [{at: 500, shape: step, to: true}]}"
    )
    schedule = load_text(text(body))
    marks = [c for c in schedule.changes() if c.start > 10]
    assert len(marks) > 10
    for change in marks:
        before, after = (schedule.at(t).values[change.channel] for t in (change.start - 1, change.start))
        assert before != after == change.to
