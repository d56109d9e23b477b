"""Imports point downwards, content is imported through the package, and the light layers stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = [
    {"_content", "errors", "files", "types", "config", "seeding", "drift", "registry"},
    {"adapters", "environment", "sandbox", "grading", "math_data", "records", "checks", "traces"},
    {"aggregation", "algorithm", "batch", "buffer", "chat", "dynamic_sampling", "engines", "estimators",
     "evaluation", "learner", "losses", "models", "policy_path", "rollout", "sao", "tiny"},
    {"algorithm_checks", "algorithm_subject", "conformance", "conformance_ops", "executors", "launch",
     "leaderboard", "metrics", "outcomes", "plotting", "replicate", "report", "run_data", "statistics", "trainer",
     "worker"},
    {"cli", "__main__"},
]  # fmt: skip
LIGHT = (
    LAYERS[0] | LAYERS[1] | {"metrics", "statistics", "outcomes", "plotting", "report", "run_data", "traces"}
)
# Names are turned into classes by importing what is above; metrics are pure functions that the learner reports.
ALLOWED = {("learner", "metrics"), ("checks", "chat"), ("checks", "metrics")}


def level(module: str) -> int:
    found = [i for i, names in enumerate(LAYERS) if module in names]
    assert found, f"sao_bench.{module} is in no layer: add it to LAYERS"
    return found[0]


def modules() -> list[tuple[str, Path]]:
    files = [p for p in (ROOT / "sao_bench").rglob("*.py")]
    content = {"environments", "baselines", "reports", "drift_schedules", "checkpoints"}
    parts = [(p.relative_to(ROOT / "sao_bench").with_suffix("").parts[0], p) for p in files]
    return [(name, p) for name, p in parts if name not in content and name != "__init__"]


def top_imports(path: Path) -> set[str]:
    """Modules of the package that are imported when the file is (not inside functions or for typing)."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("sao_bench"):
            part = node.module.split(".")[1:2]
            found |= set(part) if part else {alias.name for alias in node.names}
        if isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("sao_bench.")}
    return found


@pytest.mark.parametrize(("module", "path"), modules(), ids=lambda x: x if isinstance(x, str) else x.name)
def test_imports_point_downwards(module: str, path: Path) -> None:
    for other in top_imports(path):
        if other != "__version__" and (module, other) not in ALLOWED:
            assert level(other) <= level(module), f"{path.name} (layer {level(module)}) imports {other}"


@pytest.mark.parametrize("module", sorted(LIGHT - {"_content", "sandbox", "grading", "drift"}))
def test_light_layers_do_not_import_torch(module: str) -> None:
    if not (ROOT / "sao_bench" / f"{module}.py").is_file():
        pytest.skip("not a single file")
    assert "torch" not in {
        a.name.split(".")[0]
        for node in ast.walk(ast.parse((ROOT / "sao_bench" / f"{module}.py").read_text()))
        for a in (node.names if isinstance(node, ast.Import) else [])
    }


def test_importing_the_package_and_its_environments_does_not_load_torch() -> None:
    code = "import sys, sao_bench.registry as r; r.environments(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
