"""A commit reads every concurrent version, once, before its put; and what it writes is the change that was rebased."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import conroi
from conroi import history
from conroi import operations as ops
from conroi.commit.change import Change
from conroi.commit.fairness import Turns
from conroi.commit.idempotency import AlreadyCommitted, IdempotencyKey
from conroi.commit.loop import run
from conroi.commit.table_commit import FolderCommit
from conroi.data.table_version import TableVersion
from conroi.format.manifest_file import decode_manifest_file, encode_manifest_file
from conroi.format.naming import ManifestNaming
from conroi.format.on_disk import BASE_PROPERTY
from conroi.snapshots.snapshot import Snapshot, load_snapshot, load_transaction
from conroi.storage.objects import Objects
from conroi.verbs import Appending
from conroi.versions.folder import ManifestRef
from tests.support.arrow import column_values
from tests.support.instruments import CloudLike, interrupted, table_on
from tests.support.transactions import new_id

MANY = 70
"""More than twice as many as are read at once."""


@pytest.fixture
def table(tmp_path: Path) -> conroi.Table:
    return conroi.create_table(tmp_path / "t.lance", [{"id": 0}])


def ids(table: conroi.Table) -> list[int]:
    return sorted(column_values(conroi.open_table(table.uri).to_arrow()["id"]))


def first_append(table: conroi.Table) -> Change:
    """Of a writer that read version 1 long ago, and looks for newer ones before its put."""
    first = TableVersion(table._files, history.find(table._files, 1))
    plan = Appending([{"id": 1}])(first)
    assert plan is not None
    return Change(plan, first.snapshot, uuid=new_id())


def add(table: conroi.Table, number: int, key: str | None = None) -> None:
    with conroi.open_table(table.uri).begin(idempotency_key=key) as tx:
        tx.append([{"id": number}])


@pytest.mark.contract("T4")
@pytest.mark.parametrize("is_cloud", [False, True], ids=["local", "cloud"])
def test_a_writer_that_is_far_behind_reads_each_version_once(is_cloud: bool, table: conroi.Table) -> None:
    for _ in range(MANY):
        table.reserve_fragments(1)
    writer = table_on(CloudLike(table._files.objects) if is_cloud else table._files.objects)
    result = run(FolderCommit(writer._files, first_append(writer), retries=0))
    assert (result.version, result.rebased_over) == (MANY + 2, tuple(range(2, MANY + 2)))


@pytest.mark.contract("T4")
@pytest.mark.parametrize("is_cloud", [False, True], ids=["local", "cloud"])
def test_a_transaction_that_is_far_behind_is_rebased_over_every_version(is_cloud: bool, table: conroi.Table) -> None:
    objects = CloudLike(table._files.objects) if is_cloud else table._files.objects
    tx = table_on(objects).begin()
    tx.append([{"id": 1}])
    for _ in range(MANY):
        table.set_config({"k": "v"})
    tx.commit()
    assert tx.result.version == MANY + 2
    assert ids(table) == [0, 1]


@pytest.mark.contract("S5")
def test_a_key_is_found_in_a_version_that_is_not_the_newest(table: conroi.Table) -> None:
    """Versions in between are passed over by their transactions alone, where that is enough."""
    tx = table.begin(idempotency_key="a")
    tx.append([{"id": 1}])
    add(table, 1, "a")
    add(table, 2)
    add(table, 3)
    result = tx.commit()
    assert (result.version, result.was_done_before) == (2, True)
    assert ids(table) == [0, 1, 2, 3]


@pytest.mark.contract("T4", "M1")
def test_the_transaction_of_a_rebased_compaction_says_what_was_committed(table: conroi.Table) -> None:
    """Its base stays the same when deletions are carried over, so it is not known by that."""
    table = table.append([{"id": 1}, {"id": 2}])
    writer = interrupted(table, lambda: conroi.open_table(table.uri).delete("id = 1"))
    done = writer.compact()
    assert ids(table) == [0, 2]
    snapshot = done._pinned.snapshot
    transaction = load_transaction(table._files.objects, snapshot)
    assert transaction is not None
    operation = ops.of(transaction)
    assert isinstance(operation, ops.Rewrite)
    (new,) = (fragment for group in operation.groups for fragment in group.new_fragments)
    assert new.deletion_file.num_deleted_rows == 1
    assert list(snapshot.manifest.fragments) == [new]


@pytest.mark.contract("T4")
def test_versions_that_were_read_while_waiting_are_rebased_over_once(table: conroi.Table) -> None:
    """A writer that waits for its turn reads the commits of the others as they come, and rebases in its turn."""
    commit = FolderCommit(table._files, first_append(table), retries=0)
    for number in (2, 3):
        add(table, number)
        assert commit.heads() is None
        assert commit.seen is not None
        assert commit.seen.version == 1
    commit.get_ready()
    assert (commit.rebased_over, commit.newest_read.version) == ([2, 3], 3)


@pytest.mark.contract("T4")
def test_of_the_commits_that_an_append_sees_only_the_newest_manifest_is_decoded(
    table: conroi.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all others, and of the newest one until our manifest is built on it, the transaction alone is read."""
    decoded: list[int] = []

    def counted(objects: Objects, located: ManifestRef) -> Snapshot:
        decoded.append(located.version)
        return load_snapshot(objects, located)

    monkeypatch.setattr(import_module("conroi.commit.pending"), "load_snapshot", counted)
    commit = FolderCommit(table._files, first_append(table), retries=0)
    for number in range(2, 8):
        add(table, number)
        assert commit.heads() is None
        commit.get_ready()
    assert not decoded
    built = commit.build_next()
    assert (decoded, built.located.version, commit.rebased_over) == ([7], 8, [2, 3, 4, 5, 6, 7])


