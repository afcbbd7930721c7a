"""Deletion files: ours and pylance's say the same."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from conroi.errors import CorruptionError, UnsupportedError
from conroi.format import lance_pb2 as pb
from conroi.format.checksums import SEAL_SIZE
from conroi.format.deletions import decode_deletions, encode_deletions
from conroi.format.manifest_file import decode_manifest_file
from conroi.format.naming import deletion_path
from conroi.format.roaring import decode_bitmap, encode_bitmap
from tests.format.effort import few, many
from tests.format.pylance_tables import manifest_paths

ARRAY, BITMAP = pb.DeletionFile.ARROW_ARRAY, pb.DeletionFile.BITMAP
row_sets = st.sets(st.integers(0, (1 << 32) - 1), max_size=50) | st.builds(
    lambda first, count: set(range(first, first + count)), st.integers(0, 1 << 31), st.integers(0, 9000)
)


@few
@given(row_sets, st.booleans())
def test_what_is_encoded_is_decoded(rows: set[int], force_bitmap: bool):
    deleted = BitMap(rows)
    file_type, data = encode_deletions(deleted, force_bitmap=force_bitmap)
    assert decode_deletions(data, pb.DeletionFile(file_type=file_type)) == deleted


def test_five_thousand_rows_are_a_bitmap():
    assert encode_deletions(BitMap(range(4999)))[0] == ARRAY
    assert encode_deletions(BitMap(range(5000)))[0] == BITMAP
    assert encode_deletions(BitMap([1]), force_bitmap=True)[0] == BITMAP


@pytest.mark.parametrize("count", [1, 4999, 5000, 9999])
def test_pylances_files_are_read_and_our_bitmaps_are_its_own(tmp_path: Path, count: int):
    ds = lance.write_dataset(pa.table({"a": range(10_000)}), tmp_path / "t")
    ds.delete(f"a < {count}")
    (fragment,) = decode_manifest_file(manifest_paths(tmp_path / "t")[-1].read_bytes()).manifest.fragments
    file = fragment.deletion_file
    data = (tmp_path / "t" / deletion_path(fragment.id, file)).read_bytes()
    deleted = decode_deletions(data, file, physical_rows=10_000)
    assert deleted == BitMap(range(count))
    file_type, ours = encode_deletions(deleted)
    assert file_type == file.file_type
    if file_type == BITMAP:
        assert ours[:-SEAL_SIZE] == data


def test_the_count_in_the_manifest_must_be_the_count_in_the_file():
    file_type, data = encode_deletions(BitMap([1, 2]))
    with pytest.raises(CorruptionError, match="has 2 rows, the manifest says 3"):
        decode_deletions(data, pb.DeletionFile(file_type=file_type, num_deleted_rows=3))


def test_a_deleted_row_must_be_in_the_fragment():
    file_type, data = encode_deletions(BitMap([1, 20]))
    with pytest.raises(CorruptionError, match="row 20 of a fragment with 20 rows"):
        decode_deletions(data, pb.DeletionFile(file_type=file_type), physical_rows=20)


def test_a_kind_from_the_future_is_refused():
    with pytest.raises(UnsupportedError, match="kind 7"):
        decode_deletions(b"", pb.DeletionFile(file_type=7))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"row_id": pa.array([1], pa.int32())}),
        pa.table({"other": pa.array([1], pa.uint32())}),
        pa.table({"row_id": pa.array([None], pa.uint32())}),
        pa.table({"row_id": pa.array([1], pa.uint32()), "x": [1]}),
        pa.table({"row_id": pa.array([1, 1], pa.uint32())}, schema=pa.schema([pa.field("row_id", pa.uint32(), False)])),
    ],
)
def test_an_arrow_file_of_another_shape_is_refused(table: pa.Table):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write(table)
    with pytest.raises(CorruptionError):
        decode_deletions(sink.getvalue().to_pybytes(), pb.DeletionFile(file_type=ARRAY))


@few
@given(row_sets, st.booleans())
def test_a_bitmap_with_or_without_runs_is_read(rows: set[int], has_runs: bool):
    assert decode_bitmap(encode_bitmap(BitMap(rows), has_runs=has_runs), what="bitmap") == BitMap(rows)


def test_pylances_index_bitmap_is_read(busy_table: Path):
    indexed = decode_manifest_file(manifest_paths(busy_table)[2].read_bytes()).manifest
    (index,) = indexed.indices
    assert decode_bitmap(index.fragment_bitmap, what="bitmap") == BitMap([0, 1])
    assert encode_bitmap(BitMap([0, 1]), has_runs=True) == index.fragment_bitmap


@many
@given(st.binary(max_size=60), st.sampled_from([b"", b"\x3a\x30\0\0", b"\x3b\x30\0\0", b"\x3b\x30\x01\0\x03"]))
def test_any_bytes_are_a_bitmap_or_refused(data: bytes, start: bytes):
    try:
        found = decode_bitmap(start + data, what="bitmap")
    except CorruptionError:
        return
    assert list(found) == sorted(set(found))
