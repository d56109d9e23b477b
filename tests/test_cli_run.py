"""`run` refuses wrong input on one line, with the known names, and writes nothing; Ctrl-C leaves a usable folder."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sao_bench import registry, tiny
from sao_bench.cli import main
from sao_bench.records import Run

SMALL = [
    "--set",
    "batch_size=16",
    "--set",
    "cost.slots=16",
    "--set",
    "cost.workers=32",
    "--set",
    "checkpoint_every=4",
]


def call(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["sao_bench", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0)


def test_version_and_a_group_without_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "--version") == 0
    assert capsys.readouterr().out.startswith("sao_bench ")
    assert call(monkeypatch, "drift") == 2
    assert capsys.readouterr().err.startswith("Usage: ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], ["--drift is missing", "style_switch"]),
        (["--drift", "style_swich"], ["style_swich", "style_switch"]),
        (
            ["--drift", "GOOD", "--algorithm", "runing_mean"],
            ["unknown algorithm", "'running_mean'", "sao"],
        ),
        (["--drift", "GOOD", "--algorithm", "nowhere.module:X"], ["nowhere.module:X"]),
        (["--drift", "GOOD", "--tier", "huge"], ["unknown tier 'huge'", "tiny"]),
        (["--drift", "GOOD", "--executor", "simulatd"], ["unknown executor", "'simulated'"]),
        (["--drift", "GOOD", "--model", "no/such/model"], ["no/such/model", "config.json"]),
        (["--drift", "GOOD", "--seeds", "x"], ["--seeds 'x'"]),
        (["--drift", "GOOD", "--seeds", "1,1"], ["--seeds '1,1'"]),
        (["--drift", "GOOD", "--set", "batchsize=3"], ["batchsize", "'batch_size'"]),
        (["--drift", "GOOD", "--set", "batch_size=many"], ["batch_size", "'many'"]),
        (["--drift", "GOOD", "--set", "batch_size"], ["key=value"]),
        (["--drift", "GOOD", "--set", "algorithm.policy_rl=1"], ["policy_rl", "'policy_lr'"]),
        (["--drift", "GOOD", "--set", "algorithm.policy_lr=-1"], ["algorithm.policy_lr", "greater than 0"]),
        (["--drift", "GOOD", "--set", "batch_size=12", "--algorithm", "grpo_dis"], ["group_size 8"]),
        (["--drift", "GOOD", "--set", "env.template=sonnet"], ["sonnet", "chat"]),
        (["--drift", "GOOD", "--set", "env.colour=red"], ["colour", "known: env."]),
        (["--drift", "GOOD", "--set", "algorithm.policy_lr=.inf"], ["algorithm.policy_lr", "finite"]),
        (["--drift", "GOOD", "--set", "max_staleness=true"], ["max_staleness", "number"]),
        (["--drift", "GOOD", "--set", f"max_staleness={'9' * 5000}"], ["max_staleness"]),
        (["--drift", "GOOD", "--set", f"max_staleness={'[' * 3000}"], ["max_staleness"]),
        (["--drift", "GOOD", "--id", ""], ["--id ''"]),
        (["--drift", "GOOD", "--time-scale", "0"], ["--time-scale"]),
        (["--drift", "GOOD", "--time-scale", "inf"], ["--time-scale inf"]),
        (["--drift", "GOOD", "--seeds", "9" * 30], ["--seeds"]),
        (["--drift", "GOOD", "--id", "a" * 400], ["--id"]),
        (["--drift", "GOOD", "--until", "0"], ["until"]),
        (["--drift", "GOOD", "--id", "../up"], ["--id"]),
        (["--drift", "GOOD", "--env", "sao_bench/Nope-v0"], ["sao_bench/Nope-v0"]),
        (["--drift", "GOOD", "--no-such-option"], ["--no-such-option"]),
        (["--resume", "no/such/run"], ["no/such/run"]),
    ],
)
def test_wrong_input_is_one_line_and_writes_nothing(
    arguments: list[str],
    says: list[str],
    schedule_file: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    good, out = str(schedule_file()), tmp_path / "out"
    given = [good if a == "GOOD" else a for a in arguments]
    assert call(monkeypatch, "run", *given, "--out", out) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ") and captured.err.count("\n") == 1
    for text in says:
        assert text in captured.err
    assert not out.exists()


def test_an_existing_run_id_and_an_unusable_folder_are_refused(
    schedule_file: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = schedule_file()
    (tmp_path / "out" / "taken").mkdir(parents=True)
    assert call(monkeypatch, "run", "--drift", file, "--out", tmp_path / "out", "--id", "taken") == 2
    assert "taken exists" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert call(monkeypatch, "run", "--drift", file, "--out", tmp_path / "file") == 2
    assert "is not a folder" in capsys.readouterr().err
    assert call(monkeypatch, "run", "--drift", file, "--out", "/proc/nowhere") == 2
    assert "/proc is not writable" in capsys.readouterr().err
    assert not any((tmp_path / "out" / "taken").iterdir())


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("config.json", b"{}", "model"),
        ("config.json", b"\xff\x00", "model"),
        ("model.safetensors", b"\x00" * 100, "model"),
        ("model.safetensors", None, "no file named model.safetensors"),
        ("tokenizer.json", None, "model"),
    ],
)
def test_a_damaged_model_is_one_line_and_leaves_no_run(
    file: str,
    content: bytes | None,
    says: str,
    schedule_file: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shipped = tiny.checkpoint(registry.environment("sao_bench/StyleWriting-v0"))
    model, out = tmp_path / "model", tmp_path / "out"
    shutil.copytree(shipped, model)
    (model / file).unlink() if content is None else (model / file).write_bytes(content)
    given = ["--drift", schedule_file(), "--model", model, "--out", out]
    assert call(monkeypatch, "run", *given) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: model {model}: ") and said.count("\n") == 1 and says in said
    assert not out.exists()


def environment() -> dict[str, Any]:
    return {**os.environ, "PYTHONUNBUFFERED": "1"}


def test_a_run_compares_algorithms_and_ends_with_the_report(
    schedule_file: Callable[..., Path], tmp_path: Path
) -> None:
    command = [
        sys.executable,
        "-m",
        "sao_bench",
        "run",
        "--drift",
        schedule_file(96),
        "--out",
        tmp_path,
        "--id",
        "r",
    ]
    command += ["--algorithm", "running_mean,grpo_dis", *SMALL]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment(), timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert {r.manifest["algorithm"] for r in Run.find(tmp_path / "r")} == {"running_mean", "grpo_dis"}
    for name in ("adaptation_curve.png", "adaptation_curve.pdf", "adaptation_curve.csv", "summary.csv"):
        assert (tmp_path / "r" / "report" / name).stat().st_size > 100
        assert name in done.stdout


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_is_killed_stops_as_after_ctrl_c(
    number: signal.Signals, schedule_file: Callable[..., Path], tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "sao_bench", "run", "--drift", schedule_file(16_000), "--algorithm", "running_mean",
         *SMALL, "--out", tmp_path, "--id", "orphan"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(),
    )  # fmt: skip
    folder = tmp_path / "orphan" / "running_mean" / "s0"
    began = _within(120, lambda: folder.is_dir() and sum(1 for _ in Run(folder).lines("updates")) >= 3)
    process.send_signal(number)
    status = process.wait(timeout=120)
    assert began and status == (130 if number == signal.SIGTERM else -number)
    assert _within(30, lambda: Run(folder).status["state"] == "interrupted")
    assert list((folder / "checkpoints").iterdir())


def _within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def test_ctrl_c_leaves_a_folder_that_reports_and_resumes(
    schedule_file: Callable[..., Path], tmp_path: Path
) -> None:
    file = schedule_file(1024)
    command = [
        sys.executable,
        "-m",
        "sao_bench",
        "run",
        "--drift",
        file,
        "--algorithm",
        "running_mean",
        *SMALL,
    ]
    whole = subprocess.run(
        [*command, "--out", tmp_path, "--id", "whole"], env=environment(), timeout=300, check=False
    )
    assert whole.returncode == 0
    process = subprocess.Popen(
        [*command, "--out", tmp_path, "--id", "cut"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(), start_new_session=True,
    )  # fmt: skip
    folder = tmp_path / "cut" / "running_mean" / "s0"
    assert _within(120, lambda: folder.is_dir() and sum(1 for _ in Run(folder).lines("updates")) >= 5)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "--resume" in out and "Traceback" not in err
    run = Run.open(folder)
    assert run.status["state"] == "interrupted"
    assert (tmp_path / "cut" / "report" / "adaptation_curve.png").is_file()
    again = [sys.executable, "-m", "sao_bench", "run", "--resume", tmp_path / "cut"]
    done = subprocess.run(again, capture_output=True, text=True, env=environment(), timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    for name in ("episodes.jsonl", "updates.jsonl", "probes.jsonl"):
        whole_bytes = (tmp_path / "whole" / "running_mean" / "s0" / name).read_bytes()
        assert (folder / name).read_bytes() == whole_bytes
    finished = subprocess.run(again, capture_output=True, text=True, env=environment(), check=False)
    assert finished.returncode == 2 and "is finished" in finished.stderr
