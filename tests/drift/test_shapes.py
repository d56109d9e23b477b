"""Every shape against values computed by hand."""

import itertools
import math

import numpy as np
import pytest
from drift_world import load_text, one, text, values, write

from sao_bench.drift import load
from sao_bench.drift.shapes.walk import walk_path
from sao_bench.seeding import generator


def test_step():
    schedule = one("{at: 400, shape: step, to: 0.25}")
    assert values(schedule, "reward.noise", [0, 399, 400, 999, 5000]) == [0.0, 0.0, 0.25, 0.25, 0.25]
    assert [schedule.share("reward.noise", t) for t in (0, 399, 400)] == [0, 0, 1]


def test_linear_mix_share_and_draws():
    schedule = one("{at: 100, shape: mix, width: 800, to: academic}", "reward.preference")
    assert [schedule.share("reward.preference", t) for t in (99, 100, 300, 500, 899, 900, 901)] == [
        0, 0, 0.25, 0.5, 799 / 800, 1, 1,
    ]  # fmt: skip
    new = [v == "academic" for v in values(schedule, "reward.preference", range(1000))]
    assert not any(new[:101]) and all(new[900:])
    # 200 draws each; the sd of their mean is at most 0.035.
    for start in (100, 300, 500, 700):
        assert abs(np.mean(new[start : start + 200]) - (start + 99.5 - 100) / 800) < 0.12


def test_sigmoid_mix_is_exact_at_its_edges_and_symmetric():
    schedule = one("{at: 400, shape: mix, width: 200, curve: sigmoid, to: academic}", "reward.preference")
    share = [schedule.share("reward.preference", t) for t in range(1000)]
    assert share[400] == 0.0 and share[600] == 1.0 and share[500] == pytest.approx(0.5, abs=1e-12)
    assert all(a < b for a, b in itertools.pairwise(share[400:601]))
    # (logistic(10 (0.25 - 0.5)) - e) / (1 - 2 e) with e = logistic(-5)
    edge = 1 / (1 + math.exp(5))
    assert share[450] == pytest.approx((1 / (1 + math.exp(2.5)) - edge) / (1 - 2 * edge), rel=1e-12)


def test_ramp_curves():
    linear = one("{at: 100, shape: ramp, width: 300, to: 0.4}", start=0.1)
    assert values(linear, "reward.noise", [99, 100, 250, 400, 401]) == [
        0.1,
        0.1,
        pytest.approx(0.25),
        0.4,
        0.4,
    ]
    cosine = one("{at: 0, shape: ramp, width: 300, curve: cosine, to: 1}")
    assert values(cosine, "reward.noise", [0, 100, 150, 200, 300]) == pytest.approx([0, 0.25, 0.5, 0.75, 1])
    growth = one("{at: 0, shape: ramp, width: 300, curve: exponential, to: 1}")
    expected = (math.exp(2.5) - 1) / (math.exp(5) - 1)
    assert values(growth, "reward.noise", [0, 150, 300]) == [0, pytest.approx(expected), 1]


def test_ramp_of_whole_numbers_rounds_half_up():
    schedule = one("{at: 0, shape: ramp, width: 4, to: 3}", "task.level", start=1)
    assert values(schedule, "task.level", range(6)) == [1, 2, 2, 3, 3, 3]
    assert all(type(v) is int for v in values(schedule, "task.level", range(6)))


def test_ramp_of_a_mixture():
    schedule = one("{at: 0, shape: ramp, width: 4, to: {hard: 0.5, odd: 0.5}}", "task.mixture")
    assert schedule.at(1).values["task.mixture"] == {"easy": 0.75, "hard": 0.125, "odd": 0.125}
    assert schedule.at(4).values["task.mixture"] == {"easy": 0.0, "hard": 0.5, "odd": 0.5}


def test_cycle():
    schedule = one("{at: 10, shape: cycle, period: 3, values: [0.1, 0.2]}", horizon=18)
    assert values(schedule, "reward.noise", range(8, 20)) == [
        0, 0, 0.1, 0.1, 0.1, 0.2, 0.2, 0.2, 0.1, 0.1, 0.1, 0.1,
    ]  # fmt: skip
    assert schedule.phase_starts.tolist() == [0, 10, 13, 16]


def test_cycle_jitter_moves_each_switch_by_its_own_draw():
    schedule = one("{at: 0, shape: cycle, period: 100, values: [0.1, 0.2], jitter: 20}", horizon=4970)
    switches = schedule.phase_starts.tolist()
    assert switches[0] == 0 and len(switches) == 50
    offsets = [switch - 100 * k for k, switch in enumerate(switches)]
    assert offsets[0] == 0 and max(map(abs, offsets)) <= 20 and len(set(offsets)) > 10
    assert np.diff(switches).min() >= 60


def test_markov_stays_and_moves_as_often_as_it_says():
    schedule = one("{at: 5, shape: markov, values: [0.1, 0.2, 0.3], stay: 0.8, dwell: 10}", horizon=40005)
    path = values(schedule, "reward.noise", range(5, 40005, 10))
    assert path[0] == 0.1
    moves = [(a, b) for a, b in itertools.pairwise(path) if a != b]
    # 3,999 draws with probability 0.2: sd 25.3; each of the other two is as likely: sd 14.1.
    assert abs(len(moves) - 800) < 110
    ups = sum((a, b) in ((0.1, 0.2), (0.2, 0.3), (0.3, 0.1)) for a, b in moves)
    assert abs(ups - len(moves) / 2) < 60
    inside = values(schedule, "reward.noise", range(5, 1005))
    assert all(len(set(inside[i : i + 10])) == 1 for i in range(0, 1000, 10))


