"""Buckets of keys: equal keys are in the same one, however their columns are cut, and others are spread."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from conroi.data.keys import key_columns_of
from conroi.spark.packets import buckets_of

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False, None]),
    "int8": (pa.int8(), [-1, 0, 127, None]),
    "int64": (pa.int64(), [-(2**63), 0, 1, 2**63 - 1, None]),
    "uint64": (pa.uint64(), [0, 2**64 - 1, None]),
    "float": (pa.float32(), [0.0, -0.0, 1.5, float("nan"), None]),
    "text": (pa.string(), ["", "a", "b", "ab", "ba", "żółć", "a" * 1000, None]),
    "large text": (pa.large_string(), ["", "a", "ab", None, "\0", "\0\0"]),
    "view": (pa.string_view(), ["", "a", "a long one that is not inline", None]),
    "bytes": (pa.binary(), [b"", b"\0", b"\0\0", None]),
    "fixed bytes": (pa.binary(5), [b"abcde", b"\0\0\0\0\0", None]),
    "decimal": (pa.decimal128(30, 2), [Decimal("1.10"), Decimal("-1.10"), None]),
    "big decimal": (pa.decimal256(60, 2), [Decimal("1.10"), None]),
    "date": (pa.date32(), [date(1, 1, 1), date(2024, 2, 29), None]),
    "null": (pa.null(), [None, None]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["a", "b", None]),
}


def buckets(column: pa.ChunkedArray[Any], count: int = 1000) -> list[int]:
    return buckets_of(key_columns_of(pa.table([column], names=["k"]), ["k"]), count).tolist()


@pytest.mark.parametrize("name", VALUES)
def test_equal_keys_are_in_one_bucket_however_the_column_is_cut(name: str):
    type_, values = VALUES[name]
    whole = pa.array(values * 3, type_)
    expected = buckets(pa.chunked_array([whole]))
    assert expected == expected[: len(values)] * 3
    for size in (1, 2, 3):
        cut = [whole.slice(start, size) for start in range(0, len(whole), size)]
        assert buckets(pa.chunked_array([whole.slice(0, 0), *cut], cast("Any", type_))) == expected
    assert buckets(pa.chunked_array([], cast("Any", type_))) == []


def test_zeros_are_the_same_key_and_so_are_all_nans():
    column = pa.chunked_array([pa.array([0.0, -0.0, float("nan"), -float("nan")])])
    found = buckets(column)
    assert (found[0] == found[1], found[2] == found[3]) == (True, True)


@pytest.mark.parametrize("key", [np.arange(100_000), np.arange(100_000) * 4096, [f"key-{n}" for n in range(100_000)]])
def test_keys_are_spread(key: Any):
    counts = np.bincount(buckets(pa.chunked_array([pa.array(key)]), 16), minlength=16)
    assert counts.min() > 100_000 / 16 * 0.9
    assert counts.max() < 100_000 / 16 * 1.1


def test_the_order_of_columns_matters():
    keys = pa.table({"k0": [1, 2], "k1": [2, 1]})
    first, second = buckets_of(keys, 1_000_000)
    assert first != second
