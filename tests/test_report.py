"""Loading, measuring, grouping and writing, against values worked out by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from sao_bench.errors import UserError
from sao_bench.outcomes import drift_outcomes, run_outcome
from sao_bench.records import Run
from sao_bench.report import compare, reports, write_report
from sao_bench.run_data import RunData
from tests.run_folders import AFTER, BEFORE, CURVE, FLOOR, ORACLE, SMALL, write_run

TWO_DRIFTS = (
    (0, "reward.preference = cute"),
    (16, "reward.preference = bold"),
    (40, "reward.preference = dry"),
)


CURVES = ["adaptation_curve"]


def load(folder: Path) -> RunData:
    return RunData.load(Run.open(folder))


def approx(value):
    return pytest.approx(value, rel=1e-9, abs=1e-9)


def test_no_torch():
    code = (
        "import sys, sao_bench.report, sao_bench.cli.report; sao_bench.report.reports();"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class TestRunData:
    def test_episodes_are_put_into_dispatch_order(self, tmp_path):
        run = load(write_run(tmp_path, noise=lambda index: index / 1000))
        n = (run.columns["score"] - FLOOR) / (ORACLE - FLOOR)
        assert n[:5].tolist() == approx([0.8, 0.801, 0.802, 0.803, 0.804])
        assert run.curve(SMALL)[:2].tolist() == approx([0.8015, 0.8055])
        assert run.curve(SMALL, raw=True)[0] == approx(FLOOR + 0.8015 * 0.5)
        assert run.consumed_by[:9].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2]

    @pytest.mark.parametrize(
        ("file", "content", "says"),
        [
            ("episodes.jsonl", b"\xff\xfe\x00\n", "episodes.jsonl:1: not JSON in UTF-8"),
            ("episodes.jsonl", b"[1]\n", "episodes.jsonl:1: not a JSON object but a list"),
            ("episodes.jsonl", b'{"index": 0}\n', "episodes.jsonl:1: lacks arrived_s, clocks, concept"),
            ("updates.jsonl", b"[" * 100_000 + b"\n", "updates.jsonl:1: not JSON"),
            ("manifest.json", b"[]", "manifest.json: not a JSON object but a list"),
            ("manifest.json", b"{}", "manifest.json: lacks algorithm"),
            ("manifest.json", b"\x80", "manifest.json: not JSON in UTF-8"),
            ("status.json", b"{}", "status.json: lacks state"),
        ],
    )
    def test_a_damaged_file_is_named_on_one_line(self, tmp_path, file, content, says):
        folder = write_run(tmp_path)
        (folder / file).write_bytes(content)
        with pytest.raises(UserError) as error:
            write_report([folder], tmp_path / "out")
        assert says in str(error.value) and "\n" not in str(error.value)
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize("key", ["index", "clocks", "score", "phase", "t"])
    def test_a_value_of_another_kind_is_one_line_too(self, tmp_path, key):
        folder = write_run(tmp_path)
        lines = (folder / "episodes.jsonl").read_text().splitlines()
        record = {**json.loads(lines[3]), key: {"a": ["thing"]}}
        lines[3] = json.dumps(record)
        (folder / "episodes.jsonl").write_text("\n".join(lines) + "\n")
        with pytest.raises(UserError, match="a record holds a value of another kind"):
            load(folder)

    def test_a_hole_ends_the_arrays_of_a_running_run(self, tmp_path):
        run = load(write_run(tmp_path, state="running", missing=[10, 15]))
        assert run.episodes == 10
        assert run.shown_bins(SMALL) == 2

    def test_a_dropped_episode_is_no_hole(self, tmp_path):
        folder = write_run(tmp_path, missing=[10])
        lines = [json.loads(line) for line in (folder / "updates.jsonl").read_text().splitlines()]
        lines[3]["dropped"] = [{"index": 10, "reason": "stale"}]
        (folder / "updates.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        run = load(folder)
        assert run.episodes == 40
        assert np.flatnonzero(np.isnan(run.columns["score"])).tolist() == [10]
        assert run.curve(SMALL).tolist() == approx(CURVE)

    def test_a_line_being_written_is_left_out(self, tmp_path):
        folder = write_run(tmp_path, state="running")
        for name in ("episodes", "updates", "probes"):
            with (folder / f"{name}.jsonl").open("a") as file:
                file.write('{"index": 40, "sc')
        assert load(folder).episodes == 40

    def test_a_fault_is_masked(self, tmp_path):
        # Without its fourth episode the first bin is (0.8 + 0.9 + 1.0) / 3.
        run = load(write_run(tmp_path, noise=lambda index: index / 10 if index < 4 else 0, faults=[3]))
        assert run.curve(SMALL)[0] == approx(0.9)
        assert run_outcome(run).faults == 1

    def test_the_probe_at_the_drift_is_the_frozen_policy(self, tmp_path):
        probes = [
            {"t": 8, "phase": 1, "role": "next", "score": 0.5},
            {"t": 16, "phase": 1, "role": "seen", "score": 0.2},
            {"t": 16, "phase": 1, "role": "current", "score": 0.6},
            {"t": 24, "phase": 1, "role": "seen", "score": 0.55},
        ]
        run = load(write_run(tmp_path, probes=probes, start_score={0: 0.35, 1: 0.1}))
        assert run.frozen_at_drift(1) == approx(0.2)  # (0.2 - 0.1) / (0.6 - 0.1)
        assert [run.frozen_start(0), run.frozen_start(1)] == approx([0.5, 0.0])
        assert run.frozen_start(0, raw=True) == 0.35

    def test_nothing_measured_is_none(self, tmp_path):
        run = load(write_run(tmp_path))
        assert run.frozen_at_drift(1) is None
        assert run.frozen_start(0) is None


class TestOutcomes:
    def test_drift_by_hand(self, tmp_path):
        (drift,) = drift_outcomes(load(write_run(tmp_path)), SMALL)
        assert (drift.start, drift.end, drift.complete) == (16, 40, True)
        assert [drift.before, drift.dip, drift.auac] == approx([0.8, 0.5, 0.62])
        assert (drift.recovery.bins, drift.recovery.episodes, drift.recovery.updates) == (3, 12, 3)
        assert drift.recovery.observed
        # The oracle's 0.9 is never held: censored at 6 - 2 bins.
        assert (drift.recovery_oracle.bins, drift.recovery_oracle.observed) == (4, False)
        assert drift.auac_frozen is None
        assert drift.gain is None

    def test_gain_over_the_frozen_policy(self, tmp_path):
        run = load(write_run(tmp_path, probes=[{"t": 16, "phase": 1, "score": 0.2}]))
        assert drift_outcomes(run, SMALL)[0].gain == approx(0.62 - 0.2)

    def test_whole_run_by_hand(self, tmp_path):
        outcome = run_outcome(load(write_run(tmp_path)))
        assert [outcome.normalised, outcome.score] == approx([0.68, 0.44])
        # 4 episodes x 0.5 x sum of 1 - n: 4 x 0.2 before, 0.8 + 0.6 + 0.4 + 3 x 0.2 after.
        assert outcome.regret == approx(6.4)
        assert (outcome.staleness_max, outcome.staleness_mean) == (2, 1.5)
        assert (outcome.episodes, outcome.updates) == (40, 10)
        assert outcome.collapsed is False

    def test_bins_are_counted_from_a_drift_that_is_off_the_grid(self, tmp_path):
        # The drift at episode 18 cuts a bin; every episode of the new phase scores 0, every other 1.
        step = {"openings": ((0, "a = 1"), (18, "a = 2")), "curve": [0.0] * 10}
        run = load(write_run(tmp_path, noise=lambda index: float(index < 18), **step))
        (drift,) = drift_outcomes(run, SMALL)
        assert [drift.before, drift.dip, drift.auac] == approx([1, 1, 0])

    def test_recovery_must_fit_before_the_next_drift(self, tmp_path):
        curve = [*BEFORE, 0.2, 0.2, 0.2, 0.2, 0.2, 0.8, 0.8, 0.8, 0.8, 0.8]
        first, second = drift_outcomes(load(write_run(tmp_path, curve=curve, openings=TWO_DRIFTS)), SMALL)
        assert (first.recovery.bins, first.recovery.observed) == (4, False)
        assert (first.recovery.episodes, first.recovery.updates) == (16, 4)
        assert second.recovery.observed
        assert second.recovery.bins == 0  # level 0.5: the drift did it no harm

    def test_nothing_to_recover(self, tmp_path):
        (drift,) = drift_outcomes(load(write_run(tmp_path, curve=[0.0] * 10)), SMALL)
        assert drift.recovery.bins is None
        assert "not above the floor" in drift.recovery.reason

    @pytest.mark.parametrize(
        ("best", "share", "expected"), [(0.0, 1.0, True), (0.1, 1.0, False), (0.0, 0.99, False)]
    )
    def test_absorbed(self, tmp_path, best, share, expected):
        curve = [*BEFORE, best, *[0.0] * 3, best, 0.0]
        run = load(
            write_run(tmp_path, curve=curve, zero_advantage=lambda place: share if place >= 4 else 0.0)
        )
        assert drift_outcomes(run, SMALL)[0].absorbed is expected

    def test_absorbed_is_unknown_in_a_short_phase(self, tmp_path):
        run = load(write_run(tmp_path, curve=[*BEFORE, *[0.0] * 3], zero_advantage=lambda _: 1.0))
        assert drift_outcomes(run, SMALL)[0].absorbed is None

    def test_a_drift_not_reached_has_no_outcome(self, tmp_path):
        run = load(write_run(tmp_path, curve=BEFORE, horizon=40, state="interrupted"))
        assert drift_outcomes(run, SMALL) == []

    def test_an_interrupted_phase_is_not_complete(self, tmp_path):
        run = load(write_run(tmp_path, curve=[*BEFORE, 0.2, 0.4], horizon=40, state="interrupted"))
        (drift,) = drift_outcomes(run, SMALL)
        assert not drift.complete
        assert (drift.recovery.bins, drift.recovery.observed) == (0, False)

    def test_a_gradient_that_is_not_finite_is_a_collapse(self, tmp_path):
        broken = lambda place: {"policy_grad_norm": None} if place == 3 else {}  # noqa: E731
        assert run_outcome(load(write_run(tmp_path, metrics=broken))).collapsed is True

    def test_null_explained_variance_is_no_collapse(self, tmp_path):
        constant = {"explained_variance": None, "gradient_cosine": None}
        assert run_outcome(load(write_run(tmp_path, metrics=lambda _: constant))).collapsed is False

    def test_falling_for_good_is_a_collapse(self, tmp_path):
        # Means of 20 updates: 0.1 + 0.5 x 0.8 = 0.5 at best, 0.1 + 0.5 x 0.2 = 0.2 at the end.
        assert run_outcome(load(write_run(tmp_path, curve=[0.8] * 20 + [0.2] * 20))).collapsed is True

    def test_the_window_and_the_share_of_a_collapse_are_options(self, tmp_path):
        run = load(write_run(tmp_path, curve=[0.9] * 8 + [-0.1] * 8))
        assert run_outcome(run).collapsed is False
        assert run_outcome(run, SMALL).collapsed is True

    def test_a_batch_of_faults_alone_is_no_collapse(self, tmp_path):
        folder = write_run(tmp_path, curve=[0.9] * 10)
        path = folder / "updates.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        lines[-1] |= {"score_mean": None, "reward_mean": None}
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        assert run_outcome(load(folder)).collapsed is False


class TestComparison:
    def test_seeds_of_one_algorithm_are_one_line(self, tmp_path):
        for algorithm in ("grpo_dis", "sao"):
            for seed in (0, 1):
                write_run(tmp_path, algorithm, seed)
        (comparison,) = compare([tmp_path], options=SMALL)
        assert [line.label for line in comparison.lines] == ["sao", "grpo_dis"]
        assert [[run.seed for run in line.runs] for line in comparison.lines] == [[0, 1], [0, 1]]
        assert comparison.note == "indicative: 2 seeds, of 5 needed for a ranking"

    def test_five_seeds_are_not_indicative(self, tmp_path):
        for seed in range(5):
            write_run(tmp_path, seed=seed)
        assert compare([tmp_path])[0].note == ""

    def test_a_folder_given_twice_counts_once(self, tmp_path):
        folder = write_run(tmp_path)
        assert len(compare([tmp_path, folder])[0].runs) == 1

    def test_seeds_spread_over_folders_are_one_line(self, tmp_path):
        write_run(tmp_path, seed=0, id="A")
        write_run(tmp_path, seed=1, id="B")
        assert [line.label for line in compare([tmp_path])[0].lines] == ["sao"]

    def test_configurations_are_told_apart(self, tmp_path):
        write_run(tmp_path, seed=0, id="A", config={"batch_size": 8})
        write_run(tmp_path, seed=1, id="B", config={"batch_size": 16})
        assert [line.label for line in compare([tmp_path])[0].lines] == ["sao [A]", "sao [B]"]

    def test_schedules_are_kept_apart(self, tmp_path):
        write_run(tmp_path, id="A", schedule="one")
        write_run(tmp_path, id="B", schedule="two")
        paths = write_report([tmp_path / "A", tmp_path / "B"], options=SMALL, only=CURVES)
        assert tmp_path / "report" / "one" / "adaptation_curve.png" in paths
        assert tmp_path / "report" / "two" / "adaptation_curve.png" in paths

    def test_refusals(self, tmp_path):
        with pytest.raises(UserError, match="no such run folder"):
            compare([tmp_path / "absent"])
        with pytest.raises(UserError, match="no runs below"):
            compare([tmp_path])
        write_run(tmp_path, curve=[], state="failed", horizon=40)
        with pytest.raises(UserError, match="nothing to draw"):
            compare([tmp_path])


class TestWriting:
    def test_every_report_is_found_and_named(self):
        names = [report.name for report in reports()]
        assert names[:2] == ["summary", "adaptation_curve"]
        assert len(set(names)) == len(names)
        assert all(report.needs for report in reports())

    def test_same_bytes_again(self, tmp_path):
        for seed in (0, 1):
            write_run(tmp_path, seed=seed, noise=lambda index: (index % 7) / 100)
        first = write_report([tmp_path / "run"], tmp_path / "a", command="report", options=SMALL)
        second = write_report([tmp_path / "run"], tmp_path / "b", command="report", options=SMALL)
        assert [path.name for path in first] == [path.name for path in second]
        assert len(first) > 20
        for one, other in zip(first, second, strict=True):
            assert one.read_bytes() == other.read_bytes(), one.name

    def test_default_place_is_the_run_folder_which_stays_readable(self, tmp_path):
        write_run(tmp_path)
        paths = write_report([tmp_path / "run"], options=SMALL, only=["summary"])
        assert {path.parent for path in paths} == {tmp_path / "run" / "report"}
        assert write_report([tmp_path / "run"], options=SMALL, only=["summary"]) == paths

    def test_pdf_has_truetype_fonts_and_no_date(self, tmp_path):
        write_run(tmp_path)
        paths = {path.name: path for path in write_report([tmp_path / "run"], options=SMALL, only=CURVES)}
        pdf = paths["adaptation_curve.pdf"].read_bytes()
        assert b"/FontFile2" in pdf
        assert b"/Type3" not in pdf
        assert b"CreationDate" not in pdf

    def test_sidecar_names_runs_command_and_constants(self, tmp_path):
        write_run(tmp_path)
        made = write_report([tmp_path / "run"], command="the command", options=SMALL, only=CURVES)
        paths = {path.name: path for path in made}
        sidecar = json.loads(paths["adaptation_curve.json"].read_text())
        assert sidecar["command"] == "the command"
        assert sidecar["options"]["bin"] == 4
        (run,) = sidecar["runs"]
        assert (run["algorithm"], run["seed"], run["state"], run["episodes"]) == ("sao", 0, "finished", 40)

    def test_unwritable_place_is_one_line(self, tmp_path):
        write_run(tmp_path)
        (tmp_path / "file").write_text("")
        with pytest.raises(UserError, match="cannot write the report"):
            write_report([tmp_path / "run"], tmp_path / "file" / "below", options=SMALL, only=CURVES)

    def test_what_is_not_drawn_is_said(self, tmp_path):
        write_run(tmp_path)
        console = Console(width=100, record=True, file=(tmp_path / "log").open("w"))
        write_report([tmp_path / "run"], console=console, options=SMALL, only=["summary", "recovery"])
        assert "not drawn: recovery (needs two seeds" in console.export_text()


class TestCommand:
    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "sao_bench", "report", *map(str, arguments)]
        return subprocess.run(command, check=False, capture_output=True, text=True)

    def test_prints_table_and_paths(self, tmp_path):
        write_run(tmp_path)
        done = self.run(tmp_path / "run", "--set", "bin=4", "--set", "window=2", "--set", "hold=2")
        assert done.returncode == 0, done.stderr
        printed = [Path(line) for line in done.stdout.splitlines() if line.startswith("/")]
        assert len(printed) > 20
        assert all(path.is_file() for path in printed)
        assert "12 / 3" in done.stdout

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["absent"], "no such run folder"),
            (["RUN", "--only", "adaptation_curv"], "did you mean 'adaptation_curve'?"),
            (["RUN", "--set", "bins=4"], "did you mean 'bin'?"),
            (["RUN", "--set", "bin=many"], "expected bin=<int>"),
            (["RUN", "--set", "bin=0"], "must be at least 1"),
        ],
    )
    def test_wrong_input_is_one_line_and_exit_2(self, tmp_path, arguments, message):
        write_run(tmp_path)
        done = self.run(*(tmp_path / "run" if a == "RUN" else a for a in arguments))
        assert done.returncode == 2
        assert done.stderr.startswith("error: ")
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert not (tmp_path / "run" / "report").exists()


def test_the_hand_made_curve_is_what_its_text_says():
    assert [*BEFORE, *AFTER] == CURVE
    assert sum(CURVE) / 10 == approx(0.68)
