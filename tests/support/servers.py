"""Real S3 servers on this machine, for as long as a `with` block: loopback only, on free ports, killed at its end."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import uuid
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from obstore.store import S3Store

ACCESS_KEY = "conroi-test-key-id"
SECRET_KEY = "conroi-test-secret"
READY_WITHIN_S = 60.0

# Becomes the server, after asking Linux to kill it when this process dies, also if no `finally` runs any more.
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
os.execv(sys.argv[1], sys.argv[1:])
"""


@dataclass(frozen=True)
class S3Server:
    """A running server and one bucket on it."""

    endpoint: str
    bucket: str

    @property
    def options(self) -> dict[str, str]:
        """What a user would give as storage_options."""
        return {
            "aws_access_key_id": ACCESS_KEY,
            "aws_secret_access_key": SECRET_KEY,
            "aws_endpoint": self.endpoint,
            "aws_region": "us-east-1",
            "allow_http": "true",
        }

    def new_uri(self, name: str = "table") -> str:
        """The URI of a place that was not used before."""
        return f"s3://{self.bucket}/{uuid.uuid4().hex}/{name}.lance"


@contextlib.contextmanager
def seaweedfs(folder: Path) -> Generator[S3Server]:
    """SeaweedFS: a server in Go that keeps the conditions of a conditional put."""
    ports = free_ports(8)
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": [identity]}))
    data = folder / "data"
    data.mkdir()
    names = (
        "master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc",
        "s3.port", "s3.port.grpc",
    )  # fmt: skip
    flags = [f"-{name}={port}" for name, port in zip(names, ports, strict=True)]
    command = [
        _tool("weed"), "server", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", "-iam=false",
        f"-s3.config={config}", "-volume.max=20", "-master.volumeSizeLimitMB=64",
        "-s3.port.iceberg=0", "-s3.port.lance=0", *flags,
    ]  # fmt: skip
    with running(command, folder / "seaweedfs.log"):
        yield _with_bucket(ports[names.index("s3.port")], folder / "seaweedfs.log")


@contextlib.contextmanager
def moto(folder: Path) -> Generator[S3Server]:
    """moto: AWS in Python, slow; one request at a time, because its conditions are not atomic otherwise."""
    (port,) = free_ports(1)
    command = [sys.executable, str(Path(__file__).with_name("moto_server.py")), str(port)]
    with running(command, folder / "moto.log"):
        yield _with_bucket(port, folder / "moto.log")


@contextlib.contextmanager
def rclone(folder: Path) -> Generator[S3Server]:
    """rclone serve s3: answers 200 to a conditional put whose condition does not hold. The negative control."""
    (port,) = free_ports(1)
    bucket = "conroi-tests"  # here a bucket is a folder of what is served
    (folder / "served" / bucket).mkdir(parents=True)
    command = [
        _tool("rclone"), "serve", "s3", str(folder / "served"), f"--addr=127.0.0.1:{port}",
        f"--auth-key={ACCESS_KEY},{SECRET_KEY}", f"--config={folder / 'rclone.conf'}", "--vfs-cache-mode=off",
    ]  # fmt: skip
    with running(command, folder / "rclone.log"):
        yield _with_bucket(port, folder / "rclone.log", bucket)


def free_ports(count: int) -> list[int]:
    """Free ports; all are held open together, so that they differ."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _tool(name: str) -> str:
    beside = Path(sysconfig.get_path("scripts")) / name
    found = str(beside) if beside.exists() else shutil.which(name)
    assert found, f"{name} is not installed; it comes with the dev dependencies"
    return found


@contextlib.contextmanager
def running(command: list[str], log: Path, environment: Mapping[str, str] | None = None) -> Generator[None]:
    """A server that is killed at the end, with all its children."""
    # A session of its own, so that children of the server go with it.
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", _DIE_WITH_PARENT, *command], stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True, cwd=log.parent,
            env={**os.environ, "HOME": str(log.parent), **(environment or {})},
        )  # fmt: skip
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _with_bucket(port: int, log: Path, bucket: str | None = None) -> S3Server:
    server = S3Server(f"http://127.0.0.1:{port}", bucket or f"conroi-{uuid.uuid4().hex[:8]}")
    deadline = time.monotonic() + READY_WITHIN_S
    while not _is_ready(server):
        assert time.monotonic() < deadline, f"no server on port {port}: {log.read_text(errors='replace')[-2000:]}"
        time.sleep(0.1)
    return server


def _is_ready(server: S3Server) -> bool:
    """Ready is: a file can be written to the bucket and read back."""
    try:
        _make_bucket(server)
        store = S3Store(
            server.bucket,
            config=cast("Any", server.options),
            client_options={"timeout": "5s"},
            retry_config={"max_retries": 0},
        )
        store.put("ready", b"yes")
        return store.get("ready").bytes().to_bytes() == b"yes"
    except Exception:  # noqa: BLE001  # not yet there, in one of many ways
        return False


def _make_bucket(server: S3Server) -> None:
    import boto3
    from botocore.config import Config

    client = boto3.client(
        "s3", endpoint_url=server.endpoint, region_name="us-east-1", aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY, config=Config(retries={"max_attempts": 0}, connect_timeout=2, read_timeout=5),
    )  # fmt: skip
    if server.bucket not in {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}:
        client.create_bucket(Bucket=server.bucket)
