"""A lake's tables, namespaces, past and tags."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import conroi
from conroi.testing import SeededEnvironment
from tests.support.arrow import column_values

# ------------------------------------------------------------------------------------------- the past


def test_the_lake_at_a_version_has_all_tables_as_they_were_together(lake: conroi.Lake):
    with lake.begin("both") as tx:
        tx["orders"].append([{"id": 4, "n": 40}])
        tx["rates"].delete("rate = 1")
    lake.drop_table("rates")
    past = lake.at(version=tx.base_version)
    assert (past["orders"].count_rows(), past["rates"].count_rows()) == (3, 2)
    between = lake.at(version=tx.result.version)
    assert (between["orders"].count_rows(), between["rates"].count_rows()) == (4, 1)
    assert lake.tables() == ["orders"]
    assert between.tables() == ["orders", "rates"]
    assert between.version == tx.result.version
    assert between.history()[0].version == tx.result.version


def test_a_lake_at_a_tag_and_at_a_time(uri: str):
    clock = SeededEnvironment(1)
    lake = conroi.connect(uri, environment=clock)
    lake.create_table("orders", [{"id": 1}])
    clock.sleep(3600)
    lake.tags.create("q1")
    moment = datetime.fromtimestamp(clock.now_ns() / 1e9, UTC)
    clock.sleep(3600)
    lake["orders"].append([{"id": 2}])
    assert lake.at(tag="q1")["orders"].count_rows() == 1
    assert lake.at(as_of=moment)["orders"].count_rows() == 1
    assert lake.at(as_of=moment + timedelta(hours=2))["orders"].count_rows() == 2
    assert conroi.connect(uri).at(tag="q1").version == 2


def test_lake_timestamps_never_go_back_though_clocks_do(uri: str):
    conroi.connect(uri, environment=SeededEnvironment(1, start_ns=2_000_000_000_000_000_000)).create_table(
        "orders", [{"id": 1}]
    )
    behind = conroi.connect(uri, environment=SeededEnvironment(2, start_ns=1_000_000_000_000_000_000))
    behind["orders"].append([{"id": 2}])
    stamps = [commit.timestamp for commit in behind.history()]
    assert stamps == sorted(stamps, reverse=True)


def test_one_table_of_a_lake_at_a_version_tag_or_time_of_its_own(lake: conroi.Lake):
    lake["orders"].append([{"id": 4, "n": 40}])
    lake["orders"].tags.create("four")
    lake["orders"].append([{"id": 5, "n": 50}])
    assert lake.table("orders").version == 3
    assert lake.table("orders", version=1).count_rows() == 3
    assert lake.table("orders", 2).count_rows() == 4
    assert lake.table("orders", tag="four").count_rows() == 4
    assert lake.table("orders", as_of=datetime.now(UTC)).version == 3
    with pytest.raises(conroi.NotFoundError):
        lake.table("orders", version=9)


def test_history_says_who_did_what(lake: conroi.Lake):
    with lake.begin("nightly", author="ada", properties={"job": "7"}, idempotency_key="k") as tx:
        tx["orders"].append([{"id": 4, "n": 40}])
        tx.drop_table("rates")
        tx.create_table("new.table", [{"a": 1}])
    newest, *older = lake.history()
    assert (newest.version, newest.message, newest.author) == (tx.result.version, "nightly", "ada")
    assert newest.tables == {"orders": 2, "rates": None, "new.table": 1}
    assert (newest.properties, newest.idempotency_key, newest.operation) == ({"job": "7"}, "k", "Update")
    assert [commit.version for commit in older] == list(range(tx.base_version, 0, -1))
    assert lake.history(limit=1) == [newest]
    assert lake["orders"].history()[0].message == "nightly"


def test_a_pylance_reader_of_one_table_finds_the_message_too(lake: conroi.Lake):
    with lake.begin("nightly") as tx:
        tx["orders"].append([{"id": 4, "n": 40}])
    dataset = lance.dataset(lake["orders"].uri)
    transaction = dataset.read_transaction(dataset.version)
    assert transaction is not None
    assert "nightly" in str(transaction.transaction_properties)


# -------------------------------------------------------------------------------------- namespaces


def test_namespaces_are_made_with_their_tables_and_nest(lake: conroi.Lake):
    lake.create_table("sales.eu.orders", [{"a": 1}])
    lake.create_namespace("empty")
    assert lake.namespaces() == ["empty", "sales", "sales.eu"]
    assert lake.tables("sales") == lake.tables("sales.eu") == ["sales.eu.orders"]
    assert lake["sales.eu.orders"].count_rows() == 1
    assert "sales.eu.orders" in lake
    assert "sales.eu" not in lake, "a namespace is no table"
    assert len(lake) == 3
    assert list(lake) == ["orders", "rates", "sales.eu.orders"]
    lake.drop_namespace("empty")
    assert lake.namespaces() == ["sales", "sales.eu"]


def test_a_table_moves_to_another_namespace(lake: conroi.Lake):
    moved = lake.rename_table("orders", "sales.orders")
    assert moved.count_rows() == 3
    assert lake.namespaces() == ["sales"]
    moved.append([{"id": 4, "n": 40}])
    assert lake["sales.orders"].count_rows() == 4


def test_a_name_becomes_a_namespace_when_its_table_goes(lake: conroi.Lake):
    with lake.begin() as tx:
        tx.rename_table("orders", "x")
        tx.create_table("orders.new", [{"a": 1}])
    assert lake.tables() == ["orders.new", "rates", "x"]
    assert lake.namespaces() == ["orders"]


# ------------------------------------------------------------------- tables that were there before


def test_tables_in_the_folder_are_adopted_with_all_their_versions(tmp_path: Path):
    for name in ("one", "two"):
        lance.write_dataset(pa.table({"a": [1]}), str(tmp_path / f"{name}.lance"))
        lance.write_dataset(pa.table({"a": [2]}), str(tmp_path / f"{name}.lance"), mode="append")
    lake = conroi.connect(tmp_path)
    assert lake.tables() == []
    assert lake.adopt() == ["one", "two"]
    assert lake.adopt() == []
    assert lake["one"].version == 2
    assert lake["one"].at(1).count_rows() == 1
    assert lake["one"].append([{"a": 3}]).version == 3
    assert lance.dataset(str(tmp_path / "one.lance")).count_rows() == 3


def test_one_handle_on_an_adopted_table_goes_on_after_its_first_publication(tmp_path: Path):
    lance.write_dataset(pa.table({"a": [1]}), str(tmp_path / "one.lance"))
    lake = conroi.connect(tmp_path)
    lake.adopt()
    tx = lake.begin()
    tx["one"].append([{"a": 9}])
    table = lake["one"]
    for number in (2, 3):
        table = table.append([{"a": number}])
    tx.commit()
    assert sorted(column_values(lake["one"].to_arrow()["a"])) == [1, 2, 3, 9]


def test_a_table_is_deregistered_and_registered_under_another_name(lake: conroi.Lake):
    location = lake.deregister("orders")
    assert lake.tables() == ["rates"]
    by_path = conroi.open_table(f"{lake.uri}/{location}")
    assert by_path.count_rows() == 3
    registered = lake.register("sales.orders", location)
    assert registered.count_rows() == 3
    registered.append([{"id": 4, "n": 40}])
    assert lake["sales.orders"].version == 2


def test_two_that_connect_for_the_first_time_share_one_lake(uri: str):
    one, two = conroi.connect(uri), conroi.connect(uri)
    one.create_table("a", [{"x": 1}])
    two.create_table("b", [{"x": 1}])
    assert one.tables() == two.tables() == ["a", "b"]


def test_a_lake_shows_what_it_is(lake: conroi.Lake):
    assert repr(lake) == f"Lake({lake.uri!r}, version=2, 2 tables)"
    tx = lake.begin()
    assert repr(tx) == "Transaction(base=2, open)"
    assert repr(tx["orders"]) == "TransactionTable('orders', version=1)"
    tx.rollback()
    assert repr(tx) == "Transaction(base=2, was rolled back)"
