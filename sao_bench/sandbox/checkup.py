"""The findings of `doctor`: each thing tried for real, not only looked for."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sao_bench.sandbox import docker, image, levels, supervisor
from sao_bench.sandbox.limits import LevelName, SandboxFaultError

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
EXTRAS = {
    "math": ("math_verify", "sympy"),
    "docker": ("docker",),
    "reasoning": ("reasoning_gym",),
    "datasets": ("datasets",),
    "verifiers": ("verifiers",),
    "openenv": ("openenv",),
    "judges": ("trl",),
    "dev": ("pytest", "ruff", "mypy", "build"),
}
"""What each extra of the package brings, by the module that is imported."""

HOW = {
    "docker": f"start a Docker engine (apt-get install docker.io) and run doctor --build-image, or: {image.BY_HAND}",
    "bwrap": "apt-get install bubblewrap (0.8 or newer)",
    "landlock": "Linux 6.12 or newer with Landlock in the kernel's lsm= list",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One row: what was tried, whether it works, what was found, and how to get it."""

    name: str
    works: bool
    found: str
    how: str = ""


def findings() -> list[Finding]:
    """Try everything and return the rows, the sandbox levels last."""
    return [
        _python(),
        _torch(),
        *map(_extra, EXTRAS),
        _tool("chromium", CHROMIUM, "apt-get install chromium (only for pictures of the HTML report)"),
        _tool("git", ("git",), "apt-get install git (repository tasks given as diffs)"),
        _tool("bubblewrap", ("bwrap",), HOW["bwrap"]),
        _daemon(),
        _landlock(),
        _namespaces(),
        _cgroups(),
        *(_level(level.name) for level in levels.LEVELS.values()),
    ]


def summary(rows: Sequence[Finding]) -> str:
    """Return the line that says which sandbox level a run would take."""
    works = {
        row.name.removeprefix("sandbox level "): row.works for row in rows if row.name.startswith("sandbox ")
    }
    chosen = next((name for name in levels.PREFERENCE if works[name]), None)
    if chosen is None:
        return "code environments: refused here, no sandbox level works (or --unsafe-local)"
    return f"code environments: run in the {chosen} sandbox"


def _python() -> Finding:
    return Finding("python", sys.version_info >= (3, 11), platform.python_version(), "Python 3.11 or newer")


TORCH = (
    "import torch; cuda = torch.cuda.is_available(); "
    "print(torch.__version__, torch.cuda.get_device_name() if cuda else 'cpu only', sep=', ')"
)


def _torch() -> Finding:
    """Import torch in a child: this package stays free of it, and a broken install is a finding."""
    done = subprocess.run([sys.executable, "-c", TORCH], capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).strip().splitlines()
    return Finding("torch", done.returncode == 0, lines[-1] if lines else "silent", "pip install torch")


def _extra(name: str) -> Finding:
    absent = [module for module in EXTRAS[name] if importlib.util.find_spec(module) is None]
    found = f"{', '.join(absent)} missing" if absent else "installed"
    return Finding(f"extra [{name}]", not absent, found, f"pip install 'sao-bench[{name}]'")


def _tool(name: str, commands: Sequence[str], how: str) -> Finding:
    path = next(filter(None, map(shutil.which, commands)), None)
    if path is None:
        return Finding(name, False, "not installed", how)
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, timeout=30)
    lines = (done.stdout or done.stderr).strip().splitlines()
    return Finding(name, done.returncode == 0, lines[0] if lines else path, how)


def _daemon() -> Finding:
    try:
        version = docker.client().version()["Version"]
    except SandboxFaultError as fault:
        return Finding("docker engine", False, fault.message, HOW["docker"])
    return Finding("docker engine", True, str(version))


def _landlock() -> Finding:
    abi = supervisor.landlock_abi()
    return Finding("Landlock", abi >= supervisor.MINIMUM_ABI, f"ABI {max(abi, 0)}", HOW["landlock"])


def _namespaces() -> Finding:
    """Make a user namespace as another user would (as root one is not needed)."""
    how = "sysctl user.max_user_namespaces=10000, kernel.unprivileged_userns_clone=1, or an AppArmor profile for bwrap"
    unshare = shutil.which("unshare")
    if unshare is None:
        return Finding("user namespaces", False, "unshare is not installed", "apt-get install util-linux")
    nobody: dict[str, object] = (
        {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    )
    done = subprocess.run(
        [unshare, "--user", "--map-root-user", "true"],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        **nobody,  # type: ignore[call-overload]
    )
    return Finding("user namespaces", done.returncode == 0, done.stderr.strip() or "allowed", how)


def _cgroups() -> Finding:
    root = Path("/sys/fs/cgroup")
    if (root / "cgroup.controllers").exists():
        return Finding("cgroups", True, "v2")
    controllers = ", ".join(name for name in ("memory", "pids") if (root / name).is_dir())
    return Finding(
        "cgroups", bool(controllers), f"v1: {controllers}" if controllers else "none", "mount cgroup2"
    )


def _level(name: LevelName) -> Finding:
    problem = levels.problem(name)
    return Finding(f"sandbox level {name}", problem is None, problem or "passed its self-test", HOW[name])
