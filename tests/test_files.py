"""Paths that a person names: no pipe is waited for, no device read, no failed write a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sao_bench.errors import UserError
from sao_bench.files import make_folder, read_text

SCHEDULE = """\
schema: sao-bench-drift/1
id: {id}
env: sao_bench/StyleWriting-v0
clock: episode
horizon: 20000
channels:
  reward.noise: {{start: 0, events: [{event}]}}
"""
STEP = "{at: 9000, shape: step, to: 0.5}"


def schedule(tmp_path: Path, id: str = "good", event: str = STEP) -> str:
    path = tmp_path / "good.yaml"
    path.write_text(SCHEDULE.format(id=id, event=event))
    return str(path)


def refused(*arguments: str, stdin: bytes = b"") -> str:
    """Run a command that must be refused on one line; return the line."""
    command = [sys.executable, "-m", "sao_bench", *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(b"error: ") and done.stderr.count(b"\n") == 1
    return done.stderr.decode()


def test_a_text_is_read_whole_and_without_its_mark(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfone\ntwo\n")
    assert read_text(tmp_path / "a") == "one\ntwo\n"
    assert make_folder(tmp_path / "b" / "c").is_dir()


def test_what_is_no_text_is_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "large").write_text("x" * 11)
    for path, says in {
        "nowhere": "no such file",
        "pipe": "not a regular file",
        ".": "not a regular file",
        "/dev/zero": "not a regular file",
        "a\0b": "no such file",
        "binary": "not UTF-8 text",
        "large": "more than 10 bytes",
    }.items():
        with pytest.raises(UserError, match=says):
            read_text(tmp_path / path, 10)
    with pytest.raises(UserError, match="cannot make the folder"):
        make_folder(tmp_path / "binary" / "below")


@pytest.mark.parametrize("verb", ["compile", "preview"])
@pytest.mark.parametrize("out", ["/proc/nowhere", "FILE", "FILE/below"])
def test_a_folder_that_cannot_be_made(verb: str, out: str, tmp_path: Path) -> None:
    good = schedule(tmp_path)
    assert "cannot make the folder" in refused("drift", verb, good, "--out", out.replace("FILE", good))


def test_a_template_where_nothing_can_be_written() -> None:
    assert "cannot make the folder" in refused("drift", "new", "mine", "--out", "/proc/nowhere")


@pytest.mark.parametrize("scale", ["inf", "nan", "1e300", "0", "-1"])
def test_a_time_scale_is_bounded_on_both_sides(scale: str, tmp_path: Path) -> None:
    said = refused("drift", "compile", schedule(tmp_path), "--time-scale", scale, "--out", str(tmp_path))
    assert "it must be above 2.5e-05 and at most 5e+04" in said


def test_schedules_that_name_other_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for event, says in {
        "{at: 0, shape: replay, file: pipe}": "not a regular file",
        "{at: 0, shape: replay, file: /dev/zero}": "not a regular file",
        '{at: 0, shape: replay, file: "a\\0b.csv"}': "NUL character",
    }.items():
        assert says in refused("drift", "validate", schedule(tmp_path, event=event))
    assert "up to 100 letters" in refused("drift", "validate", schedule(tmp_path, id="a" * 101))
    path = Path(schedule(tmp_path))
    values = ", ".join(map(str, range(101)))
    path.write_text(path.read_text() + f"sweep: {{seed: [{values}], horizon: [{values}]}}\n")
    assert "10201 combinations; allowed: at most 10000" in refused("drift", "validate", str(path))


def test_playing_by_hand_takes_any_bytes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    name = "sao_bench/StyleWriting-v0"
    assert "not a regular file" in refused("env", "play", name, "--actions", str(tmp_path / "pipe"))
    assert "reward.noise" in refused("env", "play", name, "--set", "reward.noise=" + "9" * 6000)
    assert "reward.noise" in refused("env", "play", name, "--set", "reward.noise=" + "[" * 50_000)
    command = [sys.executable, "-m", "sao_bench", "env", "play", name]
    done = subprocess.run(command, input=b"\xff\xfe\n", capture_output=True, timeout=60, check=False)
    assert done.returncode == 0 and b"reward: 0" in done.stdout


def test_no_run_without_a_worker(tmp_path: Path) -> None:
    for jobs in ("0", "-1"):
        said = refused("run", "--drift", schedule(tmp_path), "--jobs", jobs, "--out", str(tmp_path / "out"))
        assert "--jobs" in said
    assert not (tmp_path / "out").exists()
