"""A table in an S3 server under DynamoDB, written by pylance and conroi alternately: both share one store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import lance
import pyarrow as pa
import pytest

import conroi
from conroi.storage import open_objects
from conroi.versions import open_records
from tests.support.arrow import column_values
from tests.support.databases import dynamodb_address
from tests.support.external_tables import rows, rows_by_pylance
from tests.support.servers import S3Server

pytestmark = [pytest.mark.contract("X1", "X3", "T15"), pytest.mark.usefixtures("aws")]


@dataclass(frozen=True)
class Place:
    """One table, as each of the two names it."""

    uri: str
    store: str
    options: dict[str, str]

    @property
    def for_pylance(self) -> str:
        table = self.store.removeprefix("dynamodb://").partition("?")[0]
        return f"s3+ddb{self.uri.removeprefix('s3')}?ddbTableName={table}"

    def open(self) -> conroi.Table:
        return conroi.open_table(self.uri, store=self.store, storage_options=self.options)

    def dataset(self) -> lance.LanceDataset:
        return lance.dataset(self.for_pylance, storage_options=self.options)

    def records(self) -> list[tuple[int, str]]:
        """Version and path of every item in DynamoDB, relative to the table."""
        store = open_records(self.store, self.options)
        return [(r.version, r.path) for r in store.all(store.key_of(open_objects(self.uri, self.options)))]


@pytest.fixture(params=["table", "odd näme 100%25"])
def place(request: pytest.FixtureRequest, seaweedfs: S3Server, moto: S3Server) -> Place:
    options = {**seaweedfs.options, "dynamodb_endpoint": moto.endpoint}
    uri = seaweedfs.new_uri().replace("table.lance", f"{request.param}.lance")
    place = Place(uri, dynamodb_address(moto.endpoint, "shared"), options)
    place.records()  # pylance does not make the DynamoDB table; conroi does at first use
    return place


def create_by_pylance(place: Place) -> None:
    lance.write_dataset(pa.table({"row": [0]}), place.for_pylance, storage_options=place.options)


def create_by_conroi(place: Place) -> None:
    conroi.create_table(place.uri, pa.table({"row": [0]}), store=place.store, storage_options=place.options)


@pytest.mark.parametrize("create", [create_by_pylance, create_by_conroi])
def test_both_write_in_turns_and_lose_nothing(place: Place, create: Callable[[Place], None]) -> None:
    create(place)
    expected = [0]
    for row in range(1, 7):
        if row % 2:
            place.open().append(pa.table({"row": [row]}))
        else:
            lance.write_dataset(
                pa.table({"row": [row]}), place.for_pylance, mode="append", storage_options=place.options
            )
        expected.append(row)
        assert rows(place.open()) == expected
        assert sorted(column_values(place.dataset().to_table()["row"])) == expected
        assert rows_by_pylance(place.uri, place.options) == (row + 1, expected), "who does not know the store"
    names = [(version, f"_versions/{2**64 - 1 - version}.manifest") for version in range(1, 8)]
    assert place.records() == names


def test_both_delete_and_compact_what_the_other_wrote(place: Place) -> None:
    create_by_conroi(place)
    place.dataset().delete("row = 0")
    table = place.open().append(pa.table({"row": [1, 2, 3]})).delete("row = 2")
    place.dataset().optimize.compact_files()
    assert rows(place.open()) == [1, 3]
    assert place.open().delete("row = 1").count_rows() == 1
    assert place.dataset().count_rows() == 1
    assert table.latest().version == place.dataset().version


def test_each_is_rebased_over_the_other(place: Place) -> None:
    create_by_pylance(place)
    mine, theirs = place.open(), place.dataset()
    theirs.insert(pa.table({"row": [1]}))
    assert rows(mine.append(pa.table({"row": [2]}))) == [0, 1, 2]
    stale = place.dataset()
    mine.append(pa.table({"row": [3]}))
    stale.insert(pa.table({"row": [4]}))
    assert rows(place.open()) == [0, 1, 2, 3, 4]


def test_conroi_understands_what_pylance_calls_such_a_table(place: Place) -> None:
    create_by_pylance(place)
    table = conroi.open_table(place.for_pylance, storage_options=place.options).append(pa.table({"row": [1]}))
    assert rows(table) == [0, 1]
    assert place.dataset().version == 2
    with pytest.raises(conroi.InvalidInputError, match="names its store itself"):
        conroi.open_table(place.for_pylance, store=place.store)
