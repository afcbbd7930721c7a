"""A transaction reads one snapshot, and what it has done itself."""

from __future__ import annotations

from typing import Any, cast

import pytest

import conroi
from tests.support.arrow import column_values


@pytest.mark.contract("W1")
def test_a_transaction_reads_its_base_beside_concurrent_publications(lake: conroi.Lake, other: conroi.Lake):
    tx = lake.begin()
    assert tx["orders"].count_rows() == 3
    other["orders"].append([{"id": 4, "n": 40}])
    other["rates"].delete("rate = 1")
    base = lake.at(version=tx.base_version)
    assert tx["orders"].version == 1
    assert tx["orders"].to_arrow() == base["orders"].to_arrow()
    assert tx["rates"].to_arrow() == base["rates"].to_arrow(), "opened only after it had moved"
    assert other["orders"].count_rows() == 4
    assert other["rates"].count_rows() == 1


@pytest.mark.contract("W1")
def test_a_concurrently_dropped_table_can_still_be_read(lake: conroi.Lake, other: conroi.Lake):
    tx = lake.begin()
    other.drop_table("rates")
    assert "rates" in tx
    assert tx["rates"].count_rows() == 2
    assert tx.tables() == ["orders", "rates"]
    assert other.tables() == ["orders"]


@pytest.mark.contract("W1")
def test_a_concurrently_created_table_is_not_there(lake: conroi.Lake, other: conroi.Lake):
    tx = lake.begin()
    other.create_table("new", [{"a": 1}])
    assert "new" not in tx
    with pytest.raises(conroi.NotFoundError):
        tx["new"]


@pytest.mark.contract("W1", "W6")
def test_later_statements_read_the_base_and_not_the_newest_version(lake: conroi.Lake, other: conroi.Lake):
    tx = lake.begin()
    tx["orders"].append([{"id": 5, "n": 50}])
    other["orders"].append([{"id": 4, "n": 40}])
    tx["orders"].update({"n": "n + 1"})
    assert sorted(column_values(tx["orders"].to_arrow()["id"])) == [1, 2, 3, 5]
    tx.commit()
    rows = {row["id"]: row["n"] for row in lake["orders"].to_arrow().to_pylist()}
    assert rows == {1: 11, 2: 21, 3: 31, 4: 40, 5: 51}


@pytest.mark.contract("W2")
def test_readers_and_writers_see_the_same_version_schema_and_rows(lake: conroi.Lake, other: conroi.Lake):
    other["orders"].add_columns({"twice": "n * 2"})
    tx = lake.begin()
    reader = lake.at(version=tx.base_version)["orders"]
    writer = tx["orders"]
    assert (writer.uri, writer.version, writer.schema) == (reader.uri, reader.version, reader.schema)
    assert writer.to_arrow() == reader.to_arrow()
    by_path = conroi.open_table(reader.uri, version=reader.version)
    assert by_path.to_arrow() == reader.to_arrow()


@pytest.mark.contract("W6")
def test_statements_see_earlier_ones_also_across_names(lake: conroi.Lake):
    with lake.begin() as tx:
        tx.rename_table("orders", "sales")
        tx["sales"].append([{"id": 4, "n": 40}])
        assert tx["sales"].count_rows(filter="n >= 30") == 2
        tx["sales"].delete("id = 4")
        assert tx["sales"].count_rows() == 3
        tx["sales"].append([{"id": 4, "n": 41}])
        tx.create_table("copy", tx["sales"].to_arrow(), key="id")
        assert tx["copy"].count_rows() == 4
        assert tx.tables() == ["copy", "rates", "sales"]
    assert lake["copy"].to_arrow(filter="id = 4")["n"].to_pylist() == [41]
    assert lake["sales"].version == 2


@pytest.mark.contract("W6")
def test_a_key_that_the_transaction_inserted_is_there_already(lake: conroi.Lake):
    with lake.begin() as tx:
        tx["orders"].append([{"id": 7, "n": 1}])
        with pytest.raises(conroi.DuplicateKeyError):
            tx["orders"].append([{"id": 7, "n": 2}])
        tx["orders"].delete("id = 7")
        tx["orders"].append([{"id": 7, "n": 3}])
    assert lake["orders"].to_arrow(filter="id = 7")["n"].to_pylist() == [3]


def test_a_past_version_inside_a_transaction_can_only_be_read(lake: conroi.Lake):
    lake["orders"].append([{"id": 4, "n": 40}])
    with lake.begin() as tx:
        past = tx["orders"].at(1)
        assert past.count_rows() == 3
        with pytest.raises(conroi.InvalidInputError, match="only be read"):
            cast("Any", past).append([{"id": 5, "n": 50}])
    assert lake["orders"].version == 2
