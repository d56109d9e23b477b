"""The part of a candidate's change that counts: allowed paths, and nothing that could steer the tests."""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from sao_bench.errors import UserError
from sao_bench.sandbox import Sandbox, SandboxFaultError

RUNNERS = frozenset(
    [
        "pytest",
        "_pytest",
        "pluggy",
        "iniconfig",
        "packaging",
        "py",
        "pygments",
        "exceptiongroup",
        "tomli",
        "unittest",
    ]
)
CONFIGURATION = frozenset(
    [
        "pytest.ini",
        ".pytest.ini",
        "pytest.toml",
        ".pytest.toml",
        "tox.ini",
        "setup.cfg",
        "pyproject.toml",
        "setup.py",
        "noxfile.py",
        ".coveragerc",
        "Makefile",
    ]
)
STARTUP = frozenset({"sitecustomize", "usercustomize"})
BINARY = frozenset({".pyc", ".pyo", ".so", ".pyd", ".pth", ".egg-link"})
ROOTS = ("", "src", "lib")
"""Folders from which modules may be imported by name; a new module there must not shadow a known one."""


def reason_against(path: str, allowed: Sequence[str], base: Mapping[str, str]) -> str | None:
    """Return why a changed path does not count (a sign for the grade), or None if it does."""
    pure = PurePosixPath(path)
    if not path or path.startswith("/") or ".." in pure.parts or ".git" in pure.parts or "\0" in path:
        return "leaves the repository"
    if pure.name == "conftest.py":
        return "adds a conftest"
    if is_test(path):
        return "edits tests"
    if pure.name in CONFIGURATION:
        return "edits configuration"
    if pure.suffix in BINARY or "__pycache__" in pure.parts or pure.stem in STARTUP:
        return "touches start-up files"
    if path not in base and _shadows(pure):
        return "shadows a module"
    if not any(fnmatch.fnmatchcase(path, pattern) for pattern in allowed):
        return "edits what may not be changed"
    return None


def is_test(path: str) -> bool:
    """Return whether a path is a test file or in a folder of tests."""
    pure = PurePosixPath(path)
    folders = {"tests", "test", "testing"} & set(pure.parts[:-1])
    return bool(folders) or pure.name.startswith("test_") or pure.stem.endswith("_test")


def _shadows(path: PurePosixPath) -> bool:
    parts = path.parts[1:] if path.parts[0] in ROOTS and len(path.parts) > 1 else path.parts
    name = PurePosixPath(parts[0]).stem
    return name in RUNNERS or name in sys.stdlib_module_names


def changes_from_diff(base: Mapping[str, str], diff: str, sandbox: Sandbox) -> dict[str, str | None]:
    """Apply a unified diff to the base and return the changed files (None: deleted).

    `git apply` runs inside the sandbox: the diff is as untrusted as the code in it. Links and what is not
    text are left out.

    Raises:
        UserError: the diff does not apply.
        SandboxFaultError: the sandbox failed.
    """
    script = "cd repo && git apply --whitespace=nowarn ../change.diff"
    files: dict[str, str | bytes] = {f"repo/{path}": text for path, text in base.items()}
    result = sandbox.run(["sh", "-c", script], files={**files, "change.diff": diff}, artefacts=["repo/*"])
    if result.fault is not None:
        raise SandboxFaultError(**result.fault)
    if result.exit != 0:
        lines = result.stderr.strip().splitlines()
        raise UserError(f"the diff does not apply: {lines[-1] if lines else 'git apply failed'}")
    after: dict[str, str] = {}
    for path, data in result.artefacts.items():
        try:
            after[path.removeprefix("repo/")] = data.decode()
        except UnicodeDecodeError:
            continue
    changed: dict[str, str | None] = {path: text for path, text in after.items() if base.get(path) != text}
    return changed | {path: None for path in base if path not in after}
