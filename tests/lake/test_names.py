"""Tables that are made, dropped and renamed, alone and beside writers; a name is not the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import conroi
from conroi.lake_snapshot import LakeReader
from conroi.testing import FaultyObjects, call_before, connect_through
from tests.support.arrow import column_values
from tests.support.paused_commits import paused_before_publication, while_paused


def ids(lake: LakeReader, name: str) -> list[int]:
    return sorted(column_values(lake[name].to_arrow()["id"]))


# ------------------------------------------------------------------------------------ in one transaction


def test_drop_and_create_of_one_name_is_one_commit_and_another_table(lake: conroi.Lake):
    before = lake["orders"]
    with lake.begin() as tx:
        tx.drop_table("orders")
        assert "orders" not in tx
        tx.create_table("orders", [{"id": 7, "text": "new"}])
        assert tx["orders"].count_rows() == 1
    assert tx.result.tables == {"orders": 1}
    assert lake["orders"].uri != before.uri
    assert lake["orders"].schema.names == ["id", "text"]
    assert lake.at(version=tx.base_version)["orders"].count_rows() == 3


def test_a_table_made_and_dropped_again_leaves_the_old_one_dropped(lake: conroi.Lake):
    with lake.begin() as tx:
        tx.drop_table("orders")
        tx.create_table("orders", [{"id": 7}])
        tx.drop_table("orders")
    assert lake.tables() == ["rates"]


def test_a_table_made_and_dropped_in_one_transaction_never_was(lake: conroi.Lake):
    before = lake.version
    with lake.begin() as tx:
        tx.create_table("new", [{"id": 7}])
        tx.drop_table("new")
    assert lake.version == before


@pytest.mark.parametrize("is_written", [False, True])
def test_two_tables_can_change_names(lake: conroi.Lake, is_written: bool):
    with lake.begin() as tx:
        if is_written:
            tx["orders"].append([{"id": 4, "n": 40}])
        tx.rename_table("orders", "between")
        tx.rename_table("rates", "orders")
        tx.rename_table("between", "rates")
        assert tx["rates"].schema.names == ["id", "n"]
        assert tx.tables() == ["orders", "rates"]
    assert lake.tables() == ["orders", "rates"]
    assert lake["rates"].schema.names == ["id", "n"]
    assert lake["rates"].count_rows() == (4 if is_written else 3)
    assert lake["orders"].schema.names == ["name", "rate"]


@pytest.mark.parametrize("is_written", [False, True])
def test_a_table_takes_the_name_of_one_that_is_dropped(lake: conroi.Lake, is_written: bool):
    with lake.begin() as tx:
        tx.drop_table("rates")
        tx.rename_table("orders", "rates")
        if is_written:
            tx["rates"].delete("id = 1")
    assert lake.tables() == ["rates"]
    assert ids(lake, "rates") == ([2, 3] if is_written else [1, 2, 3])


def test_a_new_table_takes_the_name_of_one_that_is_renamed(lake: conroi.Lake):
    with lake.begin() as tx:
        tx.rename_table("orders", "archive")
        tx.create_table("orders", tx["archive"].schema, key="id")
        tx["orders"].append([{"id": 9, "n": 9}])
    assert ids(lake, "archive") == [1, 2, 3]
    assert ids(lake, "orders") == [9]
    assert lake["orders"].version == 1


def test_there_and_back_again_is_nothing(lake: conroi.Lake):
    before = lake.version
    with lake.begin() as tx:
        tx.rename_table("orders", "x")
        tx.rename_table("x", "orders")
    assert lake.version == before


# ----------------------------------------------------------------------------------- beside writers


@pytest.mark.contract("P9")
def test_a_stalled_writer_of_a_table_that_was_dropped_and_made_again_is_refused(lake: conroi.Lake, other: conroi.Lake):
    """It has staged everything and stands before its put; the new table has as many versions as the old one had."""
    mine, gate = paused_before_publication(lake.uri)
    tx = mine.begin()
    tx["orders"].append([{"id": 4, "n": 40}])

    def drop_and_make_again() -> None:
        other.drop_table("orders")
        other.create_table("orders", [{"id": 100, "n": 1}], key="id")

    future = while_paused(gate, tx.commit, drop_and_make_again)
    assert isinstance(future.exception(), conroi.RetryableConflict)
    assert ids(lake, "orders") == [100]
    assert lake["orders"].version == 1


@pytest.mark.contract("P9")
def test_a_handle_on_the_old_table_does_not_reach_the_new_one(lake: conroi.Lake, other: conroi.Lake):
    old = lake["orders"]
    other.drop_table("orders")
    other.create_table("orders", [{"id": 100, "n": 1}], key="id")
    assert old.count_rows() == 3, "what was opened can still be read"
    for write in (lambda: old.append([{"id": 5, "n": 5}]), lambda: old.delete("id = 100"), lambda: old.latest()):
        with pytest.raises(conroi.NotFoundError):
            write()
    assert ids(lake, "orders") == [100]


@pytest.mark.contract("P9")
def test_a_new_table_of_an_old_name_has_a_folder_a_lock_and_a_history_of_its_own(lake: conroi.Lake, tmp_path: Path):
    lake["orders"].append([{"id": 4, "n": 40}])
    old = lake.catalog.state().rows["orders"]
    lake.drop_table("orders")
    lake.create_table("orders", [{"id": 100, "n": 1}], key="id")
    new = lake.catalog.state().rows["orders"]
    assert len({old.location, new.location}) == 2
    assert len({old.incarnation, new.incarnation}) == 2
    assert len({old.lock, new.lock, None}) == 3
    assert lake["orders"].versions() == [1]
    assert len(lake["orders"].history()) == 1


@pytest.mark.contract("P9")
def test_two_names_never_share_a_folder(lake: conroi.Lake):
    """Names that look the same once odd characters are taken out, made at the same moment."""
    one, two = lake.begin(), conroi.connect(lake.uri).begin()
    one.create_table("prix é", [{"a": 1}])
    two.create_table("prix è", [{"a": 2}])
    one.commit()
    two.commit()
    assert lake["prix é"].to_arrow().to_pylist() == [{"a": 1}]
    assert lake["prix è"].to_arrow().to_pylist() == [{"a": 2}]
    assert lake["prix é"].uri != lake["prix è"].uri


def test_of_two_that_make_one_name_the_second_is_refused(lake: conroi.Lake, other: conroi.Lake):
    one, two = lake.begin(), other.begin()
    one.create_table("new", [{"a": 1}])
    two.create_table("new", [{"a": 2}])
    two["orders"].append([{"id": 4, "n": 40}])
    one.commit()
    with pytest.raises(conroi.AlreadyExistsError):
        two.commit()
    assert lake["new"].to_arrow().to_pylist() == [{"a": 1}]
    assert lake["orders"].version == 1


def test_of_two_that_rename_one_table_the_second_is_refused(lake: conroi.Lake, other: conroi.Lake):
    one, two = lake.begin(), other.begin()
    one.rename_table("orders", "a")
    two.rename_table("orders", "b")
    one.commit()
    with pytest.raises(conroi.IncompatibleConflict):
        two.commit()
    assert lake.tables() == ["a", "rates"]


def test_a_writer_of_a_concurrently_renamed_table_is_told(lake: conroi.Lake, other: conroi.Lake):
    tx = lake.begin()
    tx["orders"].append([{"id": 4, "n": 40}])
    other.rename_table("orders", "sales")
    with pytest.raises(conroi.IncompatibleConflict, match="renamed"):
        tx.commit()
    assert ids(lake, "sales") == [1, 2, 3]


def test_a_rename_beside_a_writer_keeps_what_the_writer_published(lake: conroi.Lake, other: conroi.Lake):
    tx = lake.begin()
    tx.rename_table("orders", "sales")
    other["orders"].append([{"id": 4, "n": 40}])
    tx.commit()
    assert ids(lake, "sales") == [1, 2, 3, 4]


def test_changed_names_beside_writers_keep_what_the_writers_published(lake: conroi.Lake, other: conroi.Lake):
    tx = lake.begin()
    tx.rename_table("orders", "x")
    tx.rename_table("rates", "orders")
    tx.rename_table("x", "rates")
    other["orders"].append([{"id": 4, "n": 40}])
    other["rates"].append([{"name": "c", "rate": 3}])
    tx.commit()
    assert ids(lake, "rates") == [1, 2, 3, 4]
    assert lake["orders"].count_rows() == 3


def test_a_rename_and_a_change_beside_a_writer_are_put_on_top(lake: conroi.Lake, other: conroi.Lake):
    tx = lake.begin()
    tx.rename_table("orders", "sales")
    tx["sales"].delete("id = 1")
    other["orders"].append([{"id": 4, "n": 40}])
    tx.commit()
    assert ids(lake, "sales") == [2, 3, 4]


def test_a_drop_beside_a_writer_drops_what_it_published(lake: conroi.Lake, other: conroi.Lake):
    tx = lake.begin()
    tx.drop_table("orders")
    other["orders"].append([{"id": 4, "n": 40}])
    tx.commit()
    assert lake.tables() == ["rates"]
    assert ids(lake.at(version=tx.result.version - 1), "orders") == [1, 2, 3, 4]


def test_a_writer_of_a_concurrently_dropped_table_is_refused(lake: conroi.Lake, other: conroi.Lake):
    tx = lake.begin()
    tx["orders"].append([{"id": 4, "n": 40}])
    other.drop_table("orders")
    with pytest.raises(conroi.IncompatibleConflict, match="dropped"):
        tx.commit()
    assert lake.tables() == ["rates"]


def test_a_drop_does_not_take_a_table_that_was_recreated_concurrently(lake: conroi.Lake, other: conroi.Lake):
    tx = lake.begin()
    tx.drop_table("orders")
    tx.rename_table("rates", "orders")
    other.drop_table("orders")
    other.create_table("orders", [{"id": 100, "n": 1}])
    with pytest.raises(conroi.IncompatibleConflict):
        tx.commit()
    assert ids(lake, "orders") == [100]


def test_a_writer_that_loses_its_table_between_check_and_put_is_refused(lake: conroi.Lake):
    def rename(_: Any) -> None:
        conroi.connect(lake.uri).rename_table("orders", "sales")

    fault = call_before(rename, "put_if_absent", "_versions/*.manifest")
    mine = connect_through(lake.uri, lambda objects: FaultyObjects(objects, [fault]))
    tx = mine.begin()
    tx["orders"].append([{"id": 4, "n": 40}])
    with pytest.raises(conroi.IncompatibleConflict):
        tx.commit()
    assert ids(lake, "sales") == [1, 2, 3]
