"""What a table should hold, kept in plain Python: the judge that both readers are compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

Row = dict[str, Any]
Holds = Callable[[Row], bool | None]
Make = Callable[[int], Any]


class Where(NamedTuple):
    """A condition, once as SQL for the readers and once as Python for the model; None counts as not true."""

    sql: str
    holds: Holds


EVERY_ROW = Where("true", lambda row: True)


@dataclass
class Column:
    """A column: its Arrow field, and the value that a new row with a given id gets in it."""

    type: pa.DataType
    make: Make
    nullable: bool = True


def base_columns(*, null_structs: bool = True) -> dict[str, Column]:
    """A bit of everything that matters: nulls, empty values, nested values, text, vectors.

    File version 2.0 has no null structs.
    """
    return {
        "id": Column(pa.int64(), lambda i: i, nullable=False),
        "v": Column(pa.int64(), lambda i: None if i % 11 == 5 else i * 10),
        "name": Column(pa.string(), lambda i: None if i % 13 == 4 else "" if i % 13 == 7 else f"name {i % 17} of {i}"),
        "tags": Column(pa.list_(pa.string()), lambda i: None if i % 6 == 1 else [f"t{j}" for j in range(i % 4)]),
        "at": Column(
            pa.struct([("x", pa.int32()), ("y", pa.string())]),
            lambda i: None if null_structs and i % 9 == 2 else {"x": i, "y": None if i % 5 == 0 else f"y{i}"},
        ),
        "vec": Column(pa.list_(pa.float32(), 4), lambda i: [float(i), float(i % 3), 0.5, -1.0]),
        "note": Column(pa.large_string(), lambda i: f"note {i}"),
    }


@dataclass
class Model:
    """The rows of one table by their id, and what its columns are."""

    columns: dict[str, Column] = field(default_factory=base_columns)
    rows: dict[int, Row] = field(default_factory=dict[int, Row])

    def copy(self) -> Model:
        return Model(dict(self.columns), {i: dict(row) for i, row in self.rows.items()})

    # ------------------------------------------------------------------------ rows

    def make(self, ids: Iterable[int]) -> list[Row]:
        """Rows as they would be appended; the model itself does not change."""
        return [{name: column.make(i) for name, column in self.columns.items()} for i in ids]

    def append(self, rows: Iterable[Row]) -> None:
        for row in rows:
            assert row["id"] not in self.rows, "ids are unique in these tests"
            self.rows[row["id"]] = {name: row.get(name) for name in self.columns}

    def upsert(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.rows[row["id"]] = {name: row.get(name) for name in self.columns}

    def delete(self, where: Where) -> None:
        self.rows = {i: row for i, row in self.rows.items() if not where.holds(row)}

    def update(self, values: Mapping[str, Callable[[Row], Any]], where: Where = EVERY_ROW) -> None:
        for row in self.rows.values():
            if where.holds(row):
                row |= {name: value(row) for name, value in values.items()}

    def matching(self, where: Where) -> set[int]:
        return {i for i, row in self.rows.items() if where.holds(row)}

    # --------------------------------------------------------------------- columns

    def add_column(self, name: str, column: Column, value: Callable[[Row], Any] = lambda row: None) -> None:
        assert name not in self.columns
        for row in self.rows.values():
            row[name] = value(row)
        self.columns[name] = column

    def drop_column(self, name: str) -> None:
        del self.columns[name]
        for row in self.rows.values():
            del row[name]

    def rename_column(self, old: str, new: str) -> None:
        self.columns = {new if name == old else name: column for name, column in self.columns.items()}
        self.rows = {
            i: {new if name == old else name: value for name, value in row.items()} for i, row in self.rows.items()
        }

    # --------------------------------------------------------------------- as Arrow

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(name, c.type, nullable=c.nullable) for name, c in self.columns.items()])

    def arrow(self, rows: Iterable[Row]) -> pa.Table:
        return pa.Table.from_pylist(list(rows), schema=self.schema)

    def new(self, ids: Iterable[int]) -> pa.Table:
        """New rows with these ids, as data to be written."""
        return self.arrow(self.make(ids))

    def sorted_rows(self) -> list[Row]:
        return [self.rows[i] for i in sorted(self.rows)]
