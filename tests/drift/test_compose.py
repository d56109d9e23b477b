"""include, sequence, repeat, overlay and sweep equal what they stand for."""

import re

import pytest
from drift_world import load_text, text, values, write

from sao_bench.drift import load, load_all
from sao_bench.errors import UserError

SEQUENCE = """\
sequence:
  - {for: 100, reward.preference: academic, reward.noise: 0.5}
  - {for: 200, reward.preference: {shape: mix, width: 50, to: cute}}
  - {for: 300, reward.noise: {shape: ramp, width: 300, to: 0.1}, task.mixture: {easy: 0.5, hard: 0.5}}
  - {for: 400, reward.noise: 0.1, reward.preference: {shape: cycle, period: 100, values: [cute, academic]}}
"""
EXPANDED = """\
  reward.preference:
    start: academic
    events:
      - {at: 600, shape: cycle, period: 100, values: [cute, academic]}
      - {at: 100, shape: mix, width: 50, to: cute}
  reward.noise: {start: 0.5, events: [{at: 300, shape: ramp, width: 300, to: 0.1}]}
  task.mixture: {events: [{at: 300, shape: step, to: {easy: 0.5, hard: 0.5}}]}
"""


def same(one, other):
    assert one.hash == other.hash
    assert all(one.at(t) == other.at(t) for t in range(one.horizon + 1))
    assert one.phases() == other.phases()


def test_sequence_equals_its_expansion():
    same(load_text(text("  {}", more=SEQUENCE)), load_text(text(EXPANDED)))


def test_sequence_implies_its_horizon():
    content = text("  {}", more=SEQUENCE)
    without = load_text(content.replace("horizon: 1000\n", ""))
    assert without.horizon == 1000 and without.hash == load_text(content).hash
    with pytest.raises(UserError, match=":5:10: `horizon`: found 999, but the segments last 1000"):
        load_text(content.replace("horizon: 1000", "horizon: 999"))
    assert load_text(content.replace("horizon: 1000", "horizon: 1200")).at(1199).values["reward.noise"] == 0.1


@pytest.mark.parametrize(
    ("segment", "message"),
    [
        ("{for: 5, at: 3}", r":10:12: `at` and duration mixed"),
        ("{for: 5, duration: 3}", r":10:12: `at` and duration mixed"),
        ("{for: 5, reward.noise: {at: 1, shape: step, to: 1}}", r":10:27: `at` and duration mixed"),
        ("{for: 5, reward.noise: {shape: step, to: 1, for: 1}}", r":10:47: `at` and duration mixed"),
        ("{for: 5, reward.noise: {shape: blip, width: 6, to: 1}}", r":10:12: .*longer than its segment"),
        ("{for: 0}", r":10:9: `for`: found 0"),
        ("{reward.noise: 0}", r":10:3: a segment lacks the key 'for'"),
        (
            "{for: 5, reward.nois: 0}",
            r":10:12: unknown key 'reward.nois' in a segment \(did you mean 'reward.noise'",
        ),
        ("{for: 5, reward.noise: 2}", r":10:26: .*outside"),
    ],
)
def test_wrong_segments(segment, message):
    with pytest.raises(UserError, match=message):
        load_text(text("  {}", more=f"sequence:\n- {segment}"))


def test_sequence_and_at_are_mixed():
    with pytest.raises(UserError, match=r":8:32: `at` and duration mixed: with a `sequence`"):
        load_text(
            text(
                "  reward.noise: {events: [{at: 5, shape: step, to: 1}]}",
                more="sequence: [{for: 9, task.level: 2}]",
            )
        )
    with pytest.raises(UserError, match="an empty list"):
        load_text(text("  {}", more="sequence: []"))


def test_repeat_equals_its_copies():
    events = "[{at: 20, shape: step, to: 0.5}, {at: 60, shape: blip, width: 5, to: 1}]"
    pattern = f"  reward.noise: {{start: 0.1, events: {events}}}"
    copies = "".join(
        f"\n      - {{at: {k}00, shape: step, to: 0.1}}" * (k > 0)
        + f"\n      - {{at: {k}20, shape: step, to: 0.5}}\n      - {{at: {k}60, shape: blip, width: 5, to: 1}}"
        for k in range(10)
    )
    repeated = load_text(text(pattern, more="repeat: {times: 10}"))
    same(repeated, load_text(text(f"  reward.noise:\n    start: 0.1\n    events:{copies}")))
    assert all(repeated.at(t).values == repeated.at(t % 100).values for t in range(1000))


def test_repeat_begins_each_copy_from_the_start():
    body = "  reward.noise: {start: 0, events: [{at: 0, shape: ramp, width: 100, to: 1}]}"
    schedule = load_text(text(body, horizon=300, more="repeat: {times: 3}"))
    assert values(schedule, "reward.noise", [0, 50, 99, 100, 150, 299, 300]) == [
        0,
        0.5,
        0.99,
        0,
        0.5,
        0.99,
        1,
    ]


