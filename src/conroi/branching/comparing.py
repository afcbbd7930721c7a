"""Which rows of one version of a table another version does not have, reading only the files in which they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from conroi.commit.deletions import load_deletions
from conroi.data.keys import key_columns_of, matches
from conroi.data.pinned import Pinned
from conroi.data.pylance import pylance_errors
from conroi.format import lance_pb2 as pb
from conroi.format.fields import TOP_LEVEL, column_field_ids, fields_by_path, key_columns

Rows: TypeAlias = Mapping[int, "BitMap | None"]
"""By fragment: the offsets of rows; None for all that are there."""
Positions: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Comparison:
    """One table in two versions, which may be on different branches."""

    before: Pinned
    after: Pinned
    is_descent: bool = True
    """Whether the one after came from the one before; else two new columns may have the same number."""

    # ------------------------------------------------------------------------ columns

    @cached_property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """The columns that both have, by their names before and after."""
        then = {field.id: field.name for field in _top(self.before)}
        pairs = [(then[field.id], field.name) for field in _top(self.after) if field.id in then]
        pairs = [(a, b) for a, b in pairs if self.is_descent or a == b]
        old, new = self.before.schema, self.after.schema
        return tuple((a, b) for a, b in pairs if old.field(a).type == new.field(b).type)

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The key, if both have the same one, as it is called after."""
        now, then = key_columns(self.after.manifest.fields), key_columns(self.before.manifest.fields)
        ids = [_ids(self.after, now), _ids(self.before, then)]
        return now if ids[0] == ids[1] else ()

    @cached_property
    def _common_ids(self) -> frozenset[int]:
        return frozenset(column_field_ids(self.after.manifest.fields, [after for _, after in self.columns]))

    # ------------------------------------------------------------------------ which rows

    @cached_property
    def touched(self) -> tuple[Rows, Rows]:
        """The rows before that are gone or elsewhere after, and the rows after that were not there or elsewhere."""
        gone: dict[int, BitMap | None] = {}
        came: dict[int, BitMap | None] = {}
        then = {self.place(fragment): fragment for fragment in self.before.manifest.fragments}
        for fragment in self.after.manifest.fragments:
            earlier = then.pop(self.place(fragment), None)
            if earlier is None:
                came[fragment.id] = None
                continue
            lost, back = self._moved(earlier, fragment)
            gone |= {earlier.id: lost} if lost else {}
            came |= {fragment.id: back} if back else {}
        gone |= {fragment.id: None for fragment in then.values()}
        return gone, came

    def place(self, fragment: pb.DataFragment) -> tuple[object, ...]:
        """What holds the common columns: names of files are never used twice, so the same names mean the same rows."""
        files = [file.path for file in fragment.files if not self._common_ids.isdisjoint(file.fields)]
        return (*sorted(files), *fragment.overlays)

    def _moved(self, earlier: pb.DataFragment, later: pb.DataFragment) -> tuple[BitMap, BitMap]:
        if _same_vector(earlier, later):
            return BitMap(), BitMap()
        then, now = _deleted(self.before, earlier), _deleted(self.after, later)
        return now - then, then - now

    def counted(self) -> tuple[int, int]:
        """How many rows there are in what is gone, and in what came; from metadata alone."""
        gone, came = self.touched
        return _count(self.before, gone), _count(self.after, came)

    # ------------------------------------------------------------------------ reading

    def read(self) -> tuple[pa.Table, pa.Table]:
        """The rows that are gone and the rows that came, in the common columns as they are called after."""
        gone, came = self.touched
        names = [after for _, after in self.columns]
        before = read_rows(self.before, gone, [name for name, _ in self.columns]).rename_columns(names)
        return before, read_rows(self.after, came, names)


@dataclass(frozen=True)
class KeyedChanges:
    """What became of the rows of a table with a key."""

    key: tuple[str, ...]
    inserted: pa.Table
    old: pa.Table
    """The rows that were updated, as they were."""
    new: pa.Table
    """The same rows, in the same order, as they are now."""
    deleted: pa.Table

    @property
    def counts(self) -> tuple[int, int, int]:
        """Rows inserted, updated, deleted."""
        return self.inserted.num_rows, self.new.num_rows, self.deleted.num_rows


