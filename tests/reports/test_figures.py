"""The data that figures are drawn from, by hand; and that they can be drawn from what a run may hold."""

from __future__ import annotations

import io

import pandas as pd
import pytest
from PIL import Image

from sao_bench.plotting import LOOKS, looks
from sao_bench.report import compare, reports
from tests.run_folders import BEFORE, CURVE, SMALL, change, write_run

FIGURES = {report.name: report for report in reports() if report.name != "summary"}
NEVER = [*BEFORE, *[0.2] * 6]


def approx(value):
    return pytest.approx(value, rel=1e-6, abs=1e-9)


def files(folder, name, **more):
    (comparison,) = compare([folder], "command", SMALL, **more)
    return FIGURES[name].files(comparison)


def table(folder, name, **more):
    return pd.read_csv(io.BytesIO(files(folder, name, **more)[f"{name}.csv"]))


class TestAdaptationCurve:
    def test_points_by_hand(self, tmp_path):
        write_run(tmp_path, start_score={0: 0.35, 1: 0.1})
        found = table(tmp_path, "adaptation_curve")
        seed = found[found["kind"] == "seed"]
        assert seed["value"].tolist() == approx(CURVE)
        assert seed["score"].tolist() == approx([0.1 + 0.5 * n for n in CURVE])
        assert seed["x"].tolist() == [4 * i + 2 for i in range(10)]
        frozen = found[found["kind"] == "frozen_start"]
        assert frozen[["x", "x_end"]].to_numpy().tolist() == [[0, 16], [16, 40]]
        assert frozen["value"].tolist() == approx([0.5, 0.0])

    def test_raw_draws_scores(self, tmp_path):
        write_run(tmp_path, start_score={0: 0.35})
        found = table(tmp_path, "adaptation_curve", raw=True)
        assert found["value"].tolist()[:10] == approx([0.1 + 0.5 * n for n in CURVE])
        assert found["value"].tolist()[10] == approx(0.35)

    def test_interquartile_mean_goes_as_far_as_every_run(self, tmp_path):
        write_run(tmp_path, seed=0, curve=[0.8, 0.4, 0.4], horizon=40)
        write_run(tmp_path, seed=1, curve=[0.4, 0.4], horizon=40, state="failed")
        found = table(tmp_path, "adaptation_curve")
        mean = found[found["kind"] == "iqm"]
        assert mean["bin"].tolist() == [0, 1]
        assert mean["value"].tolist() == approx([0.6, 0.4])
        assert mean[["low", "high"]].to_numpy().ravel().tolist() == approx([0.4, 0.8, 0.4, 0.4])
        assert len(found[found["kind"] == "seed"]) == 5

    def test_the_unfinished_last_bin_is_left_out_while_running(self, tmp_path):
        write_run(tmp_path, state="running", missing=[30])
        assert table(tmp_path, "adaptation_curve")["x"].max() == 26

    def test_another_clock_is_drawn_over_its_ticks(self, tmp_path):
        openings = ((0, "tool.version = 1"), (4, "tool.version = 2"))
        write_run(
            tmp_path, clock="policy_version", ticks=lambda index: index // 4, openings=openings, horizon=10
        )
        assert table(tmp_path, "adaptation_curve")["x"].tolist() == list(range(10))

    def test_picture_is_two_columns_wide(self, tmp_path):
        write_run(tmp_path)
        picture = Image.open(io.BytesIO(files(tmp_path, "adaptation_curve")["adaptation_curve.png"]))
        assert picture.width == 1350  # 6.75 in at 200 dpi


