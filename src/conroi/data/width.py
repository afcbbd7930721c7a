"""Row width estimate: precise enough to choose between two rewrite strategies."""

from __future__ import annotations

import pyarrow as pa

_GUESS_BYTES = 32
_GUESS_ITEMS = 8


def row_width(schema: pa.Schema) -> int:
    """Bytes a row takes, with a guess for what has no fixed size."""
    return sum(_type_width(field.type) for field in schema)


def _type_width(type_: pa.DataType) -> int:
    if pa.types.is_fixed_size_list(type_):
        return type_.list_size * _type_width(type_.value_type)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return _GUESS_ITEMS * _type_width(type_.value_type)
    if type_.num_fields:
        return sum(_type_width(type_.field(i).type) for i in range(type_.num_fields))
    try:
        return max(1, type_.bit_width // 8)
    except ValueError:
        return _GUESS_BYTES
