import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sao_bench.cli import build
from sao_bench.errors import UserError
from sao_bench.sandbox import checkup, docker, image
from sao_bench.sandbox.levels import problem
from sao_bench.sandbox.limits import SandboxFaultError

pytestmark = pytest.mark.alone


def test_doctor_names_everything_and_says_how_to_get_what_does_not_work():
    result = CliRunner().invoke(build(), ["doctor", "--json"])
    assert result.exit_code == 0
    rows = {row["name"]: row for row in json.loads(result.stdout)}
    levels = {f"sandbox level {name}" for name in ("docker", "bwrap", "landlock")}
    assert levels | {"python", "torch", "Landlock", "cgroups", "user namespaces", "extra [math]"} <= set(rows)
    assert rows["python"] == {
        "name": "python",
        "works": True,
        "found": sys.version.split()[0],
        "how": rows["python"]["how"],
    }
    assert all(row["how"] for row in rows.values() if not row["works"])
    for level in ("docker", "bwrap", "landlock"):
        assert rows[f"sandbox level {level}"]["works"] is (problem(level) is None)


def test_the_table_shows_extras_by_name():
    result = CliRunner().invoke(build(), ["doctor"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert "extra [math]" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("code environments: ")


def test_the_summary_names_the_level_or_the_refusal():
    def rows(*working):
        names = ("docker", "bwrap", "landlock")
        return [checkup.Finding(f"sandbox level {name}", name in working, "") for name in names]

    assert checkup.summary(rows("docker", "bwrap", "landlock")).endswith("the bwrap sandbox")
    assert checkup.summary(rows("docker", "landlock")).endswith("the docker sandbox")
    assert "--unsafe-local" in checkup.summary(rows())


def test_building_without_a_daemon_is_one_clear_line(monkeypatch):
    def none():
        raise SandboxFaultError("start", "missing", "no Docker daemon answers: refused")

    monkeypatch.setattr(docker, "client", none)
    with pytest.raises(UserError, match="cannot build sao-bench-sandbox:latest: no Docker daemon answers"):
        image.build()


def test_an_image_that_is_there_is_not_built_again(monkeypatch):
    if lack := docker.missing():
        pytest.skip(f"docker: {lack}")
    monkeypatch.setattr(image.subprocess, "run", lambda *a, **k: pytest.fail("built again"))
    assert image.build().startswith("sha256:")


def test_a_machine_without_any_tool_is_reported_and_not_a_crash():
    code = "from sao_bench.sandbox import checkup; print(checkup.summary(checkup.findings()))"
    environment = {
        "PATH": "/nonexistent",
        "DOCKER_HOST": "unix:///nonexistent.sock",
        "HOME": os.environ.get("HOME", "/"),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("code environments: ")
    assert "bwrap" not in done.stdout


def test_doctor_knows_every_extra():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert checkup.EXTRAS.keys() == project["optional-dependencies"].keys()
