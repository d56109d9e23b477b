"""The Docker level: one container per program, from an image that `doctor --build-image` makes.

No network, memory and process limits by cgroup, no capability, read-only root, memory disks, an unprivileged
user, an init that reaps. A container lives no longer than the connection of the worker that made it.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import json
import select
import signal
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from sao_bench.sandbox.cell import relative_parts
from sao_bench.sandbox.host import WORKDIR, environment, joined, limit_of, rlimits
from sao_bench.sandbox.limits import Limits, Result, SandboxFaultError
from sao_bench.sandbox.processes import owner_alive, owner_tag

IMAGE = "sao-bench-sandbox:latest"
LABEL = "sao-bench.owner"
USER = 65534
OWN_PROCESSES = 2
"""Processes of the container that are not the program's: init and the runner."""

RUNNER_MEMORY_MB = 64
START_DEADLINE_S = 60.0
GRACE_S = 10.0
CONNECTION_S = 30.0


@cache
def client() -> Any:
    """Return the SDK's client for the daemon that the environment names.

    Raises:
        SandboxFaultError: the SDK is not installed or no daemon answers.
    """
    if importlib.util.find_spec("docker") is None:
        raise SandboxFaultError(
            "start", "missing", "the docker SDK is not installed: pip install 'sao-bench[docker]'"
        )
    import docker

    try:
        found = docker.from_env(timeout=CONNECTION_S)
        found.ping()
    except docker.errors.DockerException as error:
        raise SandboxFaultError("start", "missing", f"no Docker daemon answers: {error}") from error
    return found


def missing() -> str | None:
    """Return what this level lacks, or None."""
    try:
        images = client().images.list(name=IMAGE)
    except SandboxFaultError as fault:
        return fault.message
    return None if images else f"no image {IMAGE}: python -m sao_bench doctor --build-image"


def sweep() -> list[str]:
    """Remove containers whose owner died; say which."""
    try:
        left = containers()
    except SandboxFaultError:
        return []
    orphans = [name for name, owner in left.items() if not owner_alive(owner)]
    for name in orphans:
        with contextlib.suppress(Exception):
            client().api.remove_container(name, force=True)
    return [f"container {name[:12]}" for name in orphans]


def containers() -> dict[str, str]:
    """Return the owner of every container of ours by id, running or not.

    Raises:
        SandboxFaultError: no daemon answers.
    """
    rows = client().api.containers(all=True, filters={"label": LABEL})
    return {row["Id"]: row["Labels"][LABEL] for row in rows}


def spawn(argv: Sequence[str], limits: Limits, extra: Sequence[Path] = ()) -> DockerCell:
    """Start a container that waits for its program.

    Raises:
        SandboxFaultError: Docker does not work here.
    """
    import docker

    disk = limits.disk_mb << 20
    memory = (limits.memory_mb + RUNNER_MEMORY_MB) << 20
    owned = f"uid={USER},gid={USER},mode=0755,size={disk}"
    try:
        container = client().containers.create(
            IMAGE,
            ["python3", "-I", "-S", "-c", joined("seccomp.py", "container_runner.py")],
            user=f"{USER}:{USER}",
            init=True,
            stdin_open=True,
            network_mode="none",
            mem_limit=memory,
            memswap_limit=memory,
            pids_limit=limits.pids + OWN_PROCESSES,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            read_only=True,
            tmpfs={WORKDIR: owned + ",exec", "/tmp": owned},
            shm_size=disk,
            working_dir=WORKDIR,
            environment=environment(),
            labels={LABEL: owner_tag()},
            auto_remove=True,
            log_config=docker.types.LogConfig(type="none"),
            volumes=[f"{path}:{path}:ro" for path in extra],
        )
        cell = DockerCell(container, argv, limits)
        cell.start()
    except (docker.errors.DockerException, OSError) as error:
        raise SandboxFaultError("start", "refused", str(error)) from error
    return cell


