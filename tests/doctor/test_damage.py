"""Each kind of damage, made for real on a copy of a healthy lake, is found and called by its name."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.fragment import write_fragments
from pyroaring import BitMap

import conroi
from conroi.doctor.kinds import KINDS
from conroi.format import lance_pb2 as pb
from conroi.format.deletions import encode_deletions
from conroi.format.row_ids import fresh_row_ids
from conroi.format.transaction import Transaction, decode_transaction, encode_transaction
from tests.doctor.damage import (
    LIST,
    ORDERS,
    append_by_path,
    append_row_by_pylance,
    change_json,
    customers,
    cut,
    data_file,
    deletion_file,
    edit_fragments,
    edit_head,
    edit_transaction,
    examine,
    files_of,
    flip,
    fork,
    kinds,
    manifests,
    newest,
    publish_row,
    row_of,
    unfinish,
    v1_name,
)
from tests.support.sampling import sampled

pytestmark = pytest.mark.contract("M4")

Damage = Callable[[Path], object]
DAMAGES: dict[str, tuple[str, Damage, str | None]] = {}
"""By name: the kind that must be found, what is done to the lake, and the table it is found in."""


def damage(kind: str, table: str | None = "orders") -> Callable[[Damage], Damage]:
    def register(function: Damage) -> Damage:
        DAMAGES[function.__name__] = (kind, function, table)
        return function

    return register


# ------------------------------------------------------------------------------------ manifests


@damage("manifest-unreadable")
def cut_manifest(lake: Path) -> None:
    cut(newest(lake / ORDERS), 200)


@damage("manifest-unreadable")
def flipped_byte_in_the_newest_manifest(lake: Path) -> None:
    flip(newest(lake / ORDERS), 60)


@damage("manifest-unreadable")
def flipped_byte_in_an_old_manifest(lake: Path) -> None:
    flip(manifests(lake / ORDERS)[2], 60)


@damage("manifest-unreadable", "old")
def flipped_byte_in_a_dropped_table(lake: Path) -> None:
    flip(newest(lake / "old.lance"), 60)


@damage("manifest-misnamed")
def manifest_copied_over_another(lake: Path) -> None:
    shutil.copy(manifests(lake / ORDERS)[1], manifests(lake / ORDERS)[2])


@damage("manifest-contradiction")
def flags_that_deny_the_deletions(lake: Path) -> None:
    edit_head(newest(lake / ORDERS), lambda head: setattr(head, "reader_feature_flags", 2))


@damage("mixed-manifest-names")
def interrupted_renaming(lake: Path) -> None:
    shutil.copy(manifests(lake / ORDERS)[2], lake / ORDERS / "_versions" / v1_name(2))


@damage("unknown-reader-flags")
def flag_that_no_reader_knows(lake: Path) -> None:
    edit_head(newest(lake / ORDERS), lambda head: setattr(head, "reader_feature_flags", 1 << 40))


@damage("unknown-writer-flags")
def flag_that_no_writer_knows(lake: Path) -> None:
    edit_head(newest(lake / ORDERS), lambda head: setattr(head, "writer_feature_flags", 3 | 1 << 40))


@damage("flags-contradict")
def flag_for_readers_only(lake: Path) -> None:
    edit_head(newest(lake / ORDERS), lambda head: setattr(head, "reader_feature_flags", 3 | 256))


@damage("fragment-id-twice", "sales.customers")
def two_fragments_with_one_id(lake: Path) -> None:
    edit_fragments(newest(customers(lake)), lambda fragments: setattr(fragments[1], "id", 0))


@damage("fragment-id-over-mark", "sales.customers")
def largest_fragment_id_too_low(lake: Path) -> None:
    edit_head(newest(customers(lake)), lambda head: setattr(head, "max_fragment_id", 0))


@damage("fragment-without-files", "sales.customers")
def fragment_without_files(lake: Path) -> None:
    edit_fragments(newest(customers(lake)), lambda fragments: fragments[1].ClearField("files"))


@damage("path-outside-table", "sales.customers")
def path_that_leaves_the_table(lake: Path) -> None:
    edit_fragments(newest(customers(lake)), lambda fragments: setattr(fragments[1].files[0], "path", "../../secret"))


@damage("version-gap", LIST)
def version_of_the_list_deleted(lake: Path) -> None:
    manifests(lake / LIST)[4].unlink()


@damage("wrong-hint", LIST)
def hint_to_nowhere(lake: Path) -> None:
    (lake / LIST / "_versions" / "latest_version_hint.json").write_text('{"version":4711}')


@damage("wrong-hint", LIST)
def garbage_hint(lake: Path) -> None:
    (lake / LIST / "_versions" / "latest_version_hint.json").write_text("garbage")


@damage("detached-manifest")
def detached_commit(lake: Path) -> None:
    dataset = lance.dataset(str(lake / ORDERS))
    operation = lance.LanceOperation.Append(write_fragments(dataset.to_table(limit=1), dataset))
    lance.LanceDataset.commit(dataset, operation, read_version=dataset.version, detached=True)


# --------------------------------------------------------------------------- transactions and time


@damage("transaction-unreadable", "sales.customers")
def garbage_inside_a_manifest(lake: Path) -> None:
    edit_transaction(newest(customers(lake)), lambda _: b"\x0a\xff\xff\xff")


@damage("transaction-mismatch", "sales.customers")
def transaction_of_another_commit(lake: Path) -> None:
    def other(data: bytes) -> bytes:
        wire = pb.Transaction.FromString(decode_transaction(data).wire.SerializeToString())
        wire.read_version = 0
        return encode_transaction(Transaction(wire))

    edit_transaction(newest(customers(lake)), other)


@damage("transaction-missing", "sales.customers")
def transaction_neither_inside_nor_beside(lake: Path) -> None:
    edit_transaction(newest(customers(lake)), lambda _: None)
    shutil.rmtree(customers(lake) / "_transactions")


@damage("clock-ahead", "sales.customers")
def version_of_tomorrow(lake: Path) -> None:
    edit_head(newest(customers(lake)), lambda head: _move_clock(head, 86_400))


@damage("clock-backwards", "sales.customers")
def version_of_yesterday(lake: Path) -> None:
    edit_head(newest(customers(lake)), lambda head: _move_clock(head, -86_400))


def _move_clock(head: pb.ManifestHead, seconds: int) -> None:
    head.timestamp.seconds += seconds


# ----------------------------------------------------------------------------------------- data


@damage("missing-data-file")
def deleted_data_file(lake: Path) -> None:
    data_file(lake / ORDERS).unlink()


@damage("missing-data-file", LIST)
def deleted_data_file_of_an_old_list(lake: Path) -> None:
    old = manifests(lake / LIST)[4]
    edit_fragments(old, lambda fragments: setattr(fragments[0].files[0], "path", "gone.lance"))


@damage("wrong-size-data-file")
def cut_data_file(lake: Path) -> None:
    cut(data_file(lake / ORDERS), 100)


@damage("damaged-data-file")
def flipped_byte_in_a_footer(lake: Path) -> None:
    file = data_file(lake / ORDERS)
    flip(file, file.stat().st_size - 2)


@damage("row-count-mismatch", "sales.customers")
def wrong_row_count(lake: Path) -> None:
    edit_fragments(newest(customers(lake)), lambda fragments: setattr(fragments[0], "physical_rows", 7))


@damage("missing-deletion-file")
def deleted_deletion_file(lake: Path) -> None:
    deletion_file(lake / ORDERS).unlink()


@damage("damaged-deletion-file")
def cut_deletion_file(lake: Path) -> None:
    cut(deletion_file(lake / ORDERS), 300)


@damage("damaged-deletion-file")
def flipped_byte_in_a_deletion_file(lake: Path) -> None:
    flip(deletion_file(lake / ORDERS), 250)


@damage("deletion-count-mismatch")
def wrong_number_of_deleted_rows(lake: Path) -> None:
    def edit(fragments: list[pb.DataFragment]) -> None:
        fragments[0].deletion_file.num_deleted_rows += 1

    edit_fragments(newest(lake / ORDERS), edit)


@damage("deletion-out-of-range")
def deleted_row_that_never_was(lake: Path) -> None:
    file = deletion_file(lake / ORDERS)
    gone = lance.dataset(str(lake / ORDERS)).get_fragments()[0].num_deletions
    file.write_bytes(encode_deletions(BitMap(range(5000, 5000 + gone)))[1])


@damage("row-ids-damaged")
def too_few_row_ids(lake: Path) -> None:
    edit_fragments(
        newest(lake / ORDERS), lambda fragments: setattr(fragments[0], "inline_row_ids", fresh_row_ids(0, 7))
    )


@damage("row-id-twice")
def two_fragments_with_the_same_row_ids(lake: Path) -> None:
    def edit(fragments: list[pb.DataFragment]) -> None:
        fragments[1].inline_row_ids = fragments[0].inline_row_ids

    edit_fragments(newest(lake / ORDERS), edit)


@damage("next-row-id-too-low")
def next_row_id_set_back(lake: Path) -> None:
    edit_head(newest(lake / ORDERS), lambda head: setattr(head, "next_row_id", 50))


@damage("missing-index-file")
def deleted_index(lake: Path) -> None:
    next((lake / ORDERS / "_indices").glob("*/*")).unlink()


@damage("wrong-size-index-file")
def cut_index(lake: Path) -> None:
    cut(next((lake / ORDERS / "_indices").glob("*/*")), 20)


@damage("key-lost", "keyed")
def restored_to_before_the_key(lake: Path) -> None:
    table = conroi.connect(str(lake)).create_table("keyed", [{"id": 1}])
    table.declare_key("id").restore(1)


# ------------------------------------------------------------------------------------ the lake's list


@damage("lake-unreadable", LIST)
def cut_list(lake: Path) -> None:
    data_file(lake / LIST).unlink()


@damage("bad-row")
def row_that_is_not_json(lake: Path) -> None:
    publish_row(lake, replace(row_of(lake, "orders"), metadata="{not json"))


@damage("bad-row")
def pin_of_another_version(lake: Path) -> None:
    publish_row(lake, row_of(lake, "orders").with_notes({"conroi.version": "2"}))


@damage("row-twice")
def two_rows_for_one_name(lake: Path) -> None:
    append_row_by_pylance(lake, "orders", ORDERS)


@damage("folder-twice", "again")
def two_names_for_one_folder(lake: Path) -> None:
    append_row_by_pylance(lake, "again", ORDERS, '{"conroi.lock":"1"}')


@damage("row-without-folder", "nowhere")
def row_without_a_folder(lake: Path) -> None:
    append_row_by_pylance(lake, "nowhere", None)


@damage("path-outside-table", "outside")
def row_that_leaves_the_lake(lake: Path) -> None:
    append_row_by_pylance(lake, "outside", "../elsewhere")


@damage("missing-folder")
def deleted_folder(lake: Path) -> None:
    shutil.rmtree(lake / ORDERS)


@damage("declared-only", "declared")
def table_that_was_only_declared(lake: Path) -> None:
    append_row_by_pylance(lake, "declared", "declared.lance")


@damage("missing-namespace", "lost.table")
def table_in_no_namespace(lake: Path) -> None:
    append_row_by_pylance(lake, "lost$table", "lost.lance")


@damage("records-differ", LIST)
def commit_that_says_something_else(lake: Path) -> None:
    def other(data: bytes) -> bytes:
        wire = pb.Transaction.FromString(decode_transaction(data).wire.SerializeToString())
        wire.transaction_properties["conroi.records"] = '{"ghost":["namespace",null,null,null]}'
        return encode_transaction(Transaction(wire))

    edit_transaction(newest(lake / LIST), other)


@damage("lake-marker", None)
def marker_of_a_store(lake: Path) -> None:
    (lake / "__conroi.json").write_text('{"history": "postgresql"}')


@damage("lake-marker", None)
def garbage_marker(lake: Path) -> None:
    (lake / "__conroi.json").write_text("garbage")


# ------------------------------------------------------------------------------------------ pins


@damage("missing-pin")
def deleted_newest_manifest(lake: Path) -> None:
    newest(lake / ORDERS).unlink()


@damage("missing-pin")
def deleted_manifest_of_an_older_version(lake: Path) -> None:
    manifests(lake / ORDERS)[3].unlink()


@damage("pin-mismatch")
def manifest_of_another_transaction(lake: Path) -> None:
    fork(lake, "orders", [{"id": 900, "text": "x"}]).unlink()


@damage("unfinished-publication")
def publisher_that_died(lake: Path) -> None:
    unfinish(lake, "orders")


@damage("forked-table")
def written_by_path_between_publication_and_final_name(lake: Path) -> None:
    fork(lake, "orders", [{"id": 900, "text": "x"}])


@damage("foreign-commit")
def written_by_path(lake: Path) -> None:
    append_by_path(lake / ORDERS, [{"id": 900, "text": "x"}])


@damage("auto-cleanup", "sales.customers")
def pylance_that_cleans_up(lake: Path) -> None:
    edit_head(newest(customers(lake)), lambda head: head.config.update({"lance.auto_cleanup.interval": "20"}))


# --------------------------------------------------------------------------------- locks and inserts


@damage("lock-id-missing", "guest")
def registered_table_of_pylance(lake: Path) -> None:
    lance.write_dataset(pa.table({"n": [1]}), str(lake / "guest.lance"))
    conroi.connect(str(lake)).register("guest", "guest.lance")


@damage("lock-id-twice", "sales.customers")
def two_tables_with_one_lock(lake: Path) -> None:
    lock = row_of(lake, "orders").lock
    assert lock is not None
    publish_row(lake, row_of(lake, "sales$customers").with_lock(lock))


@damage("incomplete-insert")
def worker_that_died_while_inserting(lake: Path) -> None:
    publish_row(lake, row_of(lake, "orders").with_insert('["an insert",190,200,false]'))


@damage("temporary-table", f"tmp_{'a' * 32}")
def worker_that_left_its_own_table(lake: Path) -> None:
    conroi.connect(str(lake)).create_table(f"tmp_{'a' * 32}", [{"n": 1}])


# ------------------------------------------------------------------------------------ tags and branches


@damage("unreadable-tag")
def garbage_tag(lake: Path) -> None:
    (lake / ORDERS / "_refs/tags/early.json").write_text("garbage")


@damage("tag-nowhere")
def tag_of_a_version_that_never_was(lake: Path) -> None:
    change_json(lake / ORDERS / "_refs/tags/early.json", version=99)


@damage("tag-nowhere", LIST)
def tag_of_a_version_of_the_lake_that_never_was(lake: Path) -> None:
    change_json(lake / LIST / "_refs/tags/start.json", version=99)


@damage("unreadable-branch")
def garbage_branch(lake: Path) -> None:
    (lake / ORDERS / "_refs/branches").mkdir()
    (lake / ORDERS / "_refs/branches/dev.json").write_text("garbage")


@damage("branch-nowhere")
def branch_without_its_folder(lake: Path) -> None:
    lance.dataset(str(lake / ORDERS)).create_branch("dev")
    shutil.rmtree(lake / ORDERS / "tree")


@damage("branch-unnamed")
def folder_of_a_branch_that_is_not_listed(lake: Path) -> None:
    lance.dataset(str(lake / ORDERS)).create_branch("dev")
    (lake / ORDERS / "_refs/branches/dev.json").unlink()


@damage("manifest-unreadable", "orders@dev")
def flipped_byte_on_a_branch(lake: Path) -> None:
    lance.dataset(str(lake / ORDERS)).create_branch("dev")
    cut(newest(lake / ORDERS / "tree/dev"), 100)


# ---------------------------------------------------------------------------------------- leftovers


@damage("staged-leftover")
def staged_and_never_published(lake: Path) -> None:
    last = newest(lake / ORDERS)
    shutil.copy(last, f"{last}-{uuid.uuid4()}")


@damage("temporary-file")
def begun_and_never_finished(lake: Path) -> None:
    (lake / ORDERS / "_versions/.tmp_conroi_1_2_3").write_bytes(b"half")


@damage("stale-baton", LIST)
def priority_token_of_a_dead_writer(lake: Path) -> None:
    (lake / LIST / "_transactions/.conroi-baton").write_text('{"writer":"x","needs_s":0}')


@damage("orphan-files")
def unreferenced_data_file(lake: Path) -> None:
    shutil.copy(data_file(lake / ORDERS), lake / ORDERS / "data/orphan.lance")


@damage("orphan-folder", None)
def folder_of_a_killed_creation(lake: Path) -> None:
    tx = conroi.connect(str(lake)).begin()
    tx.create_table("unfinished", [{"n": 1}])
    tx.rollback()


@damage("folder-left-alone", None)
def folder_of_another_program(lake: Path) -> None:
    lance.write_dataset(pa.table({"n": [1]}), str(lake / "stray.lance"))


ALSO: dict[str, set[str]] = {"cut_list": {"missing-data-file"}}
"""Errors that must follow from the damage, besides the one it is called by."""


@pytest.mark.parametrize("name", sampled("damages", [(name,) for name in DAMAGES], least=38, covers=False))
def test_damage_is_found_and_named(name: str, lake: Path) -> None:
    kind, inflict, table = DAMAGES[name]
    inflict(lake)
    before = files_of(lake)

    diagnosis = examine(lake, fix=not KINDS[kind].is_fixable)

    assert [each.table for each in diagnosis.of_kind(kind)] == [table], str(diagnosis)
    expected = ALSO.get(name, set()) | ({kind} if KINDS[kind].severity == "error" else set())
    assert kinds(diagnosis, "error") == expected, str(diagnosis)
    assert diagnosis.is_healthy == (not expected)
    assert kind in str(diagnosis)
    assert all(each.what.endswith(".") and each.hint for each in diagnosis.findings), str(diagnosis)
    if not any(each.fixed for each in diagnosis.findings):
        assert files_of(lake) == before, "what cannot be fixed is left alone: no row, no file, no leftover is touched"


def test_more_than_thirty_kinds_are_made_for_real() -> None:
    assert len({kind for kind, _, _ in DAMAGES.values()}) >= 50
