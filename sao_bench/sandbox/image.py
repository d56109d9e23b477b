"""Makes the image of the Docker level from the distribution's own packages; nothing is pulled."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from sao_bench.errors import UserError
from sao_bench.sandbox import docker
from sao_bench.sandbox.limits import SandboxFaultError

PACKAGES = "python3,python3-pytest,git"
FALLBACK_SUITE = "bookworm"
DOCKERFILE = "FROM python:3.11-slim\\nRUN pip install pytest && apt-get update && apt-get install -y git"
BY_HAND = f"printf '{DOCKERFILE}\\n' | docker build -t {docker.IMAGE} -"
"""The other way to the same image, where a registry can be reached."""


def build(force: bool = False) -> str:
    """Build the image with debootstrap and import it; return its id. Does nothing if it is there.

    Takes about a minute; needs root, debootstrap and a running daemon.

    Raises:
        UserError: one of them is missing or failed; the message says which.
    """
    try:
        client = docker.client()
    except SandboxFaultError as fault:
        raise UserError(f"cannot build {docker.IMAGE}: {fault.message}") from fault
    present = client.images.list(name=docker.IMAGE)
    if present and not force:
        return str(present[0].id)
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        raise UserError(
            f"cannot build {docker.IMAGE}: needs root and debootstrap; or build it by hand: {BY_HAND}"
        )
    with tempfile.TemporaryDirectory(prefix="sao-bench-image-") as folder:
        root = Path(folder, "root")
        command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", _suite(), str(root)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stdout + done.stderr).strip().splitlines()[-1:]
            raise UserError(f"cannot build {docker.IMAGE}: debootstrap failed: {' '.join(last)}")
        for path in (root / "var/cache/apt/archives").glob("*.deb"):
            path.unlink()
        repository, _, tag = docker.IMAGE.partition(":")
        with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as tar:
            assert tar.stdout is not None
            client.api.import_image_from_data(tar.stdout, repository=repository, tag=tag)
    return str(client.images.get(docker.IMAGE).id)


def _suite() -> str:
    """Return this Debian's name, or one that every debootstrap knows."""
    facts = Path("/etc/os-release").read_text() if Path("/etc/os-release").exists() else ""
    values = dict(line.split("=", 1) for line in facts.splitlines() if "=" in line)
    return values.get("VERSION_CODENAME", FALLBACK_SUITE) if values.get("ID") == "debian" else FALLBACK_SUITE
