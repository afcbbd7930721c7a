"""The filter of inserted keys is pylance's, bit for bit."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from conroi.format import lance_pb2 as pb
from conroi.format.keyfilter import (
    bloom_filter,
    is_hashable_by_pylance,
    key_bytes,
    key_hashes,
    may_intersect,
    xxh64_of_words,
)
from tests.format.effort import few
from tests.format.pylance_tables import KEY, manifest_files

NAMES = ("c", "d", "e")
KEYS = [
    ([pa.int64()], [(-5,), (7,), (1 << 62,)]),
    ([pa.int32()], [(-5,), (7,)]),
    ([pa.uint32()], [((1 << 32) - 1,), (7,)]),
    ([pa.uint64()], [((1 << 64) - 1,), (7,)]),
    ([pa.string()], [("b",), ("",), ("é" * 40,)]),
    ([pa.large_string()], [("b",), ("é" * 40,)]),
    ([pa.binary()], [(b"b",), (b"\0",)]),
    ([pa.large_binary()], [(b"b",), (b"\0" * 100,)]),
    ([pa.int64(), pa.string()], [(2, "b"), (3, "")]),
    ([pa.string(), pa.int32(), pa.binary()], [("b", -2, b"\0\1"), ("", 0, b"")]),
    ([pa.int64()], [(i,) for i in range(10, 10_000)]),
    ([pa.string()], [(f"key {i}",) for i in range(10, 3_000)]),
]
SKIPPED_KEYS = [
    ([pa.int16()], [(2,)]),
    ([pa.uint8()], [(2,)]),
    ([pa.float64()], [(2.5,)]),
    ([pa.date32()], [(date(2020, 1, 2),)]),
    ([pa.binary(2)], [(b"cd",)]),
    ([pa.bool_()], [(True,)]),
    ([pa.dictionary(pa.int8(), pa.string())], [("b",)]),
    ([pa.int64(), pa.date32()], [(2, date(2020, 1, 2))]),
    ([pa.date32(), pa.int64()], [(date(2020, 1, 2), 2)]),
]


def merged_by_pylance(
    root: Path, types: list[pa.DataType], keys: list[tuple[object, ...]]
) -> tuple[pb.KeyExistenceFilter, pa.Table]:
    """The filter that pylance leaves when these keys are merged into an empty table."""
    schema = pa.schema([
        pa.field(name, type_, nullable=False, metadata={f"{KEY}:position": str(place)})
        for place, (name, type_) in enumerate(zip(NAMES, types, strict=False), start=1)
    ])  # fmt: skip
    ds = lance.write_dataset(pa.RecordBatchReader.from_batches(schema, []), root)
    rows = pa.Table.from_pylist([dict(zip(schema.names, key, strict=True)) for key in keys], schema=schema)
    ds.merge_insert(schema.names).when_not_matched_insert_all().execute(rows)
    transaction = pb.Transaction.FromString(manifest_files(root)[-1].transaction or b"")
    return transaction.update.inserted_rows, rows


@pytest.mark.parametrize(("types", "keys"), KEYS + SKIPPED_KEYS, ids=lambda case: str(case)[:30])
def test_the_filter_is_the_one_that_pylance_writes(
    types: list[pa.DataType], keys: list[tuple[object, ...]], tmp_path: Path
):
    theirs, rows = merged_by_pylance(tmp_path / "t", types, keys)
    ours = bloom_filter(range(len(types)), [rows[name] for name in rows.column_names])
    assert ours == theirs
    assert len(ours.bloom.bitmap) == 32768
    assert any(ours.bloom.bitmap) == all(is_hashable_by_pylance(type_) for type_ in types)


@pytest.mark.parametrize(("types", "keys"), SKIPPED_KEYS, ids=lambda case: str(case)[:30])
def test_a_type_that_pylance_skips_is_called_so(types: list[pa.DataType], keys: list[tuple[object, ...]]):
    assert not all(is_hashable_by_pylance(type_) for type_ in types)


@few
@given(st.lists(st.integers(0, (1 << 64) - 1), min_size=1))
def test_numbers_are_hashed_as_xxhash_does(numbers: list[int]):
    expected = [xxhash.xxh64_intdigest(number.to_bytes(8, "little")) for number in numbers]
    assert xxh64_of_words(np.array(numbers, np.uint64)).tolist() == expected


@few
@given(st.lists(st.none() | st.integers(-(1 << 63), (1 << 63) - 1)))
def test_the_fast_way_for_numbers_is_the_slow_way(numbers: list[int | None]):
    column = pa.array(numbers, pa.int64())
    assert key_hashes([column]).tolist() == [xxhash.xxh64_intdigest(key) for key in key_bytes([column])]
    assert len(key_hashes([column])) == len(column) - column.null_count


def test_the_bytes_of_a_key():
    assert key_bytes([pa.array([-1, None, 2], pa.int32())]) == [b"\xff" * 8, b"\2" + bytes(7)]
    assert key_bytes([pa.array(["a", "b", None]), pa.array([1, None, 3])]) == [b"a\0" + b"\1" + bytes(7) + b"\0"]


def test_chunks_make_no_difference():
    whole = pa.array(range(100))
    chunked = pa.chunked_array([whole.slice(0, 30), whole.slice(30)])
    assert bloom_filter([0], [chunked]) == bloom_filter([0], [whole])


def of_keys(*keys: int) -> pb.KeyExistenceFilter:
    return bloom_filter([0], [pa.array(keys, pa.int64())])


def exact(*hashes: int) -> pb.KeyExistenceFilter:
    return pb.KeyExistenceFilter(field_ids=[0], exact=pb.KeyExistenceFilter.ExactKeys(key_hashes=hashes))


def test_filters_with_a_key_in_common_may_intersect():
    assert may_intersect(of_keys(1, 2), of_keys(2, 3))
    assert not may_intersect(of_keys(1), of_keys(2))
    assert not may_intersect(of_keys(), of_keys())
    assert may_intersect(exact(1, 2), exact(2, 3))
    assert not may_intersect(exact(1), exact(2))


def test_filters_that_cannot_be_compared_may_intersect():
    assert may_intersect(exact(1), of_keys())
    assert may_intersect(of_keys(), exact(1))
    assert may_intersect(of_keys(), pb.KeyExistenceFilter(field_ids=[0]))
    smaller = pb.KeyExistenceFilter(bloom=pb.KeyExistenceFilter.Bloom(bitmap=bytes(32), number_of_items=10))
    assert may_intersect(of_keys(), smaller)


@few
@given(st.sets(st.integers(0, 1000), max_size=5), st.sets(st.integers(0, 1000), max_size=5))
def test_no_shared_key_is_missed(mine: set[int], theirs: set[int]):
    if mine & theirs:
        assert may_intersect(of_keys(*mine), of_keys(*theirs))
