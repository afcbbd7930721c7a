"""Two upserts of one new key: a key that both insert must be there once."""

from __future__ import annotations

from pathlib import Path

import lance
import lancedb
import pyarrow as pa
import pytest
from lancedb.namespace import LanceNamespaceDBConnection

import conroi
from conroi.namespace import ConroiNamespace
from tests.museum.peers import column, iceberg_catalog, iceberg_schema, outcome, upsert
from tests.support.arrow import column_values

pytestmark = pytest.mark.contract("K1", "K2", "H7")

FIRST = pa.table({"id": [0], "v": [0]})


def row(value: int) -> pa.Table:
    return pa.table({"id": [7], "v": [value]})


def staged_upsert(lake: conroi.Lake, value: int) -> conroi.Transaction:
    """A transaction that found the key 7 absent and inserts it."""
    tx = conroi.connect(lake.uri).begin()
    tx["t"].merge(row(value), on="id").when_matched_update_all().when_not_matched_insert_all().execute()
    return tx


def pairs(lake: conroi.Lake) -> list[tuple[int, int]]:
    return sorted((each["id"], each["v"]) for each in lake["t"].to_arrow().to_pylist())


@pytest.mark.parametrize("key", ["id", None], ids=["with a declared key", "without"])
def test_two_upserts_of_a_new_key_insert_it_once(tmp_path: Path, key: str | None) -> None:
    """lance#8949, and the first accident of our own: silent duplicates unless the key is marked in the schema."""
    uri = str(tmp_path / "pylance")
    field = pa.field("id", pa.int64(), nullable=False)
    marked = field.with_metadata({"lance-schema:unenforced-primary-key": "true"}) if key else field
    schema = pa.schema([marked, pa.field("v", pa.int64())])
    lance.write_dataset(FIRST.cast(schema), uri)
    one, two = lance.dataset(uri), lance.dataset(uri)
    upsert(one, row(1).cast(schema))
    second = outcome(lambda: upsert(two, row(2).cast(schema)))
    assert (second, column(uri, "id")) == ("committed", [0, 7] if key else [0, 7, 7])

    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", FIRST, key=key)
    ann, bob = staged_upsert(lake, 1), staged_upsert(lake, 2)
    ann.commit()
    with pytest.raises(conroi.RetryableConflict):
        bob.commit()
    assert pairs(lake) == [(0, 0), (7, 1)]
    staged_upsert(lake, 2).commit()
    assert pairs(lake) == [(0, 0), (7, 2)]


def test_two_lancedb_clients_that_upsert_a_new_key_insert_it_once(tmp_path: Path) -> None:
    """lancedb#3377. The same two clients on a conroi lake, whose declared key lancedb's own conflict check heeds."""
    folder = str(tmp_path / "lancedb")
    lancedb.connect(folder).create_table("t", FIRST)
    one, two = (lancedb.connect(folder).open_table("t") for _ in range(2))
    upsert(one, row(1))
    upsert(two, row(2))
    assert sorted(column_values(lancedb.connect(folder).open_table("t").to_arrow()["id"])) == [0, 7, 7]

    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", FIRST, key="id")
    ann, bob = (LanceNamespaceDBConnection(ConroiNamespace(lake)).open_table("t") for _ in range(2))
    upsert(ann, row(1).cast(ann.schema))
    upsert(bob, row(2).cast(bob.schema))
    assert pairs(lake) == [(0, 0), (7, 2)]


def test_two_upserts_in_iceberg_and_in_conroi(tmp_path: Path) -> None:
    """pyiceberg retries a commit that lost; its second upsert still inserts the key that it had found absent."""
    catalog = iceberg_catalog(tmp_path / "iceberg")
    fields = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])
    table = catalog.create_table("n.t", iceberg_schema(key="id", id="LongType", v="LongType"))
    table.append(FIRST.cast(fields))
    transactions = [catalog.load_table("n.t").transaction() for _ in range(2)]
    for value, transaction in enumerate(transactions, 1):
        transaction.upsert(row(value).cast(fields))
    assert [outcome(each.commit_transaction) for each in transactions] == ["committed", "committed"]
    assert sorted(catalog.load_table("n.t").scan().to_arrow()["id"].to_pylist()) == [0, 7, 7]

    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", FIRST, key="id")
    two = [staged_upsert(lake, value) for value in (1, 2)]
    assert [outcome(each.commit) for each in two] == ["committed", "RetryableConflict"]
    assert pairs(lake) == [(0, 0), (7, 1)]
