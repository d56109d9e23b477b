"""What a compiled schedule says about itself, its pictures, its commands and its speed."""

import hashlib
import itertools
import json
import resource
import statistics
import time

import matplotlib.image
import pytest
from drift_world import load_text, one, text, write
from typer.testing import CliRunner

from sao_bench import registry
from sao_bench.cli.drift import app
from sao_bench.drift import load
from sao_bench.drift.compare import differences
from sao_bench.drift.picture import draw
from sao_bench.errors import UserError

BODY = """\
  reward.preference:
    events: [{at: 100, shape: step, to: academic}, {at: 600, shape: mix, width: 100, to: cute}]
  tool.ready: {events: [{at: 100, shape: step, to: true}]}
  task.level: {events: [{at: 300, shape: ramp, width: 100, to: 4}, {at: 500, shape: blip, width: 10, to: 10}]}
"""


def test_phases_name_what_opened_them():
    phases = load_text(text(BODY)).phases()
    assert [(p.index, p.start, p.end) for p in phases] == [(0, 0, 100), (1, 100, 600), (2, 600, 1000)]
    assert [p.label for p in phases] == [
        "reward.preference = cute, tool.ready = false",
        "reward.preference = academic, tool.ready = true",
        "reward.preference → cute (mix)",
    ]
    assert [p.channels for p in phases][1:] == [("reward.preference", "tool.ready"), ("reward.preference",)]


def test_a_concept_that_comes_back_has_its_hash_and_a_new_phase():
    schedule = load_text(text(BODY.replace("tool.ready", "obs.switch").replace("to: true", "to: off")))
    first, last = schedule.at(0), schedule.at(999)
    assert (first.phase, last.phase) == (0, 2) and first.values["reward.preference"] == last.values[
        "reward.preference"
    ]
    assert first.hash != last.hash  # task.level is 4 now
    schedule = one("{at: 10, shape: cycle, period: 10, values: [1, 0]}")
    assert schedule.at(0).hash == schedule.at(25).hash and schedule.at(25).phase == 2


def test_changes_are_the_windows():
    found = [(c.channel, c.shape, c.start, c.end, c.kind, c.to) for c in load_text(text(BODY)).changes()]
    assert found == [
        ("reward.preference", "step", 100, 100, "real", "academic"),
        ("tool.ready", "step", 100, 100, "real", True),
        ("task.level", "ramp", 300, 400, "virtual", 4),
        ("task.level", "blip", 500, 510, "virtual", 10),
        ("reward.preference", "mix", 600, 700, "real", "cute"),
    ]


def test_variation_budget_by_hand():
    """Two changes of a choice, one of a bool; a level of 1..10: |4 - 1| / 9 and twice |10 - 4| / 9."""
    assert load_text(text(BODY)).variation_budget() == {
        "total": pytest.approx(3 + 15 / 9),
        "real": 3.0,
        "virtual": pytest.approx(15 / 9),
        "channels": {"reward.preference": 2.0, "tool.ready": 1.0, "task.level": pytest.approx(15 / 9)},
    }
    mixture = one("{at: 5, shape: ramp, width: 100, to: {hard: 0.5, odd: 0.5}}", "task.mixture")
    assert mixture.variation_budget()["total"] == 1.0
    cycle = one("{at: 0, shape: cycle, period: 100, values: [0, 0.5]}")
    assert cycle.variation_budget()["total"] == 4.5  # nine switches of one half


def test_compiled_lines_hold_all_that_is_drawn():
    schedule = load_text(text(BODY, more="probe: {every: 250, episodes: 8, concepts: [current]}"))
    lines = json.loads(json.dumps(schedule.compiled_lines(), allow_nan=False))
    header = lines[0]
    assert header["kind"] == "header" and header["hash"] == schedule.hash and header["horizon"] == 1000
    assert header["probe"] == {"every": 250, "episodes": 8, "concepts": ["current"]}
    assert {"id", "env", "clock", "seed", "notify", "schema", "time_scale"} <= header.keys()
    by_kind = {
        kind: [line for line in lines if line["kind"] == kind]
        for kind in ("phase", "change", "segment", "channel")
    }
    assert [(p["start"], p["end"]) for p in by_kind["phase"]] == [(0, 100), (100, 600), (600, 1000)]
    assert {(c["channel"], c["drift"]) for c in by_kind["channel"]} == {
        ("reward.preference", "real"), ("tool.ready", "real"), ("task.level", "virtual"),
    }  # fmt: skip
    assert len(by_kind["change"]) == 5 and by_kind["change"][0]["drift"] == "real"
    for channel in ("reward.preference", "tool.ready", "task.level"):
        own = [s for s in by_kind["segment"] if s["channel"] == channel]
        assert own[0]["start"] == 0 and own[-1]["end"] == 1000
        assert all(a["end"] == b["start"] for a, b in itertools.pairwise(own))


