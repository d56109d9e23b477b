"""The summary's numbers and how they are shown."""

from __future__ import annotations

import csv
import io
import json

import pytest
from rich.console import Console

from sao_bench.report import compare, reports
from tests.run_folders import BEFORE, CURVE, SMALL, write_run

NEVER = [*BEFORE, *[0.2] * 6]
SUMMARY = next(report for report in reports() if report.name == "summary")


def approx(value):
    return pytest.approx(value, rel=1e-6)


def files(folder):
    (comparison,) = compare([folder], "the command", SMALL)
    return SUMMARY.files(comparison)


def rows(content):
    return list(csv.DictReader(io.StringIO(content.decode())))


def shown(folder, width=80):
    (comparison,) = compare([folder], options=SMALL)
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(SUMMARY.show(comparison))
    return console.export_text()


def test_one_run_by_hand(tmp_path):
    write_run(tmp_path, probes=[{"t": 16, "phase": 1, "score": 0.2}])
    found = files(tmp_path)
    (whole,) = rows(found["summary.csv"])
    assert float(whole["prequential_score"]) == approx(0.44)
    assert float(whole["prequential_normalised"]) == approx(0.68)
    assert float(whole["dynamic_regret_score"]) == approx(6.4)
    assert (whole["algorithm"], whole["seeds"], whole["status"]) == ("sao", "1", "finished")
    assert (whole["staleness_max_versions"], whole["staleness_mean_versions"]) == ("2", "1.5")
    (drift,) = rows(found["summary_drifts.csv"])
    assert (drift["recovery_episodes"], drift["recovery_updates"]) == ("12", "3")
    assert float(drift["dip_normalised"]) == approx(0.5)
    assert float(drift["auac_normalised"]) == approx(0.62)
    assert float(drift["auac_frozen_normalised"]) == approx(0.2)
    assert float(drift["adaptation_gain_normalised"]) == approx(0.42)
    assert drift["recovery_to_oracle_episodes"] == ""
    assert drift["recovery_to_oracle_episodes_followed"] == "16"


def test_censored_is_shown_as_such(tmp_path):
    write_run(tmp_path, curve=NEVER)
    found = files(tmp_path)
    (drift,) = rows(found["summary_drifts.csv"])
    assert drift["recovery_episodes"] == ""
    assert "> 16 / 4 (censored)" in shown(tmp_path)
    assert "> 16 / 4 (censored)" in found["summary.md"].decode()


def test_median_over_seeds_is_that_of_kaplan_meier(tmp_path):
    # Recovery after 3 bins, after 3 and never: survival 1/3 at 3, so the median is 3 bins.
    for seed, curve in enumerate([CURVE, CURVE, NEVER]):
        write_run(tmp_path, seed=seed, curve=curve)
    (drift,) = rows(files(tmp_path)["summary_drifts.csv"])
    assert float(drift["recovery_episodes"]) == 12
    assert (drift["recovery_observed_seeds"], drift["recovery_censored_seeds"]) == ("2", "1")
    text = shown(tmp_path)
    assert "12 / 3" in text
    assert "2 of 3 seeds" in text


def test_median_not_reached_is_censored(tmp_path):
    for seed, curve in enumerate([CURVE, NEVER, NEVER]):
        write_run(tmp_path, seed=seed, curve=curve)
    text = shown(tmp_path)
    assert "> 16 / 4 (censored)" in text
    assert "1 of 3 seeds" in text


def test_interquartile_mean_with_its_interval(tmp_path):
    # Means 0.68, 0.44 and 0.44 normalised: the middle half of three is weighted 1/6, 2/3, 1/6.
    for seed, curve in enumerate([CURVE, NEVER, NEVER]):
        write_run(tmp_path, seed=seed, curve=curve)
    (whole,) = rows(files(tmp_path)["summary.csv"])
    assert float(whole["prequential_normalised"]) == approx(0.44 + 0.24 / 6)
    assert float(whole["prequential_normalised_low"]) == approx(0.44)
    assert float(whole["prequential_normalised_high"]) == approx(0.68)


def test_a_failed_run_is_shown_and_labelled(tmp_path):
    write_run(tmp_path, "sao")
    write_run(tmp_path, "grpo_dis", curve=[*BEFORE, 0.2, 0.4], horizon=40, state="failed")
    write_run(tmp_path, "running_mean", curve=[], horizon=40, state="failed")
    text = shown(tmp_path)
    assert text.count("failed") == 3  # two rows, and what the legend says about them
    assert "grpo_dis*" in text
    assert "not reached" in text
    (_, failed, nothing) = rows(files(tmp_path)["summary.csv"])
    assert (failed["status"], failed["failed_runs"], failed["episodes"]) == ("failed", "1", "24")
    assert (nothing["algorithm"], nothing["failed_runs"], nothing["prequential_score"]) == (
        "running_mean",
        "1",
        "",
    )
    runs = json.loads(files(tmp_path)["summary.json"])["per_run"]
    assert [run["error"] for run in runs] == [None, "ValueError: broken", "ValueError: broken"]


def test_absorbed_is_an_outcome_of_its_own(tmp_path):
    silent = [*BEFORE, *[0.0] * 6]
    write_run(tmp_path, curve=silent, zero_advantage=lambda place: float(place >= 4))
    (drift,) = rows(files(tmp_path)["summary_drifts.csv"])
    assert (drift["absorbed_runs"], drift["absorbed_known_runs"]) == ("1", "1")
    row = next(line for line in shown(tmp_path).splitlines() if "(censored)" in line)
    assert row.split()[-1] == "yes"


@pytest.mark.parametrize("seeds", [1, 5])
def test_fits_80_columns(tmp_path, seeds):
    for algorithm in ("sao", "grpo_clip_higher"):
        for seed in range(seeds):
            write_run(tmp_path, algorithm, seed, curve=NEVER)
    text = shown(tmp_path)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "grpo_clip_higher " in text
    assert "> 16 / 4 (censored)" in text
    assert ("Indicative: 1 seed" in text) == (seeds == 1)


def test_json_says_why_something_is_undefined(tmp_path):
    write_run(tmp_path, curve=[0.0] * 10)
    found = json.loads(files(tmp_path)["summary.json"])
    assert found["drifts"][0]["recovery_episodes"] is None
    assert "not above the floor" in found["drifts"][0]["recovery_reason"]
    assert found["options"]["hold"] == 2
    assert found["command"] == "the command"


def test_many_drifts_are_cut_short_on_screen_only(tmp_path):
    openings = [(8 * i, f"reward.preference = v{i}") for i in range(12)]
    write_run(tmp_path, curve=[0.5] * 24, openings=openings)
    assert "3 more drifts are in summary_drifts.csv" in " ".join(shown(tmp_path).split())
    assert len(rows(files(tmp_path)["summary_drifts.csv"])) == 11
