"""Row ids and row versions: ours and pylance's say the same."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from conroi.errors import CorruptionError
from conroi.format import lance_pb2 as pb
from conroi.format.row_ids import (
    concat_row_ids,
    concat_versions,
    constant_versions,
    count_row_ids,
    decode_row_ids,
    decode_segment,
    decode_versions,
    drop_row_ids,
    drop_versions,
    encode_row_ids,
    encode_segment,
    encode_versions,
    fresh_row_ids,
    segment_length,
    take_row_ids,
    take_versions,
)
from tests.format.effort import few
from tests.format.pylance_tables import make_busy_table, manifest_files

u64s = st.integers(0, (1 << 64) - 1)
near = st.builds(lambda base, offsets: [base + offset for offset in offsets], st.integers(0, 1 << 40), st.lists(
    st.integers(0, 200), unique=True, max_size=80))  # fmt: skip
wide = st.lists(u64s, unique=True, max_size=30)
id_lists = near | near.map(sorted) | wide | wide.map(sorted) | st.builds(
    lambda first, count: list(range(first, first + count)), st.integers(0, 1 << 50), st.integers(0, 100))  # fmt: skip


def array(values: list[int]) -> np.ndarray:
    return np.array(values, np.uint64)


def kind(values: list[int]) -> str | None:
    return encode_segment(array(values)).WhichOneof("segment")


@few
@given(id_lists)
def test_ids_that_are_encoded_are_decoded(ids: list[int]):
    data = encode_row_ids(array(ids))
    assert decode_row_ids(data, rows=len(ids)).tolist() == ids
    assert count_row_ids(data) == len(ids)


@few
@given(st.lists(st.sampled_from([0, 1, 2, 1 << 40, (1 << 64) - 1]), max_size=60))
def test_versions_that_are_encoded_are_decoded(versions: list[int]):
    assert decode_versions(encode_versions(array(versions)), rows=len(versions)).tolist() == versions


@few
@given(st.lists(id_lists, max_size=4))
def test_sequences_are_put_one_after_the_other(parts: list[list[int]]):
    joined = concat_row_ids(encode_row_ids(array(part)) for part in parts)
    assert decode_row_ids(joined).tolist() == [number for part in parts for number in part]


@few
@given(id_lists, st.data())
def test_rows_are_taken_and_dropped_by_position(ids: list[int], data: st.DataObject):
    encoded = concat_row_ids([encode_row_ids(array(ids[: len(ids) // 2])), encode_row_ids(array(ids[len(ids) // 2 :]))])
    versions = encode_versions(array([number % 3 for number in ids]))
    positions = data.draw(st.lists(st.sampled_from(range(len(ids)))) if ids else st.just([]))
    taken = take_row_ids(encoded, array(positions))
    assert decode_row_ids(taken).tolist() == [ids[at] for at in positions]
    assert decode_versions(take_versions(versions, array(positions))).tolist() == [ids[at] % 3 for at in positions]
    left = [number for at, number in enumerate(ids) if at not in positions]
    assert decode_row_ids(drop_row_ids(encoded, BitMap(positions))).tolist() == left
    assert decode_versions(drop_versions(versions, BitMap(positions))).tolist() == [number % 3 for number in left]


def test_the_encoding_is_the_one_that_pylance_would_choose():
    assert kind([]) == kind([7]) == kind([5, 6, 7]) == "range"
    assert kind([9, 3]) == kind([0, 0]) == "array"
    assert kind([0, 100_000]) == "sorted_array"
    assert kind([i for i in range(10_000) if i != 77]) == "range_with_holes"
    assert kind([i for i in range(10_000) if i % 3]) == "range_with_bitmap"


def test_bitmaps_begin_with_the_least_bit():
    ids = [i for i in range(10) if i != 3]
    segment = encode_segment(array(ids))
    assert segment.range_with_bitmap.bitmap == b"\xf7\x03"
    by_hand = pb.U64Segment(range_with_bitmap=pb.U64Segment.RangeWithBitmap(start=0, end=10, bitmap=b"\xf7\x03"))
    assert decode_segment(by_hand).tolist() == ids
    assert segment_length(by_hand) == 9


def test_fresh_rows_have_one_range_and_one_run():
    assert pb.RowIdSequence.FromString(fresh_row_ids(10, 20)).segments[0].range == pb.U64Segment.Range(start=10, end=30)
    assert decode_row_ids(fresh_row_ids(10, 3)).tolist() == [10, 11, 12]
    assert decode_versions(constant_versions(4, 3)).tolist() == [4, 4, 4]
    assert len(pb.RowDatasetVersionSequence.FromString(constant_versions(4, 3)).runs) == 1
    assert decode_versions(constant_versions(4, 0)).tolist() == []


def test_ranges_and_runs_that_meet_become_one():
    joined = concat_row_ids([fresh_row_ids(0, 10), fresh_row_ids(10, 5), fresh_row_ids(50, 5)])
    assert len(pb.RowIdSequence.FromString(joined).segments) == 2
    versions = concat_versions([constant_versions(1, 2), constant_versions(1, 2), constant_versions(2, 1)])
    assert decode_versions(versions).tolist() == [1, 1, 1, 1, 2]
    assert len(pb.RowDatasetVersionSequence.FromString(versions).runs) == 2


@pytest.fixture(scope="module")
def stable_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_busy_table(tmp_path_factory.mktemp("stable") / "t", stable_row_ids=True)


def test_pylances_sequences_say_what_a_scan_says(stable_table: Path):
    hidden = ["_row_created_at_version", "_row_last_updated_at_version"]
    for file in manifest_files(stable_table):
        ds = lance.dataset(stable_table, version=file.manifest.version)
        for fragment in file.manifest.fragments:
            scanner = ds.scanner(
                hidden, fragments=[ds.get_fragment(fragment.id)], with_row_id=True, with_row_address=True
            )
            seen = scanner.to_table()
            at = np.array(seen["_rowaddr"].to_numpy() & np.uint64(0xFFFFFFFF), np.int64)
            rows = fragment.physical_rows
            found = [
                decode_row_ids(fragment.inline_row_ids, rows=rows),
                decode_versions(fragment.inline_created_at_versions, rows=rows),
                decode_versions(fragment.inline_last_updated_at_versions, rows=rows),
            ]
            for values, name in zip(found, ["_rowid", *hidden], strict=True):
                assert values[at].tolist() == seen[name].to_pylist()


def test_a_single_segment_of_pylance_is_encoded_to_the_same_bytes(stable_table: Path):
    kinds: set[str | None] = set()
    for file in manifest_files(stable_table):
        for fragment in file.manifest.fragments:
            for segment in pb.RowIdSequence.FromString(fragment.inline_row_ids).segments:
                assert encode_segment(decode_segment(segment)) == segment
                kinds.add(segment.WhichOneof("segment"))
    assert kinds >= {"range", "range_with_bitmap"}


def test_pylance_reads_what_we_encode(tmp_path: Path):
    """Ids of every encoding, written into a manifest and scanned by pylance."""
    from conroi.format.manifest_file import decode_manifest_file, encode_manifest_file

    root = tmp_path / "t"
    lance.write_dataset(pa.table({"a": range(400)}), root, enable_stable_row_ids=True)
    (path,) = (root / "_versions").glob("*.manifest")
    file = decode_manifest_file(path.read_bytes())
    for ids in (
        [i for i in range(401) if i != 9],
        [i * 3 // 2 for i in range(400)],
        [i * 1000 for i in range(400)],
        list(reversed(range(400))),
        [i << 40 for i in reversed(range(400))],
    ):
        fragment = pb.DataFragment.FromString(file.manifest.fragments[0].SerializeToString())
        fragment.inline_row_ids = encode_row_ids(array(ids))
        fragment.inline_created_at_versions = encode_versions(array([1 + i // 100 for i in range(400)]))
        path.write_bytes(encode_manifest_file(file.manifest.changed(fragments=[fragment]), file.transaction))
        seen = lance.dataset(root).scanner(["_row_created_at_version"], with_row_id=True).to_table()
        assert seen["_rowid"].to_pylist() == ids
        assert seen["_row_created_at_version"].to_pylist() == [1 + i // 100 for i in range(400)]


@pytest.mark.contract("T14")
@pytest.mark.parametrize(
    "segment",
    [
        pb.U64Segment(),
        pb.U64Segment(range=pb.U64Segment.Range(start=5, end=4)),
        pb.U64Segment(range=pb.U64Segment.Range(start=0, end=1 << 60)),
        pb.U64Segment(range_with_bitmap=pb.U64Segment.RangeWithBitmap(start=0, end=9, bitmap=b"\xff")),
        pb.U64Segment(array=pb.EncodedU64Array()),
        pb.U64Segment(array=pb.EncodedU64Array(u16_array=pb.EncodedU64Array.U16Array(offsets=b"abc"))),
        pb.U64Segment(
            array=pb.EncodedU64Array(u32_array=pb.EncodedU64Array.U32Array(base=(1 << 64) - 1, offsets=b"\1\0\0\0"))
        ),
    ],
)
def test_a_damaged_segment_is_refused(segment: pb.U64Segment):
    data = pb.RowIdSequence(segments=[segment]).SerializeToString()
    with pytest.raises(CorruptionError):
        decode_row_ids(data)


@pytest.mark.contract("T14")
@few
@given(st.binary(max_size=30))
def test_any_bytes_are_a_sequence_of_the_right_length_or_refused(data: bytes):
    for decode in (decode_row_ids, decode_versions):
        try:
            assert len(decode(data, rows=3)) == 3
        except CorruptionError:
            continue
