"""Arrow types in tables: normalization, the width of rows, and fragments converted from and to pylance."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.any_pb2 import Any as AnyMessage
from pyroaring import BitMap

from conroi.format import lance_pb2 as pb
from conroi.format.json import parse_object

if TYPE_CHECKING:
    from lance import Index
    from lance.fragment import FragmentMetadata


def positions(numbers: npt.NDArray[np.int64]) -> pa.Array[Any]:
    """Positions of rows, to take them by; the stubs see booleans in an array of numpy."""
    return pa.array(numbers)


def metadata_of(of: pa.Schema | pa.Field[Any]) -> dict[bytes | str, bytes | str] | None:
    """The metadata as pyarrow takes it again; it gives bytes, and would take text too."""
    return cast("dict[bytes | str, bytes | str] | None", of.metadata)


def cast_array(column: pa.Array[Any], type_: pa.DataType) -> pa.Array[Any]:
    """The column in another type.

    pyarrow's cast to lists of fixed size crashes the process for lists without memory for their values, as pylance
    gives where all are null. A copy has that memory.
    """
    if _holds_fixed_lists(type_) and not column.type.equals(type_):
        column = pa.concat_arrays([column, column.slice(0, 0)])
    try:
        converted = column.cast(cast("Any", type_))
    except pa.ArrowInvalid:
        if not pa.types.is_integer(column.type) or not pa.types.is_floating(type_):
            raise
        converted = column.cast(cast("Any", type_), safe=False)  # pyarrow refuses 2**40, which has its float
        if not converted.cast(column.type).equals(column):
            raise
    _refuse_infinite(column, converted)
    return converted


def _refuse_infinite(before: pa.Array[Any], after: pa.Array[Any]) -> None:
    """ArrowInvalid where a cast made a finite number infinite: pyarrow checks the range of integers only."""
    if pa.types.is_floating(after.type) and pa.types.is_floating(before.type):
        if before.type.bit_width > after.type.bit_width and _infinite(after) > _infinite(before):
            raise pa.ArrowInvalid(f"a number is too large for {after.type}")
    elif isinstance(after, pa.StructArray) and isinstance(before, pa.StructArray):
        known = {before.type.field(number).name for number in range(before.type.num_fields)}
        for name in (after.type.field(number).name for number in range(after.type.num_fields)):
            if name in known:
                _refuse_infinite(before.field(name), after.field(name))
    elif isinstance(after, _LISTS) and isinstance(before, _LISTS):
        _refuse_infinite(_elements(before), _elements(after))


_LISTS = (pa.ListArray, pa.LargeListArray, pa.FixedSizeListArray)


def _elements(lists: Any) -> pa.Array[Any]:
    """All that the lists point into; pyarrow's flatten does not know maps inside them."""
    return lists.values


def _infinite(numbers: pa.Array[Any]) -> int:
    return pc.sum(cast("Any", pc.is_inf(numbers))).as_py() or 0


def _holds_fixed_lists(type_: pa.DataType) -> bool:
    inside = (type_.field(number).type for number in range(type_.num_fields))
    return pa.types.is_fixed_size_list(type_) or any(map(_holds_fixed_lists, inside))


def chunked(chunks: Sequence[pa.Array[Any]], type_: pa.DataType) -> pa.ChunkedArray[Any]:
    """A column of these chunks, maybe of none; the stubs want to know the type by name."""
    return pa.chunked_array(chunks, cast("Any", type_))


def nulls(count: int, type_: pa.DataType) -> pa.Array[Any]:
    """So many nulls of a type; the stubs want to know the type by name."""
    return pa.nulls(count, cast("Any", type_))


def table_of(columns: Mapping[str, pa.ChunkedArray[Any]]) -> pa.Table:
    """A table of columns by name; the stubs know only those of one chunk."""
    return pa.table(cast("dict[str, Any]", columns))


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


def fragment_from_pylance(fragment: FragmentMetadata) -> pb.DataFragment:
    """An uncommitted fragment that pylance wrote: its files and row count."""
    return fragment_from_json(cast("Mapping[str, Any]", fragment.to_json()))


def fragment_from_json(facts: Mapping[str, Any] | str) -> pb.DataFragment:
    """The same from the JSON form that executors send."""
    if isinstance(facts, str):
        facts = parse_object(facts, "The description of a fragment")
    return pb.DataFragment(
        id=facts["id"],
        files=[_data_file(each) for each in facts["files"]],
        physical_rows=facts["physical_rows"] or 0,
    )


def _data_file(facts: Mapping[str, Any]) -> pb.DataFile:
    return pb.DataFile(
        path=facts["path"],
        fields=facts["fields"],
        column_indices=facts["column_indices"],
        file_major_version=facts["file_major_version"],
        file_minor_version=facts["file_minor_version"],
        file_size_bytes=facts["file_size_bytes"] or 0,
        base_id=facts.get("base_id"),
    )


def index_from_pylance(index: Index) -> pb.IndexMetadata:
    """An uncommitted index (or a segment of one) that pylance built."""
    metadata = pb.IndexMetadata(
        uuid=pb.UUID(uuid=uuid.UUID(index.uuid).bytes),
        fields=index.fields,
        name=index.name,
        dataset_version=index.dataset_version,
        fragment_bitmap=BitMap(index.fragment_ids).serialize(),
        index_version=index.index_version,
        base_id=index.base_id,
        files=[pb.IndexFile(path=file.path, size_bytes=file.size_bytes) for file in index.files or ()],
        covering_fields=index.covering_fields or (),
    )
    if index.created_at is not None:
        metadata.created_at = int(index.created_at.timestamp() * 1000)
    if index.index_details is not None:
        type_url, value = index.index_details
        metadata.index_details.CopyFrom(AnyMessage(type_url=type_url, value=value))
    return metadata
