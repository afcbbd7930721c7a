"""Values of Arrow columns, typed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def column_values(column: pa.Array[Any] | pa.ChunkedArray[Any]) -> list[Any]:
    """The values of a column that has no nulls where they matter: pyarrow's stubs say that each may be None."""
    return column.to_pylist()
