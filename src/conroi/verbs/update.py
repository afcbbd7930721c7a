"""UPDATE and DELETE: changed rows are rewritten, or only the changed columns; deleted rows get deletion vectors.

Also recomputes whole columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from conroi.commit.change import Plan
from conroi.data.arrow_types import positions, row_width
from conroi.data.casts import can_become, cast_batch
from conroi.data.columns import Columns, column_batches, write_column_file
from conroi.data.incoming import KeysSeen
from conroi.data.predicates import Predicate, checked_predicate, find_rows, predicate_text, scan_rows
from conroi.data.pylance import pylance_errors
from conroi.data.rows import Rows, addresses_in, addresses_of, offsets_by_fragment, take_out
from conroi.data.sql import expression, quoted
from conroi.data.table_version import TableVersion
from conroi.data.writer import Progress
from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.fields import column_field_ids
from conroi.format.row_ids import encode_row_ids
from conroi.operations import DataReplacement, Delete, Update
from conroi.verbs.columns import no_column, with_file
from conroi.verbs.key_check import checked_new_keys, is_key_among

Mode: TypeAlias = Literal["auto", "rows", "columns"]


def update(
    pinned: TableVersion,
    values: Mapping[str, object],
    where: Predicate | None = None,
    *,
    mode: Mode = "auto",
    rewriting: Rewriting | None = None,
) -> Plan | None:
    """Set columns by expression in the rows that match the condition; None if there are none."""
    work = Here() if rewriting is None else rewriting
    expressions = _checked_values(pinned, values)
    predicate = None if where is None else checked_predicate(where, table=pinned.root)
    _check_types(pinned, expressions, predicate)
    if mode not in ("auto", "rows", "columns"):
        raise InvalidInputError(
            f"{mode!r} is not a mode of update.", table=pinned.root, hint='Give "auto", "rows" or "columns".'
        )
    changes_key = is_key_among(expressions, pinned)
    if changes_key and mode == "columns":
        raise InvalidInputError("A change of key columns moves rows.", table=pinned.root, hint='Pass mode="rows".')
    if not changes_key and (mode == "columns" or (mode == "auto" and _few_columns(pinned, expressions))):
        rows = work.find(pinned, predicate)
        if not rows:
            return None
        if mode == "columns" or _columns_are_cheaper(pinned, expressions, rows):
            return _columns_plan(pinned, expressions, rows, work.new_columns(pinned, expressions, predicate, rows))
    return _rows_plan(pinned, expressions, work.new_rows(pinned, expressions, predicate))


# ------------------------------------------------------------------------------ where the rows are computed


@dataclass(frozen=True)
class NewRows:
    """Rewritten rows, in their original order."""

    fragments: Sequence[pb.DataFragment]
    leaving: Rows
    keys: KeysSeen
    """Those of the new rows, if the update may have changed them."""


class Rewriting(Protocol):
    """The part of an update that reads and writes rows."""

    def find(self, pinned: TableVersion, where: Predicate | None) -> Rows:
        """The rows that match the condition."""
        ...

    def new_rows(self, pinned: TableVersion, expressions: Mapping[str, str], where: Predicate | None) -> NewRows:
        """Rewrite those rows."""
        ...

    def new_columns(
        self, pinned: TableVersion, expressions: Mapping[str, str], where: Predicate | None, rows: Rows
    ) -> Sequence[pb.DataFragment]:
        """The fragments that have these rows, with new data for the columns."""
        ...


@dataclass(frozen=True)
class Here:
    """Execution in this process, for the whole table or for some fragments."""

    fragment_ids: Sequence[int] | None = None

    def find(self, pinned: TableVersion, where: Predicate | None) -> Rows:
        return scan_rows(pinned, where, self.fragment_ids)

    def new_rows(self, pinned: TableVersion, expressions: Mapping[str, str], where: Predicate | None) -> NewRows:
        moved = MovedRows(pinned, _scanned(pinned, expressions, where, self.fragment_ids))
        seen = KeysSeen(changed_key(pinned, expressions))
        written = pinned.writer().write(seen.watch(moved.reader()))
        fragments = moved.with_row_ids(written.fragments)
        return NewRows(fragments, offsets_by_fragment(moved.addresses), seen)

    def new_columns(
        self, pinned: TableVersion, expressions: Mapping[str, str], where: Predicate | None, rows: Rows
    ) -> Sequence[pb.DataFragment]:
        schema = pa.schema([pinned.schema.field(name) for name in expressions])
        changed_ids = field_ids(pinned, list(expressions))
        updated: list[pb.DataFragment] = []
        for fragment_id in sorted(rows):
            fragment = pinned.manifest.fragments_by_id[fragment_id]
            batches = _changed_columns(pinned, fragment_id, expressions, where, schema)
            file = write_column_file(pinned, pinned.writer(), batches, schema, fragment.physical_rows)
            updated.append(with_file(_without_fields(pinned, fragment, changed_ids), file))
        return updated


def changed_key(pinned: TableVersion, expressions: Mapping[str, str]) -> Sequence[str]:
    """The table's key, if these expressions may change it."""
    return pinned.key if is_key_among(expressions, pinned) else ()


