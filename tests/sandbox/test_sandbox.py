import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sao_bench.errors import UserError
from sao_bench.sandbox import Sandbox, levels
from sao_bench.sandbox.selftest import failures
from tests.sandbox.conftest import LIMITS
from tests.sandbox.hostile import PROGRAMS
from tests.sandbox.machine import settled, snapshot

pytestmark = pytest.mark.alone


def test_a_plain_program_says_what_it_read(sandbox):
    result = sandbox.run(
        code="import sys; print(sys.stdin.read() + open('a/b.txt').read()); print('e', file=sys.stderr); sys.exit(3)",
        stdin="in ",
        files={"a/b.txt": "file"},
    )
    assert (result.stdout, result.stderr, result.exit, result.signal) == ("in file\n", "e\n", 3, None)
    assert result.level == sandbox.level
    assert not result.timed_out
    assert result.fault is None


def test_large_input_reaches_a_program_that_answers_as_it_reads(sandbox):
    code = "import sys\nfor line in sys.stdin: sys.stdout.write(line[:10]); sys.stdout.flush()"
    result = sandbox.run(code=code, stdin=("y" * 99_999 + "\n") * 20)
    assert result.stdout == "y" * 200


def test_input_that_nobody_reads_does_not_hang(sandbox):
    assert sandbox.run(code="print(1)", stdin=b"x" * 5_000_000).stdout == "1\n"


def test_the_environment_holds_nothing_of_ours(sandbox, monkeypatch):
    monkeypatch.setenv("TOKEN_OF_THE_WORKER", "secret-of-the-worker")
    code = (
        "import os, glob\n"
        "text = repr(dict(os.environ))\n"
        "for path in glob.glob('/proc/*/environ'):\n"
        "    try: text += open(path, errors='replace').read()\n"
        "    except OSError: pass\n"
        "print(text)"
    )
    output = sandbox.run(code=code).stdout
    assert "'HOME'" in output
    assert "secret-of-the-worker" not in output


def test_a_time_out_is_the_programs_own(sandbox):
    result = sandbox.run(code=PROGRAMS["loop deaf to signals"], limits=replace(LIMITS, wall_s=0.7))
    assert result.timed_out
    assert result.limit == "wall"
    assert result.signal == 9
    assert result.exit is None
    assert result.fault is None
    assert result.wall_s < 5


def test_cpu_time_is_bounded(sandbox):
    result = sandbox.run(code="while True: pass", limits=replace(LIMITS, cpu_s=1, wall_s=20))
    assert (result.timed_out, result.limit) == (False, "cpu")
    assert result.signal == signal.SIGXCPU
    assert result.wall_s < 15


def test_cpu_time_is_bounded_for_the_deaf_too(sandbox):
    code = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    result = sandbox.run(code=code, limits=replace(LIMITS, cpu_s=1, wall_s=20))
    assert result.signal == signal.SIGKILL
    assert result.wall_s < 15


def test_output_is_cut_while_it_is_read(sandbox):
    code = "import sys\nfor _ in range(300): sys.stdout.write('x' * 10**6)\nsys.stderr.write('done')"
    result = sandbox.run(code=code, limits=replace(LIMITS, wall_s=60, cpu_s=60))
    assert result.stdout == "x" * LIMITS.output_bytes
    assert result.stderr == "done"
    assert result.truncated
    assert result.exit == 0


def test_a_fork_bomb_is_bounded(sandbox):
    code = (
        "import os, time\n"
        "n = 0\n"
        "try:\n"
        "    while n < 500:\n"
        "        if os.fork() == 0: time.sleep(60)\n"
        "        n += 1\n"
        "except OSError: pass\n"
        "print(n)"
    )
    assert 1 <= int(sandbox.run(code=code).stdout) < LIMITS.pids


def test_memory_of_all_processes_together_is_bounded(sandbox):
    result = sandbox.run(code=PROGRAMS["memory bomb in children"], limits=replace(LIMITS, wall_s=8))
    assert result.limit == "memory" or sandbox.level == "docker"  # the kernel kills inside a container
    assert sandbox.run(code=PROGRAMS["memory bomb"]).exit != 0


def test_the_disk_is_bounded(sandbox):
    result = sandbox.run(code=PROGRAMS["disk filler"])
    assert result.limit == "disk" or "Errno 28" in result.stderr
    one_file = sandbox.run(code="f = open('big', 'wb')\nwhile True: f.write(b'x' * 10**6)")
    assert one_file.exit == 1
    assert "Errno 27" in one_file.stderr or "Errno 28" in one_file.stderr


def test_shared_memory_is_bounded(sandbox):
    code = (
        "n = 0\n"
        "while True:\n"
        "    with open(f'/dev/shm/f{n}', 'wb') as stream: stream.write(b'x' * 10**6)\n"
        "    n += 1\n"
        "    assert n < 200"
    )
    assert "AssertionError" not in sandbox.run(code=code).stderr


def test_nothing_outside_can_be_written_or_read(sandbox, tmp_path):
    tmp_path.chmod(0o777)
    secret = tmp_path / "hidden_test.py"
    secret.write_text("assert answer == 42")
    secret.chmod(0o666)
    code = (
        "import os\n"
        f"for action in (lambda: print(open({str(secret)!r}).read()),\n"
        f"               lambda: open({str(secret)!r}, 'w').write('x'),\n"
        f"               lambda: os.unlink({str(secret)!r}),\n"
        f"               lambda: print(os.listdir({str(tmp_path)!r})),\n"
        "               lambda: open('/usr/x', 'w'), lambda: open('/etc/x', 'w'), lambda: open('/x', 'w')):\n"
        "    try: action(); print('done')\n"
        "    except OSError: pass\n"
    )
    assert sandbox.run(code=code).stdout == ""
    assert secret.read_text() == "assert answer == 42"