def test_poisson_rate_counts_from_its_own_start():
    schedule = one("{at: 90000, shape: poisson, values: [0.1, 0.2], rate: 4}", horizon=290000)
    starts = schedule.phase_starts.tolist()
    assert starts[:2] == [0, 90000] and starts[2] > 90000
    # 199,999 ticks at 0.004: mean 800, sd 28.2; gaps are geometric with mean and sd about 250.
    assert abs(len(starts) - 2 - 800) < 120
    gaps = np.diff(starts[1:])
    assert abs(gaps.mean() - 250) < 40 and abs(gaps.std() - 250) < 50


def test_walk_holds_between_steps_and_stays_inside():
    schedule = one(
        "{at: 50, shape: walk, step: 0.1, every: 10, low: 0.1, high: 0.6}", start=0.3, horizon=20000
    )
    path = values(schedule, "reward.noise", range(20000))
    assert set(path[:60]) == {0.3} and path[60] != 0.3
    assert min(path) >= 0.1 and max(path) <= 0.6 and max(path) - min(path) > 0.4
    assert all(len(set(path[i : i + 10])) == 1 for i in range(50, 19990, 10))
    assert schedule.at(20000) == schedule.at(10**9)


def test_walk_path_is_the_sum_of_its_steps_folded_at_the_bounds():
    noise = 0.1 * generator(3, "w").standard_normal(400)
    path = walk_path(generator(3, "w"), 0.5, 400, 0.1, 0.0, 0.0, 1.0)
    free = 0.5
    for k, step in enumerate(noise):
        free += step
        folded = abs(free) % 2
        assert path[k + 1] == pytest.approx(2 - folded if folded > 1 else folded, abs=1e-8)


def test_pulled_walk_is_the_recursion_of_ornstein_and_uhlenbeck():
    noise = 0.02 * generator(3, "w").standard_normal(50)
    path = walk_path(generator(3, "w"), 0.5, 50, 0.02, 0.25, 0.0, 1.0)
    x = 0.5
    for k, step in enumerate(noise):
        x = x + 0.25 * (0.5 - x) + step
        assert path[k + 1] == pytest.approx(x, abs=1e-8)


def test_walk_of_whole_numbers():
    schedule = one("{at: 0, shape: walk, step: 2, every: 1}", "task.level", start=5)
    path = values(schedule, "task.level", range(1000))
    assert set(path) == set(range(1, 11)) and all(type(v) is int for v in path)


def test_blip_returns_and_opens_no_phase():
    schedule = one("{at: 300, shape: blip, width: 20, to: 0.5}")
    assert values(schedule, "reward.noise", [299, 300, 319, 320]) == [0, 0.5, 0.5, 0]
    assert len(schedule.phases()) == 1 and schedule.at(310).phase == 0
    assert schedule.at(310).hash != schedule.at(0).hash == schedule.at(320).hash
    assert [(c.start, c.end, c.to, c.returns) for c in schedule.changes()] == [(300, 320, 0.5, True)]


def test_burst():
    schedule = one("{at: 300, shape: burst, width: 5, every: 50, count: 4, to: 0.5}")
    away = [t for t in range(1000) if schedule.at(t).values["reward.noise"] == 0.5]
    assert away == [t for start in (300, 350, 400, 450) for t in range(start, start + 5)]
    assert len(schedule.phases()) == 1
    assert [(c.start, c.end) for c in schedule.changes()] == [(300, 305), (350, 355), (400, 405), (450, 455)]


@pytest.fixture
def trace(tmp_path):
    def make(rows, event, channel="reward.noise", start=0.2):
        write(tmp_path, "t,value\n" + rows, "trace.csv")
        body = f"  {channel}: {{start: {start}, events: [{event}]}}"
        return load(write(tmp_path, text(body)))

    return make


def test_replay_holds_or_joins_rows(trace):
    held = trace("0,0.1\n10,0.5\n20,0.3\n", "{at: 100, shape: replay, file: trace.csv}")
    assert values(held, "reward.noise", [99, 100, 109, 110, 120, 999]) == [0.2, 0.1, 0.1, 0.5, 0.3, 0.3]
    joined = trace(
        "0,0.1\n10,0.5\n20,0.3\n", "{at: 100, shape: replay, file: trace.csv, interpolate: linear}"
    )
    assert values(joined, "reward.noise", [99, 100, 105, 110, 115, 120, 999]) == pytest.approx(
        [0.2, 0.1, 0.3, 0.5, 0.4, 0.3, 0.3]
    )
    assert joined.phase_starts.tolist() == [0, 100]


def test_replay_of_a_choice_opens_a_phase_at_each_switch(trace):
    schedule = trace(
        "0,cute\n10,academic\n20,academic\n30,cute\n",
        "{at: 100, shape: replay, file: trace.csv}",
        "reward.preference",
        "cute",
    )
    assert values(schedule, "reward.preference", [105, 110, 125, 130]) == [
        "cute",
        "academic",
        "academic",
        "cute",
    ]
    assert schedule.phase_starts.tolist() == [0, 110, 130]


def test_an_event_begins_from_what_the_one_before_it_left():
    body = (
        "  reward.noise: {start: 0.5, events: [{at: 0, shape: cycle, period: 10, values: [0.2, 0.4]}, "
        "{at: 15, shape: ramp, width: 10, to: 1}]}"
    )
    schedule = load_text(text(body))
    assert values(schedule, "reward.noise", [14, 15, 20, 25]) == [0.4, 0.4, pytest.approx(0.7), 1.0]
