"""What the installed pylance can do, found by trying: the interop suite runs with every supported release."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import lance
import pyarrow as pa
from lance.schema import LanceSchema

RELEASE = int(lance.__version__.partition(".")[0])


@cache
def knows_offsets() -> bool:
    """Whether a zone may be an offset such as +02:00; pylance 12 fails on the first row."""
    schema = pa.schema([("t", pa.timestamp("us", "+02:00"))])
    return _works(lambda: LanceSchema.from_pyarrow(schema).to_pyarrow())


def bases(dataset: lance.LanceDataset) -> dict[int, Any]:
    """The base paths; up to pylance 12 only the inner object has them."""
    return dataset.base_paths() if hasattr(dataset, "base_paths") else dataset._ds.base_paths()


@cache
def takes_marked_blobs() -> bool:
    """Whether a binary column that is marked for blobs may go into files of format 2.2; pylance 12 wants blob_array."""
    field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    rows = pa.table([pa.array([b"x"], pa.large_binary())], schema=pa.schema([field]))
    return _works(lambda: lance.write_dataset(rows, "memory://blobs", data_storage_version="2.2"))


@cache
def has_empty_vector_indices() -> bool:
    """Whether a table without rows can have a vector index; in pylance 12 it cannot."""
    dataset = lance.write_dataset(pa.table({"v": pa.array([], pa.list_(pa.float32(), 8))}), "memory://vectors")
    return _works(lambda: dataset.create_index("v", "IVF_FLAT", num_partitions=1))


def _works(call: Callable[[], object]) -> bool:
    try:
        call()
    except BaseException as error:  # a panic in Rust is not an Exception
        if type(error).__name__ != "PanicException" and not isinstance(error, Exception):
            raise
        return False
    return True
