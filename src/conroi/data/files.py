"""Data files by path: read columns of a single file."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from conroi.data.pylance import file_session, pylance_errors
from conroi.stores.objects import Objects


def read_columns(objects: Objects, path: str, columns: Sequence[str]) -> pa.Table:
    """Some columns of a data file, under the names that it has them by: all rows that were written."""
    with pylance_errors(objects.root):
        reader = file_session(objects, path).open_reader(path, columns=list(columns))
        return reader.read_all().to_table()