def test_a_rebased_delete_says_on_which_version_it_was_made(table: conroi.Table) -> None:
    table = table.append([{"id": 1}, {"id": 2}])
    alone = table.delete("id = 1")
    writer = interrupted(alone, lambda: conroi.open_table(table.uri).append([{"id": 3}]))
    rebased = writer.delete("id = 2")
    again = interrupted(rebased, lambda: conroi.open_table(table.uri).delete("id = 0")).delete("id = 3")
    made_on: list[tuple[int, str | None]] = []
    for done in (alone, rebased, again):
        transaction = load_transaction(table._files.objects, done._pinned.snapshot)
        assert transaction is not None
        made_on.append((transaction.read_version, transaction.properties.get(BASE_PROPERTY)))
    assert made_on == [(2, None), (4, "3"), (6, "5")], "the version that it was compared with, and its base"
    assert ids(table) == []


def test_writers_of_versions_that_are_passed_over_are_seen(table: conroi.Table) -> None:
    for name in ("c", "d"):
        other = table_on(table._files.objects)
        other._files.kept(Turns).me = name
        other.append([{"id": 1}])
    writer = table_on(table._files.objects)
    assert FolderCommit(writer._files, first_append(writer), retries=0).heads() is None
    assert sorted(writer._files.kept(Turns)._others()) == ["c", "d"]


@pytest.mark.contract("S5")
def test_a_commit_with_a_key_looks_for_it_in_every_version(table: conroi.Table) -> None:
    add(table, 1, "a")
    add(table, 2)
    commit = FolderCommit(table._files, replace(first_append(table), once=IdempotencyKey(table._files, "a")), retries=0)
    assert commit.heads() is None
    with pytest.raises(AlreadyCommitted) as caught:
        commit.get_ready()
    assert caught.value.version == 2


def test_a_guard_is_told_of_all_concurrent_commits_also_of_unrelated_ones(table: conroi.Table) -> None:
    for number in (1, 2):
        add(table, number)
    told: list[tuple[int, list[int]]] = []
    change = first_append(table)
    plan = replace(change.plan, guard=lambda head, winners: told.append((head.version, [w.version for w in winners])))
    result = run(FolderCommit(table._files, replace(change, plan=plan), retries=0))
    assert (result.version, told) == (4, [(3, [2, 3])])


@pytest.mark.parametrize(
    ("retries", "is_cloud", "is_fresh", "is_known"),
    [(1, False, True, True), (0, False, True, False), (0, True, True, True), (9, True, False, False)],
)
def test_the_first_look_is_skipped_if_the_base_is_fresh_and_a_lost_race_costs_little(
    retries: int, is_cloud: bool, is_fresh: bool, is_known: bool, table: conroi.Table
) -> None:
    writer = table_on(CloudLike(table._files.objects) if is_cloud else table._files.objects)
    change = replace(first_append(writer), base_is_fresh=is_fresh)
    assert FolderCommit(writer._files, change, retries).is_head_known() is is_known


def test_a_concurrent_version_that_needs_a_newer_writer_is_not_written_over(table: conroi.Table) -> None:
    lance.write_dataset(pa.table({"id": [1]}), table.uri, mode="append")
    path = Path(table.uri) / ManifestNaming.V2.path(2)
    file = decode_manifest_file(path.read_bytes())
    head = file.manifest.editable_head()
    head.writer_feature_flags |= 1 << 40
    path.write_bytes(encode_manifest_file(file.manifest.changed(head=head), file.transaction))
    with pytest.raises(conroi.UnsupportedError):
        run(FolderCommit(table._files, first_append(table), retries=0))
    assert not (Path(table.uri) / ManifestNaming.V2.path(3)).exists()
