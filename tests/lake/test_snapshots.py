"""Every table of a snapshot is at one version, however the table came into the lake.

A row of `__manifest` without a version is a reference to the newest version of a folder, and a snapshot that has one
changes when the folder does (G1).
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any

import lance
import lance_namespace as ln
import pyarrow as pa
import pytest
from lance.namespace import DirectoryNamespace

import conroi
from conroi.namespace import ConroiNamespace
from tests.support.paused_commits import paused_before_publication, while_paused

ONE_ROW = pa.table({"id": [1]})


def stream_of(data: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, data.schema) as stream:
        stream.write_table(data)
    return sink.getvalue()


def created(lake: conroi.Lake) -> None:
    lake.create_table("r", ONE_ROW)


def adopted(lake: conroi.Lake) -> None:
    lance.write_dataset(ONE_ROW, f"{lake.uri}/r.lance")
    assert lake.adopt() == ["r"]


def registered(lake: conroi.Lake) -> None:
    lance.write_dataset(ONE_ROW, f"{lake.uri}/folder.lance")
    lake.register("r", "folder.lance")


def registered_by_namespace(lake: conroi.Lake) -> None:
    lance.write_dataset(ONE_ROW, f"{lake.uri}/folder.lance")
    ConroiNamespace(lake).register_table(ln.RegisterTableRequest(id=["r"], location="folder.lance"))


def created_by_namespace(lake: conroi.Lake) -> None:
    ConroiNamespace(lake).create_table(ln.CreateTableRequest(id=["r"]), stream_of(ONE_ROW))


def declared_and_written(lake: conroi.Lake) -> None:
    namespace = ConroiNamespace(lake)
    lance.write_dataset(ONE_ROW, namespace_client=namespace, table_id=["r"], mode="create")


def by_directory_namespace(lake: conroi.Lake) -> None:
    """pylance's own namespace leaves a row without a version; the lake goes on with another table after it."""
    DirectoryNamespace(root=lake.uri).create_table(ln.CreateTableRequest(id=["r"]), stream_of(ONE_ROW))
    lake.create_table("next", [{"x": 1}])


MANAGED = [created, adopted, registered, registered_by_namespace, created_by_namespace, declared_and_written]
KINDS = [*MANAGED, by_directory_namespace]
Make = Callable[[conroi.Lake], None]

every_kind = pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
every_managed = pytest.mark.parametrize("make", MANAGED, ids=lambda make: make.__name__)


@pytest.fixture
def empty(uri: str) -> conroi.Lake:
    return conroi.connect(uri)


def path_of(lake: conroi.Lake) -> str:
    return str(lake["r"].uri)


def append_by_path(path: str, *ids: int) -> None:
    lance.write_dataset(pa.table({"id": list(ids)}), path, mode="append")


def ids(table: Any) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())


@pytest.mark.contract("P11")
@every_managed
def test_the_row_says_which_version_and_who_made_it(empty: conroi.Lake, make: Make):
    make(empty)
    row = conroi.connect(empty.uri).catalog.state().table("r")
    assert row is not None
    assert row.pin is not None
    assert row.pin.version == 1
    made = lance.dataset(path_of(empty)).read_transaction(1)
    assert made is not None
    assert row.pin.transaction == made.uuid


@pytest.mark.contract("T10", "B4", "P11")
@every_kind
def test_a_past_version_and_a_tag_do_not_follow_the_table(empty: conroi.Lake, make: Make):
    make(empty)
    version = empty.version
    empty.tags.create("gold")
    append_by_path(path_of(empty), 2)
    for number in (3, 4):
        empty["r"].append([{"id": number}])
    for lake in (empty, conroi.connect(empty.uri)):
        assert ids(lake.at(version)["r"]) == [1]
        assert ids(lake.at(tag="gold")["r"]) == [1]
        assert ids(lake["r"]) == [1, 2, 3, 4]
    empty["r"].delete("id > 0")
    assert ids(conroi.connect(empty.uri).at(version)["r"]) == [1]


