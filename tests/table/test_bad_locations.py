"""Where there is no table, or not one that we may touch: a typed error that says what to do, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import lance
import pyarrow as pa
import pytest

import conroi
from conroi import (
    AlreadyExistsError,
    CorruptionError,
    InvalidInputError,
    LanceTransaction,
    ManifestNaming,
    NotFoundError,
    UnsupportedError,
    VersionExpired,
)
from conroi.format import lance_pb2 as pb
from conroi.format.manifest_file import decode_manifest_file, encode_manifest_file
from tests.support.refusals import assert_helpful, files_of, refused
from tests.support.transactions import reserve_fragments

ROWS = [{"id": 1}, {"id": 2}]


@pytest.fixture
def table(tmp_path: Path) -> conroi.Table:
    return conroi.create_table(tmp_path / "t.lance", ROWS)


# ----------------------------------------------------------------------------- no table


@pytest.mark.contract("T12")
def test_a_path_that_does_not_exist_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        conroi.open_table(tmp_path / "nothing.lance")
    assert_helpful(caught.value, NotFoundError, "create_table")
    assert not (tmp_path / "nothing.lance").exists()


@pytest.mark.contract("T12")
def test_a_folder_that_is_not_a_table_is_not_found_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"meow")
    with pytest.raises(NotFoundError) as caught:
        conroi.open_table(tmp_path / "photos")
    assert_helpful(caught.value, NotFoundError, "photos")
    assert files_of(tmp_path) == {"photos/cat.jpg"}


@pytest.mark.contract("T12")
def test_a_file_is_not_a_table(tmp_path: Path) -> None:
    place = tmp_path / "file.lance"
    place.write_bytes(b"not a folder")
    with pytest.raises(NotFoundError) as caught:
        conroi.open_table(place)
    assert_helpful(caught.value, NotFoundError, "file.lance")
    with pytest.raises(InvalidInputError) as caught_too:
        conroi.create_table(place, ROWS)
    assert_helpful(caught_too.value, InvalidInputError, "file.lance")
    assert place.read_bytes() == b"not a folder"


@pytest.mark.contract("T12")
def test_an_empty_versions_folder_is_not_a_table(tmp_path: Path) -> None:
    (tmp_path / "t.lance" / "_versions").mkdir(parents=True)
    with pytest.raises(NotFoundError):
        conroi.open_table(tmp_path / "t.lance")


@pytest.mark.contract("T12")
def test_a_table_that_is_there_already_is_not_made_again(table: conroi.Table) -> None:
    with refused(table, AlreadyExistsError, "open_table"):
        conroi.create_table(table.uri, [{"other": 1}])


@pytest.mark.contract("T12")
def test_a_table_of_pylance_is_not_made_again(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"id": [1]}), tmp_path / "t.lance")
    with refused(conroi.open_table(tmp_path / "t.lance"), AlreadyExistsError):
        conroi.create_table(tmp_path / "t.lance", ROWS)


@pytest.mark.parametrize(
    "uri", ["", "  ", "ftp://host/t", "s3://", "s3://user:secret@bucket/t", "memory://", "a\0b", "a\nb", b"t"]
)
def test_a_path_that_cannot_be_one_is_refused_without_repeating_secrets(uri: Any) -> None:
    with pytest.raises(InvalidInputError) as caught:
        conroi.open_table(uri)
    assert_helpful(caught.value, InvalidInputError)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("verb", [conroi.open_table, lambda uri: conroi.create_table(uri, ROWS)])
def test_a_name_that_the_disk_cannot_have_is_refused(verb: Callable[[Path], object], tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError) as caught:
        verb(tmp_path / ("x" * 300))
    assert_helpful(caught.value, InvalidInputError)


@pytest.mark.contract("T12")
def test_a_folder_under_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(NotFoundError):
        conroi.open_table(tmp_path / "file" / "t.lance")
    with pytest.raises(InvalidInputError) as caught:
        conroi.create_table(tmp_path / "file" / "t.lance", ROWS)
    assert_helpful(caught.value, InvalidInputError)
    with pytest.raises(InvalidInputError) as caught:
        conroi.create_table(tmp_path / "file" / "t.lance", pa.schema({"a": pa.int64()}))
    assert_helpful(caught.value, InvalidInputError)


# ------------------------------------------------------------------------- no such version


@pytest.mark.contract("T10", "T12")
def test_a_version_that_was_cleaned_up_is_not_found(table: conroi.Table) -> None:
    newest = table.append(ROWS).append(ROWS)
    lance.dataset(table.uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    assert newest.versions() == [3]
    with refused(newest, NotFoundError, "versions()"):
        newest.at(1)
    with refused(newest, NotFoundError):
        newest.restore(1)
    with refused(newest, NotFoundError):
        conroi.open_table(table.uri, version=1)
    with refused(newest, NotFoundError):
        conroi.commit(table.uri, reserve_fragments(read_version=1))


@pytest.mark.contract("T12")
def test_a_handle_on_a_cleaned_up_version_says_that_its_files_are_gone(table: conroi.Table) -> None:
    newest = table.append(ROWS).overwrite([{"id": 9}])
    lance.dataset(table.uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    with refused(newest, VersionExpired, "newer version"):
        table.to_arrow()


@pytest.mark.contract("T12")
def test_a_handle_on_a_cleaned_up_version_still_writes_at_the_newest(table: conroi.Table) -> None:
    table.append(ROWS).overwrite([{"id": 9}])
    lance.dataset(table.uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    assert table.append([{"id": 10}]).to_arrow()["id"].to_pylist() == [9, 10]


# -------------------------------------------------------------- paths that leave the table

OUTSIDE = [
    "../../secret.lance",
    "/etc/passwd",
    "a/../../b.lance",
    "s3://elsewhere/x.lance",
    "C:\\x.lance",
    "",
    ".",
    "a//b",
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_path_outside_the_table_is_refused_before_it_is_published(path: str, table: conroi.Table) -> None:
    fragment = pb.DataFragment()
    fragment.CopyFrom(manifest_of(table).fragments[0])
    fragment.files[0].path = path
    new = pb.DataFragment()
    new.CopyFrom(fragment)
    new.id = 0
    for wire in (
        pb.Transaction(append=pb.Transaction.Append(fragments=[new])),
        pb.Transaction(delete=pb.Transaction.Delete(updated_fragments=[fragment], predicate="x")),
        pb.Transaction(update=pb.Transaction.Update(updated_fragments=[fragment])),
        pb.Transaction(overwrite=pb.Transaction.Overwrite(fragments=[new], schema=manifest_of(table).fields)),
        pb.Transaction(merge=pb.Transaction.Merge(fragments=[fragment], schema=manifest_of(table).fields)),
    ):
        wire.read_version, wire.uuid = 1, "00000000-0000-4000-8000-000000000001"
        with refused(table, InvalidInputError, repr(path)):
            conroi.commit(table.uri, LanceTransaction(wire))


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize(
    "read",
    [
        lambda t: t.to_arrow(),
        lambda t: t.count_rows("id > 0"),
        lambda t: t.delete("id = 1"),
        lambda t: t.to_lance(),
        lambda t: t.compact(),
    ],
)
def test_a_path_outside_the_table_is_refused_before_it_is_opened(
    path: str, read: Callable[[conroi.Table], object], table: conroi.Table
) -> None:
    manifest = manifest_of(table)
    fragment = pb.DataFragment()
    fragment.CopyFrom(manifest.fragments[0])
    fragment.files[0].path = path
    rewrite_manifest(table, manifest.changed(fragments=[fragment]))
    with pytest.raises(CorruptionError) as caught:
        read(conroi.open_table(table.uri))
    assert_helpful(caught.value, CorruptionError, repr(path))
    assert caught.value.table == table.uri


# ------------------------------------------------------------------------- feature flags


@pytest.mark.contract("T13")
@pytest.mark.parametrize("flag", [64, 512, 4096, 8192, 1 << 17, 1 << 40])
def test_an_unknown_reader_flag_forbids_reading_and_writing(flag: int, table: conroi.Table) -> None:
    head = manifest_of(table).editable_head()
    head.reader_feature_flags |= flag
    head.writer_feature_flags |= flag
    rewrite_manifest(table, manifest_of(table).changed(head=head))
    with pytest.raises(UnsupportedError) as caught:
        conroi.open_table(table.uri)
    assert_helpful(caught.value, UnsupportedError, str(flag))
    assert caught.value.table == table.uri


@pytest.mark.contract("T13")
@pytest.mark.parametrize("flag", [64, 512, 4096, 8192, 1 << 17, 1 << 40])
def test_an_unknown_writer_flag_forbids_only_writing(flag: int, table: conroi.Table) -> None:
    head = manifest_of(table).editable_head()
    head.writer_feature_flags |= flag
    rewrite_manifest(table, manifest_of(table).changed(head=head))
    opened = conroi.open_table(table.uri)
    assert opened.to_arrow().to_pylist() == ROWS
    for verb in (lambda: opened.append(ROWS), lambda: opened.delete("id = 1"), lambda: opened.set_config({"a": "b"})):
        with refused(opened, UnsupportedError, str(flag)):
            verb()


# ---------------------------------------------------------------------------- creating


@pytest.mark.parametrize(
    "make",
    [
        lambda uri: conroi.create_table(uri, pa.schema([])),
        lambda uri: conroi.create_table(uri, []),
        lambda uri: conroi.create_table(uri, cast("Any", "text")),
        lambda uri: conroi.create_table(uri, pa.schema({"": pa.int64()})),
        lambda uri: conroi.create_table(uri, pa.schema({"a.b": pa.int64()})),
        lambda uri: conroi.create_table(uri, pa.schema({"a`b": pa.int64()})),
        lambda uri: conroi.create_table(uri, pa.schema({"_rowid": pa.int64()})),
        lambda uri: conroi.create_table(uri, pa.schema([("a", pa.int64()), ("a", pa.int64())])),
        lambda uri: conroi.create_table(uri, pa.schema({"a": pa.month_day_nano_interval()})),
        lambda uri: conroi.create_table(uri, pa.schema({"a": pa.int64()}), key="b"),
        lambda uri: conroi.create_table(uri, pa.schema({"a": pa.int64()}), key=[]),
        lambda uri: conroi.create_table(uri, pa.schema({"a": pa.int64()}), key=["a", "a"]),
        lambda uri: conroi.create_table(uri, pa.schema({"a": pa.list_(pa.int64())}), key="a"),
        lambda uri: conroi.create_table(uri, pa.schema({"a": pa.int64()}), data_format="9.9"),
        lambda uri: conroi.create_table(uri, pa.table({"a": pa.array([1, None])}), key="a"),
        lambda uri: conroi.create_table(uri, pa.table({"a": [1, 1]}), key="a"),
        lambda uri: conroi.create_table(uri, pa.schema({"a": pa.int64()}), message=cast("Any", 5)),
        lambda uri: conroi.create_table(uri, pa.schema({"a": pa.int64()}), config=cast("Any", {"a": 5})),
        lambda uri: conroi.create_table(uri, pa.schema({"a": pa.int64()}), put=cast("Any", "hope")),
    ],
)
def test_a_table_that_cannot_be_is_not_made(make: Callable[[Path], object], tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError) as caught:
        make(tmp_path / "new.lance")
    assert_helpful(caught.value, type(caught.value))
    with pytest.raises(NotFoundError):
        conroi.open_table(tmp_path / "new.lance")


# ------------------------------------------------------------------------- the lower layer


@pytest.mark.parametrize("transaction", [b"bytes", None, "text"])
def test_what_is_no_transaction_cannot_be_committed(transaction: Any, table: conroi.Table) -> None:
    with refused(table, InvalidInputError, "decode_transaction"):
        conroi.commit(table.uri, transaction)


def test_a_transaction_on_no_version_needs_a_table(table: conroi.Table) -> None:
    with refused(table, NotFoundError):
        conroi.commit(table.uri, reserve_fragments(read_version=0))
    with refused(table, NotFoundError):
        conroi.commit(table.uri, reserve_fragments(read_version=77))


def test_a_clone_cannot_be_committed_by_itself(table: conroi.Table) -> None:
    wire = pb.Transaction(clone=pb.Transaction.Clone(is_shallow=True, ref_version=1, ref_path="x"), uuid="u")
    with refused(table, InvalidInputError, "clone("):
        conroi.commit(table.uri, LanceTransaction(wire))


@pytest.mark.parametrize("operation", [{"data_overlay": pb.Transaction.DataOverlay()}, {}])
def test_an_operation_we_do_not_know_is_not_committed(operation: dict[str, Any], table: conroi.Table) -> None:
    wire = pb.Transaction(read_version=1, uuid="u", **operation)
    with refused(table, UnsupportedError):
        conroi.commit(table.uri, LanceTransaction(wire))


@pytest.mark.parametrize("retries", [-1, True, "many", None])
def test_retries_of_a_commit_are_a_number(retries: Any, table: conroi.Table) -> None:
    with refused(table, InvalidInputError, "retries"):
        conroi.commit(table.uri, reserve_fragments(read_version=1), retries=retries)


# ------------------------------------------------------------------------------- helpers


def manifest_file_of(table: conroi.Table) -> Path:
    return Path(table.uri) / ManifestNaming.V2.path(table.version)


def manifest_of(table: conroi.Table) -> Any:
    return decode_manifest_file(manifest_file_of(table).read_bytes()).manifest


def rewrite_manifest(table: conroi.Table, manifest: Any) -> None:
    """What a program could do that may write to the folder."""
    transaction = decode_manifest_file(manifest_file_of(table).read_bytes()).transaction
    manifest_file_of(table).write_bytes(encode_manifest_file(manifest, transaction))
