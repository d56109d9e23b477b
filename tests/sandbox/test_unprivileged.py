"""The levels for someone who is not root: the same programs, from a process that gave root up."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import sao_bench
from sao_bench.sandbox.levels import problem

pytestmark = pytest.mark.alone

SYSTEM_PYTHON = "/usr/bin/python3"
SCRIPT = """
import json, os, sys, types
package = types.ModuleType("sao_bench")
package.__path__ = [os.path.join(sys.argv[1], "sao_bench")]
sys.modules["sao_bench"] = package
sys.path.insert(0, sys.argv[1])
from hostile import PROGRAMS
from sao_bench.sandbox import Limits, Sandbox, levels
answer = {"uid": os.getuid(), "problem": levels.problem(sys.argv[2])}
with Sandbox(sys.argv[2], Limits(wall_s=0.7, memory_mb=128, pids=20, disk_mb=8)) as sandbox:
    answer["faults"] = [name for name, code in PROGRAMS.items() if sandbox.run(code=code).fault]
    answer["output"] = sandbox.run(code="print(6 * 7)").stdout
    answer["file"] = sandbox.run(code="open('o', 'w').write('x')", artefacts=["o"]).artefacts["o"].decode()
print(json.dumps(answer))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests of this folder run without root already")
@pytest.mark.skipif(not Path(SYSTEM_PYTHON).exists(), reason=f"{SYSTEM_PYTHON} is not installed")
@pytest.mark.parametrize("level", ["bwrap", "landlock"])
def test_the_level_holds_without_root(level):
    if lack := problem(level):
        pytest.skip(f"{level}: {lack}")
    folder = Path("/tmp") / f"unprivileged-{os.getpid()}-{level}"
    source = Path(sao_bench.__file__).parent
    ignore = shutil.ignore_patterns("__pycache__")
    try:
        shutil.copytree(source / "sandbox", folder / "sao_bench/sandbox", ignore=ignore)
        shutil.copy(source / "errors.py", folder / "sao_bench")
        shutil.copy(Path(__file__).with_name("hostile.py"), folder)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755)
        done = subprocess.run(
            [SYSTEM_PYTHON, "-B", "-c", SCRIPT, str(folder), level],
            capture_output=True,
            text=True,
            user=65534,
            group=65534,
            extra_groups=[],
            cwd="/",
            env={"PATH": "/usr/bin:/bin"},
            check=False,
        )
    finally:
        shutil.rmtree(folder)
    if "user namespaces" in done.stderr or "No permissions to create" in done.stderr:
        pytest.skip("user namespaces are not allowed here")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "uid": 65534,
        "problem": None,
        "faults": [],
        "output": "42\n",
        "file": "x",
    }
