"""Point reads of a version: rows by position, random samples, vector search and full-text search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa

from conroi.data.predicates import Predicate, checked_predicate
from conroi.data.table_version import TableVersion, unknown_column
from conroi.environment import Environment
from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import count_rows

Query: TypeAlias = "str | Sequence[float] | pa.Array[Any] | pa.Scalar[Any] | Any"
"""A text, or a vector as a list, a numpy array or a pyarrow array."""


def checked_count(count: object, table: str) -> int:
    """A number of rows; InvalidInputError if it is none."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise InvalidInputError(f"{count!r} is not a number of rows.", table=table, hint="Give 0 or more.")
    return count


def random_positions(wanted: int, rows: int, seed: int | None, environment: Environment) -> list[int]:
    """So many different positions, in ascending order; all if there are no more."""
    if wanted >= rows:
        return list(range(rows))
    chance = np.random.default_rng(environment.random_u64() if seed is None else abs(seed))
    return sorted(chance.choice(rows, wanted, replace=False, shuffle=False).tolist())


def take(pinned: TableVersion, positions: Sequence[int], columns: Sequence[str] | None) -> pa.Table:
    """The rows at these positions of a scan, in this order."""
    rows = count_rows(pinned.manifest.fragments)
    wanted = [_position(each, rows, pinned.root) for each in positions]
    names = _checked_columns(pinned, columns)
    if not wanted:
        return pinned.dataset.scanner(columns=names, limit=0).to_table()
    return pinned.dataset.take(wanted, columns=names)


def _position(given: object, rows: int, table: str) -> int:
    try:
        position = given if isinstance(given, int) and not isinstance(given, bool) else cast("Any", given).__index__()
    except AttributeError:
        position = -1
    if isinstance(given, bool) or not 0 <= position < rows:
        raise InvalidInputError(
            f"{given!r} is not the position of a row.", table=table, hint=f"They go from 0 to {rows - 1}."
        )
    return position


def _checked_columns(pinned: TableVersion, columns: Sequence[str] | None) -> list[str] | None:
    if columns is None:
        return None
    if isinstance(columns, str):
        raise InvalidInputError("columns is a list of names.", table=pinned.root, hint=f"Write [{columns!r}].")
    for name in columns:
        if name.partition(".")[0] not in pinned.schema.names and not name.startswith("_"):
            raise unknown_column(pinned, name)
    return list(columns)


@dataclass(frozen=True)
class Search:
    """A search for the rows nearest to a vector, or best for a text."""

    query: Query
    column: str | None
    limit: int
    columns: Sequence[str] | None = None
    filter: Predicate | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def run(self, pinned: TableVersion) -> pa.Table:
        """The rows, best first."""
        where = None if self.filter is None else checked_predicate(self.filter, table=pinned.root)
        names = _checked_columns(pinned, self.columns)
        kind = self._text(pinned) if isinstance(self.query, str) else self._nearest(pinned)
        if self.limit == 0:
            return pinned.dataset.scanner(columns=names, limit=0).to_table()
        ranked = "_score" if isinstance(self.query, str) else "_distance"
        if names is not None and ranked not in names:
            names.append(ranked)
        scanner = pinned.indexed_dataset.scanner(
            columns=names, filter=where, prefilter=where is not None, limit=self.limit, **kind
        )
        return scanner.to_table()

    def _text(self, pinned: TableVersion) -> dict[str, Any]:
        if self.options:
            raise InvalidInputError("options are for vectors.", table=pinned.root, hint="Leave them out.")
        indexed = sorted(_with_text_index(pinned))
        column = self.column
        if column is not None and column not in pinned.schema.names:
            raise unknown_column(pinned, column)
        if column is None and len(indexed) == 1:
            column = indexed[0]
        if column is None and indexed:
            raise InvalidInputError(
                f"Several columns have an index for text: {', '.join(indexed)}.",
                table=pinned.root,
                hint=f'Say which: search({self.query!r}, "{indexed[0]}").',
            )
        if column is None or column not in indexed:
            wanted = column or "column"
            raise InvalidInputError(
                f"{f'Column {column!r}' if column else 'The table'} has no index for text.",
                table=pinned.root,
                hint=f'Make one: create_index("{wanted}", "INVERTED").',
            )
        return {"full_text_query": {"columns": [column], "query": self.query}}

    def _nearest(self, pinned: TableVersion) -> dict[str, Any]:
        column = self.column or self._only_vector(pinned)
        if column not in pinned.schema.names:
            raise unknown_column(pinned, column)
        type_ = pinned.schema.field(column).type
        if not pa.types.is_fixed_size_list(type_):
            raise InvalidInputError(
                f"Column {column!r} holds {type_}, which is no vector.",
                table=pinned.root,
                hint="A vector has a fixed size, pa.list_(pa.float32(), n): alter_columns() can make it one.",
            )
        vector = _vector(self.query, type_.value_type, pinned.root)
        if len(vector) != type_.list_size:
            raise InvalidInputError(
                f"The vector has {len(vector)} numbers, and those of column {column!r} have {type_.list_size}.",
                table=pinned.root,
                hint="Make it with the model that made the column.",
            )
        return {"nearest": {"column": column, "q": vector, "k": self.limit, **self.options}}

    def _only_vector(self, pinned: TableVersion) -> str:
        vectors = [column.name for column in pinned.schema if pa.types.is_fixed_size_list(column.type)]
        if len(vectors) == 1:
            return vectors[0]
        said = f"has several columns of vectors: {', '.join(vectors)}" if vectors else "has no column of vectors"
        hint = f'Say which: search(query, "{vectors[0]}").' if vectors else "Vectors are pa.list_(pa.float32(), n)."
        raise InvalidInputError(f"The table {said}.", table=pinned.root, hint=hint)


def _vector(query: object, type_: pa.DataType, table: str) -> pa.Array[Any]:
    try:
        values: Any = query.values if isinstance(query, pa.FixedSizeListScalar | pa.ListScalar) else query
        array: Any = values if isinstance(values, pa.Array) else pa.array(values)
        return array.cast(type_, safe=not pa.types.is_floating(type_))
    except (pa.ArrowException, TypeError, ValueError, AttributeError) as error:
        raise InvalidInputError(
            f"A {type(query).__name__} cannot be searched for.", table=table, hint="Give a text, or a list of numbers."
        ) from error


def _with_text_index(pinned: TableVersion) -> set[str]:
    """The columns that an index for text is on."""
    names = {each.id: each.name for each in pinned.manifest.fields}
    return {names[number] for index in pinned.manifest.indices if _is_text(index) for number in index.fields}


def _is_text(index: pb.IndexMetadata) -> bool:
    return "Inverted" in index.index_details.type_url