@pytest.mark.contract("T10", "P11")
@every_kind
def test_a_namespace_at_a_past_version_does_not_follow_the_table(empty: conroi.Lake, make: Make):
    make(empty)
    version = empty.version
    append_by_path(path_of(empty), 2)
    empty["r"].append([{"id": 3}])
    past = ConroiNamespace(conroi.connect(empty.uri).at(version))
    assert past.count_table_rows(ln.CountTableRowsRequest(id=["r"])).count == 1
    listed = past.list_table_versions(ln.ListTableVersionsRequest(id=["r"])).versions
    assert [each.version for each in listed] == [1]
    assert lance.dataset(namespace_client=past, table_id=["r"]).count_rows() == 1


@pytest.mark.contract("W1", "P11")
@every_kind
@pytest.mark.parametrize("looks", ["before", "after"])
@pytest.mark.parametrize("by_path", [False, True], ids=["by lake", "by path"])
def test_a_transaction_reads_the_table_as_it_was_at_its_beginning(
    empty: conroi.Lake, make: Make, looks: str, by_path: bool
):
    make(empty)
    path = path_of(empty)
    tx = empty.begin()
    if looks == "before":
        assert ids(tx["r"]) == [1]
    if by_path:
        append_by_path(path, 2)
    else:
        conroi.connect(empty.uri)["r"].append([{"id": 2}])
    assert ids(tx["r"]) == [1]
    assert tx["r"].version == 1
    tx["r"].append([{"id": 3}])
    tx.commit()
    assert ids(conroi.connect(empty.uri)["r"]) == [1, 2, 3]


@pytest.mark.contract("P2", "P11")
@every_kind
def test_an_expected_version_that_moved_is_refused(empty: conroi.Lake, make: Make):
    make(empty)
    empty.create_table("t", [{"id": 1}])
    tx = empty.begin(expect={"r": 1})
    tx["t"].append([{"id": 2}])
    conroi.connect(empty.uri)["r"].append([{"id": 2}])
    with pytest.raises(conroi.ExpectedVersionMismatch) as caught:
        tx.commit()
    assert (caught.value.table, caught.value.expected, caught.value.actual) == ("r", 1, 2)
    assert ids(empty["t"]) == [1]


@pytest.mark.contract("P3", "P11")
@every_kind
def test_an_expected_version_that_moves_between_check_and_put_is_refused(empty: conroi.Lake, make: Make):
    make(empty)
    empty.create_table("t", [{"id": 1}])
    slow, gate = paused_before_publication(empty.uri)
    tx = slow.begin(expect={"r": 1})
    tx["t"].append([{"id": 2}])
    done = while_paused(gate, tx.commit, lambda: conroi.connect(empty.uri)["r"].append([{"id": 2}]))
    with pytest.raises(conroi.ExpectedVersionMismatch) as caught:
        done.result()
    assert (caught.value.table, caught.value.expected, caught.value.actual) == ("r", 1, 2)
    assert ids(empty["t"]) == [1]


@pytest.mark.contract("P3", "P12")
@every_kind
def test_the_version_that_was_checked_is_the_version_that_is_published(empty: conroi.Lake, make: Make):
    """What is written by path between check and put is not in the version of the lake that expected the table."""
    make(empty)
    path = path_of(empty)
    empty.create_table("t", [{"id": 1}])
    slow, gate = paused_before_publication(empty.uri)
    tx = slow.begin(expect={"r": 1})
    tx["t"].append([{"id": 2}])
    while_paused(gate, tx.commit, lambda: append_by_path(path, 2)).result()
    fresh = conroi.connect(empty.uri)
    assert ids(fresh.at(tx.result.version)["r"]) == [1]
    assert ids(fresh["t"]) == [1, 2]
    fresh["r"].append([{"id": 3}])
    assert ids(fresh["r"]) == [1, 2, 3]


@pytest.mark.contract("P12")
def test_a_table_that_is_only_declared_counts_as_version_0(empty: conroi.Lake):
    empty.create_table("t", [{"id": 1}])
    namespace = ConroiNamespace(empty)
    namespace.declare_table(ln.DeclareTableRequest(id=["r"]))
    assert "r" in empty.begin()
    with empty.begin(expect={"r": 0}) as tx:
        tx["t"].append([{"id": 2}])
        tx.expect("r")
    tx = empty.begin(expect={"r": 0})
    tx["t"].append([{"id": 3}])
    with pytest.raises(conroi.NotFoundError, match="no version"):
        tx["r"]
    lance.write_dataset(ONE_ROW, namespace_client=namespace, table_id=["r"], mode="append")
    with pytest.raises(conroi.ExpectedVersionMismatch) as caught:
        tx.commit()
    assert (caught.value.expected, caught.value.actual) == (0, 1)


