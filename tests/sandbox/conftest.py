import pytest

from sao_bench.sandbox import Limits, Sandbox
from sao_bench.sandbox.levels import LEVELS, problem

LIMITS = Limits(wall_s=10, cpu_s=10, memory_mb=256, pids=24, output_bytes=100_000, disk_mb=16)


@pytest.fixture(params=["bwrap", "landlock", "docker"])
def sandbox(request):
    """A sandbox of each level that works here; the others skip with their reason."""
    assert request.param in LEVELS
    if lack := problem(request.param):
        pytest.skip(f"{request.param}: {lack}")
    with Sandbox(request.param, LIMITS) as found:
        yield found


@pytest.fixture
def bwrap():
    if lack := problem("bwrap"):
        pytest.skip(f"bwrap: {lack}")
    with Sandbox("bwrap", LIMITS) as found:
        yield found