def keyed_changes(compared: Comparison) -> KeyedChanges:
    """Row by row, for two versions with the same key."""
    gone, came = compared.read()
    key = compared.key
    then, now = matches(key_columns_of(gone, key), key_columns_of(came, key))
    differ = ~same_rows(take(gone, then), take(came, now))
    return KeyedChanges(
        key=key,
        inserted=_without(came, now),
        old=take(gone, then[differ]),
        new=take(came, now[differ]),
        deleted=_without(gone, then),
    )


def read_rows(pinned: Pinned, rows: Rows, columns: Sequence[str]) -> pa.Table:
    """These rows of a version."""
    if not columns:
        return pa.Table.from_batches([], pinned.schema).select([])
    whole = [number for number, offsets in rows.items() if offsets is None]
    parts: list[pa.Table] = [pa.Table.from_batches([], pinned.schema).select(list(columns))]
    with pylance_errors(pinned.root):
        if whole:
            fragments = [pinned.dataset.get_fragment(number) for number in whole]
            parts.append(pinned.dataset.scanner(columns=list(columns), fragments=cast("Any", fragments)).to_table())
        for number, offsets in rows.items():
            if offsets is not None:
                fragment = cast("Any", pinned.dataset.get_fragment(number))
                parts.append(fragment.take(_among_live(pinned, number, offsets), columns=list(columns)))
    return pa.concat_tables([part.select(list(columns)).cast(parts[0].schema) for part in parts])


def _among_live(pinned: Pinned, number: int, offsets: BitMap) -> list[int]:
    """Where the rows are among those of the fragment that are there."""
    dead = _deleted(pinned, pinned.manifest.fragments_by_id[number])
    return [offset - dead.rank(offset) for offset in offsets]


# ---------------------------------------------------------------------------------- comparing rows


def same_rows(left: pa.Table, right: pa.Table) -> npt.NDArray[np.bool_]:
    """For each row of two tables of the same columns and length: whether all values are the same."""
    same = np.ones(left.num_rows, dtype=bool)
    for one, other in zip(left.columns, right.columns, strict=True):
        same &= _same(one.combine_chunks(), other.combine_chunks())
    return same


def _same(one: Any, other: Any) -> npt.NDArray[np.bool_]:
    compute = cast("Any", pc)
    try:
        equal = compute.fill_null(compute.equal(one, other), False)
    except pa.ArrowNotImplementedError:  # lists and structs
        pairs = zip(one.to_pylist(), other.to_pylist(), strict=True)
        return np.fromiter((a == b for a, b in pairs), dtype=bool, count=len(one))
    both_null = compute.and_(compute.is_null(one), compute.is_null(other))
    equal = compute.or_(equal, both_null)
    if pa.types.is_floating(one.type):
        both_nan = compute.and_(compute.is_nan(one), compute.is_nan(other))
        equal = compute.or_(equal, compute.fill_null(both_nan, False))
    return equal.to_numpy(zero_copy_only=False)


def take(table: pa.Table, rows: Positions) -> pa.Table:
    """These rows, in this order."""
    return table.take(cast("Any", pa.array(rows, pa.int64())))


def _without(table: pa.Table, rows: Positions) -> pa.Table:
    left = np.ones(table.num_rows, dtype=bool)
    left[rows] = False
    return take(table, np.flatnonzero(left))


# ---------------------------------------------------------------------------------- small facts


def _top(pinned: Pinned) -> list[pb.Field]:
    return [field for field in pinned.manifest.fields if field.parent_id == TOP_LEVEL]


def _ids(pinned: Pinned, columns: Sequence[str]) -> list[int]:
    known = fields_by_path(pinned.manifest.fields)
    return [known[column].id for column in columns]


def _same_vector(one: pb.DataFragment, other: pb.DataFragment) -> bool:
    """Whether they have the same deletion vector: its name is never used twice, wherever it is."""
    if one.HasField("deletion_file") != other.HasField("deletion_file"):
        return False
    a, b = one.deletion_file, other.deletion_file
    return (a.id, a.read_version, a.num_deleted_rows) == (b.id, b.read_version, b.num_deleted_rows)


def _deleted(pinned: Pinned, fragment: pb.DataFragment) -> BitMap:
    return load_deletions(pinned.files.objects, pinned.manifest, fragment)


def _count(pinned: Pinned, rows: Rows) -> int:
    known = pinned.manifest.fragments_by_id
    return sum(
        known[number].physical_rows - known[number].deletion_file.num_deleted_rows if offsets is None else len(offsets)
        for number, offsets in rows.items()
    )
