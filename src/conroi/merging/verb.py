"""The merge as a verb: match, decide, write, and say which operation it was."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from conroi.commit.change import Guard
from conroi.data.arrow_types import metadata_of
from conroi.data.fitting import checked_columns, fit
from conroi.data.keys import is_comparable, key_columns_of
from conroi.data.pinned import Pinned, unknown_column
from conroi.data.rows import offsets_by_fragment, take_out
from conroi.data.stored import remember
from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.fields import column_field_ids, fields_by_path, key_columns
from conroi.format.keyfilter import bloom_filter, incomparable_filter, is_hashable_by_pylance
from conroi.format.rowids import encode_row_ids
from conroi.merging.clauses import Action, Clause, Rows
from conroi.merging.matching import Addresses, match, refuse_doubled, row_ids_of
from conroi.merging.outcome import Decided, Decision, in_schema, takes_whole_rows
from conroi.operations import Update
from conroi.operations.base import copied
from conroi.verbs.keyed import KeyGuard, KeysSeen, checked_new_keys, refuse_repeated
from conroi.verbs.plan import Plan, all_of

FEW_INSERTS = 1000
"""Up to so many inserted keys pylance's filter can tell keys apart; above, it is full."""


class Merging:
    """Brings the rows of a source into a table, on whatever version it is called with."""

    def __init__(self, source: pa.Table, on: Sequence[str], clauses: Sequence[Clause]) -> None:
        self._source = source
        self._on = tuple(on)
        self._clauses = tuple(clauses)
        self._fitting: tuple[list[pb.Field], pa.Table, pa.Table] | None = None
        self._written: tuple[list[pb.Field], pa.Table, list[pb.DataFragment]] | None = None

    def prepare(self, pinned: Pinned) -> None:
        """Do what does not depend on the rows of the table, before it is our turn."""
        fitted, _ = self._incoming(pinned)
        if takes_whole_rows(self._clauses, fitted, pinned):
            self._write(pinned, in_schema(fitted, pinned))

    def __call__(self, pinned: Pinned) -> Plan | None:
        """The change; None if no clause finds a row."""
        fitted, keys = self._incoming(pinned)
        found = match(pinned, keys, self._on, needs_target_only=self._has(Rows.TARGET_ONLY))
        if self._on_key(pinned):
            refuse_doubled(pinned, found, keys, self._on)
        key = key_columns(pinned.manifest.fields)
        decided = Decision(pinned, self._source, fitted, found).decide(self._clauses, (*self._on, *key))
        return self._plan(pinned, decided)

    def _incoming(self, pinned: Pinned) -> tuple[pa.Table, pa.Table]:
        """The source in the table's types, and its keys; worked out once as long as the columns stay the same."""
        fields = list(pinned.manifest.fields)
        if self._fitting is None or self._fitting[0] != fields:
            fitted = self._fitted(pinned)
            keys = key_columns_of(fitted, self._on)
            refuse_repeated(keys, self._on, pinned.root)
            self._fitting = fields, fitted, keys
        return self._fitting[1], self._fitting[2]

    def _has(self, rows: Rows) -> bool:
        return any(clause.rows is rows for clause in self._clauses)

    def _on_key(self, pinned: Pinned) -> bool:
        return set(self._on) == set(key_columns(pinned.manifest.fields))

    # ------------------------------------------------------------------------ what was asked

    def _fitted(self, pinned: Pinned) -> pa.Table:
        """The source's columns that the table has, in its types."""
        for column in self._on:
            if column not in pinned.schema.names:
                raise unknown_column(pinned, column)
            if column not in self._source.column_names:
                raise InvalidInputError(
                    f"The source has no column {column!r} to match on.",
                    table=pinned.root,
                    hint=f"It has {', '.join(self._source.column_names)}.",
                )
            if not is_comparable(type_ := pinned.schema.field(column).type):
                raise InvalidInputError(
                    f"Rows cannot be matched on column {column!r}, which holds {type_}.",
                    table=pinned.root,
                    hint="Match on columns with plain values.",
                )
        for clause in self._clauses:
            for column in clause.values or {}:
                pinned.field(column)
        if any(clause.takes_all for clause in self._clauses):
            return self._all_fitted(pinned)
        return self._cast(pinned, self._source.select(list(self._on)))

    def _all_fitted(self, pinned: Pinned) -> pa.Table:
        target = pinned.schema
        if not any(clause.takes_all and clause.action is Action.INSERT for clause in self._clauses):
            target = _nullable(target)  # an update leaves columns that are missing as they are
        checked_columns(self._source.schema, target, table=pinned.root)
        return self._cast(pinned, self._source)

    def _cast(self, pinned: Pinned, rows: pa.Table) -> pa.Table:
        # A key that is null matches nothing, so it is no error here; one that is inserted is refused later.
        return fit(rows.to_reader(), _nullable(pinned.schema), table=pinned.root).read_all()

    # ------------------------------------------------------------------------ the change

    def _plan(self, pinned: Pinned, decided: Decided) -> Plan | None:
        updated, deleted = _joined(decided.updated), _joined(decided.deleted)
        inserted = _inserted(pinned, decided)
        if not len(updated) and not len(deleted) and not inserted.num_rows:
            return None
        leaving = np.concatenate([updated, deleted])
        guards = self._guards(pinned, decided, inserted, leaving)
        new_rows = pa.concat_tables([*decided.updated_rows, inserted]) if decided.whole is None else decided.whole
        fragments = self._write(pinned, new_rows)
        if pinned.manifest.has_stable_row_ids and len(updated):
            _keep_row_ids(pinned, fragments, updated)
        rows = offsets_by_fragment(leaving)
        left = take_out(pinned.files, pinned.manifest, pinned.version, rows, later=pinned.is_contended)
        operation = Update(
            removed_fragment_ids=left.removed,
            updated_fragments=left.updated,
            new_fragments=tuple(fragments),
            fields_for_preserving_frag_bitmap=tuple(self._changed_fields(pinned, inserted)),
            inserted_rows=self._filter(pinned, inserted),
        )
        counts = {
            "rows_inserted": inserted.num_rows,
            "rows_updated": len(updated),
            "rows_deleted": len(deleted),
        }
        staged = pinned.staged(operation, rows, keys_checked=True, unwritten=left.unwritten)
        return Plan(staged, guard=all_of(guards), counts=counts)

    def _write(self, pinned: Pinned, rows: pa.Table) -> list[pb.DataFragment]:
        """The rows in new fragments; if the merge is done again and the rows are the same, those of the last time."""
        fields = list(pinned.manifest.fields)
        if self._written is None or self._written[0] != fields or not self._written[1].equals(rows):
            fragments = pinned.writer().write(rows.to_reader()).fragments
            self._written = fields, rows, fragments
            remember(pinned, fragments, rows, self._on)
        return [copied(fragment) for fragment in self._written[2]]

    def _guards(self, pinned: Pinned, decided: Decided, inserted: pa.Table, leaving: Addresses) -> list[Guard]:
        """Nobody else may bring in a key that we insert: neither by the columns we match on, nor by the table's key."""
        guards: list[Guard] = []
        if inserted.num_rows:
            keys = key_columns_of(inserted, self._on)
            guards.append(KeyGuard(pinned.files, pinned.manifest, self._on, keys))
        coming = self._rows_with_new_keys(pinned, decided, inserted)
        if coming is not None:
            seen = KeysSeen(key_columns(pinned.manifest.fields))
            seen.watch(coming.to_reader()).read_all()
            guard = checked_new_keys(pinned, seen, leaving=pa.chunked_array([pa.array(leaving)]))
            guards += [guard] if guard is not None else []
        return guards

    def _rows_with_new_keys(self, pinned: Pinned, decided: Decided, inserted: pa.Table) -> pa.Table | None:
        """Rows that must still be compared with the table by its declared key; None if matching did that."""
        key = set(key_columns(pinned.manifest.fields))
        changed = {
            column
            for clause in self._clauses
            if clause.values and clause.action is Action.UPDATE
            for column in clause.values
        }
        if not key or (key == set(self._on) and key.isdisjoint(changed) and not self._inserts_other_keys(key)):
            return None
        if decided.whole is not None:
            return decided.whole
        return pa.concat_tables([pinned.schema.empty_table(), *decided.updated_rows, inserted])

    def _inserts_other_keys(self, key: set[str]) -> bool:
        """Whether an insert clause computes the key instead of taking the source's."""
        computed = [c.values for c in self._clauses if c.action is Action.INSERT and c.values is not None]
        return any(values.get(column) != f"(source.{column})" for values in computed for column in key)

    def _changed_fields(self, pinned: Pinned, inserted: pa.Table) -> list[int]:
        clauses = [c for c in self._clauses if c.action is Action.UPDATE]
        if inserted.num_rows or any(clause.values is None for clause in clauses):
            return sorted(field.id for field in pinned.manifest.fields)
        columns = sorted({column for clause in clauses for column in clause.values or {}})
        return column_field_ids(pinned.manifest.fields, columns)

    def _filter(self, pinned: Pinned, inserted: pa.Table) -> pb.KeyExistenceFilter | None:
        """Tells a pylance merge that comes after us which keys we inserted."""
        key = key_columns(pinned.manifest.fields)
        if not inserted.num_rows or not key:
            return None
        known = fields_by_path(pinned.manifest.fields)
        field_ids = [known[column].id for column in key]
        columns = [inserted[column].combine_chunks() for column in key]
        if inserted.num_rows <= FEW_INSERTS and all(is_hashable_by_pylance(column.type) for column in columns):
            return bloom_filter(field_ids, columns)
        # pylance skips keys of this type, or its filter would be full.
        return incomparable_filter(field_ids)


def _inserted(pinned: Pinned, decided: Decided) -> pa.Table:
    """The rows that are new, or those of their columns that matter."""
    if decided.inserted_rows:
        return pa.concat_tables(decided.inserted_rows)
    return pinned.schema.empty_table()


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([f.with_nullable(True) for f in schema], metadata=metadata_of(schema))


def _joined(parts: list[Addresses]) -> Addresses:
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _keep_row_ids(pinned: Pinned, fragments: list[pb.DataFragment], updated: Addresses) -> None:
    """Updated rows come first in the new fragments and keep their ids; inserted ones get new ids at the commit."""
    ids = row_ids_of(pinned, updated)
    start = 0
    for fragment in fragments:
        part = ids[start : start + fragment.physical_rows]
        if len(part):
            fragment.inline_row_ids = encode_row_ids(part)
        start += fragment.physical_rows
