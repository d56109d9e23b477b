"""The replication card: verdicts by hand, measures by hand, and what the protocol promises of itself."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sao_bench import registry
from sao_bench.drift import load
from sao_bench.records import Run
from sao_bench.replicate import card, claims, run
from sao_bench.replicate.claims import Arm, Claim, Comparison
from sao_bench.replicate.measures import METRICS, Values, measure
from sao_bench.reports import replication_card
from sao_bench.run_data import RunData
from sao_bench.statistics import Interval
from tests.run_folders import write_run

X, Y = Arm("tool", "sao"), Arm("tool", "grpo_dis")


def interval(low: float, high: float) -> Interval:
    return Interval((low + high) / 2, low, high, 10)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.01, 0.05, "reproduced"),
        (0.001, 0.01, "reproduced"),
        (-0.01, 0.019, "not reproduced"),
        (-0.3, -0.1, "not reproduced"),
        (0.0, 0.019, "not reproduced"),
        (-0.01, 0.02, "inconclusive"),
        (0.0, 0.5, "inconclusive"),
    ],
)
def test_a_verdict_follows_from_the_interval_and_the_smallest_effect(
    low: float, high: float, verdict: str
) -> None:
    assert card.decide(interval(low, high), 0.02) == verdict


def test_an_undefined_effect_decides_nothing() -> None:
    assert card.decide(Interval(None, None, None, 10, "1 of 10 scores are missing"), 0.02) == "inconclusive"
    assert card.decide(Interval(0.3, 0.3, 0.3, 1), 0.02) == "inconclusive"


@pytest.mark.parametrize(
    ("verdicts", "verdict"),
    [
        (["reproduced", "reproduced"], "reproduced"),
        (["reproduced", "inconclusive"], "inconclusive"),
        (["inconclusive", "not reproduced"], "not reproduced"),
    ],
)
def test_a_claim_holds_if_all_of_it_does(verdicts: list[str], verdict: str) -> None:
    assert card.combine(verdicts) == verdict


# -- measures ----------------------------------------------------------------------------------------------------


def loaded(out: Path, **fields: Any) -> RunData:
    return RunData.load(Run(write_run(out, config={"batch_size": 4}, **fields)))


def test_scores_are_means_of_normalised_episodes(tmp_path: Path) -> None:
    one = loaded(tmp_path, curve=[0.2, 0.4, 0.6, 1.0])
    assert METRICS["score"].measure(one) == pytest.approx(0.55)
    assert METRICS["late_score"].measure(one) == pytest.approx(1.0)
    assert METRICS["collapsed"].measure(one) == 0
    one.updates[0]["kind"] = "critic"
    assert METRICS["critic_only"].measure(one) == 0.25


def test_retained_is_the_last_moving_mean_over_the_best(tmp_path: Path) -> None:
    # Raw scores 0.6 for 20 updates, then 0.1 for 10: the last 20 have mean 0.35, the best 20 have 0.6.
    down = loaded(tmp_path, curve=[1.0] * 20 + [0.0] * 10, horizon=120, id="down")
    assert METRICS["retained"].measure(down) == pytest.approx(0.35 / 0.6)
    assert METRICS["collapsed"].measure(down) == 0
    gone = loaded(tmp_path, curve=[1.0] * 20 + [0.0] * 20, horizon=160, id="gone")
    assert METRICS["retained"].measure(gone) == pytest.approx(0.1 / 0.6)
    assert METRICS["collapsed"].measure(gone) == 1
    broken = loaded(
        tmp_path, curve=[1.0] * 30, id="broken", metrics=lambda i: {"policy_loss": None} if i == 29 else {}
    )
    assert METRICS["retained"].measure(broken) == 0 and METRICS["collapsed"].measure(broken) == 1
    assert METRICS["retained"].measure(loaded(tmp_path, curve=[1.0] * 19, id="short")) is None


def test_recovery_counts_a_switch_that_was_not_recovered_from_with_its_phase(tmp_path: Path) -> None:
    openings = (
        (0, "reward.preference = cute"),
        (40, "reward.preference = bold"),
        (80, "reward.preference = old"),
    )
    # Level 0.8, target 0.72. After the first switch 3 bins are below it: recovered after 3 updates. After the
    # second none reaches it: followed for 10 bins, of which a hold of 5 must fit: 5 updates.
    curve = [0.8] * 10 + [0.2] * 3 + [0.8] * 7 + [0.1] * 10
    one = loaded(tmp_path, curve=curve, openings=openings)
    assert METRICS["recovery"].measure(one) == pytest.approx((3 + 5) / 2)
    assert METRICS["recovered"].measure(one) == 0.5


def test_numbers_of_the_critic(tmp_path: Path) -> None:
    values = [0.1, None, 0.9, 0.5]
    one = loaded(
        tmp_path,
        curve=[0.5] * 4,
        metrics=lambda i: {"explained_variance": values[i], "critic_grad_norm": float(i + 1)},
    )
    assert METRICS["explained_variance"].measure(one) == 0.5
    assert METRICS["log_critic_norm"].measure(one) == pytest.approx(math.log(2.5))
    none = loaded(tmp_path, curve=[0.5] * 4, algorithm="rloo", metrics=lambda _: {"explained_variance": None})
    assert METRICS["explained_variance"].measure(none) is None
    assert METRICS["log_critic_norm"].measure(none) is None


# -- a card ------------------------------------------------------------------------------------------------------


def claim(*comparisons: Comparison, facts: tuple[str, ...] = ()) -> Claim:
    return Claim("b", "It is better.", comparisons, facts)


def runs_of(
    tmp_path: Path, better: dict[int, float], other: dict[int, float]
) -> dict[Arm, dict[int, Values]]:
    def run(arm: Arm, seed: int, level: float) -> Values:
        return measure(loaded(tmp_path, algorithm=arm.algorithm, seed=seed, curve=[level] * 2))

    return {arm: {s: run(arm, s, v) for s, v in values.items()} for arm, values in ((X, better), (Y, other))}


def test_the_effect_is_the_iqm_of_paired_differences(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, {0: 0.5, 1: 0.6, 2: 0.7, 3: 0.9}, {0: 0.4, 1: 0.4, 2: 0.4, 3: 0.5})
    judged = card.judge(claim(Comparison(X, Y, "score", 0.02)), runs, [0, 1, 2, 3])
    (finding,) = judged.findings
    # Differences 0.1, 0.2, 0.3, 0.4: the middle half is 0.2 and 0.3.
    assert finding.effect.point == pytest.approx(0.25)
    assert finding.effect.low is not None and 0.1 - 1e-9 <= finding.effect.low < 0.25
    assert (finding.better, finding.other) == (pytest.approx(0.65), pytest.approx(0.4))
    assert (judged.verdict, judged.why) == ("reproduced", "")


def test_a_constant_is_one_side(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, {0: 0.5, 1: 0.7}, {})
    judged = card.judge(claim(Comparison(X, 0.5, "score", 0.02)), runs, [0, 1])
    assert judged.findings[0].effect.point == pytest.approx(0.1)


def test_the_other_way_is_said_with_what_was_measured(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, {0: 0.91, 1: 0.92}, {0: 0.96, 1: 0.98})
    judged = card.judge(claim(Comparison(X, Y, "score", 0.02), facts=("late_score",)), runs, [0, 1])
    assert judged.verdict == "not reproduced"
    assert "The effect points the other way." in judged.why
    assert "within a tenth of the oracle" in judged.why
    assert "tool/sao: mean normalised score of the last quarter of the episodes 0.915" in judged.why


def test_an_effect_below_the_smallest_of_interest_is_reproduced_and_says_so(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, {0: 0.51, 1: 0.512}, {0: 0.5, 1: 0.5})
    judged = [card.judge(claim(Comparison(X, Y, "score", 0.02)), runs, [0, 1])]
    assert "; reproduced, though smaller than that" in card.text(judged, "Card", [], indicative=False)


def test_what_was_lost_early_shows_at_the_end(tmp_path: Path) -> None:
    runs = {
        arm: {s: measure(loaded(tmp_path, algorithm=arm.algorithm, seed=s, curve=curve)) for s in (0, 1)}
        for arm, curve in ((X, [0.0, 0.5, 0.9, 0.9]), (Y, [0.8] * 4))
    }
    judged = card.judge(claim(Comparison(X, Y, "score", 0.02)), runs, [0, 1])
    assert judged.verdict == "not reproduced"
    assert "Over the last quarter of the episodes tool/sao is +0.1 against tool/grpo_dis." in judged.why


def test_a_seed_without_a_run_keeps_the_claim_open(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, {0: 0.5, 1: 0.6, 2: 0.7}, {0: 0.1, 1: 0.1})
    judged = card.judge(claim(Comparison(X, Y, "score", 0.02)), runs, [0, 1, 2])
    assert judged.findings[0].effect.point == pytest.approx(0.45)
    assert judged.verdict == "inconclusive" and "Seeds without a finished run of both arms: 1." in judged.why
    nothing = card.judge(claim(Comparison(X, Y, "score", 0.02)), {}, [0, 1])
    assert nothing.verdict == "inconclusive" and nothing.findings[0].effect.point is None


def test_every_verdict_line_of_an_indicative_card_says_so(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, {0: 0.5, 1: 0.4}, {0: 0.4, 1: 0.5})
    judged = [
        card.judge(one, runs, [0, 1]) for one in (claim(Comparison(X, Y, "score", 0.02)), *claims.CLAIMS)
    ]
    text = card.text(judged, "Card", ["head"], indicative=True)
    lines = [line for line in text.splitlines() if line.startswith(("## ", "- "))]
    assert len(lines) == len(judged) + sum(len(one.findings) for one in judged)
    assert all(line.endswith("INDICATIVE") for line in lines)
    assert "INDICATIVE" not in card.text(judged, "Card", ["head"], indicative=False)


def test_the_figure_has_a_row_per_comparison_and_the_same_bytes_twice(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, {0: 0.5, 1: 0.6}, {0: 0.4, 1: 0.45})
    judged = [
        card.judge(one, runs, [0, 1]) for one in (claim(Comparison(X, Y, "score", 0.02)), *claims.CLAIMS)
    ]
    table = pd.DataFrame(card.rows(judged, True))
    files = replication_card.figure(table, {"runs": []}, "INDICATIVE")
    assert files == replication_card.figure(table, {"runs": []}, "INDICATIVE")
    assert sorted(files) == ["card.csv", "card.json", "card.pdf", "card.png"]
    assert files["card.png"].startswith(b"\x89PNG")
    rows = files["card.csv"].decode().splitlines()
    assert len(rows) == 1 + sum(len(one.findings) for one in judged)
    assert rows[1].startswith("b,reproduced,reproduced,True,tool/sao,tool/grpo_dis,score,0.55,0.425,0.125,")


# -- the protocol ------------------------------------------------------------------------------------------------


def test_claims_a_to_j_name_what_exists() -> None:
    assert [one.id for one in claims.CLAIMS] == list("abcdefghij")
    for arm in claims.arms():
        assert arm.algorithm in registry.algorithms() and arm.stage in claims.stages(False)
    named = {c.metric for one in claims.CLAIMS for c in one.comparisons}
    assert named | {fact for one in claims.CLAIMS for fact in one.facts} <= set(METRICS)
    assert all(c.least > 0 for one in claims.CLAIMS for c in one.comparisons)


def test_seeds_that_judge_have_tuned_nothing() -> None:
    assert len(claims.JUDGING_SEEDS) >= 10
    kinds = (claims.DEVELOPMENT_SEEDS, claims.QUICK_SEEDS, claims.JUDGING_SEEDS)
    assert len(set().union(*kinds)) == sum(map(len, kinds))


@pytest.mark.parametrize("quick", [False, True])
def test_the_card_fits_its_time_on_two_cores(quick: bool) -> None:
    request = run.Request(Path("out"), "tiny", quick, tuple(claims.seeds(quick)))
    total = sum(request.cost(arm) for arm in claims.arms()) * len(request.seeds)
    assert total <= 2 * (600 if quick else 3 * 3600)
    assert request.indicative == quick


@pytest.mark.parametrize("quick", [False, True])
def test_every_stage_is_a_schedule_long_enough_whose_phases_are_whole_batches(quick: bool) -> None:
    for stage in claims.stages(quick).values():
        schedule = load(claims.schedule(stage), time_scale=stage.time_scale)
        assert stage.episodes <= schedule.horizon
        assert all(phase.start % stage.batch_size == 0 for phase in schedule.phases())
        drifts = sum(0 < phase.start < stage.episodes for phase in schedule.phases())
        assert drifts == (2 if stage.id == "switch" else 0)


def test_few_seeds_are_indicative() -> None:
    assert run.Request(Path("out"), "tiny", False, (100, 101)).indicative


@pytest.mark.parametrize(
    ("seeds", "indicative"),
    [
        (range(10), True),
        (range(10, 20), True),
        (range(99, 120), True),
        (range(100, 110), False),
        (range(200, 212), False),
    ],
)
def test_development_seeds_do_not_judge_and_new_ones_may(seeds: range, indicative: bool) -> None:
    assert run.Request(Path("out"), "tiny", False, tuple(seeds)).indicative is indicative


def test_the_plan_names_each_arm_once_and_its_claims() -> None:
    request = run.Request(Path("out"), "tiny", False, tuple(claims.JUDGING_SEEDS))
    lines = run.describe(request, 2).splitlines()
    arms = [line for line in lines if line.startswith("  ")]
    assert len(arms) == len(claims.arms()) == len(set(claims.arms()))
    assert arms[0].split("claims")[1].split("  ")[0].strip() == "b, c, d, e, f, j"
    assert f"{10 * len(arms)} runs" in lines[-2]