def test_scaled_schedules_differ_in_hash_only_if_they_differ(tmp_path):
    content = text(BODY)
    assert (
        load_text(content).hash
        == load_text(content, time_scale=1.0).hash
        != load_text(content, time_scale=0.5).hash
    )
    half = load_text(content, time_scale=0.5)
    assert [p.start for p in half.phases()] == [0, 50, 300] and half.horizon == 500 and half.time_scale == 0.5
    rates = one("{at: 0, shape: poisson, values: [0, 1], rate: 4}", horizon=50000).phases()
    scaled = load_text(
        text("  reward.noise: {events: [{at: 0, shape: poisson, values: [0, 1], rate: 4}]}", horizon=50000),
        time_scale=4,
    )
    assert scaled.horizon == 200000 and abs(len(scaled.phases()) - len(rates)) < 80  # both about 200 (sd 14)


def test_before_the_start_there_is_nothing():
    with pytest.raises(ValueError, match="before the start"):
        one("{at: 5, shape: step, to: 1}").at(-1)
    with pytest.raises(UserError, match=r"unknown channel 'reward.nois' .did you mean 'reward.noise'"):
        one("{at: 5, shape: step, to: 1}").share("reward.nois", 1)


def test_difference_is_found_tick_by_tick():
    base = load_text(text(BODY))
    assert differences(base, load_text(text(BODY.replace("    events: [", "    events:  [")))) == []
    later = load_text(
        text(BODY.replace("{at: 100, shape: step, to: academic}", "{at: 150, shape: step, to: academic}"))
    )
    (line,) = differences(base, later)  # the mix draws anew, as the channel's content is another
    assert line.startswith("reward.preference: differs at ") and line.endswith(
        "first at 100: academic -> cute"
    )
    fewer = load_text(text("  tool.ready: {events: [{at: 100, shape: step, to: true}]}", seed=3))
    assert differences(base, fewer) == [
        "seed: 0 -> 3", "reward.preference: no longer named", "task.level: no longer named",
    ]  # fmt: skip


def test_picture_is_as_wide_as_a_page_and_the_same_twice(tmp_path):
    schedule = load_text(text(BODY, more="probe: {every: 250, episodes: 8, concepts: [current]}"))
    for name in ("a.png", "b.png"):
        draw(schedule, tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    pixels = matplotlib.image.imread(tmp_path / "a.png")
    assert pixels.shape[1] == 1350 and len(set(map(tuple, pixels[::7, ::7].reshape(-1, 4).round(1)))) > 10


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=True)


def test_validate(tmp_path):
    good = write(tmp_path, text(BODY))
    wrong = write(tmp_path, text(BODY.replace("step", "stepp", 1)))
    result = run("validate", good, "style_switch")
    assert result.exit_code == 0 and "ok: trial" in result.stdout and "ok: style-switch" in result.stdout
    assert "shorter than the recovery window" in result.stderr
    result = run("validate", wrong, good)
    assert result.exit_code == 2 and f"error: {wrong}:9:" in result.stderr and "ok: trial" in result.stdout
    sweep = write(tmp_path, text(BODY, more="sweep: {seed: [1, 2]}"))
    result = run("validate", sweep)
    assert (
        result.exit_code == 0 and "ok: trial-seed1 " in result.stdout and "ok: trial-seed2 " in result.stdout
    )


def test_preview(tmp_path):
    path = write(tmp_path, text(BODY, more="probe: {every: 250, episodes: 8, concepts: [current]}"))
    result = run("preview", path, "--out", tmp_path / "out")
    assert result.exit_code == 0 and (tmp_path / "out" / "trial.png").is_file()
    lines = result.stdout.splitlines()
    assert lines[0].startswith("phase") and "│2" in lines[0]
    assert any(line.startswith("● reward.preference") for line in lines)
    level = next(i for i, line in enumerate(lines) if line.startswith("○ task.level"))
    assert "▁▂" in lines[level] and lines[level + 1].strip() == "1 to 10"
    assert sum("▲" in line for line in lines) == 1
    table = [line for line in lines if line.startswith("│ 1 ")]
    assert "100" in table[0] and "600" in table[0] and "500" in table[0]
    assert "real: the right answer changes" in result.stdout and "4.667" in result.stdout


