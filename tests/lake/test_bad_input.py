"""What cannot be done is refused by a typed error that names the remedy, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lance
import pyarrow as pa
import pytest

import conroi
from tests.support.refusals import assert_helpful

BAD_NAMES = [
    "",
    " ",
    "a$b",
    "a/b",
    "..",
    "../orders",
    "a..b",
    ".orders",
    "orders.",
    "a\\b",
    "a\nb",
    "a\x00b",
    "__manifest",
    "ns.__x",
    "x" * 300,
    ".".join(["abcdefgh"] * 40),
    " orders",
    "orders ",
    "-",
    7,
    None,
]


@pytest.mark.parametrize("name", BAD_NAMES, ids=repr)
def test_a_name_that_nothing_can_have(lake: conroi.Lake, name: Any):
    before = lake.version
    tx = lake.begin()
    for use in (
        lambda: lake.create_table(name, [{"a": 1}]),
        lambda: lake[name],
        lambda: lake.drop_table(name),
        lambda: lake.rename_table("orders", name),
        lambda: lake.create_namespace(name),
        lambda: lake.begin(expect={name: 1}),
        lambda: tx.create_table(name, [{"a": 1}]),
        lambda: tx[name],
        lambda: name in tx,
        lambda: tx.expect(name),
    ):
        with pytest.raises(conroi.InvalidInputError) as caught:
            use()
        assert_helpful(caught.value, conroi.InvalidInputError)
        assert len(str(caught.value)) < 600
    assert lake.version == before


@pytest.mark.parametrize("name", ["Orders", "größe", "注文", "a b", "a-b", "x" * 128, "a.b.c", "1st", "orders_2"])
def test_a_name_that_is_unusual_and_fine(lake: conroi.Lake, name: str):
    lake.create_table(name, [{"a": 1}])
    assert name in lake.tables()
    assert conroi.connect(lake.uri)[name].to_arrow().to_pylist() == [{"a": 1}]
    assert lance.dataset(lake[name].uri).count_rows() == 1


USES: list[tuple[str, Callable[[Any], object], type[conroi.ConroiError], str]] = [
    ("unknown table", lambda it: it["nothing"], conroi.NotFoundError, "orders, rates"),
    ("unknown table in a transaction", lambda it: it.begin()["nothing"], conroi.NotFoundError, "create_table()"),
    ("drop what is not there", lambda it: it.drop_table("nothing"), conroi.NotFoundError, "create_table()"),
    ("rename what is not there", lambda it: it.rename_table("nothing", "x"), conroi.NotFoundError, "create_table()"),
    ("expect what is not there", lambda it: it.begin().expect("nothing"), conroi.NotFoundError, "create_table()"),
    ("made twice", lambda it: it.create_table("orders", [{"a": 1}]), conroi.AlreadyExistsError, "another name"),
    ("rename to a taken name", lambda it: it.rename_table("orders", "rates"), conroi.AlreadyExistsError, "another"),
    ("a table in a table", lambda it: it.create_table("orders.x", [{"a": 1}]), conroi.AlreadyExistsError, "orders"),
    ("a namespace that is a table", lambda it: it.create_namespace("orders"), conroi.AlreadyExistsError, "another"),
    ("a namespace in a table", lambda it: it.create_namespace("orders.x"), conroi.AlreadyExistsError, "orders"),
    ("unknown namespace", lambda it: it.drop_namespace("nothing"), conroi.NotFoundError, "lake.namespaces()"),
    ("a table is no namespace", lambda it: it.drop_namespace("orders"), conroi.NotFoundError, "lake.namespaces()"),
    ("isolation", lambda it: it.begin(isolation="none"), conroi.InvalidInputError, "serializable"),  # type: ignore[arg-type]
    ("version in words", lambda it: it.begin(expect={"orders": "1"}), conroi.InvalidInputError, "whole number"),  # type: ignore[dict-item]
    ("version below 0", lambda it: it.begin(expect={"orders": -1}), conroi.InvalidInputError, "count from 1"),
    ("retries", lambda it: it.begin(retries=-1), conroi.InvalidInputError, "0"),
    ("message", lambda it: it.begin(7), conroi.InvalidInputError, "text"),  # type: ignore[arg-type]
    ("properties", lambda it: it.begin(properties={"a": 1}), conroi.InvalidInputError, "text"),  # type: ignore[dict-item]
    ("two versions", lambda it: it.at(version=1, tag="x"), conroi.InvalidInputError, "one of"),
    ("no version", lambda it: it.at(), conroi.InvalidInputError, "one of"),
    ("a version that never was", lambda it: it.at(version=99), conroi.NotFoundError, ""),
    ("a tag that is not there", lambda it: it.at(tag="x"), conroi.NotFoundError, ""),
    ("before the lake", lambda it: it.at(as_of="2001-01-01"), conroi.NotFoundError, ""),
    ("write to the past", lambda it: it.at(version=1).begin(), conroi.InvalidInputError, "conroi.connect()"),
    ("create in the past", lambda it: it.at(version=1).create_table("x", [{"a": 1}]), conroi.InvalidInputError, ""),
    ("register nothing", lambda it: it.register("x", "nowhere.lance"), conroi.NotFoundError, "orders.lance"),
    ("register outside", lambda it: it.register("x", "../x.lance"), conroi.InvalidInputError, "orders.lance"),
    ("register the lake", lambda it: it.register("x", "__manifest"), conroi.InvalidInputError, "another"),
    ("register twice", lambda it: it.register("x", "orders.lance"), conroi.AlreadyExistsError, "rename_table()"),
    ("register a taken name", lambda it: it.register("orders", "rates.lance"), conroi.AlreadyExistsError, ""),
    ("message inside", lambda it: it.begin()["orders"].delete("id=1", message=""), conroi.InvalidInputError, "begin()"),
    ("newest inside", lambda it: it.begin()["orders"].latest(), conroi.InvalidInputError, "lake[name]"),
    ("clone inside", lambda it: it.begin()["orders"].clone("memory://x"), conroi.InvalidInputError, "after the commit"),
    ("names inside", lambda it: it.begin()["orders"].migrate_manifest_names(), conroi.InvalidInputError, "outside"),
]  # fmt: skip


@pytest.mark.parametrize(("use", "kind", "remedy"), [u[1:] for u in USES], ids=[u[0] for u in USES])
def test_what_cannot_be_done_is_refused_with_the_remedy(
    lake: conroi.Lake, use: Callable[[Any], object], kind: type[conroi.ConroiError], remedy: str
):
    before = lake.catalog.state().rows
    with pytest.raises(conroi.ConroiError) as caught:
        use(lake)
    assert_helpful(caught.value, kind, remedy)
    assert conroi.connect(lake.uri).catalog.state().rows == before


def test_a_concurrently_dropped_table_is_named(lake: conroi.Lake, other: conroi.Lake):
    table = lake["orders"]
    other.drop_table("orders")
    with pytest.raises(conroi.NotFoundError) as caught:
        table.append([{"id": 5, "n": 1}])
    assert_helpful(caught.value, conroi.NotFoundError, "orders", "lake.tables()")


def test_a_namespace_with_something_in_it_is_not_dropped(lake: conroi.Lake):
    lake.create_table("sales.orders", [{"a": 1}])
    with pytest.raises(conroi.InvalidInputError) as caught:
        lake.drop_namespace("sales")
    assert_helpful(caught.value, conroi.InvalidInputError, "Drop its tables first")


def test_a_namespace_that_is_filled_while_it_is_dropped_stays(lake: conroi.Lake, other: conroi.Lake):
    lake.create_namespace("sales")
    tx = other.begin()
    tx.create_table("sales.orders", [{"a": 1}])
    lake.drop_namespace("sales")
    tx.commit()
    assert lake.namespaces() == ["sales"]
    assert lake.tables("sales") == ["sales.orders"]


def test_a_bad_statement_leaves_the_transaction_as_it_was(lake: conroi.Lake):
    with lake.begin() as tx:
        tx["orders"].append([{"id": 4, "n": 40}])
        for bad in (
            lambda: tx["orders"].append([{"id": "x", "n": 1}]),
            lambda: tx["orders"].update({"nothing": "1"}),
            lambda: tx["orders"].delete("nothing = 1"),
            lambda: tx["orders"].drop_columns(["nothing"]),
            lambda: tx.create_table("x", [{"a": object()}]),
            lambda: tx.create_table("y", pa.schema([pa.field("a", pa.int64())]), key="b"),
        ):
            with pytest.raises(conroi.ConroiError):
                bad()
        assert tx.tables() == ["orders", "rates"]
    assert lake["orders"].count_rows() == 4