class DockerCell:
    """One container around one program; the same steps as `cell.Cell`, spoken over the attach socket."""

    level = "docker"

    def __init__(self, container: Any, argv: Sequence[str], limits: Limits):
        self.container = container
        self.argv = list(argv)
        self.limits = limits
        self.files: dict[str, str] = {}
        self.attached: Any = None
        self.socket: socket.socket | None = None
        self.frames: Iterator[tuple[int, bytes]] = iter(())
        self.deadline = 0.0

    def start(self) -> None:
        """Attach, start, and wait until the runner is there."""
        attached = self.container.attach_socket(params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
        self.attached = attached
        self.socket = attached._sock
        assert self.socket is not None
        self.socket.setblocking(True)
        self.deadline = time.monotonic() + START_DEADLINE_S
        self.frames = _frames(self.socket, lambda: self.deadline)
        try:
            self.container.start()
            seen, complaint = b"", b""
            while not seen.endswith(b"ready\n"):
                stream, data = next(self.frames, (0, b""))
                if not data:
                    raise SandboxFaultError("start", "refused", complaint.decode(errors="replace")[-500:])
                seen, complaint = (seen + data, complaint) if stream == 1 else (seen, complaint + data)
        except BaseException:
            self.close()
            raise

    def put(self, files: Mapping[str, str | bytes]) -> None:
        """Keep the files for the request."""
        for path, content in files.items():
            relative_parts(path)
            data = content.encode() if isinstance(content, str) else content
            self.files[path] = base64.b64encode(data).decode()

    def release(self) -> None:
        """Nothing to do: the program starts with its request."""

    def talk(self, stdin: bytes = b"", artefacts: Sequence[str] = ()) -> Result:
        """Send the request and wait for the report, the end of the container, or the deadline."""
        start = time.monotonic()
        request = {
            "argv": self.argv,
            "stdin": base64.b64encode(stdin).decode(),
            "files": self.files,
            "artefacts": list(artefacts),
            "wall_s": self.limits.wall_s,
            "output_bytes": self.limits.output_bytes,
            "disk_bytes": self.limits.disk_mb << 20,
            "rlimits": {k: v for k, v in rlimits(self.limits).items() if k != "nproc"},
        }
        self.deadline = start + self.limits.wall_s + GRACE_S
        room = 3 * self.limits.output_bytes + 3 * (self.limits.disk_mb << 20) + CHUNK
        report = bytearray()
        try:
            assert self.socket is not None
            self.socket.sendall(json.dumps(request).encode() + b"\n")
            for stream, data in self.frames:
                report += data if stream == 1 and len(report) < room else b""
                if report.endswith(b"\n"):
                    break
        except OSError as error:
            return Result("docker", fault=SandboxFaultError("run", "connection", str(error)).record())
        finally:
            late = time.monotonic() >= self.deadline
            self.close()
        return self._result(bytes(report), late, time.monotonic() - start)

    def _result(self, report: bytes, late: bool, wall_s: float) -> Result:
        """Read the report; a container that ended without one was ended by its program."""
        try:
            answer = json.loads(report)
            if "error" in answer:
                return Result("docker", fault=SandboxFaultError("run", "exec", answer["error"]).record())
            status = answer["status"]
            killed = -status if status < 0 else status - 128 if status > 128 else None
            limit = "wall" if answer["timed_out"] else limit_of(killed)
            return Result(
                "docker",
                exit=status if killed is None else None,
                signal=killed,
                timed_out=answer["timed_out"],
                stdout=base64.b64decode(answer["stdout"]).decode(errors="replace"),
                stderr=base64.b64decode(answer["stderr"]).decode(errors="replace"),
                truncated=answer["truncated"],
                artefacts={k: base64.b64decode(v) for k, v in answer["artefacts"].items()},
                limit=limit,
                wall_s=wall_s,
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return Result(
                "docker",
                signal=int(signal.SIGKILL),
                timed_out=late,
                limit="wall" if late else None,
                wall_s=wall_s,
            )

    def close(self) -> None:
        """Remove the container. Safe to call twice."""
        if self.socket is not None:
            with contextlib.suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)
            self.attached._response.close()
            self.attached.close()
            self.socket.close()
            self.socket = None
        with contextlib.suppress(Exception):
            self.container.remove(force=True)


CHUNK = 1 << 16


def _frames(connection: socket.socket, deadline: Any) -> Iterator[tuple[int, bytes]]:
    """Yield (stream, bytes) of Docker's multiplexed attach protocol until its end or the deadline."""
    buffer = b""
    while True:
        while len(buffer) < 8:
            chunk = _receive(connection, deadline)
            if not chunk:
                return
            buffer += chunk
        stream, left = struct.unpack(">BxxxI", buffer[:8])
        buffer = buffer[8:]
        while left:
            if not buffer:
                buffer = _receive(connection, deadline)
                if not buffer:
                    return
            data, buffer = buffer[:left], buffer[left:]
            left -= len(data)
            yield stream, data


def _receive(connection: socket.socket, deadline: Any) -> bytes:
    left = deadline() - time.monotonic()
    if left <= 0 or not select.select([connection], [], [], left)[0]:
        return b""
    return connection.recv(CHUNK)
