"""The part of a candidate's change that counts: allowed paths, and nothing that could steer the tests."""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Iterable, Mapping, Sequence
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
MAX_NAME = 255
MAX_PATH = 1000
"""Longest names and paths in bytes, below what file systems take."""

ROOTS = ("", "src", "lib")
"""Folders from which modules may be imported by name; a new module there must not shadow a known one."""


def refusals(
    changes: Mapping[str, str | None], allowed: Sequence[str], base: Mapping[str, str], tests: Iterable[str]
) -> dict[str, str]:
    """Return which changed paths do not count, and why (signs for the grade)."""
    found = {path: reason_against(path, allowed, base) or _unwritable(text) for path, text in changes.items()}
    added = {path for path, text in changes.items() if text is not None and found[path] is None}
    files = {*base, *tests, *added}
    folders = {str(folder) for path in files for folder in PurePosixPath(path).parents}
    for path in added - set(base):
        if path in folders or any(str(folder) in files for folder in PurePosixPath(path).parents):
            found[path] = "is no path"
    return {path: reason for path, reason in found.items() if reason is not None}


def _unwritable(text: str | None) -> str | None:
    return None if text is None or _encodes(text) else "is no text"


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_plain(path: str) -> bool:
    """Return whether a path is written in the one way in which repositories write it, and can be made."""
    if len(path) > MAX_PATH or not _encodes(path) or str(PurePosixPath(path)) != path:
        return False
    return len(path.encode()) <= MAX_PATH and all(len(p.encode()) <= MAX_NAME for p in path.split("/"))


def reason_against(path: str, allowed: Sequence[str], base: Mapping[str, str]) -> str | None:
    """Return why a changed path does not count (a sign for the grade), or None if it does."""
    pure = PurePosixPath(path)
    if not path or path.startswith("/") or ".." in pure.parts or ".git" in pure.parts or "\0" in path:
        return "leaves the repository"
    if not _is_plain(path):
        return "is no path"
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