class TestOthers:
    def test_aligned(self, tmp_path):
        write_run(tmp_path)
        found = table(tmp_path, "aligned")
        assert found["x"].tolist() == [-6, -2, 2, 6, 10, 14, 18, 22]
        assert found["value"].tolist() == approx([0.8, 0.8, *CURVE[4:]])

    def test_regret_accumulates(self, tmp_path):
        write_run(tmp_path, curve=[0.8, 0.6, 1.2])
        # 4 episodes x 0.5 x (1 - n): 0.4, 0.8 and, above the oracle, -0.4.
        assert table(tmp_path, "cumulative_regret")["value"].tolist() == approx([0.4, 1.2, 0.8])

    def test_kaplan_meier_corners(self, tmp_path):
        for seed, curve in enumerate([CURVE, CURVE, NEVER]):
            write_run(tmp_path, seed=seed, curve=curve)
        found = table(tmp_path, "recovery")
        corners = found[found["kind"] == "curve"]
        assert corners["episodes"].tolist() == [0, 12, 16]
        assert corners["not_recovered"].tolist() == approx([1, 1 / 3, 1 / 3])
        censored = found[found["kind"] == "censored"]
        assert (censored["episodes"].tolist(), censored["not_recovered"].tolist()) == ([16], approx([1 / 3]))

    def test_staleness_shares(self, tmp_path):
        write_run(tmp_path)
        found = table(tmp_path, "staleness")
        stale = found[found["kind"] == "staleness"]
        assert dict(zip(stale["x"], stale["value"], strict=True)) == approx({0: 0.25, 2: 0.75})

    def test_share_of_a_batch_from_the_phase_before(self, tmp_path):
        # The drift at episode 18 lies in the middle of the fifth batch of four.
        write_run(tmp_path, openings=((0, "a = 1"), (18, "a = 2")))
        found = table(tmp_path, "staleness")
        old = found[found["kind"] == "old_phase"]
        assert old["value"].tolist() == [0.5, 0, 0, 0, 0, 0]

    def test_stability_smooths_over_the_window(self, tmp_path):
        write_run(tmp_path, metrics=lambda place: {"entropy": float(place), "explained_variance": None})
        found = table(tmp_path, "stability")
        entropy = found[found["metric"] == "entropy"]
        assert entropy["value"].tolist() == list(range(10))
        assert entropy["smooth"].tolist() == [0, *(i - 0.5 for i in range(1, 10))]
        assert found[found["metric"] == "explained_variance"]["value"].isna().all()

    def test_cost(self, tmp_path):
        write_run(tmp_path)
        found = table(tmp_path, "adaptation_cost")
        tokens = found[(found["cost"] == "sample") & (found["kind"] == "seed")]
        assert tokens["x"].tolist()[:2] == [4.5, 16.5]  # 3 tokens an episode, at dispatch: mean of 0, 3, 6, 9
        drift = found[(found["cost"] == "arrived_s") & (found["kind"] == "drift")]
        assert drift["x"].tolist() == [33]  # episode 16: dispatched at 32, arrived at 33


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_can_be_drawn_from_odd_data(tmp_path, name):
    """Gradual and virtual drifts, all masked, a failed seed, names that nobody has heard of, many phases."""
    openings = [(4 * i, f"reward.preference → v{i} (mix)") for i in range(12)]
    changes = [change(4, 12), change(8, None, "virtual"), change(0, 4, "virtual"), change(20)]
    for algorithm in ("sao", "a:b", "package.module:AVeryLongClassNameOfSomebody"):
        write_run(tmp_path, algorithm, 0, [0.3] * 12, openings=openings, changes=changes)
        write_run(tmp_path, algorithm, 1, [0.3] * 5, openings=openings, changes=changes, horizon=48,
                  state="failed", faults=range(8))  # fmt: skip
        write_run(tmp_path, algorithm, 2, [], openings=openings, changes=changes, horizon=48, state="failed")
    found = files(tmp_path, name)
    assert sorted(found) == [f"{name}.{kind}" for kind in ("csv", "json", "pdf", "png")]
    assert Image.open(io.BytesIO(found[f"{name}.png"])).width == 1350


@pytest.mark.parametrize("name", FIGURES)
def test_a_run_of_one_episode_is_no_accident(tmp_path, name):
    write_run(tmp_path, curve=[0.5], bin=1, horizon=40, state="running")
    found = files(tmp_path, name)
    assert bool(found) == (name not in ("aligned", "recovery"))


def test_looks_are_fixed_by_name_and_all_different(tmp_path):
    for algorithm in (*LOOKS, *(f"algorithm_{i}" for i in range(16))):
        write_run(tmp_path, algorithm)
    (comparison,) = compare([tmp_path])
    found = looks(comparison.lines)
    assert {name: found[name] for name in LOOKS} == LOOKS
    assert len({(look.colour, str(look.dash), look.marker) for look in found.values()}) == len(found)
