"""Each error names line, column, what was found and what is allowed; each warning says what to know."""

# ruff: noqa: E501 (a table reads best with one case on a line)
import re

import pytest
from drift_world import load_text, one, text, write

from sao_bench.drift import load
from sao_bench.errors import UserError

# Line 8 is the first line below `channels:`.
WRONG = {
    "endless number": (f"  reward.noise: {{start: {'9' * 5000}}}", 8, 25, "inf is not a finite number"),
    "endless whole number": (f"  task.level: {{events: [{{at: {'9' * 400}, shape: step, to: 2}}]}}", 8, 30, "(400 characters); allowed: a whole number"),
    "endless nesting": ("  reward.noise: " + "[" * 3000 + "]" * 3000, 8, 65, "nested more than 50 deep"),
    "aliases that explode": ("  a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "\n".join(f"  {b}: &{b} [{', '.join([f'*{a}'] * 10)}]" for a, b in zip("abcdef", "bcdefg", strict=True)), 13, 10, "more than 200000 values"),
    "never fires": ("  reward.noise: {events: [{at: 1000, shape: step, to: 1}]}", 8, 32, "past the horizon of 1000 and can never fire"),
    "window past horizon": ("  reward.noise: {events: [{at: 900, shape: ramp, width: 101, to: 1}]}", 8, 32, "at most 100 ticks"),
    "burst past horizon": ("  reward.noise: {events: [{at: 900, shape: burst, width: 2, every: 50, count: 3, to: 1}]}", 8, 32, "(900 to 1002)"),
    "out of bounds": ("  reward.noise: {events: [{at: 9, shape: step, to: 1.5}]}", 8, 52, "1.5 is outside [0.0, 1.0]"),
    "start out of bounds": ("  task.level: {start: 0}", 8, 23, "0 is outside [1, 10]"),
    "not whole": ("  task.level: {start: 1.5}", 8, 23, "1.5 is not an int"),
    "cycle out of bounds": ("  reward.noise: {events: [{at: 9, shape: cycle, period: 5, values: [0, 2]}]}", 8, 72, "2 is outside"),
    "walk out of bounds": ("  reward.noise: {events: [{at: 9, shape: walk, step: 1, every: 5, high: 2}]}", 8, 73, "2.0 is outside"),
    "walk begins outside": ("  reward.noise: {events: [{at: 9, shape: walk, step: 1, every: 5, low: 0.5}]}", 8, 32, "begins at 0.0, outside its own [0.5, 1]"),
    "walk without bound": ("  latency.scale: {events: [{at: 9, shape: walk, step: 1, every: 5, low: 0.5}]}", 8, 28, "lacks `high`"),
    "walk of no width": ("  reward.noise: {events: [{at: 9, shape: walk, step: 1, every: 5, low: 0.5, high: 0.5}]}", 8, 27, "below `high`"),
    "not a simplex": ("  task.mixture: {start: {easy: 0.5, hard: 0.4}}", 8, 25, "sum to 0.9, not to 1"),
    "negative share": ("  task.mixture: {start: {easy: 1.5, hard: -0.5}}", 8, 25, "not a number in [0, 1]"),
    "unknown part": ("  task.mixture: {start: {easi: 1}}", 8, 26, "did you mean 'easy'?"),
    "unknown choice": ("  reward.preference: {start: cutee}", 8, 30, "did you mean 'cute'?"),
    "two writers, same tick": ("  reward.noise: {events: [{at: 9, shape: step, to: 1}, {at: 9, shape: step, to: 0}]}", 8, 61, "two writers of channel `reward.noise`"),
    "two writers, window": ("  reward.noise:\n    events:\n      - {at: 9, shape: ramp, width: 9, to: 1}\n      - {at: 17, shape: step, to: 0}", 11, 14, "ramp of line 10 (9 to 18); begin at 18 or later"),
    "unknown shape": ("  reward.noise: {events: [{at: 9, shape: stepp, to: 1}]}", 8, 42, "did you mean 'step'?"),
    "no shape": ("  reward.noise: {events: [{at: 9, to: 1}]}", 8, 27, "lacks the key 'shape'"),
    "unknown event key": ("  reward.noise: {events: [{at: 9, shape: step, tto: 1}]}", 8, 48, "unknown key 'tto' in a step event (did you mean 'to'?)"),
    "missing key": ("  reward.noise: {events: [{at: 9, shape: ramp, to: 1}]}", 8, 27, "lacks the key 'width'"),
    "key of another shape": ("  reward.noise: {events: [{at: 9, shape: step, to: 1, width: 5}]}", 8, 55, "unknown key 'width'"),
    "unknown channel": ("  reward.nois: {start: 0}", 8, 3, "did you mean 'reward.noise'?"),
    "unknown channel key": ("  reward.noise: {begin: 0}", 8, 18, "unknown key 'begin'"),
    "duration with at": ("  reward.noise: {events: [{at: 9, shape: step, to: 1, duration: 5}]}", 8, 55, "`at` and duration mixed"),
    "for with at": ("  reward.noise: {events: [{at: 9, shape: step, to: 1, for: 5}]}", 8, 55, "`at` and duration mixed"),
    "quoted number": ("  reward.noise: {events: [{at: '9', shape: step, to: 1}]}", 8, 32, "in quotes a number is text: write 9"),
    "underscore": ("  reward.noise: {events: [{at: 1_0, shape: step, to: 1}]}", 8, 32, "write 10"),
    "time": ("  reward.noise: {events: [{at: 12:30:00, shape: step, to: 1}]}", 8, 32, "reads this as text, not as a time"),
    "quoted exponent": ("  reward.noise: {start: '1e-5'}", 8, 25, "write 1e-5"),
    "off for a bool": ("  tool.ready: {start: off}", 8, 23, "write false"),
    "a number for a bool": ("  tool.ready: {start: 1}", 8, 23, "1 is not a bool"),
    "a bool for a number": ("  reward.noise: {start: true}", 8, 25, "True is not a finite number"),
    "not a number": ("  reward.noise: {start: .nan}", 8, 25, "nan is not a finite number"),
    "a number for a text": ("  obs.code: {start: 7}", 8, 21, "YAML reads it as int: write it in quotes"),
    "negative at": ("  reward.noise: {events: [{at: -1, shape: step, to: 1}]}", 8, 32, "found -1; allowed: a whole number at least 0"),
    "broken at": ("  reward.noise: {events: [{at: 1.5, shape: step, to: 1}]}", 8, 32, "found 1.5; allowed: a whole number"),
    "zero width": ("  reward.noise: {events: [{at: 1, shape: blip, width: 0, to: 1}]}", 8, 55, "at least 1"),
    "ramp of a choice": ("  reward.preference: {events: [{at: 1, shape: ramp, width: 5, to: academic}]}", 8, 47, "allowed: step, mix, cycle"),
    "walk of a mixture": ("  task.mixture: {events: [{at: 1, shape: walk, step: 1, every: 5}]}", 8, 42, "which is a simplex"),
    "one value": ("  reward.noise: {events: [{at: 1, shape: cycle, period: 5, values: [1]}]}", 8, 68, "two or more values"),
    "equal neighbours": ("  reward.noise: {events: [{at: 1, shape: cycle, period: 5, values: [0, 1, 0]}]}", 8, 68, "two neighbours are equal"),
    "large jitter": ("  reward.noise: {events: [{at: 1, shape: cycle, period: 6, values: [0, 1], jitter: 3}]}", 8, 84, "less than half the period of 6"),
    "late cycle": ("  reward.noise: {events: [{at: 900, shape: cycle, period: 100, values: [0, 1]}]}", 8, 32, "first change of this cycle would come at 1000"),
    "cut cycle": ("  reward.noise: {events: [{at: 0, shape: cycle, period: 100, values: [0, 1]}, {at: 50, shape: step, to: 1}]}", 8, 32, "the next event at 50"),
    "value twice": ("  reward.noise: {events: [{at: 1, shape: markov, values: [0, 1, 0], stay: 0, dwell: 5}]}", 8, 58, "stands twice"),
    "stays for ever": ("  reward.noise: {events: [{at: 1, shape: markov, values: [0, 1], stay: 1, dwell: 5}]}", 8, 72, "no switch can ever fire"),
    "rate of zero": ("  reward.noise: {events: [{at: 1, shape: poisson, values: [0, 1], rate: 0}]}", 8, 73, "above 0"),
    "visits touch": ("  reward.noise: {events: [{at: 1, shape: burst, width: 5, every: 5, count: 2, to: 1}]}", 8, 66, "more than the width of 5"),
    "no trace": ("  reward.noise: {events: [{at: 1, shape: replay, file: nothing.csv}]}", 8, 56, "no such file"),
    "events no list": ("  reward.noise: {events: {at: 1}}", 8, 26, "found a mapping; allowed: a list"),
    "event no mapping": ("  reward.noise: {events: [5]}", 8, 27, "found 5; allowed: a mapping"),
    "channel no mapping": ("  reward.noise: 0.5", 8, 17, "found 0.5; allowed: a mapping with start, events"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_channels(name, tmp_path):
    body, line, column, message = WRONG[name]
    path = write(tmp_path, text(body))
    with pytest.raises(UserError) as error:
        load(path)
    found = str(error.value)
    assert found.startswith(f"{path}:{line}:{column}: "), found
    assert message in found and "\n" not in found


GOOD = text("  reward.noise: {start: 0}").splitlines()
HEADERS = {
    "schema": (1, "sao-bench-drift/2", "allowed: sao-bench-drift/1"),
    "id": (2, "a/b", "as it names a folder"),
    "env": (3, "drift_world:Worl", "cannot import environment"),
    "clock": (4, "episodes", "did you mean 'episode'?"),
    "horizon": (5, "0", "at least 1"),
    "seed": (6, "-1", "at least 0"),
}


@pytest.mark.parametrize("key", HEADERS)
def test_wrong_header(key, tmp_path):
    line, value, message = HEADERS[key]
    lines = [*GOOD]
    lines[line - 1] = f"{key}: {value}"
    path = write(tmp_path, "\n".join(lines))
    with pytest.raises(UserError) as error:
        load(path)
    assert str(error.value).startswith(f"{path}:{line}:{len(key) + 3}: ") and message in str(error.value)


@pytest.mark.parametrize("key", ["schema", "id", "env", "clock", "horizon"])
def test_missing_header(key):
    content = "\n".join(line for line in GOOD if not line.startswith(key))
    with pytest.raises(UserError, match=rf":1:1: a drift schedule lacks the key '{key}'"):
        load_text(content)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("notify: sometimes", "9:9: `notify`: found the text 'sometimes'; allowed: none, boundary, value"),
        ("probe: {every: 5, episodes: 1}", "9:8: `probe` lacks the key 'concepts'"),
        ("probe: {every: 5, episodes: 1, concepts: [sen]}", "9:43: `concepts`: found the text 'sen'"),
        ("probe: {every: 5, episodes: 1, concepts: []}", "9:42: `concepts`: allowed: one or more"),
        (
            "probe: {every: 1001, episodes: 1, concepts: [seen]}",
            "9:16: `every`: found 1001, past the horizon",
        ),
        ("hoirzon: 5", "9:1: unknown key 'hoirzon' in a drift schedule (did you mean 'horizon'?)"),
        ("version: [1]", "9:10: `version`: found a list"),
        ("description: 5", "9:14: `description`: found 5; allowed: text; write it in quotes: '5'"),
        ("shows: ''", "9:8: `shows`: found the text ''"),
    ],
)
def test_wrong_top_level(more, message):
    with pytest.raises(UserError, match=re.escape(f":{message}")):
        load_text(text("  reward.noise: {start: 0}", more=more))


def test_a_file_that_is_no_mapping():
    with pytest.raises(UserError, match=":1:1: a drift schedule: found a list"):
        load_text("- 1")


def test_unknown_environment_lists_the_known():
    with pytest.raises(
        UserError, match=r":3:6: `env`: unknown environment 'sao_bench/StyleWritin-v0' \(did you mean"
    ):
        load_text(text("  reward.noise: {}").replace("drift_world:World", "sao_bench/StyleWritin-v0"))


def test_unknown_names_and_paths(tmp_path):
    with pytest.raises(UserError, match=r"unknown drift schedule 'style_swich' .did you mean 'style_switch'"):
        load("style_swich")
    write(tmp_path, "x", "drift.yaml")
    with pytest.raises(UserError, match=r"no drift schedule at .*did you mean 'drift.yaml'"):
        load(tmp_path / "drft.yaml")
    with pytest.raises(UserError, match="cannot read"):
        (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
        load(tmp_path / "bytes.yaml")


@pytest.mark.parametrize(
    "clock", ["episode", "sample", "optimizer_step", "policy_version", "wall_s", "env_step"]
)
def test_every_clock_loads_and_an_executor_may_refuse_it(clock):
    content = text("  reward.noise: {start: 0}", clock=clock)
    assert load_text(content, executor_clocks={clock}).clock == clock
    others = {"episode", "sample"} - {clock}
    with pytest.raises(UserError, match=rf":4:8: .*cannot keep the clock '{clock}'; allowed: "):
        load_text(content, executor_clocks=others)


def test_throughput_clocks_warn():
    for clock, count in (("wall_s", 1), ("optimizer_step", 1), ("sample", 0), ("episode", 0)):
        warnings = load_text(text("  reward.noise: {}", clock=clock)).warnings
        assert len([w for w in warnings if "depends on throughput" in w and ":4:8: warning" in w]) == count


def test_short_phases_warn():
    def warnings(at):
        return one(f"{{at: {at}, shape: step, to: 1}}", horizon=20000).warnings

    assert warnings(10000) == []
    assert (
        len(warnings(6399)) == 1
        and "1 of 2 phases are shorter than the recovery window of 6400" in warnings(6399)[0]
    )
    assert len(warnings(511)) == 2 and "maximum staleness of 512" in warnings(511)[1]


def test_an_event_that_changes_nothing_warns():
    (warning,) = one("{at: 9000, shape: step, to: 0}", horizon=20000).warnings
    assert "already holds 0.0, so the event changes nothing" in warning and ":8:32: warning" in warning


def test_a_chain_that_never_switches_warns():
    warnings = one("{at: 0, shape: poisson, values: [0, 1], rate: 0.000001}").warnings
    assert any("no switch is realised" in w for w in warnings)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("time,value\n0,1\n", "trace.csv:1:1: the first line of a trace must be `t,value`"),
        ("t,value\n0,1,2\n", "trace.csv:2:1: found 3 columns"),
        ("t,value\n5,1\n", "trace.csv:2:1: the first row of a trace must have t = 0"),
        ("t,value\n0,1\n0,0\n", "trace.csv:3:1: t: found '0'; allowed: a whole number of at least 1"),
        ("t,value\n0,1\n9,x\n", "trace.csv:3:1: channel `reward.noise`: 'x' is not a finite number"),
        ("t,value\n0,7\n", "trace.csv:2:1: channel `reward.noise`: 7 is outside"),
        ("t,value\n", "trace.csv:2:1: the first row"),
        ("t,value\n0,1\n999,0\n", "(1 to 1001) runs past the horizon"),
    ],
)
def test_wrong_traces(rows, message, tmp_path):
    write(tmp_path, rows, "trace.csv")
    with pytest.raises(UserError, match=re.escape(message)):
        load(write(tmp_path, text("  reward.noise: {events: [{at: 1, shape: replay, file: trace.csv}]}")))


def test_text_that_looks_like_something_else_is_text():
    schedule = load_text(text("  obs.switch: {start: off, events: [{at: 5, shape: step, to: 12:30:00}]}"))
    assert schedule.at(0).values["obs.switch"] == "off" and schedule.at(5).values["obs.switch"] == "12:30:00"


def test_a_huge_walk_is_refused():
    with pytest.raises(UserError, match="would precompute 1e"):
        one("{at: 0, shape: walk, step: 0.1, every: 1}", horizon=100_000_000)


def test_time_scale_names_itself_in_what_it_breaks():
    content = text("  reward.noise: {events: [{at: 3, shape: step, to: 1}, {at: 4, shape: step, to: 0}]}")
    with pytest.raises(UserError, match=r"two writers.*at time scale 0.1; the unscaled schedule is fine"):
        load_text(content, time_scale=0.1)
    for factor in (0, -1, 1e-9, float("nan")):
        with pytest.raises(UserError, match="time scale"):
            load_text(content, time_scale=factor)
