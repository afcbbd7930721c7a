"""Bloom filter of inserted keys in the transaction of a merge, bit for bit as pylance 14 writes it.

It is a Parquet split-block bloom filter of a fixed size over xxHash64 of the key's bytes. Two merges conflict if their
filters have any bit in common. So conroi compares the keys themselves among its own commits, and writes this filter
only for a later pylance merge, which checks it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from conroi.format import lance_pb2 as pb
from conroi.format.row_ids import U64Array

EXPECTED_ITEMS = 8192
FALSE_POSITIVE_PROBABILITY = 0.00057
FILTER_BYTES = 32768
_WORDS_PER_BLOCK = 8
_BLOCKS = FILTER_BYTES // (4 * _WORDS_PER_BLOCK)
_SALTS = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint32
)

KeyColumn: TypeAlias = "pa.Array[Any] | pa.ChunkedArray[Any]"


def is_hashable_by_pylance(type_: pa.DataType) -> bool:
    """Whether pylance records keys of this type; of any other it silently records nothing."""
    return _is_integer(type_) or _is_bytes(type_)


def bloom_filter(field_ids: Sequence[int], columns: Sequence[KeyColumn]) -> pb.KeyExistenceFilter:
    """The filter of the keys in these columns, one column per field of the key."""
    words = np.zeros(_BLOCKS * _WORDS_PER_BLOCK, np.uint32)
    _insert(words, key_hashes(columns))
    bloom = pb.KeyExistenceFilter.Bloom(
        bitmap=words.astype("<u4").tobytes(),
        num_bits=FILTER_BYTES * 8,
        number_of_items=EXPECTED_ITEMS,
        probability=FALSE_POSITIVE_PROBABILITY,
    )
    return pb.KeyExistenceFilter(field_ids=field_ids, bloom=bloom)


def incomparable_filter(field_ids: Sequence[int]) -> pb.KeyExistenceFilter:
    """A filter of another size than pylance's own: what it cannot compare counts as a conflict, with any keys."""
    bloom = pb.KeyExistenceFilter.Bloom(bitmap=bytes(32), num_bits=256, number_of_items=1, probability=0.5)
    return pb.KeyExistenceFilter(field_ids=field_ids, bloom=bloom)


def may_intersect(mine: pb.KeyExistenceFilter, theirs: pb.KeyExistenceFilter) -> bool:
    """Whether the two may have a key in common, by pylance's rule: filters that cannot be compared may."""
    kinds = {mine.WhichOneof("data"), theirs.WhichOneof("data")}
    if kinds == {"exact"}:
        return not set(mine.exact.key_hashes).isdisjoint(theirs.exact.key_hashes)
    if kinds == {"bloom"}:
        return _blooms_may_intersect(mine.bloom, theirs.bloom)
    return True


def key_hashes(columns: Sequence[KeyColumn]) -> U64Array:
    """xxHash64 of each row's key; rows with a null in the key, and types that pylance skips, are left out."""
    if not columns or not all(is_hashable_by_pylance(column.type) for column in columns):
        return np.empty(0, np.uint64)
    if len(columns) == 1 and _is_integer(columns[0].type):
        return xxh64_of_words(_as_words(columns[0].drop_null()))
    return np.array([xxhash.xxh64_intdigest(key) for key in key_bytes(columns)], np.uint64)


def key_bytes(columns: Sequence[KeyColumn]) -> list[bytes]:
    """The bytes that stand for each row's key; the parts of a key of several columns each end with a zero byte."""
    parts = [_column_bytes(column) for column in columns]
    if len(parts) == 1:
        return [part for part in parts[0] if part is not None]
    rows = zip(*parts, strict=True)
    return [b"".join(part + b"\x00" for part in row if part is not None) for row in rows if None not in row]


def xxh64_of_words(words: U64Array) -> U64Array:
    """xxHash64, seed 0, of each number as eight little-endian bytes."""
    prime1, prime2, prime3 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9)
    prime4, prime5 = np.uint64(0x85EBCA77C2B2AE63), np.uint64(0x27D4EB2F165667C5)
    mixed = _rotated(words * prime2, 31) * prime1
    mixed ^= prime5 + np.uint64(8)
    mixed = _rotated(mixed, 27) * prime1 + prime4
    mixed = (mixed ^ (mixed >> np.uint64(33))) * prime2
    mixed = (mixed ^ (mixed >> np.uint64(29))) * prime3
    return mixed ^ (mixed >> np.uint64(32))


def _rotated(words: U64Array, bits: int) -> U64Array:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def _insert(words: npt.NDArray[np.uint32], hashes: U64Array) -> None:
    """Set, for each hash, one bit in each of the eight words of the block that the hash chooses."""
    block = ((hashes >> np.uint64(32)) * np.uint64(_BLOCKS)) >> np.uint64(32)
    bit = (hashes.astype(np.uint32)[:, None] * _SALTS) >> np.uint32(27)
    place = block[:, None] * np.uint64(_WORDS_PER_BLOCK) + np.arange(_WORDS_PER_BLOCK, dtype=np.uint64)
    np.bitwise_or.at(words, place, np.uint32(1) << bit)


def _blooms_may_intersect(mine: pb.KeyExistenceFilter.Bloom, theirs: pb.KeyExistenceFilter.Bloom) -> bool:
    if (mine.number_of_items, mine.probability) != (theirs.number_of_items, theirs.probability):
        return True
    if len(mine.bitmap) != len(theirs.bitmap):
        return True
    common = np.frombuffer(mine.bitmap, np.uint8) & np.frombuffer(theirs.bitmap, np.uint8)
    return bool(common.any())


def _is_integer(type_: pa.DataType) -> bool:
    return type_ in (pa.int32(), pa.int64(), pa.uint32(), pa.uint64())


def _is_bytes(type_: pa.DataType) -> bool:
    return type_ in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def _as_words(column: KeyColumn) -> U64Array:
    """Integers as 64 bits, negative ones in two's complement."""
    is_signed = pa.types.is_signed_integer(column.type)
    values = column.cast(pa.int64() if is_signed else pa.uint64()).to_numpy(zero_copy_only=False)
    return values.view(np.uint64)


def _column_bytes(column: KeyColumn) -> list[bytes | None]:
    if _is_bytes(column.type):
        return column.cast(pa.large_binary()).to_pylist()
    is_signed = pa.types.is_signed_integer(column.type)
    values = cast("list[int | None]", column.to_pylist())
    return [None if value is None else value.to_bytes(8, "little", signed=is_signed) for value in values]
