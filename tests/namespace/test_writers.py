"""pylance and lancedb write a lake's tables through its namespace: by the lake's publisher, beside its own writers."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import lance
import lance_namespace as ln
import pytest
from lance.namespace import DirectoryNamespace
from lancedb.namespace import LanceNamespaceDBConnection

import conroi
from conroi.namespace import ConroiNamespace
from conroi.testing import call_before
from tests.namespace.clients import Careless, Rivalled, append, ids, ids_of, new_lake, opened, rows, staged
from tests.support.lakes import faulty


def by_path(lake: conroi.Lake, table: str) -> lance.LanceDataset:
    return lance.dataset(lake[table].uri)


def test_every_verb_of_pylance_makes_a_version_of_the_lake(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "t")
    dataset = append(ConroiNamespace(lake), rows(2, 3, 4), "t")
    dataset.delete("id = 2")
    dataset.update({"id": "id + 10"}, where="id = 3")
    merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(rows(4, 5))
    dataset.add_columns({"twice": "id * 2"})
    dataset.create_scalar_index("id", "BTREE")
    dataset.drop_columns(["twice"])
    dataset.optimize.compact_files()
    lance.write_dataset(rows(8), namespace_client=ConroiNamespace(lake), table_id=["t"], mode="overwrite")
    opened(ConroiNamespace(lake), "t").checkout_version(4).restore()
    assert ids(lake, "t") == ids_of(by_path(lake, "t")) == [1, 4, 13]
    made = [(commit.message or "").partition(" by ")[0] for commit in reversed(lake.history())][2:]
    assert made[:4] == ["Append", "Delete", "Update", "Update"]
    assert made[4:] == ["Merge", "CreateIndex", "Project", "ReserveFragments", "Rewrite", "Overwrite", "Restore"]
    assert [commit.tables["t"] for commit in reversed(lake.history(len(made)))] == list(range(2, len(made) + 2))


def test_the_lakes_history_has_the_message_and_properties_of_pylance(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "t")
    lance.write_dataset(
        rows(2),
        namespace_client=ConroiNamespace(lake),
        table_id=["t"],
        mode="append",
        commit_message="nightly",
        transaction_properties={"job": "7"},
    )
    newest = lake.history(1)[0]
    assert (newest.message, newest.properties, newest.tables) == ("nightly", {"job": "7"}, {"t": 2})


def test_every_verb_of_lancedb_makes_a_version_of_the_lake(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "t")
    connection = LanceNamespaceDBConnection(ConroiNamespace(lake))
    table = connection.open_table("t")
    table.add(rows(2, 3))
    table.delete("id = 2")
    table.update(where="id = 3", values={"id": 30})
    table.merge_insert("id").when_not_matched_insert_all().execute(rows(30, 4))
    assert (table.version, lake["t"].version) == (5, 5)
    assert ids(lake, "t") == ids_of(by_path(lake, "t")) == [1, 4, 30]
    made = connection.create_table("made", rows(1))
    made.add(rows(2))
    connection.create_table("made", rows(7), mode="overwrite")
    assert connection.create_table("made", rows(9), exist_ok=True).count_rows() == 1
    assert (ids(lake, "made"), lake["made"].version) == ([7], 3)
    connection.rename_table("made", "renamed")
    connection.create_namespace(["sales"])
    connection.create_table("log", rows(3), namespace_path=["sales"])
    assert lake.tables() == ["renamed", "sales.log", "t"]
    connection.drop_table("renamed")
    assert connection.list_tables().tables == ["t"]
    with pytest.raises(ln.TableNotFoundError):
        connection.open_table("renamed")


@pytest.mark.contract("P5")
def test_a_writer_that_lost_its_number_to_a_conroi_writer_rebases_and_nothing_is_lost(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "t")
    rivals = iter(range(100, 200))
    namespace = Rivalled(lake, lambda: lake["t"].append(rows(next(rivals))), times=2)
    opened(namespace, "t").insert(rows(2))
    assert namespace.asked == [2, 3, 4]
    assert ids(lake, "t") == ids_of(by_path(lake, "t")) == [1, 2, 100, 101]


@pytest.mark.contract("P5")
def test_the_control_a_namespace_that_does_not_ask_loses_rows(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "t")
    path = lake["t"].uri
    namespace = Careless(lake, lambda: lake["t"].append(rows(100)))
    opened(namespace, "t").insert(rows(2))
    assert ids_of(lance.dataset(path)) == [1, 2]


@pytest.mark.contract("P5")
def test_a_change_that_cannot_be_put_on_top_is_refused_by_lances_rules(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "t")
    namespace = Rivalled(lake, lambda: lake["t"].overwrite(rows(50)))
    with pytest.raises(OSError, match=r"[Ii]ncompatible|[Cc]onflict"):
        opened(namespace, "t").add_columns({"twice": "id * 2"})
    assert ids(lake, "t") == [50]


def test_a_conroi_writer_rebases_over_pylance(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "t", "u")
    with lake.begin() as tx:
        tx["t"].append(rows(2))
        tx["u"].append(rows(2))
        append(ConroiNamespace(lake), rows(3), "t")
    assert (ids(lake, "t"), ids(lake, "u")) == ([1, 2, 3], [1, 2])
    assert tx.result.rebased == {"t": (2,)}


def test_pylance_cannot_double_a_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lake = new_lake(tmp_path, "t", key="id")
    namespace = ConroiNamespace(lake)
    append(namespace, rows(2, key=True), "t")
    for doubled in (rows(1, key=True), rows(2, key=True), rows(5, 5, key=True)):
        with pytest.raises(OSError, match="unknown"):  # all that pylance says of a refusal; the log has why
            append(namespace, doubled, "t")
        with pytest.raises(ln.InvalidInputError, match=r"same key id.*Hint: "):
            namespace.create_table_version(ln.CreateTableVersionRequest(**staged(lake, "t", data=doubled)))
    dataset = opened(namespace, "t")
    dataset.delete("id = 1")
    dataset.insert(rows(1, key=True))
    dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows(1, 3, key=True))
    dataset.optimize.compact_files()
    assert ids(lake, "t") == [1, 2, 3]


def test_a_rival_with_the_same_key_is_found_when_pylance_comes_again(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "t", key="id")
    namespace = Rivalled(lake, lambda: lake["t"].append(rows(2)))
    with pytest.raises(OSError, match="unknown"):
        opened(namespace, "t").insert(rows(2, key=True))
    assert namespace.asked == [2, 3]
    assert ids(lake, "t") == [1, 2]


@pytest.mark.contract("P8")
def test_a_version_written_by_path_is_adopted_before_pylance_publishes_on_top(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lake = new_lake(tmp_path, "t")
    namespace = ConroiNamespace(lake)
    dataset = opened(namespace, "t")
    with caplog.at_level(logging.WARNING, "conroi"):
        lance.write_dataset(rows(50), lake["t"].uri, mode="append")
        lance.write_dataset(rows(51), lake["t"].uri, mode="append")
        dataset.insert(rows(2))
    assert ids(lake, "t") == ids_of(by_path(lake, "t")) == [1, 2, 50, 51]
    assert "written past the lake" in caplog.text
    assert [commit.tables for commit in lake.history(3)] == [{"t": 4}, {"t": 3}, {"t": 2}]


@pytest.mark.contract("P8")
def test_a_version_written_by_path_at_the_last_moment_makes_pylance_rebase(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "t")
    path = lake["t"].uri
    namespace = Rivalled(lake, lambda: lance.write_dataset(rows(50), path, mode="append"))
    opened(namespace, "t").insert(rows(2))
    assert namespace.asked == [2, 3]
    assert ids(lake, "t") == ids_of(by_path(lake, "t")) == [1, 2, 50]


@pytest.mark.contract("P8")
def test_a_table_that_pylances_directory_made_is_written_through_us(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "t")
    directory = DirectoryNamespace(root=lake.uri)
    lance.write_dataset(rows(1), namespace_client=directory, table_id=["theirs"], mode="create")
    append(directory, rows(2), "theirs")
    namespace = ConroiNamespace(lake)
    assert namespace.list_tables(ln.ListTablesRequest()).tables == ["t", "theirs"]
    assert ids_of(opened(namespace, "theirs")) == [1, 2]
    append(namespace, rows(3), "theirs")
    assert (ids(lake, "theirs"), lake["theirs"].version) == ([1, 2, 3], 3)
    directory.deregister_table(ln.DeregisterTableRequest(id=["theirs"]))
    with pytest.raises(ln.TableNotFoundError):
        opened(namespace, "theirs")
    assert ids(lake, "t") == [1]


@pytest.mark.contract("P8")
def test_a_forked_table_is_refused_and_nothing_is_overwritten(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "t")
    path = lake["t"].uri
    hook = call_before(lambda _: lance.write_dataset(rows(50), path, mode="append"), "rename_if_absent")
    faulty(lake.uri, [hook], only="t.lance")["t"].append(rows(2))
    namespace = ConroiNamespace(conroi.connect(lake.uri))
    with pytest.raises(ln.InvalidTableStateError, match=r"took the name.*Hint: "):
        namespace.describe_table_version(ln.DescribeTableVersionRequest(id=["t"]))
    with pytest.raises(ValueError, match="took the name"):
        opened(namespace, "t")
    assert ids(lake, "t") == [1, 2]
    assert ids_of(lance.dataset(path)) == [1, 50]


@pytest.mark.contract("P8")
def test_a_version_of_pylance_whose_name_is_taken_after_it_was_published_is_forked_not_lost(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "t")
    path = lake["t"].uri
    hook = call_before(lambda _: lance.write_dataset(rows(50), path, mode="append"), "rename_if_absent")
    namespace = ConroiNamespace(faulty(lake.uri, [hook], only="t.lance"))
    with pytest.raises(ln.InvalidTableStateError, match="Both exist"):
        namespace.create_table_version(ln.CreateTableVersionRequest(**staged(lake, "t")))
    assert ids(lake, "t") == [1, 7]
    assert ids_of(lance.dataset(path)) == [1, 50]


def test_a_version_is_final_when_the_answer_comes(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "t")
    asked = staged(lake, "t")
    made = ConroiNamespace(lake).create_table_version(ln.CreateTableVersionRequest(**asked)).version
    assert made is not None
    assert (made.version, made.manifest_path) == (2, asked["manifest_path"][:-37])
    assert Path("/" + made.manifest_path).exists()
    assert not Path("/" + asked["manifest_path"]).exists()


def test_the_same_request_again_is_answered_and_makes_nothing_new(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "t")
    request = ln.CreateTableVersionRequest(**staged(lake, "t"))
    first = ConroiNamespace(lake).create_table_version(request)
    version = lake.version
    assert ConroiNamespace(conroi.connect(lake.uri)).create_table_version(request) == first
    assert (lake.version, ids(lake, "t")) == (version, [1, 7])


@pytest.mark.contract("P5")
@pytest.mark.parametrize("version", [1, 3])
def test_only_the_very_next_version_is_taken(tmp_path: Path, version: int) -> None:
    lake = new_lake(tmp_path, "t")
    asked = staged(lake, "t")
    if version == 1:
        lake["t"].append(rows(2))
        expected: type[Exception] = ln.ConcurrentModificationError
    else:
        asked["version"], expected = 3, ln.InvalidInputError  # its name says 2
    with pytest.raises(expected):
        ConroiNamespace(lake).create_table_version(ln.CreateTableVersionRequest(**asked))
    assert ids(lake, "t") == ([1, 2] if version == 1 else [1])


def test_a_late_writer_of_a_dropped_table_touches_nothing_of_the_new_one(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "t")
    request = ln.CreateTableVersionRequest(**staged(lake, "t"))
    lake.drop_table("t")
    with pytest.raises(ln.TableNotFoundError):
        ConroiNamespace(lake).create_table_version(request)
    lake.create_table("t", rows(9))
    with pytest.raises(ln.InvalidInputError, match="another folder now"):
        ConroiNamespace(lake).create_table_version(request)
    assert ids(lake, "t") == [9]


@pytest.mark.contract("P9")
def test_a_table_that_was_declared_dropped_and_declared_again_has_another_folder(tmp_path: Path) -> None:
    namespace = ConroiNamespace(new_lake(tmp_path))
    first = namespace.declare_table(ln.DeclareTableRequest(id=["t"])).location
    namespace.drop_table(ln.DropTableRequest(id=["t"]))
    assert namespace.declare_table(ln.DeclareTableRequest(id=["t"])).location != first


def test_a_staged_manifest_that_is_damaged_or_elsewhere_is_refused(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "t", "u")
    namespace = ConroiNamespace(lake)
    good = staged(lake, "t")
    path = Path("/" + good["manifest_path"])
    whole = path.read_bytes()

    def refused(expected: type[Exception], **changed: Any) -> None:
        with pytest.raises(expected):
            namespace.create_table_version(ln.CreateTableVersionRequest(**{**good, **changed}))

    refused(ln.InvalidInputError, id=["u"])
    refused(ln.InvalidInputError, manifest_path="etc/passwd")
    refused(ln.InvalidInputError, manifest_path=good["manifest_path"].replace("t.lance", "t.lance/../u.lance"))
    refused(ln.InvalidInputError, manifest_path=good["manifest_path"][:-36] + "0" * 36)
    refused(ln.InvalidInputError, manifest_path=good["manifest_path"][:-37])
    refused(ln.InvalidInputError, branch="other")
    path.write_bytes(whole[: len(whole) // 2])
    refused(ln.InvalidTableStateError)
    path.write_bytes(b"")
    refused(ln.InvalidTableStateError)
    assert ids(lake, "t") == [1]
    path.write_bytes(whole)
    namespace.create_table_version(ln.CreateTableVersionRequest(**good))
    assert ids(lake, "t") == [1, 7]


def test_a_table_that_deletes_its_own_versions_is_refused(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    with pytest.raises(OSError, match="unknown"):
        lance.write_dataset(
            rows(1),
            namespace_client=ConroiNamespace(lake),
            table_id=["t"],
            mode="create",
            auto_cleanup_options={"interval": 1, "older_than_seconds": 0},
        )
    with pytest.raises(conroi.NotFoundError):
        lake["t"]
