"""Primary keys: exact comparison of key values, and the live keys of a table, kept in memory between commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from conroi.conflicts import vector_key
from conroi.conflicts.row_merge import VectorKey
from conroi.data.arrow_types import chunked, positions
from conroi.data.columns import Column, Wanted, stored_columns, wanted
from conroi.data.pylance import pylance_errors
from conroi.data.sql import quoted
from conroi.data.table_version import TableVersion
from conroi.format import lance_pb2 as pb
from conroi.snapshots.deletions import load_deletions
from conroi.storage.cache import BoundedCache

SAMPLE = 5
"""Maximum number of keys in an error message."""
FEW_KEYS = 200
"""Number of keys up to which they are looked up one by one through an index on the key."""

MANY_ROWS = 50_000
"""Number of rows from which a join pays off."""


def key_columns_of(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The key columns alone, under the names k0, k1, …, in a form in which equal values are equal bytes."""
    return pa.table([_comparable(_column(table, column)) for column in columns], names=_names(columns))


def _column(table: pa.Table, path: str) -> pa.ChunkedArray[Any]:
    """The column; for a path such as `outer.inner`, what is inside the struct."""
    if path in table.column_names:
        return table[path]
    outer, *inside = path.split(".")
    return pc.struct_field(table[outer], inside)


def is_comparable(type_: pa.DataType) -> bool:
    """Whether rows can be identified by values of this type."""
    storage = type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_
    return not pa.types.is_nested(storage)


def _names(columns: Sequence[str]) -> list[str]:
    return [f"k{number}" for number in range(len(columns))]


def _comparable(column: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    type_ = column.type
    if isinstance(type_, pa.BaseExtensionType):
        chunks = cast("list[pa.ExtensionArray[Any]]", column.chunks)
        column = chunked([chunk.storage for chunk in chunks], type_.storage_type)
        type_ = type_.storage_type
    if pa.types.is_dictionary(type_):
        column, type_ = column.cast(type_.value_type), type_.value_type
    if pa.types.is_string_view(type_):
        return column.cast(pa.string())
    if pa.types.is_binary_view(type_):
        return column.cast(pa.binary())
    if pa.types.is_floating(type_):
        numbers = pc.add(column.cast(pa.float64()), 0.0)  # -0.0 is the same key as 0.0
        return pc.if_else(pc.is_nan(numbers), float("nan"), numbers)  # and there is one NaN, whatever its bits
    return column


def same_values(one: pa.Array[Any], other: pa.Array[Any]) -> npt.NDArray[np.bool_]:
    """Where two columns of one type have the same value, as keys compare: one null, one NaN, one zero; also nested."""
    one, other = _plain(one), _plain(other)
    valid, other_valid = _mask(one.is_valid()), _mask(other.is_valid())
    both = valid & other_valid
    return (valid == other_valid) & (~both | _same_where_valid(one, other, both))


def row_codes(rows: pa.Table) -> npt.NDArray[np.int64]:
    """For each row a number, the same for two rows if all their values are the same (`same_values`)."""
    codes = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        codes = _combined(codes, _value_codes(cast("Any", column.combine_chunks())))
    return codes


def _combined(one: npt.NDArray[np.int64], other: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """A number for each pair of numbers; below the count of rows, so that products of two do not overflow."""
    if not len(one):
        return one
    return np.unique(one * (other.max() + 1) + other, return_inverse=True)[1].astype(np.int64)


def _value_codes(column: pa.Array[Any]) -> npt.NDArray[np.int64]:
    """For each value a number from 0; null is 0."""
    column = _plain(column)
    valid = _mask(column.is_valid())
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int64)
    if isinstance(column, pa.StructArray):
        codes = valid.astype(np.int64)
        for child in column.flatten():
            codes = _combined(codes, np.where(valid, _value_codes(child), 0))
        return np.where(valid, codes + 1, 0)
    if pa.types.is_nested(column.type):
        lists: Any = column
        starts, lengths = _extents(lists)
        elements, known = _value_codes(_elements(lists)), dict[bytes, int]()
        found = [
            known.setdefault(elements[start : start + length].tobytes(), len(known) + 1) if is_there else 0
            for start, length, is_there in zip(starts, lengths, valid, strict=True)
        ]
        return np.array(found, np.int64)
    encoded: Any = _comparable(pa.chunked_array([column])).combine_chunks().dictionary_encode()
    return np.where(valid, encoded.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64) + 1, 0)


def _plain(column: pa.Array[Any]) -> pa.Array[Any]:
    """Without extension types and dictionaries."""
    while isinstance(column, pa.ExtensionArray):
        column = cast("pa.Array[Any]", column.storage)
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column


