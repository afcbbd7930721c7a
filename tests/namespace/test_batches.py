"""Many tables in one request to the namespace: all of it happens, or nothing."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import lance
import lance_namespace as ln
import pytest

import conroi
from conroi.namespace import ConroiNamespace
from conroi.testing import FaultyObjects, NthRequest, call_before, connect_through, die
from tests.namespace.clients import append, ids, ids_of, new_lake, opened, rows, staged, versions_of
from tests.support.processes import fork_context

TABLES = ("a", "b")


def batch(*entries: dict[str, Any]) -> ln.BatchCreateTableVersionsRequest:
    return ln.BatchCreateTableVersionsRequest(entries=[ln.CreateTableVersionEntry(**entry) for entry in entries])


def commit(*operations: dict[str, Any]) -> ln.BatchCommitTablesRequest:
    asked = [ln.CommitTableOperation.from_dict(operation) for operation in operations]
    return ln.BatchCommitTablesRequest(operations=[each for each in asked if each is not None])


def version(entry: dict[str, Any]) -> dict[str, Any]:
    return {"create_table_version": entry}


@pytest.mark.contract("P1", "P6")
def test_versions_of_many_tables_are_one_version_of_the_lake(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, *TABLES)
    before = lake.version
    made = ConroiNamespace(lake).batch_create_table_versions(batch(staged(lake, "a"), staged(lake, "b")))
    assert [each.version for each in made.versions] == [2, 2]
    assert lake.version == before + 1
    assert lake.history(1)[0].tables == {"a": 2, "b": 2}
    assert ids(lake, "a") == ids(lake, "b") == [1, 7]
    assert [lance.dataset(lake[table].uri).version for table in TABLES] == [2, 2]


@pytest.mark.contract("P6")
@pytest.mark.parametrize("kind", ["stale", "unknown table", "no manifest", "damaged", "doubled key", "other folder"])
def test_one_bad_record_and_nothing_lands(tmp_path: Path, kind: str) -> None:
    lake = new_lake(tmp_path, *TABLES, key="id")
    good, bad = staged(lake, "a", data=rows(7, key=True)), staged(lake, "b", data=rows(7, key=True))
    expected: type[Exception] = ln.InvalidInputError
    path = Path("/" + bad["manifest_path"])
    if kind == "stale":
        lake["b"].append(rows(2))
        expected = ln.ConcurrentModificationError
    elif kind == "unknown table":
        bad["id"], expected = ["c"], ln.TableNotFoundError
    elif kind == "no manifest":
        path.unlink()
    elif kind == "damaged":
        path.write_bytes(path.read_bytes()[:-20])
        expected = ln.InvalidTableStateError
    elif kind == "doubled key":
        bad = staged(lake, "b", data=rows(1, key=True))
    else:
        bad["manifest_path"] = good["manifest_path"]
    before, held = lake.version, versions_of(lake, TABLES)
    for request in (batch(good, bad), batch(bad, good)):
        with pytest.raises(expected):
            ConroiNamespace(lake).batch_create_table_versions(request)
    for operations in (commit(version(good), version(bad)), commit(version(bad), version(good))):
        with pytest.raises(expected):
            ConroiNamespace(lake).batch_commit_tables(operations)
    assert (lake.version, versions_of(lake, TABLES)) == (before, held)
    assert ids(lake, "a") == [1]
    ConroiNamespace(lake).batch_create_table_versions(batch(good))
    assert ids(lake, "a") == [1, 7], "the good one by itself lands"


@pytest.mark.contract("P6")
def test_the_same_version_twice_in_a_batch_is_refused(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, *TABLES)
    first, second, other = staged(lake, "a"), staged(lake, "a"), staged(lake, "b")
    before = lake.version
    for twice in ((first, second), (first, other, second), (first, first)):
        with pytest.raises(ln.InvalidInputError, match="more than once"):
            ConroiNamespace(lake).batch_create_table_versions(batch(*twice))
        with pytest.raises(ln.InvalidInputError, match="more than once"):
            ConroiNamespace(lake).batch_commit_tables(commit(*(version(each) for each in twice)))
    with pytest.raises(ln.InvalidInputError, match="more than once"):
        ConroiNamespace(lake).batch_commit_tables(commit(version(first), {"deregister_table": {"id": ["a"]}}))
    assert lake.version == before


def test_a_batch_declares_publishes_and_deregisters_in_one_commit(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, *TABLES)
    before = lake.version
    answer = ConroiNamespace(lake).batch_commit_tables(
        commit(
            {"declare_table": {"id": ["new"]}},
            version(staged(lake, "a")),
            {"deregister_table": {"id": ["b"]}},
        )
    )
    declared, made, left = answer.results
    assert declared.declare_table is not None
    assert made.create_table_version is not None
    assert made.create_table_version.version is not None
    assert left.deregister_table is not None
    assert (made.create_table_version.version.version, left.deregister_table.id) == (2, ["b"])
    assert (lake.version, lake.tables()) == (before + 1, ["a", "new"])
    assert ids(lake, "a") == [1, 7]
    assert ids(lake.at(before), "b") == [1]
    lance.write_dataset(rows(3), namespace_client=ConroiNamespace(lake), table_id=["new"], mode="overwrite")
    assert ids(lake, "new") == [3]


def test_a_table_can_be_declared_and_get_its_first_version_in_one_batch(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    folder = Path(lake.uri) / "here.lance"
    lance.write_dataset(rows(4), str(folder))
    (final,) = (folder / "_versions").glob("*.manifest")
    waiting = final.with_name(f"{final.name}-00000000-0000-4000-8000-000000000000")
    final.rename(waiting)
    entry = {"id": ["here"], "version": 1, "manifest_path": str(waiting)[1:]}
    ConroiNamespace(lake).batch_commit_tables(
        commit({"declare_table": {"id": ["here"], "location": "here.lance"}}, version(entry))
    )
    assert (ids(lake, "here"), lake.history(1)[0].tables) == ([4], {"here": 1})
    assert final.exists()


def test_a_table_is_not_declared_over_one_that_is_there(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    lance.write_dataset(rows(4), str(Path(lake.uri) / "here.lance"))
    with pytest.raises(ln.TableAlreadyExistsError, match="register_table"):
        ConroiNamespace(lake).declare_table(ln.DeclareTableRequest(id=["here"], location="here.lance"))
    assert lake.tables() == []


def test_what_is_no_batch_is_refused(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "a")
    namespace = ConroiNamespace(lake)
    with pytest.raises(ln.InvalidInputError, match="empty"):
        namespace.batch_commit_tables(commit())
    with pytest.raises(ln.InvalidInputError, match="one of"):
        namespace.batch_commit_tables(commit({"declare_table": {"id": ["x"]}, "deregister_table": {"id": ["a"]}}))
    delete = {"delete_table_versions": {"id": ["a"], "ranges": [{"start_version": 0, "end_version": 1}]}}
    with pytest.raises(ln.UnsupportedOperationError):
        namespace.batch_commit_tables(commit({"declare_table": {"id": ["x"]}}, delete))
    assert lake.tables() == ["a"]


def publish_until_killed(uri: str, entries: list[dict[str, Any]], at_request: int, only: str, one_by_one: bool) -> None:
    """A process that is killed when it is about to send the request of this number to folders that end so."""
    plan = NthRequest(at_request, call_before(die))
    lake = connect_through(uri, lambda objects: FaultyObjects(objects, plan if objects.root.endswith(only) else []))
    for some in [[entry] for entry in entries] if one_by_one else [entries]:
        ConroiNamespace(lake).batch_commit_tables(commit(*(version(entry) for entry in some)))
    os._exit(0)


def was_killed(
    uri: str, entries: list[dict[str, Any]], at_request: int, *, only: str = "", one_by_one: bool = False
) -> bool:
    process = fork_context().Process(target=publish_until_killed, args=(uri, entries, at_request, only, one_by_one))
    process.start()
    process.join(60)
    assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
    return process.exitcode != 0


@pytest.mark.contract("P1", "P6")
def test_a_batch_killed_at_any_request_lands_whole_or_not_at_all(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, *TABLES)
    entries, held, outcomes = list[dict[str, Any]](), 1, list[bool]()
    for at_request in range(1, 60):
        if versions_of(lake, TABLES)["a"] == held:
            entries = entries or [staged(lake, table, data=rows(held + 1)) for table in TABLES]
        is_killed = was_killed(lake.uri, entries, at_request)
        found = versions_of(conroi.connect(lake.uri), TABLES)
        assert found in ({"a": held, "b": held}, {"a": held + 1, "b": held + 1}), at_request
        outcomes.append(found["a"] > held)
        if found["a"] > held:
            namespace = ConroiNamespace(conroi.connect(lake.uri))
            expected = list(range(1, held + 2))
            for table in TABLES:  # pylance reads it, whichever client has to finish it
                assert ids_of(opened(namespace, table)) == ids(lake, table) == expected
            entries, held = [], held + 1
        if not is_killed:
            break
    assert set(outcomes) == {False, True}, "some kills came before the publication, some after"
    append(ConroiNamespace(lake), rows(99), "a")
    assert 99 in ids(lake, "a")


@pytest.mark.contract("P1", "P6")
def test_the_control_a_request_for_each_table_can_be_torn_and_a_batch_cannot(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, *TABLES)
    entries = [staged(lake, table) for table in TABLES]
    assert was_killed(lake.uri, entries, 1, only="b.lance")
    assert versions_of(lake, TABLES) == {"a": 1, "b": 1}
    assert was_killed(lake.uri, entries, 1, only="b.lance", one_by_one=True)
    assert versions_of(lake, TABLES) == {"a": 2, "b": 1}