@pytest.mark.contract("P11")
def test_a_past_version_is_refused_when_it_is_not_known_which_version_it_had(empty: conroi.Lake):
    """Version 2 was the newest at the time and is gone: version 1 must not be taken for it."""
    DirectoryNamespace(root=empty.uri).create_table(ln.CreateTableRequest(id=["r"]), stream_of(ONE_ROW))
    path = path_of(empty)
    append_by_path(path, 2)
    empty.create_table("t", [{"id": 1}])
    version = empty.version
    append_by_path(path, 3)
    assert ids(empty.at(version)["r"]) == [1, 2]
    os.remove(f"{path}/_versions/{(1 << 64) - 1 - 2:020d}.manifest")
    with pytest.raises(conroi.NotFoundError, match="not known any more"):
        conroi.connect(empty.uri).at(version)["r"]
    assert ids(conroi.connect(empty.uri)["r"]) == [1, 2, 3]


@pytest.mark.contract("P11")
def test_a_past_version_from_before_the_table_had_one_says_so(empty: conroi.Lake):
    ConroiNamespace(empty).declare_table(ln.DeclareTableRequest(id=["r"]))
    version = empty.version
    lance.write_dataset(ONE_ROW, namespace_client=ConroiNamespace(empty), table_id=["r"], mode="append")
    assert ids(empty["r"]) == [1]
    with pytest.raises(conroi.NotFoundError, match="had no version yet"):
        conroi.connect(empty.uri).at(version)["r"]


@pytest.mark.contract("P11", "B2")
@every_kind
def test_a_branch_does_not_follow_what_main_does_with_the_table(empty: conroi.Lake, make: Make):
    make(empty)
    path = path_of(empty)
    empty.branches.create("dev")
    append_by_path(path, 2)
    empty["r"].append([{"id": 3}])
    dev = conroi.connect(empty.uri, branch="dev")
    assert ids(dev["r"]) == [1]
    dev["r"].append([{"id": 4}])
    assert ids(conroi.connect(empty.uri, branch="dev")["r"]) == [1, 4]
    assert ids(empty["r"]) == [1, 2, 3]


@pytest.mark.contract("P11")
def test_a_branch_of_an_old_version_has_the_table_of_that_time(empty: conroi.Lake):
    by_directory_namespace(empty)
    version = empty.version
    append_by_path(path_of(empty), 2)
    empty["r"].append([{"id": 3}])
    empty.branches.create("dev", from_=version)
    dev = conroi.connect(empty.uri, branch="dev")
    assert ids(dev["r"]) == [1]
    dev.create_table("own", [{"x": 1}])
    assert ids(conroi.connect(empty.uri, branch="dev")["r"]) == [1]
    with pytest.raises(conroi.UnsupportedError, match="does not manage"):
        dev["r"].append([{"id": 4}])


@pytest.mark.contract("P9", "P11")
def test_a_table_that_is_registered_again_is_another_one(empty: conroi.Lake):
    registered(empty)
    tx = empty.begin()
    tx["r"].append([{"id": 2}])
    other = conroi.connect(empty.uri)
    location = other.deregister("r")
    other.register("r", location)
    with pytest.raises(conroi.RetryableConflict, match="created again"):
        tx.commit()


@pytest.mark.contract("P11")
def test_sql_over_the_current_lake_sees_what_the_lake_sees(empty: conroi.Lake):
    """A table that the lake has not pinned is in a query at one version of all, with what its folder has by then."""
    by_directory_namespace(empty)
    append_by_path(path_of(empty), 2)
    now = empty.current()
    append_by_path(path_of(empty), 3)
    assert ids(now["r"]) == [1, 2]
    assert ids(empty["r"]) == [1, 2, 3]
