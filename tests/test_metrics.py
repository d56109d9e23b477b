"""Metrics against values worked out by hand."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sao_bench import metrics as M
from sao_bench.errors import UserError
from sao_bench.metrics import MetricOptions

NAN = float("nan")


def approx(x):
    return pytest.approx(x, rel=1e-12, abs=1e-12)


def test_no_torch():
    code = "import sys, sao_bench.metrics, sao_bench.statistics; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class TestOptions:
    def test_defaults(self):
        options = MetricOptions()
        assert (options.bin, options.window, options.hold, options.rho) == (128, 10, 5, 0.9)
        assert (options.recovery_window, options.collapse_window, options.collapse_share) == (50, 20, 0.5)

    @pytest.mark.parametrize("bad", [{"bin": 0}, {"hold": -1}, {"rho": 0.0}, {"fading": 1.5}])
    def test_refusals(self, bad):
        with pytest.raises(UserError, match=f"metric option {next(iter(bad))}"):
            MetricOptions(**bad)


class TestCurves:
    def test_normalised(self):
        assert M.normalised([0.1, 0.5, 1.1], 0.1, [0.9, 0.9, 0.6]).tolist() == approx([0, 0.5, 2])
        assert np.isnan(M.normalised([0.5], 0.3, 0.3)).all()

    def test_prequential_by_hand(self):
        scores = [1.0, 0, 0, 1]
        assert M.prequential(scores).tolist() == approx([1, 0.5, 1 / 3, 0.5])
        options = MetricOptions(prequential_window=2, fading=0.5)
        assert M.prequential(scores, "window", options).tolist() == approx([1, 0.5, 0, 0.5])
        # Sums 1, .5, .25, 1.125 over weights 1, 1.5, 1.75, 1.875.
        assert M.prequential(scores, "fading", options).tolist() == approx([1, 1 / 3, 1 / 7, 0.6])

    @pytest.mark.parametrize("variant", ["cumulative", "window", "fading"])
    def test_prequential_leaves_out_what_was_not_measured(self, variant):
        options = MetricOptions(prequential_window=3, fading=1.0)
        found = M.prequential([None, 1.0, NAN, 0.0], variant, options)
        assert np.isnan(found[0])
        assert found[1:].tolist() == approx([1, 1, 0.5])
        assert M.prequential([], variant).tolist() == []

    def test_unknown_variant(self):
        with pytest.raises(UserError, match="did you mean 'window'"):
            M.prequential([1.0], "windw")

    def test_binned_curve_by_hand(self):
        # Bins of 2, normalised by the concept of each episode; the last is short, one has a fault, one nothing.
        scores = [0.5, 1.0, None, 0.4, None, None, 0.3]
        floor, oracle = [0.0, 0, 0, 0.2, 0, 0, 0], [1.0, 1, 1, 0.6, 1, 1, 1]
        found = M.binned_curve(scores, floor, oracle, MetricOptions(bin=2))
        assert found[[0, 1, 3]].tolist() == approx([0.75, 0.5, 0.3]) and np.isnan(found[2])
        assert M.binned_curve([]).tolist() == []
        assert len(M.binned_curve(np.zeros(129))) == 2

    def test_dynamic_regret_keeps_its_sign(self):
        assert M.dynamic_regret([0.5, 1.0], [1.0, 0.5]) == approx(0.0)
        assert M.dynamic_regret([0.9, 0.9], 0.8) == approx(-0.2)
        assert M.dynamic_regret([0.9, None], 0.8) is None


class TestDrift:
    def test_dip_depth_by_hand(self):
        # Last 2 before: .8; moving means of 2 after: .3, .2, .5; the fall after the horizon does not count.
        curve = [0.0, 0.7, 0.9, 0.4, 0.2, 0.2, 0.8, 0.0, 0.0]
        options = MetricOptions(window=2)
        assert M.dip_depth(curve, 3, 7, options) == approx(0.6)
        assert M.dip_depth(curve, 3, None, options) == approx(0.8)
        assert M.dip_depth(curve, 1, 4) == approx(0.0 - (0.7 + 0.9 + 0.4) / 3)
        assert M.dip_depth(curve, 0) is None and M.dip_depth(curve, 9) is None
        assert M.pre_drift_level(curve, 3, options) == approx(0.8)

    def test_resilience(self):
        assert M.resilience(0.2, 0.8, 0.5) == {"over_pre_drift": approx(0.25), "over_oracle": approx(0.4)}
        assert M.resilience(0.2, 0.0, 0.5)["over_pre_drift"] is None

    def test_auac_by_hand(self):
        # (0 + .5)/2 + (.5 + 1)/2 = 1 over a span of 2.
        assert M.auac([0.0, 0.5, 1.0]) == approx(0.5)
        assert M.auac([0.1, 0.3, 0.5], 0.1, 0.5) == approx(0.5)
        assert M.auac([0.1, 0.3, 0.3], 0.1, [0.5, 0.5, 0.3]) == approx((0.25 + 0.75) / 2)
        assert M.auac([0.3]) is None and M.auac([0.3, None]) is None and M.auac([0.3, 0.4], 1, 1) is None

    def test_differences_of_auac(self):
        assert M.adaptation_gain([0.0, 1.0], [0.2, 0.2]) == approx(0.3)
        assert M.plasticity_loss([1.0, 1.0], [0.0, 1.0]) == approx(0.5)
        assert M.plasticity_loss([1.0], [0.0, 1.0]) is None


class TestRecovery:
    flat = [0.9] * 10

    def test_first_window_that_holds(self):
        curve = [*self.flat, 0.0, 0.9, 0.0, 0.81, 0.81, 0.81, 0.81, 0.81]
        assert M.recovery_time(curve, 10, 0.9) == 3
        assert M.recovery_time(curve, 10, 0.9, 18) == 3
        assert M.recovery_time(curve, 10, 0.9, 17) is None  # the window would end past the horizon
        assert M.recovery_time(curve, 10, 0.9, 18, MetricOptions(hold=2)) == 3
        assert M.recovery_time(curve, 10, 0.9, 18, MetricOptions(hold=1)) == 1
        assert M.recovery_time(curve, 10, 0.9, 18, MetricOptions(rho=0.901)) is None
        assert M.recovery_time(curve, 10, 0.7) == 1  # .504, then mean(.9, 0, .81, .81, .81) = .666 >= .63

    def test_no_dip_recovers_at_once(self):
        assert M.recovery_time(self.flat, 5, 0.9) == 0
        assert M.recovery_time(self.flat, 6, 0.9) is None  # 4 bins left, hold 5

    def test_unmeasured_bins_do_not_count(self):
        curve = [0.9, 0.9, 0.9, 0.9, None, 0.9, 0.9, 0.9, 0.9, 0.9]
        assert M.recovery_time(curve, 0, 0.9) == 5
        assert M.recovery_time(curve[:9], 0, 0.9) is None

    def test_equality_on_paper_is_equality(self):
        assert M.recovery_time([0.63] * 5, 0, 0.7) == 0  # .9 * .7 is a little above .63 in binary

    def test_observation(self):
        assert M.recovery_observation(self.flat, 5, 0.9, 10) == (0, True)
        assert M.recovery_observation([0.0] * 20, 8, 0.9, 20) == (7, False)
        assert M.recovery_observation([0.0] * 20, 18, 0.9, 20) == (0, False)

    @settings(max_examples=60, deadline=None)
    @given(
        st.lists(st.sampled_from([0.0, 0.5, 0.9, 1.0]), min_size=1, max_size=30),
        st.integers(0, 10),
        st.integers(1, 6),
    )
    def test_equals_the_definition(self, curve, drift, hold):
        def definition():
            for delta in range(len(curve)):
                window = curve[drift + delta : drift + delta + hold]
                if len(window) == hold and sum(window) / hold >= 0.9 * 0.8 - 1e-12:
                    return delta
            return None

        assert M.recovery_time(curve, drift, 0.8, options=MetricOptions(hold=hold)) == definition()


class TestForgetting:
    # R[i][k]: concept k after phase i.
    R = ((0.8, 0.1, 0.0), (0.9, 0.7, 0.2), (0.5, 0.6, 0.9))

    def test_by_hand(self):
        assert M.forgetting(self.R, "end") == approx((0.3 + 0.1) / 2)
        assert M.forgetting(self.R, "max") == approx((0.4 + 0.1) / 2)
        assert M.forgetting(self.R, "bwt") == approx(-0.2)

    def test_max_does_not_look_at_the_last_phase(self):
        assert M.forgetting([[0.5, 0.0], [0.9, 0.8]], "max") == approx(-0.4)

    def test_undefined(self):
        assert M.forgetting([[0.5]]) is None
        assert M.forgetting([[None, 0.1], [0.5, 0.2]]) is None
        R = [[0.8, None, None], [0.9, 0.7, None], [0.5, 0.6, 0.9]]
        assert M.forgetting(R, "max") == approx(0.25)
        assert M.forgetting([[None, 0.1], [0.5, 0.2]], "max") is None

    def test_refusals(self):
        with pytest.raises(UserError, match="unknown forgetting variant 'min'"):
            M.forgetting(self.R, "min")
        with pytest.raises(UserError, match="2 axes"):
            M.forgetting([0.5, 0.2])

    def test_forward_transfer(self):
        # R[0][1] = .1 and R[1][2] = .2, against baselines .05 and .25 of concepts 1 and 2.
        assert M.forward_transfer_zeroshot(self.R) == approx(0.15)
        assert M.forward_transfer_zeroshot(self.R, [0.9, 0.05, 0.25]) == approx(0.0)
        assert M.forward_transfer_zeroshot([[1.0]]) is None
        assert M.forward_transfer_auc([0.5, 1.0], [0.0, 1.0]) == approx(0.5)
        assert M.forward_transfer_auc([0.5, 1.0], [1.0, 1.0]) is None

    def test_stability_gap_by_hand(self):
        # Phase ends at probes 1, 3, 5, excluded. Concept 0 since: .6 .2 .7 .8 -> .2; concept 1 since: .4 .9 -> .4.
        probes = [[0.1, 0, 0], [0.15, 0, 0], [0.6, 0.5, 0], [0.2, 0.8, 0], [0.7, 0.4, 0.5], [0.8, 0.9, 0.6]]
        found = M.stability_gap(probes, [1, 3, 5])
        assert found == {"min_acc": approx(0.3), "wc_acc": approx(0.6 / 3 + 0.3 * 2 / 3)}
        assert M.stability_gap(probes, [5]) == {"min_acc": None, "wc_acc": None}


def test_perseveration():
    assert M.perseveration([1, 1, 0, 0], [0, 1, 0, 1]) == 0.25
    assert M.perseveration([], []) is None


def test_absorbed():
    options = MetricOptions(recovery_window=3)
    share, best = [1.0, 1, 0.5, 1, 1, 1, 0.9], [0.0, 0, 0, 0, -0.1, 0, 0.4]
    assert M.absorbed(share, best, 2, options=options) is True
    assert M.absorbed(share, best, 4, options=options) is False
    assert M.absorbed(share, [0.0] * 4 + [0.2] + [0.0] * 2, 2, options=options) is False
    assert M.absorbed(share, best, 5, options=options) is None
    assert M.absorbed(share, best, 2, 5, options=options) is False


class TestDetection:
    def test_by_hand(self):
        # 100 -> 130 (delay 30), 200 missed, 300 -> 300; false: 50, 140 and 350.
        found = M.detection([350, 50, 130, 140, 300], [100, 200, 300], 400)
        assert found["precision"] == approx(2 / 5)
        assert (found["recall"], found["miss_rate"]) == (approx(2 / 3), approx(1 / 3))
        assert (found["delay"], found["false_alarms_per_1000"]) == (15.0, 7.5)

    def test_always_firing_is_perfect_recall_and_nothing_else(self):
        baseline = M.detection([], [100, 200], 400)["always_fire"]
        assert (baseline["recall"], baseline["delay"], baseline["precision"]) == (1.0, 0.0, 0.005)
        assert baseline["false_alarms_per_1000"] == 995.0

    def test_undefined(self):
        assert M.detection([], [], 400) | {"always_fire": None} == {
            "precision": None, "recall": None, "miss_rate": None, "delay": None,
            "false_alarms_per_1000": 0.0, "always_fire": None,
        }  # fmt: skip


class TestExplainedVariance:
    def test_by_hand(self):
        # Returns 0, 2 (variance 1); errors -1, 0 (variance .25), a constant error explains all.
        assert M.explained_variance([1.0, 2.0], [0.0, 2.0]) == approx(0.75)
        assert M.explained_variance([5.0, 7.0], [0.0, 2.0]) == approx(1.0)
        assert M.explained_variance([1.0, 2.0, 9.0], [0.0, 2.0, 5.0], [1, 1, 0]) == approx(0.75)

    def test_constant_returns_are_undefined(self):
        assert M.explained_variance([1.0, 2.0, 3.0], [0.1, 0.1, 0.1]) is None
        assert M.explained_variance([], []) is None
        assert M.explained_variance([1.0, NAN], [0.0, 1.0]) is None


class TestCollapse:
    def test_by_hand(self):
        # Means of the last 20: 1 at most; .45 after 11 zeros, .5 after 10.
        assert M.collapsed([1.0] * 20 + [0.0] * 11) is True
        assert M.collapsed([1.0] * 20 + [0.0] * 10) is False

    def test_a_spike_is_no_maximum(self):
        assert M.collapsed([0.1] * 50 + [1.0] + [0.1] * 50) is False

    def test_short_flat_or_not_finite(self):
        assert M.collapsed([1.0, 0.0]) is False and M.collapsed([]) is False
        assert M.collapsed([0.0] * 30) is False
        assert M.collapsed([0.5, NAN, 0.5]) is True and M.collapsed([float("inf")]) is True