def test_repeat_of_a_sequence_with_jitter_moves_whole_copies():
    more = (
        "sequence:\n- {for: 50, reward.noise: 0.1, task.level: 1}\n- {for: 50, reward.noise: 0.2, task.level: 2}\n"
        "repeat: {times: 20, jitter: 20}"
    )
    schedule = load_text(text("  {}", horizon=2000, more=more))
    starts = [
        t
        for t in range(1, 2000)
        if schedule.at(t).values["reward.noise"] < schedule.at(t - 1).values["reward.noise"]
    ]
    offsets = [start - 100 * (k + 1) for k, start in enumerate(starts)]
    assert len(starts) == 19 and max(map(abs, offsets)) <= 20 and len(set(offsets)) > 8
    for start in starts:
        assert schedule.at(start + 49).values == {"reward.noise": 0.1, "task.level": 1}
        assert schedule.at(start + 50).values == {"reward.noise": 0.2, "task.level": 2}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("repeat: {times: 3}", "9:17: `times`: found 3; allowed: a divisor of the horizon of 1000"),
        ("repeat: {times: 4}", "8:32: the event at 250 does not fit into the repeated pattern of 250"),
        ("repeat: {times: 2, jitter: 125}", "9:28: `jitter`: found 125; allowed: at most 124"),
        ("repeat: {jitter: 2}", "9:9: `repeat` lacks the key 'times'"),
    ],
)
def test_wrong_repeats(more, message):
    with pytest.raises(UserError, match=re.escape(message)):
        load_text(text("  reward.noise: {events: [{at: 250, shape: step, to: 1}]}", more=more))


def test_include_equals_pasting(tmp_path):
    walk = "{at: 5, shape: walk, step: 0.1, every: 3}"
    part = f"schema: sao-bench-drift/1\nchannels:\n  reward.noise: {{events: [{walk}]}}\n"
    write(tmp_path, part, "part.yaml")
    write(tmp_path, "schema: sao-bench-drift/1\ninclude: [part.yaml]\n", "outer.yaml")
    more = (
        "overlay: [{priority: 1, op: add, channels: {task.level: {events: [{at: 7, shape: step, to: 2}]}}}]"
    )
    own = "  reward.preference: {events: [{at: 9, shape: poisson, values: [cute, academic], rate: 20}]}\n"
    included = load(write(tmp_path, text(own, more=f"include: [outer.yaml]\n{more}")))
    pasted = load_text(text(own + "\n".join(part.splitlines()[2:]), more=more))
    same(included, pasted)


def test_include_of_a_sequence(tmp_path):
    write(tmp_path, "schema: sao-bench-drift/1\n" + SEQUENCE, "part.yaml")
    same(load(write(tmp_path, text("  {}", more="include: [part.yaml]"))), load_text(text(EXPANDED)))


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (
            "channels: {reward.noise: {start: 1}}",
            r"trial\d*.yaml:8:3: two writers of channel `reward.noise`: .*part.yaml, line 2",
        ),
        ("clock: wall_s", "part.yaml:2:8: `clock`: found wall_s; allowed: episode, as in"),
        ("env: other", "part.yaml:2:6: `env`: found other"),
        ("include: [part.yaml]", "part.yaml:2:11: `include`: part.yaml includes itself"),
        ("include: [nothing.yaml]", "part.yaml:2:11: .*there is no file .*beside it: part.yaml"),
        ("sweep: {seed: [1]}", "part.yaml:2:8: a file with a `sweep`"),
        (
            "channels: {task.level: {events: [{at: 1000, shape: step, to: 2}]}}",
            "part.yaml:2:39: .*can never fire",
        ),
        ("channel: {}", "part.yaml:2:1: unknown key 'channel'"),
    ],
)
def test_wrong_includes(part, message, tmp_path):
    write(tmp_path, f"schema: sao-bench-drift/1\n{part}\n", "part.yaml")
    with pytest.raises(UserError, match=message):
        load(write(tmp_path, text("  reward.noise: {start: 0}", more="include: [part.yaml]")))


def overlay(*parts, channel="reward.noise", base="{start: 0.2, events: [{at: 10, shape: step, to: 0.4}]}"):
    lines = "".join(
        f"\n- {{priority: {priority}, op: {op}, channels: {{{channel}: {body}}}}}"
        for priority, op, body in parts
    )
    return load_text(text(f"  {channel}: {base}", horizon=100, more=f"overlay:{lines}"))


def test_overlays_join_by_priority():
    blip = "{events: [{at: 5, shape: blip, width: 10, to: 0.5}]}"
    add = "{events: [{at: 20, shape: step, to: 0.1}]}"
    halve = "{events: [{at: 30, shape: step, to: 0.5}]}"
    schedule = overlay((1, "set", blip), (2, "add", add), (3, "mul", halve))
    expected = {0: 0.2, 5: 0.5, 10: 0.5, 14: 0.5, 15: 0.4, 20: 0.5, 30: 0.25, 99: 0.25}
    assert values(schedule, "reward.noise", list(expected)) == pytest.approx(list(expected.values()))
    other = overlay((1, "set", blip), (3, "add", add), (2, "mul", halve))
    assert other.at(50).values["reward.noise"] == pytest.approx(0.4 * 0.5 + 0.1)


