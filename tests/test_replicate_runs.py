"""`replicate paper` on two arms of two batches: real runs, resumed, judged, refused."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sao_bench import cli
from sao_bench.records import Run
from sao_bench.replicate import claims, run
from sao_bench.replicate.claims import Arm, Claim, Comparison, Stage

STAGE = Stage(
    "short", "two batches", "stationary", 16, 1, 2, {"start": 1.0, "with_critic": 1.0, "without": 1.0},
    settings=("algorithm.critic_warmup=0", "algorithm.value_pretrain_episodes=16"),
)  # fmt: skip
CLAIM = Claim(
    "e", "A critic is better.", (Comparison(Arm("short", "sao"), Arm("short", "rloo"), "score", 0.02),)
)


@pytest.fixture
def replicate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    monkeypatch.setattr(claims, "STAGES", (STAGE,))
    monkeypatch.setattr(claims, "CLAIMS", (CLAIM,))

    def call(*arguments: str, out: Path = tmp_path / "card") -> tuple[Any, str, str]:
        argv = ["sao_bench", "replicate", "paper", "--out", str(out), "--jobs", "2", *arguments]
        monkeypatch.setattr(sys, "argv", argv)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return call


def test_runs_once_resumes_and_judges(replicate: Any, tmp_path: Path) -> None:
    out = tmp_path / "card"
    status, said, _ = replicate("--seeds", "4,5")
    assert status == 0
    assert "4 runs to do" in said and "## (e) " in said
    written = {path.name for path in out.iterdir()}
    assert {"card.md", "card.csv", "card.png", "card.pdf", "card.json", "values.csv", "plan.json"} <= written
    assert (out / "figures" / "short" / "adaptation_curve.png").is_file()
    card = (out / "card.md").read_text()
    assert "Runs finished: 4 of 4." in card and "INDICATIVE" in card
    assert "undefined" not in card

    lost = out / "short" / "sao" / "s5"
    before = {path: path.read_bytes() for path in (lost / "episodes.jsonl", lost / "updates.jsonl")}
    kept = (out / "short" / "rloo" / "s4" / "events.jsonl").read_bytes()
    (lost / "status.json").write_text('{"state":"running"}\n')
    status, said, _ = replicate("--seeds", "4,5")
    assert status == 0 and "1 runs to do" in said
    assert {path: path.read_bytes() for path in before} == before
    assert (out / "short" / "rloo" / "s4" / "events.jsonl").read_bytes() == kept
    assert (out / "card.md").read_text() == card


def test_machines_share_a_card(replicate: Any, tmp_path: Path) -> None:
    first, second, alone = tmp_path / "first", tmp_path / "second", tmp_path / "alone"
    assert replicate("--seeds", "4,5", out=alone)[0] == 0
    keep_seed(alone, first, "4")
    status, said, _ = replicate("--seeds", "4,5", "--with", str(first), "--plan", out=second)
    assert status == 0 and f"4 runs, 2 of them done in {first}" in said and not second.exists()
    status, _, err = replicate("--with", str(tmp_path / "nowhere"), "--plan", out=second)
    assert status == 2 and "nowhere" in err
    status, said, _ = replicate("--seeds", "4,5", "--with", str(first), out=second)
    assert status == 0 and "2 runs to do" in said
    assert sorted(path.name for path in second.glob("short/*/*")) == ["s5", "s5"]
    assert (second / "card.md").read_text() == (alone / "card.md").read_text()
    assert sorted((second / "values.csv").read_text().splitlines()) == sorted(
        (alone / "values.csv").read_text().splitlines()
    )


def keep_seed(card: Path, out: Path, seed: str) -> None:
    """Copy what a card folder is asked for, with the lines of one seed."""
    out.mkdir()
    (out / "card.json").write_bytes((card / "card.json").read_bytes())
    head, *lines = (card / "values.csv").read_text().splitlines()
    mine = [line for line in lines if line.split(",")[2] == seed]
    (out / "values.csv").write_text("\n".join([head, *mine]) + "\n")


@pytest.mark.parametrize(
    ("card", "values", "message"),
    [
        ("{", "", "card.json is damaged"),
        ("[1]", "", "card.json is damaged"),
        ('{"plan": {"tier": "other"}}', "", "it holds the runs of another plan"),
        (None, "a,b\n", "values.csv: expected the columns stage, algorithm, seed, metric, value"),
        (None, "short,sao,4,score,much\n", "values.csv, line 2: could not convert string to float"),
        (None, "short,sao,4,sccore,1\n", "values.csv, line 2: unknown metric 'sccore'"),
        (None, "short,sao,4,score,1\n", "values.csv: short/sao/s4 has no late_score"),
        (None, "short,sao,4,score\n", "values.csv, line 2: expected 5 columns"),
        (None, "short,sao,4,score,1,2\n", "values.csv, line 2: expected 5 columns"),
        (None, "short,sao,4,score,1\nshort,sao,4,score,9\n", "line 3: score of short/sao/s4 a second time"),
        (None, "short,oracle,4,score,1\n", "values.csv, line 2: the plan has no arm short/oracle"),
        ("[" * 200_000, "", "card.json is damaged"),
    ],
)
def test_a_card_folder_that_does_not_fit_is_refused(
    replicate: Any, tmp_path: Path, card: str | None, values: str, message: str
) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    plan = run.fingerprint(run.Request(tmp_path, "tiny", False, (4,)))
    (folder / "card.json").write_text(card or json.dumps({"plan": plan}))
    head = "" if values.startswith("a,") else "stage,algorithm,seed,metric,value\n"
    (folder / "values.csv").write_text(head + values)
    status, _, err = replicate("--with", str(folder))
    assert status == 2 and err.count("\n") == 1 and message in err
    assert not (tmp_path / "card").exists()


def test_another_plan_is_refused_and_nothing_is_touched(replicate: Any, tmp_path: Path) -> None:
    out = tmp_path / "card"
    out.mkdir()
    (out / "plan.json").write_text(json.dumps({"tier": "other"}))
    status, _, err = replicate()
    assert status == 2 and err.count("\n") == 1 and "holds the runs of another plan" in err
    assert [path.name for path in out.iterdir()] == ["plan.json"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    status, _, err = replicate(out=tmp_path / "mine")
    assert status == 2 and "is not empty and holds no plan.json" in err


def test_the_plan_runs_nothing(replicate: Any, tmp_path: Path) -> None:
    status, said, _ = replicate("--plan", "--seeds", "4,5")
    assert status == 0 and "projected: 12 process-seconds" in said
    assert not (tmp_path / "card").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["replicate", "papper"], "unknown replication 'papper' (did you mean 'paper'?)"),
        (["replicate", "paper", "--tier", "tinny"], "unknown tier 'tinny' (did you mean 'tiny'?)"),
        (["replicate", "paper", "--seeds", "1,1"], "--seeds '1,1'"),
    ],
)
def test_wrong_input_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["sao_bench", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    err = capsys.readouterr().err
    assert ended.value.code == 2 and err.count("\n") == 1 and message in err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_done_and_the_same_command_goes_on(
    replicate: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(claims, "STAGES", (replace(STAGE, batches=16),))
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    assert replicate("--seeds", "1", out=straight)[0] == 0
    stopper = threading.Thread(target=interrupt_after, args=(broken, 3))
    stopper.start()
    status, said, _ = replicate("--seeds", "1", out=broken)
    stopper.join()
    assert status == 130 and "the same command goes on where it was" in said
    done = [run.status["state"] for run in Run.find(broken)]
    assert "interrupted" in done and (broken / "card.md").is_file()
    status, said, _ = replicate("--seeds", "1", out=broken)
    assert status == 0
    for path in straight.glob("short/*/*/*s.jsonl"):
        if path.name != "events.jsonl":
            assert (broken / path.relative_to(straight)).read_bytes() == path.read_bytes()
    assert (broken / "values.csv").read_bytes() == (straight / "values.csv").read_bytes()


def interrupt_after(out: Path, updates: int) -> None:
    """Send Ctrl-C to this process once some run below `out` has so many updates."""
    while not any(len(path.read_text().splitlines()) >= updates for path in out.glob("**/updates.jsonl")):
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)
