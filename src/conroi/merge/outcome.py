"""Outcome of a merge: which rows are inserted, updated and deleted, collected within bounded memory."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from conroi import operations
from conroi.data.arrow_types import chunked, positions, table_of
from conroi.data.casts import can_become, cast_batch
from conroi.data.pylance import open_dataset, pylance_errors
from conroi.data.rows import addresses_of
from conroi.data.sql import quoted
from conroi.data.table_version import TableVersion
from conroi.data.writer import DataWriter
from conroi.environment import Environment
from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.naming import ManifestNaming
from conroi.format.schema import fields_from_schema
from conroi.merge.matching import Addresses, Match, Positions, take_rows
from conroi.merge.request import Action, Clause, Request, RowKind
from conroi.operations import Overwrite, Step
from conroi.snapshots.snapshot import Snapshot
from conroi.storage import open_objects
from conroi.storage.memory import scratch_folder
from conroi.version import WRITER
from conroi.versions.folder import ManifestRef

# Text and quoted names, in which nothing is replaced; and `target.` where a column begins.
_TARGET_PREFIX = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|(?<![.\w])target\s*\.\s*""", re.IGNORECASE)


@dataclass
class Decided:
    """The combined result of all clauses."""

    deleted: list[Addresses] = field(default_factory=list[Addresses])
    updated: list[Addresses] = field(default_factory=list[Addresses])
    updated_rows: list[pa.Table] = field(default_factory=list[pa.Table])
    inserted_rows: list[pa.Table] = field(default_factory=list[pa.Table])
    """Of an upsert of whole rows, only the columns that keys are made of."""
    whole: pa.Table | None = None
    """Of an upsert of whole rows, all rows that come in, in the order of the source."""


