"""What a commit through a store costs: counted on the wire, with 50 ms added to each request."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import conroi
from conroi.environment import SYSTEM
from conroi.snapshots.snapshot import TableStorage
from conroi.storage import open_objects
from conroi.storage.postgres import PostgresDatabase
from conroi.table import Table
from conroi.testing import CountingObjects, FaultyRecords, SlowObjects
from conroi.versions import open_records
from conroi.versions.external import ExternalVersions
from tests.support.arrow import column_values
from tests.support.databases import PostgresServer, dynamodb_address, sqlite_address
from tests.support.instruments import CloudLike, files_on
from tests.support.proxy import Proxy, proxy_to
from tests.support.servers import S3Server

pytestmark = pytest.mark.contract("X1")
LATENCY_S = 0.05

FOLDER = 4
"""Without a store: the look at the newest version, the data file, the transaction file, the manifest."""
STORAGE, STORE = 5, 3
"""With one: the data file, the transaction file, the manifest staged, completed, deleted; look, record, pointer."""


@pytest.fixture(params=["postgres", "dynamodb"])
def line(request: pytest.FixtureRequest) -> Iterator[tuple[Proxy, str]]:
    """A store behind a line of ours, and its address there."""
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        address = server.new_address()
        with proxy_to(server.port) as proxy:
            yield proxy, address.replace(f":{server.port}/", f":{proxy.port}/")
    else:
        moto: S3Server = request.getfixturevalue("moto")
        request.getfixturevalue("aws")
        port = int(moto.endpoint.rpartition(":")[2])
        with proxy_to(port) as proxy:
            yield proxy, dynamodb_address(f"http://127.0.0.1:{proxy.port}", "shared")


def on(folder: Path, store: str) -> tuple[Table, CountingObjects]:
    """A table on storage as far away as an object store, under a store."""
    conroi.create_table(folder, [{"row": 1}], store=store)
    counting = CountingObjects(SlowObjects(CloudLike(open_objects(folder)), LATENCY_S))
    files = TableStorage(counting, ExternalVersions(counting, open_records(store)), SYSTEM)
    return Table(files, files.head()), counting


def test_a_commit_is_five_requests_to_the_storage_and_three_to_the_store(
    line: tuple[Proxy, str], tmp_path: Path
) -> None:
    proxy, store = line
    table, counting = on(tmp_path / "t.lance", store)
    proxy.latency_s = LATENCY_S
    table = table.append([{"row": 2}])
    with counting.measure() as measured, proxy.counting() as round_trips:
        started = time.monotonic()
        table = table.append([{"row": 3}])
        took_s = time.monotonic() - started
    proxy.latency_s = 0
    written = [measured.requests("put"), measured.requests("put_if_absent"), measured.requests("delete")]
    # pylance writes the data file by itself, past the instrument.
    assert (written, measured.requests() + 1, round_trips) == ([2, 1, 1], STORAGE, [STORE])
    assert took_s >= (STORAGE - 1 + STORE) * LATENCY_S
    assert sorted(column_values(table.to_arrow()["row"])) == [1, 2, 3]


def test_opening_is_one_request_to_the_store_and_one_to_the_storage(line: tuple[Proxy, str], tmp_path: Path) -> None:
    proxy, store = line
    table, counting = on(tmp_path / "t.lance", store)
    with counting.measure() as measured, proxy.counting() as round_trips:
        assert table.latest().version == 1
        assert Table(table._files, table._files.head()).version == 1
    assert (measured.requests("get"), measured.requests(), round_trips) == (1, 1, [2])


def test_through_sqlite_the_requests_are_the_same(tmp_path: Path) -> None:
    store = sqlite_address(tmp_path)
    conroi.create_table(tmp_path / "t.lance", [{"row": 1}], store=store)
    counting, records = (
        CountingObjects(CloudLike(open_objects(tmp_path / "t.lance"))),
        FaultyRecords(open_records(store)),
    )
    files = TableStorage(counting, ExternalVersions(counting, records), SYSTEM)
    table = Table(files, files.head()).append([{"row": 2}])
    records.requests.clear()
    with counting.measure() as measured:
        table.append([{"row": 3}])
    assert [request.verb for request in records.requests] == ["newest", "put_if_absent", "point"]
    assert measured.requests() + 1 == STORAGE


def test_control_without_a_store_it_is_four_and_the_instrument_sees_a_fifth(tmp_path: Path) -> None:
    conroi.create_table(tmp_path / "t.lance", [{"row": 1}])
    counting = CountingObjects(CloudLike(open_objects(tmp_path / "t.lance")))
    files = files_on(counting)
    table = Table(files, files.head()).append([{"row": 2}])
    assert requests_of(counting, lambda: table.append([{"row": 3}])) + 1 == FOLDER
    newest = table.latest()

    def look_and_append() -> None:
        counting.head("_versions/none")
        newest.append([{"row": 4}])

    assert requests_of(counting, look_and_append) + 1 == FOLDER + 1


def requests_of(counting: CountingObjects, work: Callable[[], object]) -> int:
    with counting.measure() as measured:
        work()
    return measured.requests()


def test_control_a_put_in_a_transaction_of_several_statements_would_be_seen(postgres: PostgresServer) -> None:
    with proxy_to(postgres.port) as proxy:
        database = PostgresDatabase(postgres.address(port=proxy.port))
        database.call("SELECT 1")
        with proxy.counting() as one, database.transaction() as run:
            run("SELECT 1", ())
            run("SELECT 2", ())
        with proxy.counting() as other:
            database.call("SELECT 1")
        database.close()
    assert (one, other) == ([4], [1])
