"""A ClickHouse server and chdb, and a lake whose locks are in PostgreSQL."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import conroi
from tests.support.clickhouse import ClickHouseServer, clickhouse, is_available
from tests.support.databases import PostgresServer

NEEDS_SERVER = "server"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where no server can be had, what needs one is not run, and does not count as passed."""
    here = str(Path(__file__).parent)
    wanting = [item for item in items if str(item.path).startswith(here) and _needs_server(item)]
    if wanting and not is_available():
        config.hook.pytest_deselected(items=wanting)
        items[:] = [item for item in items if item not in wanting]


def _needs_server(item: pytest.Item) -> bool:
    kind = getattr(getattr(item, "callspec", None), "params", {}).get("new_target")
    return kind == NEEDS_SERVER or "server" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseServer]:
    """A ClickHouse server."""
    assert request.config.cache is not None
    folder = tmp_path_factory.mktemp("clickhouse")
    with clickhouse(folder, request.config.cache.mkdir("clickhouse")) as found:
        yield found


@pytest.fixture(params=["chdb", NEEDS_SERVER])
def new_target(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Makes addresses of tables, all of one fresh database, of each kind of ClickHouse in turn."""
    database = f"t{uuid.uuid4().hex[:12]}"
    if request.param == "chdb":
        return lambda table: f"chdb://{request.getfixturevalue('chdb_folder')}/{database}/{table}"
    return lambda table: f"{request.getfixturevalue('server').address}/{database}/{table}"


@pytest.fixture
def address(postgres: PostgresServer) -> str:
    return postgres.address()


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


@pytest.fixture
def local(uri: str) -> conroi.Lake:
    """A lake without locks."""
    lake = conroi.connect(uri)
    lake.create_table("orders", pa.table({"id": [1, 2, 3], "name": ["a", None, "c"]}), stable_row_ids=True)
    return lake


@pytest.fixture
def locked(uri: str, address: str) -> conroi.Lake:
    """A lake whose locks are in PostgreSQL."""
    lake = conroi.connect(uri, locks=address)
    lake.set_locks("postgresql")
    return lake