@dataclass(frozen=True)
class Decision:
    """Applies clauses to matched and unmatched rows; for each row the first clause that holds wins."""

    pinned: TableVersion
    source: pa.Table
    """As it came."""
    fitted: pa.Table
    """Its columns that the table has, in the table's types."""
    found: Match

    def decide(self, clauses: Sequence[Clause], keys: Sequence[str]) -> Decided:
        """Evaluate the clauses; `keys` are the columns that keys consist of."""
        if takes_whole_rows(clauses, self.fitted, self.pinned):
            return self._upsert(keys)
        return self.by_clause(clauses)

    def by_clause(self, clauses: Sequence[Clause]) -> Decided:
        """The same with rows in the order of the clauses: updated ones first, then those that are inserted."""
        decided = Decided()
        self._matched([c for c in clauses if c.rows is RowKind.MATCHED], decided)
        self._target_only([c for c in clauses if c.rows is RowKind.TARGET_ONLY], decided)
        self._source_only([c for c in clauses if c.rows is RowKind.SOURCE_ONLY], decided)
        return decided

    # --------------------------------------------------------------------- the common case

    def _upsert(self, keys: Sequence[str]) -> Decided:
        """No row is copied here, and whichever rows match, the same rows come in: they are written only once."""
        new = self.found.unmatched_source
        rows = self.fitted
        if len(self.found.source_rows) + len(new) != rows.num_rows:  # the table has a key twice
            rows = rows.take(positions(np.sort(np.concatenate([self.found.source_rows, new]))))
        tops = list(dict.fromkeys(column.partition(".")[0] for column in keys))
        return Decided(
            updated=[self.found.addresses],
            inserted_rows=[self.fitted.select(tops).take(positions(new))],
            whole=in_schema(rows, self.pinned),
        )

    # ------------------------------------------------------------------------ matched rows

    def _matched(self, clauses: Sequence[Clause], decided: Decided) -> None:
        left = np.arange(len(self.found.addresses))
        for clause in clauses:
            chosen, left = self._split(clause, left)
            if not len(chosen) and clause.values is None:
                continue  # expressions are looked at even so: a mistake in them should not wait for its first row
            addresses = self.found.addresses[chosen]
            if clause.action is Action.DELETE:
                decided.deleted.append(addresses)
            else:
                decided.updated.append(addresses)
                decided.updated_rows.append(self._updated(clause, chosen, addresses))

    def _split(self, clause: Clause, left: Positions) -> tuple[Positions, Positions]:
        """Those of the pairs for which the condition holds, and the others."""
        if clause.condition is None:
            return left, left[:0]
        holds = self._holds(clause.condition, self._evaluate({"holds": clause.condition}, left))
        return left[holds], left[~holds]

    def _holds(self, condition: str, evaluated: pa.Table) -> npt.NDArray[np.bool_]:
        """For which rows the condition is true; null is not."""
        answers = evaluated["holds"]
        if pa.types.is_null(answers.type):
            return np.zeros(len(answers), bool)
        if not pa.types.is_boolean(answers.type):
            raise InvalidInputError(
                f"The condition {condition} gives {answers.type}, not true or false.",
                table=self.pinned.root,
                hint='Compare with something: "source.n > 0".',
            )
        return answers.fill_null(pa.scalar(False)).to_numpy()

    def _evaluate(self, expressions: Mapping[str, str], pairs: Positions) -> pa.Table:
        names = _mentioned(self.pinned.schema.names, expressions)
        target = take_rows(self.pinned, self.found.addresses[pairs], {name: quoted(name) for name in names})
        return self._with_source(expressions, self.found.source_rows[pairs], target)

    def _with_source(self, expressions: Mapping[str, str], rows: Positions, target: pa.Table | None) -> pa.Table:
        """The expressions over these rows of the source, beside these of the table."""
        columns = self.source.select(_mentioned(self.source.column_names, expressions))
        source = columns.take(positions(rows)) if columns.num_columns else pa.table({"": pa.nulls(len(rows))})
        try:
            return evaluate(
                self.pinned.files.environment, expressions, source=source, target=target, table=self.pinned.root
            )
        except InvalidInputError as error:
            raise self._not_computed(expressions, error, is_matched=target is not None) from error

    def _not_computed(
        self, expressions: Mapping[str, str], error: InvalidInputError, *, is_matched: bool
    ) -> InvalidInputError:
        hint = f"Write columns of the source as source.name ({', '.join(self.source.column_names)})"
        if is_matched:
            hint += f", those of the table as target.name ({', '.join(self.pinned.schema.names)})"
        else:
            hint += "; rows that are new have no target"
        return InvalidInputError(
            f"{', '.join(expressions.values())} cannot be computed: {_reason(error)}",
            table=self.pinned.root,
            hint=f"{hint}.",
        )

    def _updated(self, clause: Clause, chosen: Positions, addresses: Addresses) -> pa.Table:
        """The new rows, in the table's schema."""
        if clause.values is None:
            new = self.fitted.take(positions(self.found.source_rows[chosen]))
        else:
            new = self._checked_types(self._evaluate(clause.values, chosen))
        kept = [name for name in self.pinned.schema.names if name not in new.column_names]
        old = take_rows(self.pinned, addresses, {name: quoted(name) for name in kept})
        return self._in_schema({**_columns(new), **_columns(old)}, len(addresses))

    # ----------------------------------------------------------------- rows of the source only

    def _source_only(self, clauses: Sequence[Clause], decided: Decided) -> None:
        left = self.found.unmatched_source
        for clause in clauses:
            chosen, left = left, left[:0]
            if clause.condition is not None:
                evaluated = self._with_source({"holds": clause.condition}, chosen, None)
                holds = self._holds(clause.condition, evaluated)
                chosen, left = chosen[holds], chosen[~holds]
            if len(chosen) or clause.values is not None:
                decided.inserted_rows.append(self._inserted(clause, chosen))

    def _inserted(self, clause: Clause, chosen: Positions) -> pa.Table:
        if clause.values is None:
            new = self.fitted.take(positions(chosen))
        else:
            new = self._checked_types(self._with_source(clause.values, chosen, None))
        return self._in_schema(_columns(new), len(chosen))

    # ----------------------------------------------------------------- rows of the target only

    def _target_only(self, clauses: Sequence[Clause], decided: Decided) -> None:
        left = self.found.unmatched_target
        for clause in clauses:
            chosen = left
            if clause.condition is not None:
                chosen = np.intersect1d(left, self._where(unqualified(clause.condition), left))
            left = np.setdiff1d(left, chosen)
            if not len(chosen) and clause.values is None:
                continue
            if clause.action is Action.DELETE:
                decided.deleted.append(chosen)
            else:
                decided.updated.append(chosen)
                decided.updated_rows.append(self._left_alone(clause.values or {}, chosen))

    def _left_alone(self, expressions: Mapping[str, str], chosen: Addresses) -> pa.Table:
        """The new rows for those that the source does not have."""
        values = {name: unqualified(text) for name, text in expressions.items()}
        columns = {name: values.get(name, quoted(name)) for name in self.pinned.schema.names}
        with self._without_source():
            rows = take_rows(self.pinned, chosen, columns)
        self._checked_types(rows.select(list(expressions)))
        return self._in_schema(_columns(rows), len(chosen))

    @contextmanager
    def _without_source(self) -> Generator[None]:
        try:
            yield
        except InvalidInputError as error:
            columns = ", ".join(self.pinned.schema.names)
            raise InvalidInputError(
                _reason(error),
                table=self.pinned.root,
                hint=f"Write columns as target.name ({columns}); these rows have no source.",
            ) from error

    def _where(self, condition: str, among: Addresses) -> Addresses:
        """The rows for which the condition holds, in the fragments that have these rows."""
        dataset, known = self.pinned.dataset, self.pinned.manifest.fragments_by_id
        ids = np.unique(among >> np.uint64(32)).tolist()
        with self._without_source(), pylance_errors(self.pinned.root):
            chosen = [dataset.get_fragment(number) for number in ids] if 0 < len(ids) < len(known) else None
            found = dataset.scanner(columns=[], filter=condition, with_row_address=True, fragments=chosen).to_table()
        return addresses_of(found["_rowaddr"])

    # ------------------------------------------------------------------------ new rows

    def _checked_types(self, computed: pa.Table) -> pa.Table:
        """The same; InvalidInputError if a value was computed that its column cannot hold."""
        for field_ in computed.schema:
            wanted = self.pinned.schema.field(field_.name).type
            is_literal = pa.types.is_floating(field_.type) and pa.types.is_decimal(wanted)
            if not is_literal and not can_become(field_.type, wanted):
                raise InvalidInputError(
                    f"The expression for column {field_.name!r} gives {field_.type}, but the column is {wanted}.",
                    table=self.pinned.root,
                    hint="Put a CAST around it.",
                )
        return computed

    def _in_schema(self, columns: Mapping[str, pa.ChunkedArray[Any]], rows: int) -> pa.Table:
        schema = self.pinned.schema
        complete = {f.name: columns.get(f.name, pa.chunked_array([pa.nulls(rows, f.type)])) for f in schema}
        return in_schema(table_of(complete).combine_chunks(), self.pinned)