# ----------------------------------------------------------------------------- what was asked


def _checked_values(pinned: TableVersion, values: Mapping[str, object]) -> dict[str, str]:
    if not values or not isinstance(values, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInputError(
            "No column to update was given.", table=pinned.root, hint='Give {"column": "expression"}.'
        )
    for column in values:
        pinned.field(column)
    return {column: expression(value, pinned.root) for column, value in values.items()}


def _check_types(pinned: TableVersion, expressions: Mapping[str, str], where: Predicate | None) -> None:
    """Plan the query without running it, so that a malformed one fails before anything is written."""
    with pylance_errors(pinned.root):
        # pylance refuses a scan for nothing but constants, so the address of the rows is asked for too
        scanner = pinned.dataset.scanner(columns=dict(expressions), filter=where, limit=0, with_row_address=True)
        result = scanner.projected_schema
    for column in expressions:
        produced, wanted = result.field(column).type, pinned.schema.field(column).type
        if not can_become(produced, wanted) and not (pa.types.is_floating(produced) and pa.types.is_decimal(wanted)):
            raise InvalidInputError(
                f"The expression for column {column!r} gives {produced}, but the column is {wanted}.",
                table=pinned.root,
                hint="Put a CAST around it.",
            )


# ------------------------------------------------------------------------------ choosing a mode


def _few_columns(pinned: TableVersion, expressions: Mapping[str, str]) -> bool:
    return 2 * _width(pinned, expressions) <= row_width(pinned.schema)


def _width(pinned: TableVersion, expressions: Mapping[str, str]) -> int:
    return row_width(pa.schema([pinned.schema.field(column) for column in expressions]))


def _columns_are_cheaper(pinned: TableVersion, expressions: Mapping[str, str], rows: Rows) -> bool:
    touched = sum(pinned.manifest.fragments_by_id[fragment].physical_rows for fragment in rows)
    moved = sum(len(offsets) for offsets in rows.values())
    return touched * _width(pinned, expressions) < moved * row_width(pinned.schema)


# ------------------------------------------------------------------------------- rewriting rows


def _scanned(
    pinned: TableVersion, expressions: Mapping[str, str], where: Predicate | None, fragment_ids: Sequence[int] | None
) -> pa.RecordBatchReader:
    columns = {name: expressions.get(name, quoted(name)) for name in pinned.schema.names}
    with pylance_errors(pinned.root):
        chosen = None if fragment_ids is None else [pinned.dataset.get_fragment(number) for number in fragment_ids]
        return pinned.dataset.scanner(
            columns=columns,
            filter=where,
            fragments=chosen,
            with_row_address=True,
            with_row_id=True,
            scan_in_order=True,
            blob_handling="all_binary",
        ).to_reader()


def _rows_plan(pinned: TableVersion, expressions: Mapping[str, str], new: NewRows) -> Plan | None:
    if not new.fragments:
        return None
    guard = checked_new_keys(pinned, new.keys, leaving=addresses_in(new.leaving))
    left = take_out(pinned.files, pinned.manifest, pinned.version, new.leaving)
    operation = Update(
        removed_fragment_ids=left.removed,
        updated_fragments=left.updated,
        new_fragments=tuple(new.fragments),
        fields_for_preserving_frag_bitmap=tuple(field_ids(pinned, list(expressions))),
    )
    staged = pinned.staged(operation, new.leaving, keys_checked=True)
    return Plan(staged, guard=guard, counts={"rows_updated": sum(f.physical_rows for f in new.fragments)})


class MovedRows:
    """A stream of rows into new fragments, which records their original addresses."""

    def __init__(self, pinned: TableVersion, scanned: pa.RecordBatchReader) -> None:
        self._pinned = pinned
        self._scanned = scanned
        self._addresses: list[npt.NDArray[np.uint64]] = []
        self._row_ids: list[npt.NDArray[np.uint64]] = []

    def reader(self) -> pa.RecordBatchReader:
        """The rows in the table's schema."""
        return pa.RecordBatchReader.from_batches(self._pinned.schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        with pylance_errors(self._pinned.root):
            for batch in self._scanned:
                self._addresses.append(addresses_of(batch.column("_rowaddr")))
                self._row_ids.append(addresses_of(batch.column("_rowid")))
                yield cast_batch(batch, self._pinned.schema, self._pinned.root)

    @property
    def addresses(self) -> npt.NDArray[np.uint64]:
        return np.concatenate(self._addresses) if self._addresses else np.empty(0, np.uint64)

    def with_row_ids(self, fragments: list[pb.DataFragment]) -> list[pb.DataFragment]:
        """In a table with stable row ids, the new fragments get the ids of the rows that moved into them."""
        if not fragments or not self._pinned.manifest.has_stable_row_ids:
            return fragments
        ids = np.concatenate(self._row_ids)
        start = 0
        for fragment in fragments:
            part = ids[start : start + fragment.physical_rows]
            if len(part):
                fragment.inline_row_ids = encode_row_ids(part)
            start += fragment.physical_rows
        return fragments


def field_ids(pinned: TableVersion, columns: list[str]) -> list[int]:
    """The ids of these columns and of all inside them: an index on a list names the list, a file what is in it."""
    return column_field_ids(pinned.manifest.fields, columns)


# ---------------------------------------------------------------------------- rewriting columns


def _columns_plan(
    pinned: TableVersion, expressions: Mapping[str, str], rows: Rows, updated: Sequence[pb.DataFragment]
) -> Plan:
    operation = Update(
        updated_fragments=tuple(updated),
        fields_modified=tuple(field_ids(pinned, list(expressions))),
        update_mode=pb.Transaction.Update.REWRITE_COLUMNS,
        updated_fragment_offset_bitmaps={fragment: offsets.serialize() for fragment, offsets in rows.items()},
    )
    return Plan(pinned.staged(operation, rows), counts={"rows_updated": sum(map(len, rows.values()))})


def _changed_columns(
    pinned: TableVersion, fragment_id: int, expressions: Mapping[str, str], where: Predicate | None, schema: pa.Schema
) -> pa.RecordBatchReader:
    """The columns of one fragment, old values where the condition does not hold.

    The expressions see only the rows that match (and are alive), so one that fails elsewhere, such as a division by
    zero, does no harm.
    """
    before = pa.Table.from_batches(
        [cast_batch(batch, schema, pinned.root) for batch in _old_columns(pinned, fragment_id, schema.names)], schema
    )
    with pylance_errors(pinned.root):
        fragment = pinned.dataset.get_fragment(fragment_id)
        assert fragment is not None, "the manifest has this fragment"
        found = fragment.scanner(
            columns=dict(expressions), filter=where, with_row_address=True, blob_handling="all_binary"
        ).to_table()
    offsets = (addresses_of(found["_rowaddr"]) & np.uint64(0xFFFFFFFF)).astype(np.int64)
    after = [cast_batch(batch, schema, pinned.root) for batch in found.to_batches()]
    source = np.arange(before.num_rows)
    source[offsets] = before.num_rows + np.arange(len(offsets))
    return pa.concat_tables([before, pa.Table.from_batches(after, schema)]).take(positions(source)).to_reader()


def _old_columns(pinned: TableVersion, fragment_id: int, names: list[str]) -> pa.RecordBatchReader:
    return column_batches(pinned, fragment_id, {name: quoted(name) for name in names})


def _without_fields(pinned: TableVersion, fragment: pb.DataFragment, gone: list[int]) -> pb.DataFragment:
    """The fragment with these columns marked as gone in its files; files with nothing else left are dropped.

    Its other columns may have been dropped from the table: then no reader would open the file.
    """
    others = {field.id for field in pinned.manifest.fields} - set(gone)
    changed = pb.DataFragment()
    changed.CopyFrom(fragment)
    del changed.files[:]
    for file in fragment.files:
        left = pb.DataFile()
        left.CopyFrom(file)
        left.fields[:] = [-2 if field in gone else field for field in file.fields]
        if not others.isdisjoint(left.fields):
            changed.files.append(left)
    return changed


Finding = Callable[[TableVersion, Predicate], Rows]


def delete(pinned: TableVersion, where: Predicate, *, find: Finding = find_rows) -> Plan | None:
    """Delete the rows that match the condition; None if there are none."""
    rows = find(pinned, checked_predicate(where, table=pinned.root))
    if not rows:
        return None
    left = take_out(pinned.files, pinned.manifest, pinned.version, rows, later=pinned.is_contended)
    operation = Delete(
        updated_fragments=left.updated, deleted_fragment_ids=left.removed, predicate=predicate_text(where)
    )
    staged = pinned.staged(operation, rows, unwritten=left.unwritten)
    return Plan(staged, counts={"rows_deleted": sum(map(len, rows.values()))})


def replace_column_data(
    pinned: TableVersion, columns: Columns, *, fragments: Sequence[int] | None = None, progress: Progress | None = None
) -> Plan | None:
    """Compute columns anew for every row, or those of some fragments, by SQL expressions or a function over batches."""
    for name in () if callable(columns) else columns:
        pinned.field(name)
    groups: list[pb.Transaction.DataReplacement.Group] = []
    done = 0
    for fragment in _chosen(pinned, fragments):
        batches = column_batches(pinned, fragment.id, columns)
        if not len(batches.schema):
            raise no_column(pinned)
        names = [pinned.field(name).name for name in batches.schema.names]
        _refuse_key(pinned, names)
        schema = pa.schema([pinned.schema.field(name) for name in names])
        file = write_column_file(pinned, pinned.writer(), batches, schema, fragment.physical_rows)
        groups.append(pb.Transaction.DataReplacement.Group(fragment_id=fragment.id, new_file=file))
        done += fragment.physical_rows
        if progress is not None:
            progress(done)
    if not groups:
        return None
    return Plan(pinned.staged(DataReplacement(replacements=tuple(groups))))


def _chosen(pinned: TableVersion, ids: Sequence[int] | None) -> Sequence[pb.DataFragment]:
    known = pinned.manifest.fragments_by_id
    if ids is None:
        return pinned.manifest.fragments
    unknown = [number for number in ids if number not in known]
    if unknown:
        raise InvalidInputError(
            f"Version {pinned.version} of the table has no fragment {', '.join(map(str, unknown))}.",
            table=pinned.root,
            hint=f"It has {', '.join(map(str, sorted(known)[:20])) or 'none'}; a compaction makes new ones.",
        )
    return [known[number] for number in sorted(set(ids))]


def _refuse_key(pinned: TableVersion, names: list[str]) -> None:
    if is_key_among(names, pinned):
        raise InvalidInputError(
            f"The table's key is {', '.join(pinned.key)}, and its columns cannot be replaced.",
            table=pinned.root,
            hint="Use update(), which checks keys.",
        )
