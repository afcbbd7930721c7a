"""pylance and lancedb read a lake: as a plain folder of tables, and through its namespace, now and as it was."""

from __future__ import annotations

from pathlib import Path

import lance
import lance_namespace as ln
import lancedb
import pyarrow as pa
import pytest
from lance.namespace import DirectoryNamespace

import conroi
from conroi.namespace import ConroiNamespace
from conroi.testing import fail
from tests.namespace.clients import NAME, append, ids, ids_of, new_lake, opened, rows
from tests.support.arrow import column_values
from tests.support.lakes import faulty


@pytest.mark.contract("P8")
def test_pylance_lists_and_reads_a_lake_as_a_plain_directory(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "orders", "sales.log")
    lake["orders"].append(rows(2))
    directory = DirectoryNamespace(root=lake.uri)
    assert directory.list_tables(ln.ListTablesRequest(id=[])).tables == ["orders"]
    assert directory.list_namespaces(ln.ListNamespacesRequest(id=[])).namespaces == ["sales"]
    assert directory.list_tables(ln.ListTablesRequest(id=["sales"])).tables == ["log"]
    assert ids_of(opened(directory, "orders")) == [1, 2]
    assert ids_of(opened(directory, "sales", "log")) == [1]


@pytest.mark.contract("P8")
def test_lancedb_lists_and_reads_a_lake_as_a_plain_directory(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "orders", "customers")
    lake["orders"].append(rows(2))
    plain = lancedb.connect(lake.uri)
    assert sorted(plain.list_tables().tables) == ["customers", "orders"]
    assert plain.open_table("orders").count_rows() == 2