def test_compile_writes_lines_and_their_hash(tmp_path):
    result = run("compile", "style_switch", "--out", tmp_path)
    assert result.exit_code == 0
    data = (tmp_path / "style-switch.compiled.jsonl").read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    assert digest in result.stdout
    assert (
        tmp_path / "style-switch.compiled.jsonl.sha256"
    ).read_text() == f"{digest}  style-switch.compiled.jsonl\n"
    assert json.loads(data.splitlines()[0])["hash"] == load("style_switch").hash


def test_diff_exits_like_diff(tmp_path):
    same, other = write(tmp_path, text(BODY)), write(tmp_path, text(BODY, seed=1))
    assert run("diff", same, same).exit_code == 0
    result = run("diff", same, other)
    assert result.exit_code == 1 and "seed: 0 -> 1" in result.stdout


def test_list_names_every_shipped_schedule():
    result = run("list")
    names = [line.split()[0] for line in result.stdout.splitlines()]
    assert result.exit_code == 0 and names == list(registry.schedules())


def test_new_writes_a_valid_file_once(tmp_path):
    for env in ("sao_bench/StyleWriting-v0", "drift_world:World", "drift_world:Wide"):
        name = f"fresh-{env[-3:]}"
        result = run("new", name, "--env", env, "--out", tmp_path)
        assert result.exit_code == 0, result.output
        path = tmp_path / f"{name.replace('-', '_')}.yaml"
        schedule = load(path)
        assert schedule.env == env and len(schedule.phases()) == 2 and schedule.warnings == []
        before = path.read_bytes()
        assert isinstance(run("new", name, "--env", env, "--out", tmp_path).exception, UserError)
        assert path.read_bytes() == before
    assert isinstance(run("new", "a/b", "--out", tmp_path).exception, UserError)


# -- speed ----------------------------------------------------------------------------------------------

EVENTS = (
    "{at: 1000, shape: ramp, width: 900000, curve: cosine, to: 0.9}",
    "{at: 0, shape: cycle, period: 3, values: [0.1, 0.2, 0.9], jitter: 1}",
    "{at: 0, shape: markov, values: [0.1, 0.2, 0.3], stay: 0.8, dwell: 10}",
    "{at: 5, shape: poisson, values: [0.1, 0.2], rate: 400}",
    "{at: 5, shape: walk, step: 0.05, every: 10}",
    "{at: 1000, shape: mix, width: 900000, curve: sigmoid, to: 0.9}",
    "{at: 5, shape: burst, width: 2, every: 9, count: 100000, to: 0.9}",
    "{at: 5, shape: walk, step: 0.05, every: 10, pull: 0.1}",
    "{at: 400000, shape: step, to: 0.9}",
    "{at: 5, shape: blip, width: 99999, to: 0.9}",
)


@pytest.mark.alone
def test_a_million_episodes_of_twenty_channels(tmp_path):
    """Compile in at most 2 s and 500 MB, read a concept in at most 20 microseconds at the median."""
    body = "".join(f"  c{i:02}: {{start: 0.5, events: [{EVENTS[i % 10]}]}}\n" for i in range(20))
    path = write(tmp_path, text(body, horizon=1_000_000).replace("World", "Wide"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    loads = [timed(lambda: load(path)) for _ in range(3)]
    assert min(seconds for seconds, _ in loads) < 2
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < 500
    schedule = loads[-1][1]
    ticks = [(7919 * i) % 1_000_000 for i in range(2000)]
    medians: list[float] = []
    while len(medians) < 20 and min(medians, default=1) >= 20e-6:  # other work on the machine only slows it
        medians.append(statistics.median(read_time(schedule, t) for t in ticks))
    assert min(medians) < 20e-6, medians


def timed(call):
    """Return the processor's time (a busy machine does not count) and the result."""
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


def read_time(schedule, t):
    start = time.perf_counter()
    schedule.at(t)
    return time.perf_counter() - start