def _mask(column: Any) -> npt.NDArray[np.bool_]:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=bool)


def _same_where_valid(one: pa.Array[Any], other: pa.Array[Any], both: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    if pa.types.is_null(one.type):
        return both
    if isinstance(one, pa.StructArray) and isinstance(other, pa.StructArray):
        same = both.copy()
        for mine, theirs in zip(one.flatten(), other.flatten(), strict=True):
            same &= same_values(mine, theirs)
        return same
    if pa.types.is_nested(one.type):
        return _same_lists(one, other, both)
    left, right = _comparable(pa.chunked_array([one])), _comparable(pa.chunked_array([other]))
    same = _mask(pc.equal(left, right).fill_null(False))
    if pa.types.is_floating(one.type):
        same |= _mask(pc.and_(pc.is_nan(left), pc.is_nan(right)).fill_null(False))
    return same


def _same_lists(one: Any, other: Any, both: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Lists and maps: as many elements, and the same ones in the same order."""
    (starts, lengths), (other_starts, other_lengths) = _extents(one), _extents(other)
    same = both & (lengths == other_lengths)
    rows = np.flatnonzero(same)
    counts = lengths[rows]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    left = _elements(one).take(pa.array(np.repeat(starts[rows], counts) + within, pa.int64()))
    right = _elements(other).take(pa.array(np.repeat(other_starts[rows], counts) + within, pa.int64()))
    same[np.repeat(rows, counts)[~same_values(left, right)]] = False
    return same


def _extents(lists: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where the elements of each list begin, and how many there are."""
    if pa.types.is_fixed_size_list(lists.type):
        size = lists.type.list_size
        return (np.arange(len(lists), dtype=np.int64) + lists.offset) * size, np.full(len(lists), size, np.int64)
    offsets = np.asarray(lists.offsets).astype(np.int64)
    return offsets[:-1], np.diff(offsets)


def _elements(lists: Any) -> Any:
    """All elements that the lists point into."""
    if not isinstance(lists, pa.MapArray):
        return lists.values
    return pa.StructArray.from_arrays([lists.keys, lists.items], names=["key", "value"])


def scan_keys(
    pinned: TableVersion,
    columns: Sequence[str],
    *,
    fragment_ids: Sequence[int] | None = None,
    among: pa.Table | None = None,
) -> pa.Table:
    """The keys of live rows (as k0, k1, …) with their `_rowaddr`, of the whole table or of some fragments.

    With `among`, rows whose key is not among these may be left out: where an index knows them, or what is kept does.
    """
    filter_ = None if among is None or fragment_ids is not None else lookup(pinned, among, columns)
    if filter_ is None:
        known = pinned.manifest.fragments_by_id
        fragments = list(known.values()) if fragment_ids is None else [known[number] for number in fragment_ids]
        kept = live_keys(pinned, fragments, columns, among)
        if kept is not None:
            return kept
    return _scanned(pinned, columns, fragment_ids, filter_)


def _scanned(
    pinned: TableVersion, columns: Sequence[str], fragment_ids: Sequence[int] | None, filter_: str | None
) -> pa.Table:
    with pylance_errors(pinned.root):
        chosen = None
        if fragment_ids is not None:
            chosen = [pinned.dataset.get_fragment(number) for number in fragment_ids]
        wanted = {name: quoted(column) for name, column in zip(_names(columns), columns, strict=True)}
        is_plain = all(column in pinned.schema.names for column in columns)
        scanned = pinned.dataset.scanner(
            columns=list(columns) if is_plain else wanted, filter=filter_, fragments=chosen, with_row_address=True
        ).to_table()
    keys = key_columns_of(scanned, columns if is_plain else list(wanted))
    return keys.append_column("_rowaddr", scanned["_rowaddr"])


def lookup(pinned: TableVersion, keys: pa.Table, columns: Sequence[str]) -> str | None:
    """A condition that an index on the key can answer, for a handful of keys."""
    if len(columns) > 1 or not 0 < keys.num_rows <= FEW_KEYS or not _has_index(pinned, columns[0]):
        return None
    values = [value for value in keys.column(0).to_pylist() if value is not None]
    type_ = keys.schema.field(0).type
    if pa.types.is_integer(type_):
        literals = [str(value) for value in values]
    elif pa.types.is_string(type_) or pa.types.is_large_string(type_):
        literals = ["'" + value.replace("'", "''") + "'" for value in values]
    else:
        return None
    return f"{quoted(columns[0])} IN ({', '.join(literals)})" if literals else "false"


def _has_index(pinned: TableVersion, column: str) -> bool:
    if column not in pinned.schema.names or not pinned.manifest.indices:
        return False
    field = pinned.field(column).id
    return any(list(index.fields) == [field] for index in pinned.manifest.indices)


def repeated(keys: pa.Table) -> pa.Table:
    """The duplicate keys; a key with a null never equals another."""
    if keys.num_columns == 1 and len(pc.unique(keys.column(0))) == keys.num_rows:
        return keys.slice(0, 0)
    counted = keys.group_by(keys.column_names, use_threads=False).aggregate([([], "count_all")])
    again = counted.filter(pc.greater(counted["count_all"], pa.scalar(1))).select(keys.column_names)
    return again.filter(_complete(again))


def _complete(keys: pa.Table) -> pa.ChunkedArray[Any]:
    complete = pc.is_valid(keys.column(0))
    for column in keys.columns[1:]:
        complete = pc.and_(complete, pc.is_valid(column))
    return cast("pa.ChunkedArray[Any]", complete)  # what the functions make of columns, unlike the stubs say


def in_common(mine: pa.Table, theirs: pa.Table) -> pa.Table:
    """The intersection of two sets of keys (k0, k1, …)."""
    names = [name for name in mine.column_names if name != "_rowaddr"]
    if not mine.num_rows or not theirs.num_rows:
        return mine.select(names).slice(0, 0)
    if _is_quick(mine.select(names), theirs.num_rows):
        values = theirs.column(names[0]).combine_chunks()
        return mine.select(names).filter(pc.is_in(mine.column(names[0]), value_set=values, skip_nulls=True))
    return mine.select(names).join(theirs.select(names), keys=names, join_type="left semi")


def _is_quick(keys: pa.Table, others: int) -> bool:
    """Whether single values are looked up: for few rows, and maybe many chunks, that is much faster than a join."""
    type_ = keys.schema.field(0).type
    is_simple = pa.types.is_integer(type_) or pa.types.is_string(type_) or pa.types.is_binary(type_)
    return keys.num_columns == 1 and is_simple and keys.num_rows + others <= MANY_ROWS


def matches(target: pa.Table, source: pa.Table) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Which rows of the target have the key of which row of the source: positions, pair by pair."""
    if not target.num_rows or not source.num_rows:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    names = source.column_names
    if _is_quick(source, target.num_rows):
        values = source.column(0).combine_chunks()
        found = pc.index_in(target.column(names[0]).combine_chunks(), value_set=values, skip_nulls=True)
        rows = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
        return rows, found.drop_null().to_numpy().astype(np.int64)
    left = target.select(names).append_column("target", pa.array(np.arange(target.num_rows)))
    right = source.append_column("source", pa.array(np.arange(source.num_rows)))
    joined = left.join(right, keys=names, join_type="inner", coalesce_keys=True)
    pairs = joined["target"].to_numpy(), joined["source"].to_numpy()
    order = np.argsort(pairs[0], kind="stable")
    return pairs[0][order], pairs[1][order]


def sample(keys: pa.Table, columns: Sequence[str]) -> list[dict[str, object]]:
    """A few keys under the names of their columns, for the attributes of an error."""
    rows = zip(*([_as_python(value) for value in part] for part in keys.slice(0, SAMPLE).columns), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def shown_keys(keys: pa.Table) -> str:
    """A few keys, for an error message."""
    rows = [tuple(key.values()) for key in sample(keys, keys.column_names)]
    texts = [repr(row[0]) if len(row) == 1 else repr(row) for row in rows]
    more = keys.num_rows - len(rows)
    return ", ".join(texts) + (f" and {more:,} more" if more > 0 else "")


def _as_python(value: pa.Scalar[Any]) -> object:
    try:
        return value.as_py()
    except ValueError:  # nanoseconds, which Python's own types do not have
        return value.cast(pa.int64()).as_py()


FEW_FILTERED_KEYS = 1000
"""Number of keys up to which they are looked up one by one in sorted parts; more are compared with all."""
_SMALL_ROWS = 4096
"""Number of rows up to which a part is compared whole."""


@dataclass(frozen=True, slots=True)
class Part:
    """The keys of one fragment's rows, in one state of the fragment."""

    vector: VectorKey | None
    """The deletion vector that they are without."""
    rows: pa.RecordBatch
    """With the offset of each, not its address: a rebase gives a fragment another id, while its files stay the same."""
    ascending: npt.NDArray[Any] | None
    """The keys as numbers, if they are numbers and in order."""


PARTS: BoundedCache[Part] = BoundedCache(64 * 1024 * 1024)
"""Cache: by table, files and fields, the newest state that was requested."""


def live_keys(
    pinned: TableVersion, fragments: Sequence[pb.DataFragment], columns: Sequence[str], among: pa.Table | None = None
) -> pa.Table | None:
    """The columns, as k0, k1, …, of the live rows, with `_rowaddr`; None if only a scan can tell.

    With `among`, rows whose key is not among these may be left out.
    """
    what = wanted(pinned, columns)
    if what is None or not what.fits(fragments):
        return None
    parts = _parts(pinned, fragments, what)
    if parts is None:
        return None
    sought = _few_numbers(among, what)
    rows = [part.rows if sought is None or part.ascending is None else _narrowed(part, sought) for part in parts]
    return _addressed(pa.Table.from_batches(rows, _schema(what)), fragments, [part.num_rows for part in rows])


def _addressed(rows: pa.Table, fragments: Sequence[pb.DataFragment], counts: Sequence[int]) -> pa.Table:
    """The rows with their addresses in place of their offsets, by the ids that the fragments have now."""
    offsets = rows.column("_offset").to_numpy()
    starts = np.array([fragment.id << 32 for fragment in fragments], np.uint64)
    addresses = pa.array(offsets + np.repeat(starts, counts), pa.uint64())
    return rows.set_column(rows.num_columns - 1, "_rowaddr", cast("Any", addresses))


def _schema(what: Wanted) -> pa.Schema:
    keys = [(f"k{number}", type_) for number, type_ in enumerate(what.types)]
    return pa.schema([*keys, ("_offset", pa.uint64())])


# -------------------------------------------------------------------------------------- parts


def _parts(pinned: TableVersion, fragments: Sequence[pb.DataFragment], what: Wanted) -> list[Part] | None:
    root, kinds = pinned.root, what.kinds
    places = [what.place_in(fragment) for fragment in fragments]
    vectors = [vector_key(f) if f.HasField("deletion_file") else None for f in fragments]
    parts: dict[int, Part] = {}
    for number, place in enumerate(places):
        kept = None if place is None else PARTS.get((root, place, kinds))
        if kept is not None and kept.vector == vectors[number]:
            parts[number] = kept
    missing = [number for number in range(len(fragments)) if number not in parts]
    stored = stored_columns(pinned, [fragments[number] for number in missing], what) if missing else []
    if stored is None:
        return None
    for number, columns in zip(missing, stored, strict=True):
        rows = _rows_that_are_there(pinned, fragments[number], columns, _schema(what))
        part = parts[number] = Part(vectors[number], rows, _ascending(rows))
        PARTS.put((root, places[number], kinds), part, rows.nbytes)
    return [parts[number] for number in range(len(fragments))]


def _rows_that_are_there(
    pinned: TableVersion, fragment: pb.DataFragment, columns: Sequence[Column], schema: pa.Schema
) -> pa.RecordBatch:
    gone = load_deletions(pinned.files.objects, pinned.manifest, fragment)
    offsets = np.arange(fragment.physical_rows, dtype=np.uint64)
    if gone:
        is_there = np.ones(fragment.physical_rows, bool)
        is_there[np.asarray(gone.to_array())] = False
        offsets = offsets[is_there]
        there = positions(np.flatnonzero(is_there))
        columns = [column.take(there) for column in columns]
    return pa.record_batch([*columns, pa.array(offsets)], schema=schema)  # pyright: ignore[reportUnknownMemberType]


# ------------------------------------------------------------------------------ looking up a few


def _ascending(rows: pa.RecordBatch) -> npt.NDArray[Any] | None:
    key = rows.column(0)
    if rows.num_columns > 2 or rows.num_rows <= _SMALL_ROWS or not pa.types.is_integer(key.type) or key.null_count:
        return None
    numbers: npt.NDArray[Any] = key.to_numpy()
    return numbers if bool(np.all(numbers[1:] >= numbers[:-1])) else None


def _few_numbers(among: pa.Table | None, what: Wanted) -> npt.NDArray[Any] | None:
    """The keys sought, in order, if looking up each is worth it."""
    if among is None or among.num_rows > FEW_FILTERED_KEYS or len(what.types) != 1:
        return None
    type_ = what.types[0]
    if not pa.types.is_integer(type_) or among.schema.field(0).type != type_:
        return None
    return np.unique(among.column(0).drop_null().to_numpy())


def _narrowed(part: Part, sought: npt.NDArray[Any]) -> pa.RecordBatch:
    """The rows of the part that have one of the keys."""
    assert part.ascending is not None
    starts = np.searchsorted(part.ascending, sought, "left")
    counts = np.searchsorted(part.ascending, sought, "right") - starts
    found = np.repeat(starts, counts)  # a key that is there twice is found twice
    found += np.arange(len(found)) - np.repeat(np.cumsum(counts) - counts, counts)
    return part.rows.take(positions(found))
