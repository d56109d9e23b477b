"""A contributed file that is broken takes nothing but itself away, and is named on one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import sao_bench.environments as content
from sao_bench import registry
from sao_bench.environment import TextEnv
from sao_bench.errors import UserError

BROKEN = {
    "does_not_parse": ("def f(:\n", "SyntaxError"),
    "needs_what_is_missing": ("x = 1\nimport no_such_package_at_all\n", "line 2 of needs_what_is_missing.py"),
    "raises": ("\n\nraise RuntimeError('two\\nlines')\n", "RuntimeError: two lines"),
    "exits": ("raise SystemExit(3)\n", "SystemExit: 3"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_left_out_and_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source, says = BROKEN[name]
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.setattr(content, "__path__", [*content.__path__, str(tmp_path)])
    found = registry._classes("environments", TextEnv)
    assert {cls.id for cls in found} == set(registry.environments())
    [line] = caplog.messages
    assert f"left out: cannot import environments/{name}.py" in line
    assert says in line and "\n" not in line


def test_of_two_files_with_one_id_the_first_stays_and_both_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source = "from sao_bench.environments.countdown import Countdown\n\n\nclass Twin(Countdown):\n    pass\n"
    (tmp_path / "zz_twin.py").write_text(source)
    monkeypatch.setattr(content, "__path__", [*content.__path__, str(tmp_path)])
    found = registry._by_name("environments", TextEnv, "id")
    assert found == registry.environments()
    [line] = caplog.messages
    assert "environments/zz_twin.py: id 'sao_bench/Countdown-v0' is that of environments/countdown.py" in line


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_module_by_path_is_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{name}.py").write_text(BROKEN[name][0])
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError) as error:
        registry.environment(f"{name}:World")
    assert str(error.value).startswith(f"cannot import environment '{name}:World'")
    assert BROKEN[name][1] in str(error.value) and "\n" not in str(error.value)


def test_the_command_line_goes_on_without_it(tmp_path: Path) -> None:
    """In a process of its own, where the package is imported for the first time."""
    (tmp_path / "broken.py").write_text("import no_such_package_at_all\n")
    code = (
        "import sys, sao_bench.environments as e; e.__path__.append(sys.argv.pop(1));"
        "sys.argv[0] = 'sao_bench'; from sao_bench import registry; registry.environments.cache_clear();"
        "from sao_bench.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), "env", "list"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "sao_bench/StyleWriting-v0" in done.stdout
    assert done.stderr.count("\n") == 1 and "environments/broken.py, line 1 of broken.py" in done.stderr
