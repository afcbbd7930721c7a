"""Data file inspection: row counts from the file itself, or from reading all rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from conroi.data.pinned import Pinned
from conroi.data.pylance import file_session, pylance_errors
from conroi.format.naming import DATA_DIR, check_relative_path
from conroi.stores.objects import Objects

BATCH_ROWS = 8192


def rows_read_from_file(objects: Objects, name: str) -> int | None:
    """How many rows come out when every value of the file is decoded and looked at; None if only a scan can do that.

    A file with blobs does not say by itself which of its columns are inside them.
    """
    rows = 0
    with pylance_errors(objects.root):
        reader = file_session(objects, check_relative_path(name)).open_reader(name)
        if any(b"lance-encoding:blob" in (field.metadata or {}) for field in _all_fields(reader.metadata().schema)):
            return None
        for batch in reader.read_all(batch_size=BATCH_ROWS).to_batches():
            batch.validate(full=True)
            rows += batch.num_rows
    return rows


def _all_fields(fields: Iterable[pa.Field[Any]]) -> Iterator[pa.Field[Any]]:
    for field in fields:
        yield field
        yield from _all_fields(field.type.field(number) for number in range(field.type.num_fields))


def rows_scanned(pinned: Pinned) -> int:
    """How many rows come out when every value of the version is looked at as a reader sees it, blobs included."""
    rows = 0
    with pylance_errors(pinned.root):
        scanner = pinned.dataset.scanner(blob_handling="all_binary", batch_size=BATCH_ROWS)
        for batch in scanner.to_batches():
            batch.validate(full=True)
            rows += batch.num_rows
    return rows


def is_in_data_folder(data_dir: str) -> bool:
    """Whether files of a place are where a table has its data, so that they can be opened by name."""
    return data_dir == DATA_DIR