def test_overlay_over_a_channel_that_nothing_else_names():
    schedule = overlay(
        (1, "mul", "{events: [{at: 5, shape: step, to: 3}]}"), channel="latency.scale", base="{}"
    )
    assert values(schedule, "latency.scale", [4, 5]) == [1.0, 3.0]


def test_overlay_on_whole_numbers_stays_whole():
    schedule = overlay(
        (1, "mul", "{events: [{at: 5, shape: step, to: 1.5}]}"), channel="task.level", base="{start: 3}"
    )
    assert (
        values(schedule, "task.level", [4, 5]) == [3, 5] and type(schedule.at(5).values["task.level"]) is int
    )


def test_what_an_overlay_hides_opens_its_phase_when_it_lets_go():
    schedule = overlay((1, "set", "{events: [{at: 5, shape: blip, width: 20, to: 0.9}]}"))
    assert schedule.phase_starts.tolist() == [0, 25]
    hidden = overlay((1, "set", "{start: 0.7}"))
    assert hidden.phase_starts.tolist() == [0] and values(hidden, "reward.noise", [0, 50]) == [0.7, 0.7]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            [(1, "set", "{start: 1}"), (1, "add", "{start: 0}")],
            "two writers of channel `reward.noise` with priority 1",
        ),
        ([(1, "add", "{start: 0.7}")], r"at t = 10: 1.1 is outside \[0.0, 1.0\] \(base 0.4, add 0.7\)"),
        ([(1, "mul", "{start: -1}")], "at t = 0: -0.2 is outside"),
        ([(1, "sub", "{start: 0}")], "allowed: set, add, mul"),
        ([(1, "set", "{events: [{at: 5, shape: ramp, width: 5, to: 1}]}")], "needs a `start`"),
        ([(1.5, "set", "{start: 0}")], "`priority`: found 1.5"),
    ],
)
def test_wrong_overlays(parts, message):
    with pytest.raises(UserError, match=message):
        overlay(*parts)


def test_adding_to_a_choice_is_refused():
    with pytest.raises(UserError, match=r"`add` cannot join channel `obs.switch`, which is a choice"):
        overlay((1, "add", "{start: 1}"), channel="obs.switch", base="{}")


def test_a_sum_that_only_might_leave_its_bounds_is_read_tick_by_tick():
    down = "{events: [{at: 0, shape: ramp, width: 100, to: -0.8}]}"
    up = "{start: 0.2, events: [{at: 0, shape: ramp, width: 100, to: 1}]}"
    schedule = overlay((1, "add", down), base=up)
    assert all(abs(v - 0.2) < 1e-9 for v in values(schedule, "reward.noise", range(101)))


SWEEP = text(
    "  reward.preference: {events: [{at: 5, shape: step, to: academic}]}\n  reward.noise: {start: 0.1}",
    more=(
        "sweep:\n  channels.reward.preference.events.0.at: [5, 50]\n  seed: [1, 2, 3]\n"
        "  channels.reward.noise.start: [0, 1e-5]"
    ),
)


def test_sweep_is_every_combination(tmp_path):
    path = write(tmp_path, SWEEP)
    found = load_all(path)
    assert len(found) == 12 and len({s.id for s in found}) == len({s.hash for s in found}) == 12
    assert found[0].id == "trial-at5-seed1-start0" and found[-1].id == "trial-at50-seed3-start1e_5"
    assert {(s.phase_starts[1], s.seed, s.at(0).values["reward.noise"]) for s in found} == {
        (at, seed, noise) for at in (5, 50) for seed in (1, 2, 3) for noise in (0, 1e-5)
    }
    with pytest.raises(UserError, match=r":10:1: this file is a sweep of 12 schedules; use `load_all`"):
        load(path)
    assert [s.id for s in load_all("style_switch")] == ["style-switch"]


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ("{channels.reward.noise.begin: [1]}", "ends nowhere at 'begin'; allowed there: start"),
        ("{channels.reward.noise.start.x: [1]}", "ends nowhere at 'x'"),
        ("{seed: 1}", "allowed: a list"),
        ("{seed: []}", "an empty list"),
        ("{}", "allowed: a mapping"),
        ("{seed: [1, 1]}", "two combinations have the id"),
        ("{channels.reward.noise.start: [0, 2]}", "2 is outside"),
    ],
)
def test_wrong_sweeps(sweep, message, tmp_path):
    path = write(tmp_path, text("  reward.noise: {start: 0}", more=f"sweep: {sweep}"))
    with pytest.raises(UserError, match=message):
        load_all(path)
