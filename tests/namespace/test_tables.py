"""Tables and namespaces through the namespace: made, listed, described, renamed, dropped; errors are typed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import lance_namespace as ln
import pyarrow as pa
import pytest

import conroi
from conroi.namespace import ConroiNamespace
from tests.namespace.clients import append, ids, ids_of, new_lake, opened, rows


def ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


@pytest.fixture
def lake(tmp_path: Path) -> conroi.Lake:
    return new_lake(tmp_path, "orders")


@pytest.fixture
def namespace(lake: conroi.Lake) -> ConroiNamespace:
    return ConroiNamespace(lake)


def listed(namespace: ConroiNamespace, *parts: str) -> list[str]:
    return namespace.list_tables(ln.ListTablesRequest(id=list(parts))).tables


def test_a_declared_table_is_listed_and_has_no_version_until_it_is_written(
    lake: conroi.Lake, namespace: ConroiNamespace
) -> None:
    declared = namespace.declare_table(ln.DeclareTableRequest(id=["new"], properties={"owner": "ada"}))
    assert (declared.managed_versioning, declared.properties) == (True, {"owner": "ada"})
    assert listed(namespace) == ["new", "orders"]
    assert namespace.list_tables(ln.ListTablesRequest(include_declared=False)).tables == ["orders"]
    assert namespace.list_table_versions(ln.ListTableVersionsRequest(id=["new"])).versions == []
    described = namespace.describe_table(ln.DescribeTableRequest(id=["new"], check_declared=True))
    assert (described.location, described.is_only_declared) == (declared.location, True)
    with pytest.raises(ln.TableVersionNotFoundError):
        namespace.describe_table_version(ln.DescribeTableVersionRequest(id=["new"]))
    with pytest.raises(conroi.NotFoundError, match="declared"):
        lake["new"]
    lance.write_dataset(rows(3), namespace_client=namespace, table_id=["new"], mode="overwrite")
    assert ids(lake, "new") == [3]
    described = namespace.describe_table(ln.DescribeTableRequest(id=["new"], check_declared=True))
    assert (described.properties, described.is_only_declared) == ({"owner": "ada"}, False)


def test_of_two_concurrent_creations_one_succeeds(lake: conroi.Lake, namespace: ConroiNamespace) -> None:
    lance.write_dataset(rows(3), namespace_client=namespace, table_id=["new"], mode="create")
    with pytest.raises(ln.TableAlreadyExistsError, match="Hint: "):
        lance.write_dataset(rows(4), namespace_client=namespace, table_id=["new"], mode="create")
    assert ids(lake, "new") == [3]


def test_a_table_is_created_from_an_arrow_stream(lake: conroi.Lake, namespace: ConroiNamespace) -> None:
    made = namespace.create_table(ln.CreateTableRequest(id=["new"]), ipc(rows(1, 2)))
    assert (made.version, ids(lake, "new")) == (1, [1, 2])
    with pytest.raises(ln.TableAlreadyExistsError):
        namespace.create_table(ln.CreateTableRequest(id=["new"], mode="Create"), ipc(rows(3)))
    assert namespace.create_table(ln.CreateTableRequest(id=["new"], mode="ExistOk"), ipc(rows(3))).version == 1
    assert ids(lake, "new") == [1, 2]
    replaced = namespace.create_table(ln.CreateTableRequest(id=["new"], mode="overwrite"), ipc(rows(3)))
    assert (replaced.version, ids(lake, "new")) == (1, [3])
    assert replaced.location != made.location
    with pytest.raises(ln.InvalidInputError, match="not an Arrow IPC stream"):
        namespace.create_table(ln.CreateTableRequest(id=["bad"]), b"rows")
    with pytest.raises(ln.InvalidInputError, match="mode"):
        namespace.create_table(ln.CreateTableRequest(id=["bad"], mode="maybe"), ipc(rows(3)))


def test_rename_moves_the_name_and_keeps_the_data(lake: conroi.Lake, namespace: ConroiNamespace) -> None:
    append(namespace, rows(2), "orders")
    namespace.create_namespace(ln.CreateNamespaceRequest(id=["sales"]))
    namespace.rename_table(ln.RenameTableRequest(id=["orders"], new_table_name="bought", new_namespace_id=["sales"]))
    assert (lake.tables(), ids(lake, "sales.bought")) == (["sales.bought"], [1, 2])
    append(namespace, rows(3), "sales", "bought")
    assert ids_of(opened(namespace, "sales", "bought")) == [1, 2, 3]
    lake.create_table("other", rows(9))
    with pytest.raises(ln.TableAlreadyExistsError):
        namespace.rename_table(ln.RenameTableRequest(id=["other"], new_table_name="bought", new_namespace_id=["sales"]))
    with pytest.raises(ln.NamespaceNotFoundError):
        namespace.rename_table(ln.RenameTableRequest(id=["other"], new_table_name="x", new_namespace_id=["nowhere"]))


def test_deregister_and_register_give_a_table_back(lake: conroi.Lake, namespace: ConroiNamespace) -> None:
    append(namespace, rows(2), "orders")
    left = namespace.deregister_table(ln.DeregisterTableRequest(id=["orders"]))
    assert (left.id, listed(namespace)) == (["orders"], [])
    assert left.location is not None
    namespace.register_table(ln.RegisterTableRequest(id=["again"], location=left.location))
    assert ids(lake, "again") == [1, 2]
    append(namespace, rows(3), "again")
    assert (ids(lake, "again"), lake["again"].version) == ([1, 2, 3], 3)


def test_register_refuses_what_is_no_free_table_of_the_lake(tmp_path: Path, lake: conroi.Lake) -> None:
    namespace = ConroiNamespace(lake)
    outside = tmp_path / "outside.lance"
    lance.write_dataset(rows(1), str(outside))

    def register(name: str, location: str, **more: Any) -> None:
        namespace.register_table(ln.RegisterTableRequest(id=[name], location=location, **more))

    with pytest.raises(ln.InvalidInputError, match="inside the lake"):
        register("x", str(outside))
    with pytest.raises(ln.InvalidInputError, match="inside the lake"):
        register("x", "../outside.lance")
    with pytest.raises(ln.TableNotFoundError, match="no Lance table"):
        register("x", "nothing.lance")
    for taken in ("orders.lance", "__manifest"):
        with pytest.raises(ln.TableAlreadyExistsError):
            register("x", taken)
    lance.write_dataset(rows(8), str(Path(lake.uri) / "extra.lance"))
    with pytest.raises(ln.TableAlreadyExistsError):
        register("orders", "extra.lance")
    register("orders", "extra.lance", mode="Overwrite")
    assert ids(lake, "orders") == [8]
    assert ids(lake.at(2), "orders") == [1]


def test_drop_takes_a_table_out_and_older_versions_keep_it(lake: conroi.Lake, namespace: ConroiNamespace) -> None:
    version = lake.version
    dropped = namespace.drop_table(ln.DropTableRequest(id=["orders"]))
    assert dropped.location is not None
    assert (listed(namespace), ids(lake.at(version), "orders")) == ([], [1])
    for gone in (
        lambda: namespace.describe_table(ln.DescribeTableRequest(id=["orders"])),
        lambda: namespace.table_exists(ln.TableExistsRequest(id=["orders"])),
        lambda: namespace.drop_table(ln.DropTableRequest(id=["orders"])),
        lambda: namespace.count_table_rows(ln.CountTableRowsRequest(id=["orders"])),
        lambda: namespace.list_table_versions(ln.ListTableVersionsRequest(id=["orders"])),
        lambda: append(namespace, rows(2), "orders"),
    ):
        with pytest.raises(ln.TableNotFoundError):
            gone()


def test_namespaces_are_made_listed_and_dropped(lake: conroi.Lake, namespace: ConroiNamespace) -> None:
    make = namespace.create_namespace
    make(ln.CreateNamespaceRequest(id=["sales"], properties={"team": "a"}))
    make(ln.CreateNamespaceRequest(id=["sales", "eu"]))
    assert namespace.list_namespaces(ln.ListNamespacesRequest(id=["sales"])).namespaces == ["eu"]
    assert namespace.describe_namespace(ln.DescribeNamespaceRequest(id=["sales"])).properties == {"team": "a"}
    with pytest.raises(ln.NamespaceAlreadyExistsError):
        make(ln.CreateNamespaceRequest(id=["sales"]))
    make(ln.CreateNamespaceRequest(id=["sales"], mode="exist_ok"))
    with pytest.raises(ln.NamespaceNotFoundError):
        make(ln.CreateNamespaceRequest(id=["no", "such"]))
    with pytest.raises(ln.NamespaceAlreadyExistsError):
        make(ln.CreateNamespaceRequest(id=["orders"]))
    lance.write_dataset(rows(1), namespace_client=namespace, table_id=["sales", "eu", "t"], mode="create")
    with pytest.raises(ln.NamespaceNotEmptyError):
        namespace.drop_namespace(ln.DropNamespaceRequest(id=["sales"]))
    before = lake.version
    namespace.drop_namespace(ln.DropNamespaceRequest(id=["sales"], behavior="Cascade"))
    assert (lake.namespaces(), lake.tables(), lake.version) == ([], ["orders"], before + 1)
    with pytest.raises(ln.NamespaceNotFoundError):
        namespace.drop_namespace(ln.DropNamespaceRequest(id=["sales"]))
    namespace.drop_namespace(ln.DropNamespaceRequest(id=["sales"], mode="skip"))
    with pytest.raises(ln.NamespaceNotFoundError):
        namespace.namespace_exists(ln.NamespaceExistsRequest(id=["sales"]))
    with pytest.raises(ln.NamespaceNotFoundError):
        lance.write_dataset(rows(1), namespace_client=namespace, table_id=["sales", "t"], mode="create")
    namespace.namespace_exists(ln.NamespaceExistsRequest(id=[]))


def test_long_lists_come_in_pages(lake: conroi.Lake, namespace: ConroiNamespace) -> None:
    with lake.begin() as tx:
        for number in range(5):
            tx.create_table(f"t{number}", rows(number))
    found, token = list[str](), None
    for _ in range(4):
        page = namespace.list_tables(ln.ListTablesRequest(limit=2, page_token=token))
        found, token = found + page.tables, page.page_token
        if token is None:
            break
    assert found == ["orders", "t0", "t1", "t2", "t3", "t4"]
    for number in range(2, 6):
        lake["orders"].append(rows(number))
    ask = ln.ListTableVersionsRequest(id=["orders"], limit=2)
    first = namespace.list_table_versions(ask)
    second = namespace.list_table_versions(ask.model_copy(update={"page_token": first.page_token}))
    assert [[v.version for v in page.versions] for page in (first, second)] == [[5, 4], [3, 2]]
    newest = namespace.list_table_versions(ask.model_copy(update={"limit": 1}))
    assert ([v.version for v in newest.versions], newest.page_token) == ([5], "5")


def test_rows_are_counted(lake: conroi.Lake, namespace: ConroiNamespace) -> None:
    lake["orders"].append(rows(2, 3))
    assert namespace.count_table_rows(ln.CountTableRowsRequest(id=["orders"])).count == 3
    assert namespace.count_table_rows(ln.CountTableRowsRequest(id=["orders"], predicate="id > 1")).count == 2
    assert namespace.count_table_rows(ln.CountTableRowsRequest(id=["orders"], version=1)).count == 1
    with pytest.raises(ln.TableVersionNotFoundError):
        namespace.count_table_rows(ln.CountTableRowsRequest(id=["orders"], version=9))
    with pytest.raises(ln.InvalidInputError):
        namespace.count_table_rows(ln.CountTableRowsRequest(id=["orders"], predicate="colour = 'red'"))


@pytest.mark.parametrize("bad", [[], [""], ["a$b"], ["a.b"], ["a/b"], [".."], ["x" * 300], ["__manifest"]])
def test_ids_that_nothing_can_have_are_refused(namespace: ConroiNamespace, bad: list[str]) -> None:
    for refused in (
        lambda: namespace.declare_table(ln.DeclareTableRequest(id=bad)),
        lambda: namespace.describe_table(ln.DescribeTableRequest(id=bad)),
        lambda: namespace.create_namespace(ln.CreateNamespaceRequest(id=bad)),
        lambda: namespace.drop_namespace(ln.DropNamespaceRequest(id=bad)),
        lambda: namespace.rename_table(ln.RenameTableRequest(id=["orders"], new_table_name=bad[0] if bad else "")),
    ):
        with pytest.raises(ln.InvalidInputError, match="Hint: "):
            refused()


def test_the_lakes_own_notes_cannot_be_given_as_properties(namespace: ConroiNamespace) -> None:
    with pytest.raises(ln.InvalidInputError, match="lake's own"):
        namespace.declare_table(ln.DeclareTableRequest(id=["t"], properties={"conroi.version": "9"}))


def test_only_versions_that_the_lake_never_had_can_be_deleted(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    path = Path(lake.uri) / "t.lance"
    for number in range(4):
        lance.write_dataset(rows(number), str(path), mode="append" if number else "create")
    lake.adopt()
    lake["t"].append(rows(9))
    namespace = ConroiNamespace(lake)

    def delete(start: int, end: int) -> int | None:
        ranges = [{"start_version": start, "end_version": end}]
        request = ln.BatchDeleteTableVersionsRequest.from_dict({"id": ["t"], "ranges": ranges})
        assert request is not None
        return namespace.batch_delete_table_versions(request).deleted_count

    lance.dataset(str(path)).tags.create("kept", 2)
    for start, end in ((5, 6), (0, -1), (2, 3)):
        with pytest.raises(ln.InvalidInputError, match="nothing was deleted"):
            delete(start, end)
    assert delete(0, 2) == 1
    assert delete(0, 2) == 0
    assert [v.version for v in namespace.list_table_versions(ln.ListTableVersionsRequest(id=["t"])).versions] == [
        5, 4, 3, 2,
    ]  # fmt: skip
    assert ids(lake, "t") == [0, 1, 2, 3, 9]
