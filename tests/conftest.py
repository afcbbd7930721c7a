"""Fixtures for every test: servers, each started once per test process if a test asks for it; and a fresh address."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import cloud_servers, databases, servers
from tests.support.cloud_servers import AzureServer, BucketServer, GoogleServer
from tests.support.databases import PostgresServer
from tests.support.record_stores import KINDS, new_address
from tests.support.sampling import sampled
from tests.support.servers import S3Server


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server that keeps conditions."""
    with servers.seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Another one, of other people's making."""
    with servers.moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="session")
def rclone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server that ignores conditions: what must go wrong, goes wrong here."""
    with servers.rclone(tmp_path_factory.mktemp("rclone")) as server:
        yield server


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    """Azure Blob Storage."""
    with cloud_servers.azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture(scope="session")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoogleServer]:
    """Google Cloud Storage."""
    with cloud_servers.gcs(tmp_path_factory.mktemp("gcs")) as server:
        yield server


@pytest.fixture(scope="session")
def careless_gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoogleServer]:
    """The same without conditions."""
    with cloud_servers.gcs(tmp_path_factory.mktemp("gcs"), keeps_conditions=False) as server:
        yield server


@pytest.fixture(params=["seaweedfs", "azurite", "gcs"])
def bucket(request: pytest.FixtureRequest) -> BucketServer:
    """An object store of each service in turn, all of which keep conditions."""
    return request.getfixturevalue(request.param)


@pytest.fixture(params=sampled("bucket of the day", [("seaweedfs",), ("azurite",), ("gcs",)], least=1, covers=False))
def bucket_of_the_day(request: pytest.FixtureRequest) -> BucketServer:
    """One of them, for tests of many processes that find the same on each."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server."""
    with databases.postgres() as server:
        yield server


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials where boto3 and pylance look for them."""
    for name, value in databases.aws_environment().items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest) -> str:
    """The address of an external manifest store, of each kind in turn."""
    return new_address(request.param, request)


@pytest.fixture
def uri() -> str:
    """A fresh place in memory. Folders whose tests need files define their own."""
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture(scope="session")
def chdb_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One for all tests: a process can have one folder open. It stays open, since opening it takes long."""
    import chdb  # 200 MB, which test processes that run other tests do not need

    folder = tmp_path_factory.mktemp("chdb")
    with contextlib.closing(chdb.connect(str(folder))):
        yield folder
