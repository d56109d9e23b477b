"""What of the host a sandboxed program sees: system libraries, this Python, a bare environment."""

from __future__ import annotations

import ast
import signal
import sys
from functools import cache
from pathlib import Path

from sao_bench.sandbox.limits import Limits

WORKDIR = "/box"
"""Working directory, home and temporary directory inside, and the only place that can be written."""

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives")
HEADROOM_MB = 256
"""Address space of a process beyond the memory limit: code, libraries and thread stacks."""


def _readable() -> tuple[Path, ...]:
    paths = [Path(path) for path in SYSTEM]
    paths += [
        prefix
        for prefix in dict.fromkeys(map(Path, (sys.base_prefix, sys.prefix)))
        if not prefix.is_relative_to("/usr") or prefix == Path("/usr/local")
    ]
    return tuple(path for path in paths if path.exists() or path.is_symlink())


READABLE: tuple[Path, ...] = _readable()


def environment(workdir: str = WORKDIR) -> dict[str, str]:
    """Return the whole environment of a sandboxed program: nothing of this process's own."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": workdir,
        "TMPDIR": workdir,
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def rlimits(limits: Limits) -> dict[str, tuple[int, int]]:
    """Return the per-process (soft, hard) limits by the names that `prlimit` and `resource.RLIMIT_*` share.

    The hard limit on processor time lies a second above the soft one: a program that meets the soft one is
    ended by SIGXCPU, which says why, and only one that is deaf to it by a bare SIGKILL.
    """
    cpu_s = max(1, limits.cpu_s)
    others = {
        "as": (limits.memory_mb + HEADROOM_MB) << 20,
        "fsize": limits.disk_mb << 20,
        "nproc": limits.pids,
        "nofile": 256,
        "core": 0,
        "memlock": 0,
        "msgqueue": 0,
        "sigpending": 256,
    }
    return {"cpu": (cpu_s, cpu_s + 1)} | {name: (value, value) for name, value in others.items()}


def limit_of(ending: int | None) -> str | None:
    """Return the limit that a program's last signal tells of."""
    return "cpu" if ending == signal.SIGXCPU else None


def python(*arguments: str) -> list[str]:
    """Return the command of this interpreter in isolated mode."""
    return [sys.executable, "-I", *arguments]


@cache
def joined(*names: str, folder: Path = Path(__file__).parent) -> str:
    """Return the sources of stand-alone files of a folder as one program, to be run where they are not.

    It has no types: `typing` takes longer to import than all else that a grade needs.
    """
    tree = ast.parse("".join((folder / name).read_text() for name in names))
    return ast.unparse(ast.fix_missing_locations(_Untyped().visit(tree)))


class _Untyped(ast.NodeTransformer):
    """Removes what is there for a type checker alone."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom | None:
        return None if node.module in ("__future__", "typing") else node

    def visit_If(self, node: ast.If) -> ast.AST | None:
        types_only = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        return None if types_only else self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.Assign | None:
        return ast.Assign([node.target], node.value, lineno=node.lineno) if node.value else None
