"""Every attempt leaves its transaction in a file and inside the manifest, and either is enough for later writers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import conroi
from conroi import CorruptionError
from conroi.format.manifest_file import decode_manifest_file, encode_manifest_file
from conroi.format.naming import ManifestNaming
from conroi.format.transaction import decode_transaction
from tests.support.arrow import column_values
from tests.support.instruments import interrupted
from tests.support.transactions import new_id, reserve_fragments

pytestmark = pytest.mark.contract("T3")

VERBS: dict[str, Callable[[conroi.Table], conroi.Table]] = {
    "append": lambda t: t.append([{"id": 9, "v": 9}]),
    "overwrite": lambda t: t.overwrite([{"id": 9, "v": 9}]),
    "delete": lambda t: t.delete("id = 1"),
    "update": lambda t: t.update({"v": "0"}),
    "add_columns": lambda t: t.add_columns({"w": "v"}),
    "drop_columns": lambda t: t.drop_columns(["v"]),
    "replace_column_data": lambda t: t.replace_column_data({"v": "1"}),
    "set_config": lambda t: t.set_config({"a": "b"}),
    "add_base": lambda t: t.add_base("/elsewhere"),
    "reserve_fragments": lambda t: t.reserve_fragments(1),
    "create_index": lambda t: t.create_index("id"),
    "compact": lambda t: t.compact("id"),
    "restore": lambda t: t.restore(1),
    "detached": lambda t: t.append([{"id": 9, "v": 9}], detached=True),
}


@pytest.fixture
def table(tmp_path: Path) -> conroi.Table:
    return conroi.create_table(tmp_path / "t.lance", [{"id": 1, "v": 10}, {"id": 2, "v": 20}])


def manifest_path(table: conroi.Table, version: int) -> Path:
    return Path(table.uri) / ManifestNaming.V2.path(version)


def transaction_files(table: conroi.Table) -> set[str]:
    return set(os.listdir(Path(table.uri) / "_transactions"))


def ids(table: conroi.Table) -> list[int]:
    return sorted(column_values(table.to_arrow(["id"])["id"]))


# -------------------------------------------------------------------------- both are there


@pytest.mark.parametrize("verb", VERBS)
def test_the_file_and_the_copy_inside_the_manifest_are_the_same(verb: str, table: conroi.Table) -> None:
    done = VERBS[verb](table)
    (new,) = transaction_files(done) - {name for name in transaction_files(done) if name.startswith("0-")}
    file = decode_manifest_file(manifest_path(done, done.version).read_bytes())
    assert file.manifest.head.transaction_file == new
    assert file.transaction == (Path(table.uri) / "_transactions" / new).read_bytes()
    transaction = decode_transaction(file.transaction or b"")
    assert new == f"1-{transaction.uuid}.txn"
    committed = lance.dataset(table.uri, version=done.version).read_transaction(done.version)
    assert committed is not None
    assert committed.uuid == transaction.uuid


def test_creating_a_table_leaves_them_too(table: conroi.Table) -> None:
    file = decode_manifest_file(manifest_path(table, 1).read_bytes())
    assert transaction_files(table) == {file.manifest.head.transaction_file}
    assert decode_transaction(file.transaction or b"").read_version == 0


def test_every_attempt_leaves_a_file_with_the_version_it_was_made_on(table: conroi.Table) -> None:
    """A delete that is rebased counts as made on the newer version, and its file says so; the first one stays."""
    before = transaction_files(table)
    writer = interrupted(table, lambda: table.delete("id = 2"), at="_versions/*.manifest", verb="put_if_absent")
    done = writer.delete("id = 1")
    assert (done.version, ids(done)) == (3, [])
    mine = decode_transaction(decode_manifest_file(manifest_path(done, 3).read_bytes()).transaction or b"").uuid
    left = {name for name in transaction_files(table) - before if mine in name}
    assert left == {f"1-{mine}.txn", f"2-{mine}.txn"}


# ------------------------------------------------------------------------ either is enough


def without_file(table: conroi.Table, version: int) -> None:
    name = decode_manifest_file(manifest_path(table, version).read_bytes()).manifest.head.transaction_file
    (Path(table.uri) / "_transactions" / name).unlink()


def without_copy(table: conroi.Table, version: int) -> None:
    file = decode_manifest_file(manifest_path(table, version).read_bytes())
    manifest_path(table, version).write_bytes(encode_manifest_file(file.manifest, None))


def by_conroi(table: conroi.Table, row: int) -> None:
    """Append a row, as a writer that saw version 1 last."""
    fragment = table.append([{"id": row, "v": 0}], detached=True)._pinned.manifest.fragments[-1]
    transaction = reserve_fragments(1, transaction_id=new_id())
    transaction.wire.append.fragments.add().CopyFrom(fragment)
    transaction.wire.append.fragments[0].id = 0
    conroi.commit(table.uri, transaction)


def by_pylance(table: conroi.Table, row: int) -> None:
    """The same, in pylance."""
    fragment = lance.fragment.LanceFragment.create(table.uri, pa.table({"id": [row], "v": [0]}))
    lance.LanceDataset.commit(table.uri, lance.LanceOperation.Append([fragment]), read_version=1)


@pytest.mark.parametrize("writer", [by_conroi, by_pylance])
@pytest.mark.parametrize("loss", [without_file, without_copy])
@pytest.mark.parametrize("first", ["conroi", "pylance"])
def test_a_later_writer_needs_only_one_of_the_two(
    first: str,
    loss: Callable[[conroi.Table, int], None],
    writer: Callable[[conroi.Table, int], None],
    table: conroi.Table,
) -> None:
    if first == "conroi":
        table.delete("id = 1")
    else:
        lance.dataset(table.uri).delete("id = 1")
    loss(table, 2)
    writer(table, 7)
    newest = conroi.open_table(table.uri)
    assert (newest.version, ids(newest)) == (3, [2, 7])
    assert newest.history()[1].operation == "Delete"


@pytest.mark.parametrize("loss", [without_file, without_copy])
def test_a_conflict_is_seen_with_only_one_of_the_two(
    loss: Callable[[conroi.Table, int], None], table: conroi.Table
) -> None:
    table.overwrite([{"id": 5, "v": 5}])
    loss(table, 2)
    with pytest.raises(conroi.IncompatibleConflict):
        by_conroi(table, 7)
    assert ids(table.latest()) == [5]


def test_control_without_either_no_commit_can_be_checked_against_that_version(table: conroi.Table) -> None:
    table.delete("id = 1")
    without_file(table, 2)
    without_copy(table, 2)
    with pytest.raises(CorruptionError, match="no transaction") as caught:
        by_conroi(table, 7)
    assert (caught.value.version, caught.value.table) == (2, table.uri)
    with pytest.raises(OSError, match="transaction"):
        by_pylance(table, 7)
    assert ids(conroi.open_table(table.uri)) == [2], "reading needs neither"
    assert ids(table.append([{"id": 8, "v": 8}])) == [2, 8], "and who starts at the newest version is not in its way"
