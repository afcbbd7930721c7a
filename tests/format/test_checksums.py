"""Checksums: pylance reads, and builds on, files that carry them."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import assume, given
from hypothesis import strategies as st

from conroi.errors import CorruptionError
from conroi.format import lance_pb2 as pb
from conroi.format.checksums import SEAL_FIELD_NUMBER, seal, seal_message, unseal_end, unseal_inside, unseal_message
from conroi.format.deletions import decode_deletions, encode_deletions
from conroi.format.manifest_file import ManifestFile, decode_manifest_file, encode_manifest_file
from conroi.format.naming import ManifestNaming, deletion_path
from conroi.format.transaction import decode_transaction, encode_transaction
from tests.format.effort import few
from tests.format.pylance_tables import rows


@few
@given(st.binary())
def test_the_checksum_of_a_message_is_verified_and_removed(message: bytes):
    assert unseal_message(seal_message(message), what="message") == message


@few
@given(st.binary(), st.binary())
def test_a_checksum_inside_a_file_is_found_and_removed(before: bytes, after: bytes):
    assume(seal()[:8] not in after)  # an Arrow footer, of which that is true
    assert unseal_inside(before + seal(before + after) + after, what="file") == before + after


@few
@given(st.binary())
def test_a_checksum_at_the_end_is_removed(content: bytes):
    assert unseal_end(content + seal(content), what="file") == content


def test_a_file_without_a_checksum_is_left_as_it_is():
    assert unseal_message(b"abc", what="message") == b"abc"
    assert unseal_inside(b"abc", what="file") == b"abc"
    assert unseal_end(b"abc", what="file") == b"abc"


def test_a_wrong_checksum_names_what_is_damaged():
    with pytest.raises(CorruptionError, match="The message is damaged"):
        unseal_message(seal_message(b"abc") + b"d", what="message")


def test_in_a_transaction_the_checksum_is_a_field_that_others_skip():
    wire = pb.Transaction(uuid="u", read_version=3, restore=pb.Transaction.Restore(version=1))
    found = pb.Transaction.FromString(seal_message(wire.SerializeToString()))
    assert [field.field_number for field in UnknownFieldSet(found)] == [SEAL_FIELD_NUMBER]
    found.DiscardUnknownFields()
    assert found == wire


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of pylance's with an index, whose last version, a delete, was written again by us."""
    root = tmp_path / "t"
    ds = lance.write_dataset(rows(0, 12_000), root)
    ds.create_scalar_index("id", "BTREE")
    return root


def reseal(root: Path) -> ManifestFile:
    """Write the last manifest, its transaction and its deletion files again, as conroi does."""
    path = min((root / "_versions").glob("*.manifest"))
    file = decode_manifest_file(path.read_bytes())
    transaction = encode_transaction(decode_transaction(file.transaction or b""))
    (root / "_transactions" / file.manifest.head.transaction_file).write_bytes(transaction)
    path.write_bytes(encode_manifest_file(file.manifest, transaction))
    for fragment in file.manifest.fragments:
        if fragment.HasField("deletion_file"):
            _reseal_deletions(root, fragment)
    return decode_manifest_file(path.read_bytes())


def _reseal_deletions(root: Path, fragment: pb.DataFragment) -> None:
    path = root / deletion_path(fragment.id, fragment.deletion_file)
    is_bitmap = fragment.deletion_file.file_type == pb.DeletionFile.BITMAP
    deleted = decode_deletions(path.read_bytes(), fragment.deletion_file)
    file_type, data = encode_deletions(deleted, force_bitmap=is_bitmap)
    assert file_type == fragment.deletion_file.file_type
    path.write_bytes(data)


@pytest.mark.parametrize("condition", ["id < 10", "id < 6000"], ids=["array", "bitmap"])
def test_pylance_reads_and_continues_a_table_with_our_checksums(table: Path, condition: str):
    lance.dataset(table).delete(condition)
    ours = reseal(table)
    gone = ours.manifest.fragments[0].deletion_file.num_deleted_rows
    ds = lance.dataset(table)
    assert ds.count_rows() == ds.to_table().num_rows == 12_000 - gone
    found = ds.scanner(filter="id = 7000")
    assert "ScalarIndexQuery" in found.explain_plan()
    assert found.to_table()["id"].to_pylist() == [7000]
    third = ds.read_transaction(3)
    assert third is not None
    assert third.uuid == decode_transaction(ours.transaction or b"").uuid
    lance.write_dataset(rows(20_000, 5), table, mode="append")
    ds = lance.dataset(table)
    ds.optimize.optimize_indices()
    ds.optimize.compact_files()
    assert lance.dataset(table).count_rows() == 12_005 - gone


@pytest.mark.parametrize("condition", ["id < 10", "id < 6000"], ids=["array", "bitmap"])
@pytest.mark.parametrize("is_inline", [True, False], ids=["inline", "file"])
def test_pylance_rebases_over_a_commit_with_checksums(table: Path, condition: str, is_inline: bool):
    behind = lance.dataset(table)
    lance.dataset(table).delete(condition)
    ours = reseal(table)
    if not is_inline:
        path = table / ManifestNaming.V2.path(ours.manifest.version)
        path.write_bytes(encode_manifest_file(ours.manifest, None))
    behind.delete("id >= 11990")
    gone = ours.manifest.fragments[0].deletion_file.num_deleted_rows
    assert lance.dataset(table).version == 4
    assert lance.dataset(table).count_rows() == 11_990 - gone


def test_pylance_notices_its_conflict_with_a_merge_with_checksums(tmp_path: Path):
    root = tmp_path / "t"
    lance.write_dataset(rows(0, 5), root)
    behind = lance.dataset(root)

    def merge(ds: lance.LanceDataset) -> None:
        ds.merge_insert("id").when_not_matched_insert_all().conflict_retries(0).execute(rows(50, 1))

    merge(lance.dataset(root))
    reseal(root)
    with pytest.raises(Exception, match=r"(?i)conflict|concurrent"):
        merge(behind)
    assert lance.dataset(root).count_rows() == 6


def test_an_arrow_reader_opens_an_array_with_a_checksum(tmp_path: Path):
    from pyroaring import BitMap

    _, data = encode_deletions(BitMap([3, 1, 2]))
    with pa.ipc.open_file(pa.py_buffer(data)) as reader:
        assert reader.read_all().to_pydict() == {"row_id": [1, 2, 3]}
