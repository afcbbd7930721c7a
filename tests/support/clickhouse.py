"""A real ClickHouse server on this machine, for as long as a `with` block.

It is the one at CONROI_TEST_CLICKHOUSE (an address such as http://default@host:8123), or one that is installed, or
Debian's packages, which are unpacked into a cache folder and need no root and no installation. Where there is none of
these, tests that need a server are not selected: they never show as passed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Generator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from conroi.errors import StoreUnavailable
from conroi.export.clickhouse_engine import Server, parse
from tests.support.servers import READY_WITHIN_S, free_ports, running

VARIABLE = "CONROI_TEST_CLICKHOUSE"
_PACKAGE = "clickhouse-server"
_LIBRARIES = ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "lib/aarch64-linux-gnu")
_CONFIG = """<?xml version="1.0"?>
<yandex>
  <logger><level>warning</level><console>1</console></logger>
  <http_port>{http}</http_port><tcp_port>{tcp}</tcp_port><listen_host>127.0.0.1</listen_host>
  <path>{folder}/data/</path><tmp_path>{folder}/tmp/</tmp_path><mark_cache_size>67108864</mark_cache_size>
  <users_config>users.xml</users_config><default_profile>default</default_profile>
  <default_database>default</default_database>
</yandex>
"""
_USERS = """<?xml version="1.0"?>
<yandex>
  <profiles><default/></profiles><quotas><default/></quotas>
  <users><default>
    <password>a secret/word</password><networks><ip>127.0.0.1</ip></networks>
    <profile>default</profile><quota>default</quota>
  </default></users>
</yandex>
"""
_CREDENTIALS = "default:a%20secret%2Fword"


@dataclass(frozen=True)
class ClickHouseServer:
    """A running server; each test has a database of its own."""

    address: str

    def new_target(self, table: str = "shared") -> str:
        """The address of a table that was not used before."""
        return f"{self.address}/t{uuid.uuid4().hex[:12]}/{table}"


def is_available() -> bool:
    """Whether a server can be had here."""
    return VARIABLE in os.environ or bool(_installed()) or _debian_has_it()


@contextlib.contextmanager
def clickhouse(folder: Path, cache_folder: Path) -> Generator[ClickHouseServer]:
    """The server."""
    if VARIABLE in os.environ:
        yield ClickHouseServer(os.environ[VARIABLE].rstrip("/"))
        return
    http, tcp = free_ports(2)
    (folder / "config.xml").write_text(_CONFIG.format(http=http, tcp=tcp, folder=folder))
    (folder / "users.xml").write_text(_USERS)
    program, environment = _program(cache_folder)
    log = folder / "clickhouse.log"
    with running([*program, f"--config-file={folder / 'config.xml'}"], log, environment):
        server = ClickHouseServer(f"http://{_CREDENTIALS}@127.0.0.1:{http}")
        _wait_for(server, log)
        yield server


def _installed() -> list[str]:
    one, many = shutil.which("clickhouse-server"), shutil.which("clickhouse")
    return [one] if one else [many, "server"] if many else []


@cache
def _debian_has_it() -> bool:
    if not (shutil.which("apt-get") and shutil.which("apt-cache") and shutil.which("dpkg-deb")):
        return False
    said = subprocess.run(["apt-cache", "show", _PACKAGE], capture_output=True, check=False)
    return said.returncode == 0


def _program(cache_folder: Path) -> tuple[list[str], dict[str, str]]:
    if installed := _installed():
        return installed, {}
    root = _unpacked(cache_folder)
    libraries = ":".join(str(root / each) for each in _LIBRARIES)
    return [str(root / "usr/sbin/clickhouse-server")], {"LD_LIBRARY_PATH": libraries}


def _unpacked(cache_folder: Path) -> Path:
    """The server's package and those that it needs and this machine does not have."""
    root = cache_folder / "root"
    if root.exists():
        return root
    work = cache_folder / f"work-{uuid.uuid4().hex}"
    (work / "root").mkdir(parents=True)
    subprocess.run(["apt-get", "download", "-q", *_missing()], cwd=work, check=True, capture_output=True)
    for package in work.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(package), str(work / "root")], check=True)
    with contextlib.suppress(OSError):  # another test process was first
        (work / "root").rename(root)
    shutil.rmtree(work, ignore_errors=True)
    return root


def _missing() -> list[str]:
    no = [f"--no-{kind}" for kind in ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")]
    said = subprocess.run(
        ["apt-cache", "depends", "--recurse", *no, _PACKAGE], check=True, capture_output=True, text=True
    )
    needed = {line for line in said.stdout.splitlines() if line and line[0].isalnum()}
    return sorted(package for package in needed if package == _PACKAGE or not _is_here(package))


def _is_here(package: str) -> bool:
    said = subprocess.run(["dpkg-query", "-W", "-f=${Status}", package], capture_output=True, text=True, check=False)
    return said.stdout.endswith("ok installed")


def _wait_for(server: ClickHouseServer, log: Path) -> None:
    asked = Server(parse(f"{server.address}/default/none"))
    deadline = time.monotonic() + READY_WITHIN_S
    while True:
        try:
            asked.ask("SELECT 1")
        except StoreUnavailable:
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
            time.sleep(0.05)
        else:
            return
