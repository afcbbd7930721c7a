"""A table as plain Python has it: what a list of statements must make of it, worked out without conroi."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import conroi
from conroi.writer import Writer

COLUMNS = ("id", "v", "s", "t", "u")
DATA = ("s", "t", "u")
"""The columns that may be dropped."""


def row_of(number: int) -> dict[str, Any]:
    """A row whose values all follow from its id."""
    return {"id": number, "v": 10 * number, "s": f"s{number}", "t": number % 3, "u": -number}


SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("v", pa.int64()),
        pa.field("s", pa.string()),
        pa.field("t", pa.int64()),
        pa.field("u", pa.int64()),
    ]
)
FIRST, SECOND = (1, 2, 3), (4, 5, 6)


@dataclass
class Model:
    """Rows by id; `same_as` says which rows are still the ones that the base had."""

    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    columns: list[str] = field(default_factory=lambda: list(COLUMNS))
    config: dict[str, str] = field(default_factory=dict)
    indices: set[str] = field(default_factory=set)
    same_as: set[int] = field(default_factory=set)

    @classmethod
    def base(cls) -> Model:
        ids = [*FIRST, *SECOND]
        return cls({i: row_of(i) for i in ids}, same_as=set(ids))

    def row(self, number: int, **changes: Any) -> dict[str, Any]:
        """A row of the columns that there are now."""
        made = {**row_of(number), **changes}
        return {name: made.get(name, f"s{number}" if name == "s_" else 2 * number) for name in self.columns}

    def listed(self) -> list[dict[str, Any]]:
        return [self.rows[i] for i in sorted(self.rows)]


Do = Callable[[Any, "Model", int], None]
"""Do the n-th statement to a table and to its model."""


def append(table: conroi.Table, model: Model, n: int) -> None:
    new = [model.row(100 + 10 * n), model.row(101 + 10 * n)]
    table.append(new)
    model.rows.update({row["id"]: row for row in new})


def delete(table: conroi.Table, model: Model, n: int) -> None:
    gone = {n + 1, 100 + 10 * (n - 1)}
    table.delete(f"id IN ({', '.join(map(str, sorted(gone)))})")
    _forget(model, gone)


def update(table: conroi.Table, model: Model, n: int) -> None:
    table.update({"v": f"v + {1000 * (n + 1)}"}, where=f"id IN (1, 2, {101 + 10 * (n - 1)})")
    for i in {1, 2, 101 + 10 * (n - 1)} & model.rows.keys():
        model.rows[i] = {**model.rows[i], "v": model.rows[i]["v"] + 1000 * (n + 1)}


def merge(table: conroi.Table, model: Model, n: int) -> None:
    new = [model.row(i, v=7000 + n) for i in (3, 101 + 10 * (n - 1), 200 + n)]
    table.merge(new, on="id").when_matched_update_all().when_not_matched_insert_all().execute()
    model.rows.update({row["id"]: row for row in new})


def overwrite(table: conroi.Table, model: Model, n: int) -> None:
    new = [model.row(300 + 10 * n), model.row(2)]
    table.overwrite(new)
    model.rows = {row["id"]: row for row in new}
    model.same_as = set()
    model.indices = set()


def add_columns(table: conroi.Table, model: Model, n: int) -> None:
    name = f"c{n}"
    table.add_columns({name: "id * 2"})
    model.columns.append(name)
    model.rows = {i: {**row, name: 2 * i} for i, row in model.rows.items()}


def drop_columns(table: conroi.Table, model: Model, n: int) -> None:
    name = next(name for name in DATA if name in model.columns)
    table.drop_columns([name])
    model.columns.remove(name)
    model.rows = {i: {k: v for k, v in row.items() if k != name} for i, row in model.rows.items()}


def config(table: conroi.Table, model: Model, n: int) -> None:
    table.set_config({f"k{n}": str(n)})
    model.config[f"k{n}"] = str(n)


def create_index(table: conroi.Table, model: Model, n: int) -> None:
    table.create_index("id", name=f"i{n}")
    model.indices.add(f"i{n}")


def compact(table: conroi.Table, model: Model, n: int) -> None:
    table.compact()


def restore(table: conroi.Table, model: Model, n: int) -> None:
    table.restore(1)
    model.rows = {i: row_of(i) for i in FIRST}
    model.same_as = set(FIRST)
    model.columns = list(COLUMNS)
    model.config = {}
    model.indices = set()


def _forget(model: Model, gone: set[int]) -> None:
    for i in gone:
        model.rows.pop(i, None)
        model.same_as.discard(i)


STATEMENTS: dict[str, Do] = {
    verb.__name__: verb
    for verb in (
        append,
        delete,
        update,
        merge,
        overwrite,
        add_columns,
        drop_columns,
        config,
        create_index,
        compact,
        restore,
    )
}


# ----------------------------------------------------------------------------- statements that are rarer


def rename_columns(table: conroi.Table, model: Model, n: int) -> None:
    new = "s_" if "s" in model.columns else "s"
    old = "s" if new == "s_" else "s_"
    table.rename_columns({old: new})
    model.columns = [new if name == old else name for name in model.columns]
    model.rows = {i: {new if k == old else k: v for k, v in row.items()} for i, row in model.rows.items()}


def evolve(table: conroi.Table, model: Model, n: int) -> None:
    name, new = f"e{n}", model.row(500 + n)
    table.append([{**new, name: n}], evolve_schema=True)
    model.columns.append(name)
    model.rows = {i: {**row, name: None} for i, row in model.rows.items()}
    model.rows[500 + n] = {**new, name: n}


def update_in_place(table: conroi.Table, model: Model, n: int) -> None:
    table.update({"v": f"v + {n + 1}"}, where="id > 2", mode="columns")
    model.rows = {i: {**row, "v": row["v"] + n + 1} if i > 2 else row for i, row in model.rows.items()}


def replace_column_data(table: conroi.Table, model: Model, n: int) -> None:
    table.replace_column_data({"v": "v + 5"})
    model.rows = {i: {**row, "v": row["v"] + 5} for i, row in model.rows.items()}


def overwrite_where(table: conroi.Table, model: Model, n: int) -> None:
    new = model.row(1, v=n)
    table.overwrite([new], where="id < 3")
    _forget(model, {1, 2})
    model.rows[1] = new


def sort(table: conroi.Table, model: Model, n: int) -> None:
    table.compact(sort_by="v")


RARER: dict[str, Do] = {
    verb.__name__: verb
    for verb in (rename_columns, evolve, update_in_place, replace_column_data, overwrite_where, sort)
}


def apply(table: Writer, model: Model, names: Sequence[str]) -> None:
    """Do the statements, in this order, to a table and to its model."""
    for n, name in enumerate(names):
        (STATEMENTS.get(name) or RARER[name])(table, model, n)


# ------------------------------------------------------------------------------------- concurrent changes


def other_append(table: conroi.Table, model: Model) -> None:
    table.append([model.row(900), model.row(901)])
    model.rows.update({i: model.row(i) for i in (900, 901)})


def other_delete(table: conroi.Table, model: Model) -> None:
    """Rows that no statement here is about."""
    table.delete("id = 6")
    _forget(model, {6})


def same_delete(table: conroi.Table, model: Model) -> None:
    """A row that update, and the first delete, are about."""
    table.delete("id = 1")
    _forget(model, {1})


OTHERS: dict[str, Callable[[conroi.Table, Model], None]] = {
    "append": other_append,
    "delete of other rows": other_delete,
    "delete of the same rows": same_delete,
}
