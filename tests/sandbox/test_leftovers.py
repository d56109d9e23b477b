"""Nothing stays behind: after a hundred hostile programs, after a killed worker, in a pool that was closed."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sao_bench.sandbox import Sandbox, processes
from sao_bench.sandbox.levels import problem
from tests.sandbox.conftest import LIMITS
from tests.sandbox.hostile import PROGRAMS
from tests.sandbox.machine import boxes, containers, mounts, settled, snapshot

pytestmark = pytest.mark.alone

WORKER = """
import sys, time
from sao_bench.sandbox import Limits, Sandbox
level, program = sys.argv[1:]
sandbox = Sandbox(level, Limits(wall_s=60, pids=24, memory_mb=256))
pool = sandbox.warm(sandbox.python("-c", "import sys; sys.stdin.read()"), size=2)
while pool.waiting() < 2: time.sleep(0.01)
print("started", flush=True)
sandbox.run(code=program)
"""
LASTING = (
    "import os, time\n"
    "open('file', 'w').write('x' * 1000)\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    if os.fork() == 0: time.sleep(99)\n"
    "    os._exit(0)\n"
    "time.sleep(99)"
)


def test_a_hundred_hostile_programs_in_a_row_leave_nothing(bwrap):
    before = snapshot()
    programs = list(PROGRAMS.values())
    limits = replace(LIMITS, wall_s=0.15, memory_mb=128, disk_mb=8)
    for index in range(100):
        assert bwrap.run(code=programs[index % len(programs)], limits=limits).fault is None
    assert settled(before) == before


def processes_with(mark):
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in command:
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize("level", ["bwrap", "landlock", "docker"])
def test_a_worker_killed_in_mid_grade_leaves_nothing(level):
    if lack := problem(level):
        pytest.skip(f"{level}: {lack}")
    mark = f"mark-{os.getpid()}-{time.monotonic_ns()}"
    before = boxes(), mounts(), containers()
    program = f"{LASTING}  # {mark}"
    worker = subprocess.Popen([sys.executable, "-c", WORKER, level, program], stdout=subprocess.PIPE)
    assert worker.stdout.readline() == b"started\n"
    end = time.monotonic() + 20
    while len(processes_with(mark)) < 3 and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(0.3)
    assert len(processes_with(mark)) >= 3  # the worker, the program and its daemon
    worker.send_signal(signal.SIGKILL)
    worker.communicate()
    end = time.monotonic() + 20
    while (processes_with(mark) or (boxes(), mounts(), containers()) != before) and time.monotonic() < end:
        time.sleep(0.05)
    assert processes_with(mark) == []
    assert (boxes(), mounts(), containers()) == before


def test_the_sweep_removes_what_a_dead_owner_left_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(processes.tempfile, "gettempdir", lambda: str(tmp_path))
    dead = subprocess.Popen([sys.executable, "-c", "pass"])
    tag = f"{dead.pid}-{processes.start_time(dead.pid)}"
    dead.wait()
    orphan = tmp_path / f"{processes.BOX_PREFIX}{tag}-abc"
    orphan.mkdir()
    (orphan / "file").write_text("x")
    mine = tmp_path / f"{processes.BOX_PREFIX}{processes.owner_tag()}-abc"
    mine.mkdir()
    reused = tmp_path / f"{processes.BOX_PREFIX}{os.getpid()}-1-abc"
    reused.mkdir()
    other = tmp_path / "something-else"
    other.mkdir()
    assert sorted(processes.sweep()) == sorted([str(orphan), str(reused)])
    assert sorted(tmp_path.iterdir()) == sorted([mine, other])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's sandboxes have users of their own")
def test_the_sweep_kills_processes_whose_supervisor_is_gone():
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    user = processes.UID_BASE + gone.pid
    sleeper = subprocess.Popen(["sleep", "60"], user=user, group=user, extra_groups=[])
    assert f"process {sleeper.pid}" in processes.sweep()
    assert sleeper.wait(5) == -signal.SIGKILL


def test_a_closed_pool_leaves_no_process(bwrap):
    before = snapshot()
    pool = bwrap.warm(bwrap.python("-S", "-c", "import sys; print(sys.stdin.read()[::-1])"), size=3)
    assert [pool.take().talk(text).stdout for text in (b"abc", b"xyz")] == ["cba\n", "zyx\n"]
    pool.close()
    assert settled(before) == before


def test_no_sandbox_of_a_pool_is_used_twice(bwrap):
    pool = bwrap.warm(bwrap.python("-S", "-c", "import os; print(os.getuid(), os.stat('.').st_dev)"), size=2)
    answers = [pool.take().talk().stdout for _ in range(6)]
    if os.geteuid() == 0:
        assert len(set(answers)) == 6


def test_a_pool_reports_why_nothing_starts():
    from sao_bench.sandbox.levels import Level
    from sao_bench.sandbox.limits import SandboxFaultError
    from sao_bench.sandbox.pool import WarmPool

    def broken(argv, limits, extra):
        raise SandboxFaultError("start", "refused", "out of order")

    pool = WarmPool(Level("bwrap", broken, lambda: None), ["true"], LIMITS, size=1)
    with pytest.raises(SandboxFaultError, match="out of order"):
        pool.take()
    pool.close()


def test_a_broken_start_is_a_fault_and_not_a_zero(bwrap, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with Sandbox("bwrap", LIMITS) as sandbox:
        monkeypatch.setattr("sao_bench.sandbox.bwrap.environment", lambda: {"PATH": "/nonexistent"})
        result = sandbox.run(code="print(1)")
    assert result.fault is not None
    assert result.fault["stage"] == "start"