def test_no_network_of_any_kind(sandbox):
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        udp.setblocking(False)
        code = (
            "import socket\n"
            f"for kind, port in ((1, {tcp.getsockname()[1]}), (2, {udp.getsockname()[1]})):\n"
            "    try:\n"
            "        end = socket.socket(socket.AF_INET, kind); end.connect(('127.0.0.1', port)); end.send(b'x')\n"
            "        if kind == 1: print('connected')\n"
            "    except OSError: pass\n"
        )
        result = sandbox.run(code=code)
        assert result.stdout == ""
        with pytest.raises(BlockingIOError):
            udp.recv(1)


def test_signals_do_not_get_out(sandbox):
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as bystander:
        pids = (bystander.pid, os.getpid())
        code = f"import os\nfor pid in {pids}:\n    try: os.kill(pid, 9)\n    except OSError: pass"
        sandbox.run(code=code)
        sandbox.run(code=PROGRAMS["signals to everyone"])
        assert bystander.poll() is None
        bystander.kill()


def test_artefacts_are_regular_files_and_nothing_else(sandbox, tmp_path):
    code = (
        "import os\n"
        "os.makedirs('d/e'); open('d/e/ok.txt', 'w').write('fine'); open('top.txt', 'w').write('top')\n"
        "os.symlink('/etc/passwd', 'link.txt'); os.symlink('/etc', 'd/etc'); os.mkfifo('fifo.txt')\n"
        "os.link('top.txt', 'hard.txt'); open('other.bin', 'w').write('no'); os.mkdir('folder.txt')\n"
    )
    result = sandbox.run(code=code, artefacts=["*.txt", "d/etc/hostname"])
    assert result.artefacts == {"d/e/ok.txt": b"fine"}
    names = ["d/e/ok.txt", "link.txt", "fifo.txt", "folder.txt", "d/etc/hostname", "none"]
    exact, open_files = [], []
    for _ in range(2):
        exact.append(sandbox.run(code=code, artefacts=names))
        open_files.append(sum(path.is_file() or path.is_dir() for path in Path("/proc/self/fd").iterdir()))
    assert [(found.artefacts, found.fault) for found in exact] == [({"d/e/ok.txt": b"fine"}, None)] * 2
    assert open_files[0] == open_files[1]


def test_a_sparse_artefact_does_not_fill_our_memory(sandbox):
    code = "import os\nfor n in range(8): open(f'f{n}', 'w').close(); os.truncate(f'f{n}', 10 << 20)"
    result = sandbox.run(code=code, artefacts=["f*"])
    assert sum(map(len, result.artefacts.values())) <= LIMITS.disk_mb << 20


def test_a_daemon_writes_nothing_after_the_end(sandbox):
    code = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        time.sleep(0.3); open('late', 'w').write('forged')\n"
        "    os._exit(0)"
    )
    assert sandbox.run(code=code, artefacts=["late"]).artefacts == {}


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", ""])
def test_files_stay_inside(sandbox, path):
    with pytest.raises(UserError, match="not a relative path"):
        sandbox.run(code="", files={path: "x"})


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_hostile_program_ends_as_a_plain_result_and_leaves_nothing(sandbox, program):
    before = snapshot()
    limits = replace(LIMITS, wall_s=1.0, memory_mb=128)
    result = sandbox.run(code=PROGRAMS[program], limits=limits)
    assert result.fault is None
    assert result.wall_s < 15
    assert settled(before) == before


def test_every_working_level_passes_its_self_test(sandbox):
    assert failures(levels.LEVELS[sandbox.level]) == []


def test_the_self_test_sees_that_no_isolation_is_none():
    found = failures(levels.UNSAFE)
    assert "read a file of the host" in found
    assert "connected over TCP" in found
    assert "sent over UDP" in found


def test_refusal_names_what_is_missing(monkeypatch):
    monkeypatch.setattr(levels, "problem", lambda name: f"no {name} here")
    with pytest.raises(
        UserError, match="bwrap: no bwrap here; docker: no docker here; landlock: no landlock here"
    ):
        Sandbox()
    with pytest.raises(UserError, match="sandbox level docker does not work here: no docker here"):
        Sandbox("docker")
    with Sandbox(unsafe_local=True) as sandbox:
        result = sandbox.run(code="print(1)")
    assert (result.stdout, result.level) == ("1\n", "unsafe-local")


def test_an_unknown_level_is_a_user_error():
    with pytest.raises(UserError, match=r"unknown sandbox level 'bwarp' \(did you mean 'bwrap'\?\)"):
        Sandbox("bwarp")


def test_a_program_that_does_not_exist_is_no_crash(sandbox):
    result = sandbox.run(["/no/such/program"])
    assert result.fault is not None or result.exit in (126, 127)


def test_a_python_below_tmp_is_shown_there_and_the_sandbox_still_starts(monkeypatch, tmp_path):
    from sao_bench.sandbox import bwrap

    if lack := levels.problem("bwrap"):
        pytest.skip(f"bwrap: {lack}")
    if not tmp_path.is_relative_to("/tmp"):
        pytest.skip("pytest's own folder is not below /tmp")
    below_tmp = tmp_path
    (below_tmp / "library.txt").write_text("shown")
    for path in (below_tmp, *list(below_tmp.parents)[:-2]):
        path.chmod(0o755)
    monkeypatch.setattr(bwrap, "READABLE", (*bwrap.READABLE, below_tmp))
    with Sandbox("bwrap", LIMITS) as sandbox:
        result = sandbox.run(code=f"print(open({str(below_tmp / 'library.txt')!r}).read())")
    assert (result.stdout, result.fault) == ("shown\n", None)
