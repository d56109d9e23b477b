"""Statistics against values worked out by hand, the definition, and coverage of the intervals."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sao_bench import statistics as S
from sao_bench.errors import UserError

NAN = float("nan")
scores = st.lists(st.floats(-5, 5).map(lambda x: round(x, 2)), min_size=1, max_size=15)


def approx(x):
    return pytest.approx(x, rel=1e-10, abs=1e-10)


class TestIqm:
    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            ([7.0], 7.0),
            ([0.0, 1.0], 0.5),  # half of each
            ([0.0, 1.0, 5.0], (0.25 * 0 + 1 + 0.25 * 5) / 1.5),
            ([9.0, 1.0, 2.0, -50.0], 1.5),
            ([0.0, 1.0, 2.0, 3.0, 100.0], (0.75 * 1 + 2 + 0.75 * 3) / 2.5),
        ],
    )
    def test_by_hand(self, values, expected):
        assert S.iqm(values) == approx(expected)

    @settings(max_examples=50, deadline=None)
    @given(scores)
    def test_is_the_middle_half_of_every_score_four_times(self, values):
        assert S.iqm(values) == approx(np.mean(np.sort(np.repeat(values, 4))[len(values) : 3 * len(values)]))

    def test_trimmed_mean_cuts_whole_scores(self):
        assert S.trimmed_mean([0.0, 1.0, 5.0]) == approx(2.0)
        assert S.trimmed_mean([0.0, 1.0, 2.0, 3.0, 100.0]) == approx(2.0)
        assert S.trimmed_mean([9.0, 1.0, 2.0, -50.0]) == S.iqm([9.0, 1.0, 2.0, -50.0])

    def test_undefined(self):
        assert S.iqm([]) is None and S.iqm([1.0, None]) is None and S.trimmed_mean([NAN]) is None


class TestBootstrap:
    def test_seeded(self):
        values = np.sqrt(np.arange(30))
        assert S.bootstrap(values, 3) == S.bootstrap(values, 3)
        assert S.bootstrap(values, 3, statistic="mean") != S.bootstrap(values, 4, statistic="mean")

    def test_two_seeds_by_hand(self):
        """Means of two draws from {0, 1}: 0, .5, 1 with probability 1/4, 1/2, 1/4."""
        found = S.bootstrap([0.0, 1.0], statistic="mean", confidence=0.4)
        assert (found.point, found.low, found.high) == (0.5, 0.5, 0.5)
        found = S.bootstrap([0.0, 1.0], statistic="mean", confidence=0.6)
        assert (found.low, found.high) == (0.0, 1.0)

    def test_agrees_with_all_resamples(self):
        values = [0.0, 0.3, 0.7, 1.0]
        every = [np.mean(draw) for draw in product(values, repeat=4)]
        low, high = np.quantile(every, [0.025, 0.975])
        found = S.bootstrap(values, statistic="mean", resamples=20_000)
        assert (found.low, found.high) == (pytest.approx(low, abs=0.03), pytest.approx(high, abs=0.03))

    def test_tasks_are_strata(self):
        """Every task is drawn as often as it is there: tasks that differ a lot add no width."""
        values = np.array([[0.0, 100.0]] * 6)
        found = S.bootstrap(values, statistic="mean")
        assert (found.point, found.low, found.high, found.seeds) == (50.0, 50.0, 50.0, 6)

    def test_seeds_are_drawn_apart_in_each_task(self):
        """Independent strata average out; one draw for both would give the width of one task."""
        column = np.sqrt(np.arange(30))[:, None]
        one, two = (S.bootstrap(np.repeat(column, k, 1), statistic="mean") for k in (1, 2))
        assert (two.high - two.low) / (one.high - one.low) == pytest.approx(1 / math.sqrt(2), abs=0.08)

    def test_indicative_below_five_seeds(self):
        assert S.bootstrap([0.1] * 4).indicative and not S.bootstrap([0.1] * 5).indicative

    def test_undefined_with_a_reason(self):
        found = S.bootstrap([0.1, None, 0.3])
        assert (found.point, found.low, found.high, found.seeds) == (None, None, None, 3)
        assert found.reason == "1 of 3 scores are missing"
        assert S.bootstrap([]).reason == "no runs"

    def test_unknown_statistic(self):
        with pytest.raises(UserError, match="unknown statistic 'iqn'"):
            S.bootstrap([0.1], statistic="iqn")

    def test_coverage(self):
        """The 90% interval of a mean of 20 holds the truth nearly 90% of the time."""
        rng = np.random.default_rng(0)
        samples = rng.normal(size=(200, 20))
        found = [S.bootstrap(x, statistic="mean", resamples=500, confidence=0.9) for x in samples]
        assert 0.8 <= np.mean([f.low <= 0 <= f.high for f in found]) <= 0.95


class TestPaired:
    def test_what_the_seeds_share_cancels(self):
        x = np.array([0.1, 0.9, 0.5, 0.3, 0.7])
        found = S.paired_difference(x + 0.2, x)
        assert (found.point, found.low, found.high) == (approx(0.2), approx(0.2), approx(0.2))

    def test_refuses_other_shapes(self):
        with pytest.raises(UserError, match="different shapes"):
            S.paired_difference([1.0, 2.0], [1.0])
        with pytest.raises(UserError, match="different lengths"):
            S.improvement_interval([1.0, 2.0], [1.0])


class TestImprovement:
    def test_by_hand(self):
        # 1 beats 0 and ties 1; 2 beats both: (1 + .5 + 1 + 1) / 4.
        assert S.probability_of_improvement([1.0, 2.0], [0.0, 1.0]) == 0.875
        assert S.probability_of_improvement([0.3, 0.3], [0.3]) == 0.5
        assert S.probability_of_improvement([], [0.3]) is None
        assert S.probability_of_improvement([None], [0.3]) is None

    @settings(max_examples=40, deadline=None)
    @given(scores, scores)
    def test_the_two_sides_add_up_to_one(self, x, y):
        assert S.probability_of_improvement(x, y) + S.probability_of_improvement(y, x) == approx(1.0)

    @pytest.mark.parametrize("paired", [True, False])
    def test_interval(self, paired):
        found = S.improvement_interval([2.0, 3.0, 4.0], [0.0, 1.0, 1.5], paired=paired)
        assert (found.point, found.low, found.high, found.seeds) == (1.0, 1.0, 1.0, 3)
        mixed = S.improvement_interval([0.0, 1.0, 2.0, 5.0], [1.0, 1.0, 3.0, 0.5], paired=paired)
        assert mixed.low < mixed.point < mixed.high
        assert mixed.point == S.probability_of_improvement([0.0, 1.0, 2.0, 5.0], [1.0, 1.0, 3.0, 0.5])
        assert S.improvement_interval([1.0, None], [1.0, 2.0]).reason == "1 of 2 scores are missing"


class TestKaplanMeier:
    def test_by_hand(self):
        # At 2: 4 of 5 stay. At 3 (one censored there is still at risk): 3 of 4. At 5: 1 of 2.
        found = S.kaplan_meier([3, 5, 2, 3, 7], [1, 1, 1, 0, 0])
        assert found.times == [2, 3, 5] and found.at_risk == [5, 4, 2]
        assert found.surviving == approx([0.8, 0.6, 0.3])
        assert (found.median, found.recovered) == (5, 0.6)

    @pytest.mark.parametrize("n", range(2, 60, 2))
    def test_one_half_is_exactly_one_half(self, n):
        assert S.kaplan_meier_median(list(range(1, n + 1))) == n // 2

    def test_undefined(self):
        assert S.kaplan_meier_median([1, 2, 3], [0, 0, 1]) == 3
        assert S.kaplan_meier_median([1, 2, 3], [1, 0, 0]) is None
        assert S.kaplan_meier_median([]) is None and S.kaplan_meier([]).recovered is None
        assert S.kaplan_meier([4, 4], [0, 0]).surviving == []

    def test_refusals(self):
        with pytest.raises(UserError, match="3 times but 1"):
            S.kaplan_meier([1, 2, 3], [1])
        with pytest.raises(UserError, match="missing"):
            S.kaplan_meier([1, None])

    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=12), st.randoms())
    def test_order_does_not_matter(self, runs, random):
        shuffled = random.sample(runs, len(runs))
        assert S.kaplan_meier(*zip(*runs, strict=True)) == S.kaplan_meier(*zip(*shuffled, strict=True))


def test_performance_profile():
    assert S.performance_profile([0.1, 0.5, 0.9, None], [0.0, 0.5, 1.0]).tolist() == [0.75, 0.25, 0.0]
