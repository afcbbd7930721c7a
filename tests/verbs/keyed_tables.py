"""Tables with a key of any type, and how two writers meet in them."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

import lance
import pyarrow as pa

import conroi
from conroi.merge.builder import MergeResult

MARK = {"lance-schema:unenforced-primary-key": "true"}
PUT = {"verb": "put_if_absent", "at": "_versions/*"}
MOMENTS: dict[str, dict[str, Any]] = {"work done, nothing written": {}, "about to put its manifest": PUT}
"""When the concurrent writer commits: arguments for `interrupted`."""


@dataclass(frozen=True)
class KeyType:
    """A type, a key that is in the table from the start, and one that is not."""

    type: pa.DataType
    there: Any
    new: Any
    in_filter: bool = False
    """Whether pylance records keys of this type in its filter."""


def _at(day: int) -> datetime.datetime:
    return datetime.datetime(2026, 11, day)


KEY_TYPES = {
    "int64": KeyType(pa.int64(), 1, 5, in_filter=True),
    "int32": KeyType(pa.int32(), -1, 5, in_filter=True),
    "uint32": KeyType(pa.uint32(), 1, 5, in_filter=True),
    "uint64": KeyType(pa.uint64(), 1, 2**64 - 1, in_filter=True),
    "string": KeyType(pa.string(), "a", "it's b", in_filter=True),
    "large_string": KeyType(pa.large_string(), "a", "", in_filter=True),
    "binary": KeyType(pa.binary(), b"a", b"b\0", in_filter=True),
    "large_binary": KeyType(pa.large_binary(), b"a", b"", in_filter=True),
    "int8": KeyType(pa.int8(), 1, -128),
    "int16": KeyType(pa.int16(), 1, 5),
    "uint8": KeyType(pa.uint8(), 1, 255),
    "uint16": KeyType(pa.uint16(), 1, 5),
    "bool": KeyType(pa.bool_(), there=False, new=True),
    "float16": KeyType(pa.float16(), 1.5, 2.5),
    "float32": KeyType(pa.float32(), 1.5, 0.1),
    "float64": KeyType(pa.float64(), 1.5, 0.1),
    "decimal128": KeyType(pa.decimal128(12, 3), Decimal("1.500"), Decimal("-2.125")),
    "decimal256": KeyType(pa.decimal256(50, 3), Decimal("1.500"), Decimal("-2.125")),
    "date32": KeyType(pa.date32(), datetime.date(2026, 11, 1), datetime.date(1969, 12, 31)),
    "date64": KeyType(pa.date64(), datetime.date(2026, 11, 1), datetime.date(1969, 12, 31)),
    "time32": KeyType(pa.time32("s"), datetime.time(1), datetime.time(23, 59, 59)),
    "time64": KeyType(pa.time64("us"), datetime.time(1), datetime.time(23, 59, 59, 999999)),
    "timestamp": KeyType(pa.timestamp("us"), _at(1), _at(2)),
    "timestamp_tz": KeyType(
        pa.timestamp("ms", "UTC"), _at(1).replace(tzinfo=datetime.UTC), _at(2).replace(tzinfo=datetime.UTC)
    ),
    "duration": KeyType(pa.duration("us"), datetime.timedelta(1), datetime.timedelta(-1)),
    "fixed_size_binary": KeyType(pa.binary(4), b"aaaa", b"\0\0\0\0"),
}
NOT_IN_FILTER = [name for name, kind in KEY_TYPES.items() if not kind.in_filter]


def schema_of(type_: pa.DataType, *, is_marked: bool = True) -> pa.Schema:
    return pa.schema(
        [
            pa.field("id", type_, nullable=not is_marked, metadata=MARK if is_marked else None),
            pa.field("n", pa.int64()),
        ]
    )


def rows(type_: pa.DataType, *keys: Any, n: int = 0, is_marked: bool = True) -> pa.Table:
    """Rows with these keys; `n` tells who wrote them."""
    return pa.table(
        {"id": pa.array(keys, type_), "n": pa.array([n] * len(keys), pa.int64())},
        schema=schema_of(type_, is_marked=is_marked),
    )


def numbers(*keys: int, n: int = 0) -> pa.Table:
    return rows(pa.int64(), *keys, n=n)


def keyed(root: str, kind: KeyType = KEY_TYPES["int64"]) -> conroi.Table:
    """A table with one row, under a declared key."""
    return conroi.create_table(root, rows(kind.type, kind.there), key="id")


def upsert(table: conroi.Table, new: pa.Table, **how: Any) -> MergeResult:
    return table.merge(new, on="id").when_matched_update_all().when_not_matched_insert_all().execute(**how)


def insert(table: conroi.Table, new: pa.Table, **how: Any) -> MergeResult:
    return table.merge(new, on="id").when_not_matched_insert_all().execute(**how)


def pylance_upsert(
    dataset: lance.LanceDataset, new: pa.Table, on: str | list[str] = "id", *, use_index: bool = True
) -> dict[str, int]:
    """pylance's merge on the version that the handle stands on; a conflict is an OSError."""
    merge = dataset.merge_insert(on).when_matched_update_all().when_not_matched_insert_all()
    return cast("dict[str, int]", merge.use_index(use_index).conflict_retries(0).execute(new))


def written_by(root: str, key: Any) -> list[int]:
    """The `n` of each row with this key, as pylance reads the newest version."""
    found = lance.dataset(root).to_table().to_pylist()
    return sorted(row["n"] for row in found if row["id"] == key)


def counts(result: MergeResult) -> tuple[int, int, int]:
    return result.rows_inserted, result.rows_updated, result.rows_deleted