def try_out(pinned: TableVersion, request: Request, source: pa.Schema) -> None:
    """Merge no rows at all, so that an invalid merge is rejected before any work."""
    rows = source.empty_table()
    none, nowhere = np.empty(0, np.int64), np.empty(0, np.uint64)
    found = Match(nowhere, none, none, nowhere)
    Decision(pinned, rows, request.fitted(pinned, rows), found).by_clause(request.clauses)


def takes_whole_rows(clauses: Sequence[Clause], fitted: pa.Table, pinned: TableVersion) -> bool:
    """Whether every row of the source comes in as it is, whichever rows match.

    With stable row ids it does not: there the rows that are updated come first, to keep their ids.
    """
    plain = {clause.rows for clause in clauses if clause.takes_all and clause.condition is None}
    return (
        plain == {RowKind.MATCHED, RowKind.SOURCE_ONLY}
        and len(clauses) == len(plain)
        and set(pinned.schema.names) <= set(fitted.column_names)
        and not pinned.manifest.has_stable_row_ids
    )


def in_schema(rows: pa.Table, pinned: TableVersion) -> pa.Table:
    """The rows in exactly the table's schema."""
    batches = [cast_batch(batch, pinned.schema, pinned.root) for batch in rows.to_batches()]
    return pa.Table.from_batches(batches, pinned.schema)


