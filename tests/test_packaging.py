"""The wheel holds one package, and works in an empty environment from an empty folder."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next(out.glob("*.whl"))


def test_only_sao_bench_reaches_site_packages(wheel: Path) -> None:
    names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {n for n in names if not n.endswith(".dist-info")} == {"sao_bench"}


def test_the_wheel_carries_all_content(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("environments", "baselines", "drift_schedules", "reports"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                assert f"sao_bench/{path.relative_to(ROOT).as_posix()}" in inside
    assert "sao_bench/checkpoints/style_writing/model.safetensors" in inside
    assert "sao_bench/drift/schema.json" in inside


def test_the_wheel_runs_from_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    """Installed without dependencies into a venv of its own that sees this one's libraries."""
    home = tmp_path / "venv"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "--no-deps", wheel], check=True, capture_output=True
    )
    site = next(p for p in map(Path, sys.path) if p.name == "site-packages")
    (next(home.glob("lib/*/site-packages")) / "libraries.pth").write_text(f"{site}\n")
    # This checkout is importable there too (it is installed editable); the wheel must win.
    code = "import sao_bench, sys; print(sao_bench.__file__)"
    empty = tmp_path / "empty"
    empty.mkdir()
    where = subprocess.run([python, "-c", code], cwd=empty, check=True, capture_output=True, text=True).stdout
    assert where.startswith(str(home))
    for command in (["env", "list"], ["drift", "validate", "style_switch"]):
        argv = [python, "-m", "sao_bench", *command]
        done = subprocess.run(argv, cwd=empty, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert not list(empty.iterdir())