def test_a_table_that_was_declared_and_written_through_us_is_read_as_a_plain_directory(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    lance.write_dataset(rows(5), namespace_client=ConroiNamespace(lake), table_id=["made"], mode="create")
    directory = DirectoryNamespace(root=lake.uri)
    assert directory.list_tables(ln.ListTablesRequest(id=[])).tables == ["made"]
    assert ids_of(opened(directory, "made")) == [5]
    assert lancedb.connect(lake.uri).open_table("made").count_rows() == 1


def test_both_clients_read_through_the_namespace(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "orders", "sales.log")
    lake["orders"].append(rows(2))
    namespace = ConroiNamespace(lake)
    assert ids_of(opened(namespace, "orders")) == [1, 2]
    assert ids_of(opened(namespace, "orders", version=1)) == [1]
    connection = lancedb.connect(namespace_client_impl=NAME, namespace_client_properties={"root": lake.uri})
    assert connection.list_tables().tables == ["orders"]
    assert connection.list_tables(namespace_path=["sales"]).tables == ["log"]
    assert connection.open_table("orders").to_arrow()["id"].to_pylist() == [1, 2]
    assert connection.open_table("log", namespace_path=["sales"]).count_rows() == 1


def test_it_is_made_from_properties_too(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "orders")
    version = lake.version
    lake["orders"].append(rows(2))
    assert ids_of(opened(ln.connect(NAME, {"root": lake.uri}), "orders")) == [1, 2]
    then = ln.connect(NAME, {"root": lake.uri, "version": str(version)})
    assert ids_of(opened(then, "orders")) == [1]
    assert str(version) in then.namespace_id()
    for bad in ({}, {"root": lake.uri, "colour": "red"}, {"root": lake.uri, "version": "last"}):
        with pytest.raises(ValueError, match="Hint: "):
            ln.connect(NAME, bad)


@pytest.mark.contract("P1")
def test_a_pinned_namespace_is_one_snapshot_over_tables_while_writers_go_on(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    with lake.begin() as tx:
        tx.create_table("left", [{"money": 60}])
        tx.create_table("right", [{"money": 40}])

    def move(amount: int) -> None:
        with lake.begin() as tx:
            tx["left"].update({"money": f"money - {amount}"})
            tx["right"].update({"money": f"money + {amount}"})

    def total(namespace: ln.LanceNamespace) -> int:
        left = opened(namespace, "left").to_table()["money"].to_pylist()
        move(10)  # a writer between the two looks
        return left[0] + column_values(opened(namespace, "right").to_table()["money"])[0]

    assert total(ConroiNamespace(lake)) == 110, "the control: two looks at the newest state can be torn"
    for _ in range(3):
        pinned = ConroiNamespace(lake.at(lake.version))
        assert total(pinned) == total(pinned) == 100
    assert opened(ConroiNamespace(lake.at(2)), "left").to_table()["money"].to_pylist() == [60]


def test_a_pinned_namespace_shows_nothing_newer(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "orders")
    pinned = ConroiNamespace(lake.at(lake.version))
    dataset = opened(pinned, "orders")
    lake["orders"].append(rows(2))
    lake.create_table("later", rows(1))
    dataset.checkout_latest()
    assert (dataset.version, ids_of(dataset), dataset.latest_version) == (1, [1], 1)
    assert pinned.list_tables(ln.ListTablesRequest()).tables == ["orders"]
    assert [v.version for v in pinned.list_table_versions(ln.ListTableVersionsRequest(id=["orders"])).versions] == [1]
    with pytest.raises(ln.TableVersionNotFoundError):
        pinned.describe_table_version(ln.DescribeTableVersionRequest(id=["orders"], version=2))
    with pytest.raises(ln.TableNotFoundError):
        opened(pinned, "later")


def test_a_pinned_namespace_still_has_what_was_dropped(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "orders")
    pinned = ConroiNamespace(lake.at(lake.version))
    lake.drop_table("orders")
    lake.create_table("orders", rows(9))
    assert ids_of(opened(pinned, "orders")) == [1]
    assert ids_of(opened(ConroiNamespace(lake), "orders")) == [9]


def test_a_pinned_namespace_cannot_be_written(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "orders")
    pinned = ConroiNamespace(lake.at(lake.version))
    with pytest.raises(OSError, match="Commit result for version 2 is unknown"):
        append(pinned, rows(2), "orders")
    for refused in (
        lambda: pinned.drop_table(ln.DropTableRequest(id=["orders"])),
        lambda: pinned.declare_table(ln.DeclareTableRequest(id=["new"])),
        lambda: pinned.create_namespace(ln.CreateNamespaceRequest(id=["new"])),
        lambda: pinned.rename_table(ln.RenameTableRequest(id=["orders"], new_table_name="new")),
        lambda: pinned.batch_commit_tables(
            ln.BatchCommitTablesRequest(
                operations=[ln.CommitTableOperation(deregister_table=ln.DeregisterTableRequest(id=["orders"]))]
            )
        ),
    ):
        with pytest.raises(ln.PermissionDeniedError, match="can only be read"):
            refused()
    assert (ids(lake, "orders"), lake.tables(), lake.version) == ([1], ["orders"], 2)


def test_a_version_that_was_published_but_not_final_is_completed_for_the_reader(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "orders")
    faulty(lake.uri, [fail("rename_if_absent", times=None)], only="orders.lance")["orders"].append(rows(2))
    folder = Path(lake.uri) / "orders.lance"
    assert lance.dataset(str(folder)).version == 1, "not final"
    assert ids_of(opened(ConroiNamespace(conroi.connect(lake.uri)), "orders")) == [1, 2]
    assert lance.dataset(str(folder)).version == 2


def test_describing_in_detail_says_what_pylances_own_namespace_says(tmp_path: Path) -> None:
    columns = {
        "i": pa.int8(), "f": pa.float32(), "h": pa.float16(), "s": pa.string(), "large": pa.large_string(),
        "b": pa.binary(), "l": pa.list_(pa.int32()), "vector": pa.list_(pa.float32(), 4), "fixed": pa.binary(4),
        "st": pa.struct([("a", pa.int64())]), "ts": pa.timestamp("us", "UTC"), "d": pa.date32(), "bo": pa.bool_(),
        "t": pa.time64("us"), "du": pa.duration("s"), "dec": pa.decimal128(10, 2),
    }  # fmt: skip
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("wide", pa.schema(columns))
    request = ln.DescribeTableRequest(id=["wide"], load_detailed_metadata=True)
    ours = ConroiNamespace(lake).describe_table(request)
    theirs = DirectoryNamespace(root=lake.uri).describe_table(request)
    assert ours.var_schema is not None
    assert theirs.var_schema is not None
    for mine, other in zip(ours.var_schema.fields, theirs.var_schema.fields, strict=True):
        assert mine.to_dict() == other.to_dict()
    assert (ours.table, ours.namespace, ours.version) == (theirs.table, theirs.namespace, theirs.version)
    assert (ours.managed_versioning, ours.is_only_declared) == (True, False)
