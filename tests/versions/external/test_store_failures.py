"""A store that is down, slow, or loses answers on the wire: typed errors, bounded waits, nothing lost or doubled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import conroi
from conroi.errors import CommitStateUnknown, StoreUnavailable
from conroi.storage.dynamodb import dynamo_table
from conroi.testing import FaultyRecords, Request, call_before
from conroi.versions.dynamodb_records import DynamoRecords
from conroi.versions.records import RecordStore
from conroi.versions.sql_records import PostgresRecords
from tests.support.databases import PostgresServer, dynamodb_address
from tests.support.external_tables import rows, rows_by_pylance, staged_files
from tests.support.proxy import Mood, Proxy, proxy_to
from tests.support.servers import S3Server

pytestmark = pytest.mark.contract("T11", "X2")
TIMEOUT_S = 1.5  # on a busy machine a statement of 0.5 s may take too long by itself, which leaves a staged file
BOUND_S = 20.0
"""How long a single request may take at most, tries and connections included."""


@dataclass(frozen=True)
class Line:
    """A table under a store that is reached through a line of ours, and the store's address past it."""

    proxy: Proxy
    records: FaultyRecords
    direct: str
    uri: Path

    def open(self) -> conroi.Table:
        return conroi.open_table(self.uri, store=self.records)

    def set(self, mood: Mood) -> Callable[[Request], None]:
        """A hook that changes the line when a request is about to be made."""

        def change(_request: Request) -> None:
            self.proxy.mood = mood

        return change


@pytest.fixture(params=["postgres", "dynamodb"])
def line(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Line]:
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        port, direct = server.port, server.new_address()
    else:
        moto: S3Server = request.getfixturevalue("moto")
        request.getfixturevalue("aws")
        port, direct = int(moto.endpoint.rpartition(":")[2]), dynamodb_address(moto.endpoint, "shared")
    with proxy_to(port) as proxy:
        records = FaultyRecords(_impatient(direct.replace(f":{port}", f":{proxy.port}")))
        conroi.create_table(tmp_path / "t.lance", [{"row": 1}], store=records)
        yield Line(proxy, records, direct, tmp_path / "t.lance")


def _impatient(address: str) -> RecordStore:
    if address.startswith("postgresql"):
        return PostgresRecords(f"{address}&connect_timeout=2", timeout_s=TIMEOUT_S)
    return DynamoRecords(replace(dynamo_table(address), timeout_s=TIMEOUT_S))


def test_a_store_that_is_down_is_said_to_be_and_comes_back(line: Line) -> None:
    table = line.open()
    line.proxy.mood = "down"
    line.proxy.cut()
    started = time.monotonic()
    for work in (line.open, lambda: table.append([{"row": 2}])):
        with pytest.raises(StoreUnavailable) as caught:
            work()
        assert caught.value.hint
        assert caught.value.table == str(line.uri)
    assert time.monotonic() - started < 2 * BOUND_S
    assert rows_by_pylance(line.uri) == (1, [1]), "a reader of the folder needs no store"
    line.proxy.mood = "well"
    assert rows(table.append([{"row": 2}])) == [1, 2]
    assert rows_by_pylance(line.uri) == (2, [1, 2])


@pytest.mark.parametrize("mood", ["losing one answer", "cutting one request"])
@pytest.mark.parametrize("verb", ["newest", "put_if_absent", "point"])
def test_one_broken_request_does_not_show(verb: str, mood: Mood, line: Line) -> None:
    table = line.open()
    line.records.plan = FaultyRecords(line.records, [call_before(line.set(mood), verb)]).plan
    done = table.append([{"row": 2}])
    assert len(line.records.hits) == 1
    assert line.proxy.mood == "well", "it happened"
    assert (done.version, rows(done)) == (2, [1, 2])
    there = conroi.open_table(line.uri, store=line.direct)
    assert (there.versions(), rows(there), staged_files(line.uri)) == ([1, 2], [1, 2], [])


def test_a_store_that_goes_down_at_the_put_leaves_the_outcome_unknown_and_nothing_half_visible(line: Line) -> None:
    table = line.open()
    line.records.plan = FaultyRecords(line.records, [call_before(line.set("down"), "put_if_absent")]).plan
    started = time.monotonic()
    with pytest.raises(CommitStateUnknown) as caught:
        table.append([{"row": 2}])
    assert time.monotonic() - started < 4 * BOUND_S
    assert caught.value.version == 2
    there = conroi.open_table(line.uri, store=line.direct)
    assert caught.value.transaction_uuid not in {commit.transaction_uuid for commit in there.history()}
    assert (rows(there), rows_by_pylance(line.uri)) == ([1], (1, [1]))
    line.proxy.mood = "well"
    assert rows(line.open().append([{"row": 2}])) == [1, 2]


def test_a_store_that_does_not_answer_is_not_waited_for_without_end(line: Line) -> None:
    table = line.open()
    line.proxy.mood = "silent"
    started = time.monotonic()
    with pytest.raises(StoreUnavailable):
        table.latest()
    assert time.monotonic() - started < BOUND_S
    line.proxy.mood = "well"
    assert table.latest().version == 1


def test_a_store_that_is_slow_is_used_as_it_is(line: Line) -> None:
    line.proxy.latency_s = TIMEOUT_S / 5
    assert rows(line.open().append([{"row": 2}])) == [1, 2]