def _columns(table: pa.Table) -> dict[str, pa.ChunkedArray[Any]]:
    return {name: table[name] for name in table.column_names}


def _reason(error: InvalidInputError) -> str:
    """pylance's words, without the columns that it offers: they are not the user's."""
    return error.message.partition(" Valid fields are")[0]


def _mentioned(names: Sequence[str], expressions: Mapping[str, str]) -> list[str]:
    """The columns whose names stand anywhere in the expressions (too many does no harm)."""
    text = " ".join(expressions.values()).lower()
    return [name for name in names if name.lower() in text]


def unqualified(text: str) -> str:
    """An expression over the target alone, without `target.` in front of its columns (but not inside quotes)."""
    return _TARGET_PREFIX.sub(lambda found: found.group() if found.group()[0] in "'\"`" else "", text)


_DATA_FORMAT = "2.2"


def evaluate(
    environment: Environment,
    expressions: Mapping[str, str],
    *,
    source: pa.Table | None,
    target: pa.Table | None,
    table: str,
) -> pa.Table:
    """The expressions, by name, for each pair of rows (or for rows of one side alone), in their order."""
    rows = _paired(source, target)
    with scratch_folder() as folder, pylance_errors(table):
        objects = open_objects(folder)
        fields = _unmarked(fields_from_schema(rows.schema))
        written = DataWriter(objects, environment, fields, _DATA_FORMAT).write(rows.to_reader())
        transaction = operations.transaction(
            operation := Overwrite(fragments=tuple(written.fragments), schema=tuple(fields), data_format=_DATA_FORMAT),
            read_version=0,
            uuid=str(environment.new_uuid()),
        )
        manifest = operations.build(
            None, transaction, operation, Step(version=1), timestamp_ns=0, writer_version=WRITER
        )
        located = ManifestRef(1, ManifestNaming.V2.path(1), ManifestNaming.V2)
        dataset = open_dataset(objects, Snapshot(manifest, located, is_final=False))
        # pylance refuses a scan for nothing but constants, so the address of the rows is asked for too
        scanner = dataset.scanner(columns=dict(expressions), scan_in_order=True, with_row_address=True)
        return scanner.to_table().drop_columns(["_rowaddr"])


def _paired(source: pa.Table | None, target: pa.Table | None) -> pa.Table:
    sides = {"source": source, "target": target}
    columns = {name: _struct(side) for name, side in sides.items() if side is not None and side.num_columns}
    rows = next(side.num_rows for side in sides.values() if side is not None)
    return table_of(columns) if columns else pa.table({"source": pa.nulls(rows, pa.int8())})


def _struct(side: pa.Table) -> pa.ChunkedArray[Any]:
    # What a table notes on a column stays there; and pylance looks for dictionaries in a manifest on disk.
    fields = [pa.field(field.name, _plain(field.type)) for field in side.schema]
    plain = side.cast(pa.schema(fields))
    batches = plain.combine_chunks().to_batches()
    if not batches:
        return chunked([], pa.struct(fields))
    return pa.chunked_array([pa.StructArray.from_arrays(batch.columns, fields=fields) for batch in batches])


def _plain(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if isinstance(type_, pa.DictionaryType) else type_


def _unmarked(fields: list[pb.Field]) -> list[pb.Field]:
    """Here no column is a key, also none inside a struct."""
    for each in fields:
        each.ClearField("unenforced_primary_key")
        each.ClearField("unenforced_primary_key_position")
        each.ClearField("metadata")
    return fields
