"""Statements that change the rows of one table: what the table is after it, how to do it, how it reads in Python."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tests.branches.histories.model import Row, Table, fresh
from tests.branches.histories.values import Column, arrow_schema, canonical, literal


class NotApplicable(Exception):
    """The step has no meaning in this history."""


def column_of(what: tuple[Any, ...]) -> Column:
    name, type_, nullable, inside = what
    return Column(fresh(), name, type_, nullable, tuple(Column(fresh(), each, kind) for each, kind in inside))


def noted(notes: Any, name: str, value: str | None) -> dict[str, str]:
    return {**{each: old for each, old in notes.items() if each != name}, **({} if value is None else {name: value})}


def type_code(type_: pa.DataType) -> str:
    if pa.types.is_struct(type_):
        return f"pa.struct([{', '.join(f'({each.name!r}, {type_code(each.type)})' for each in type_)}])"
    if pa.types.is_dictionary(type_):
        return "pa.dictionary(pa.int32(), pa.string())"
    if pa.types.is_fixed_size_list(type_):
        return f"pa.list_({type_code(type_.value_type)}, {type_.list_size})"
    if pa.types.is_list(type_):
        return f"pa.list_({type_code(type_.value_type)})"
    if pa.types.is_timestamp(type_):
        return f"pa.timestamp({type_.unit!r})"
    if pa.types.is_decimal(type_):
        return f"pa.decimal128({type_.precision}, {type_.scale})"
    names = {"double": "float64", "float": "float32", "bool": "bool_"}
    return f"pa.{names.get(str(type_), str(type_))}()"


def schema_code(columns: tuple[Column, ...]) -> str:
    fields = [
        f"pa.field({each.name!r}, {type_code(each.type)}{'' if each.nullable else ', nullable=False'})"
        for each in arrow_schema(columns)
    ]
    return f"pa.schema([{', '.join(fields)}])"


def _raw(value: Any, column: Column) -> Any:
    """A value of a step as Arrow takes it."""
    if value is None:
        return None
    if column.type in ("dec10", "dec20"):
        return decimal.Decimal(value)
    if column.type == "struct":
        return {child.name: _raw(value.get(child.name), child) for child in column.children}
    return value


def arrow_rows(rows: list[dict[str, Any]], columns: tuple[Column, ...]) -> pa.Table:
    schema = arrow_schema(columns)
    values = [
        pa.array([_raw(row[each.name], each) for row in rows], schema.field(n).type) for n, each in enumerate(columns)
    ]
    return pa.Table.from_arrays(values, schema=schema)


def shown_rows(rows: list[dict[str, Any]]) -> str:
    return repr(rows).replace("nan", "float('nan')")


def _adapted(rows: list[dict[str, Any]], table: Table) -> list[dict[str, Any]]:
    """Rows of a step for the columns that the table has now; what is missing or does not fit is null, or a default."""
    return [{each.name: _fitting(row.get(each.name), each) for each in table.columns} for row in rows]


DEFAULTS: dict[str, Any] = {
    "i32": 0, "i64": 0, "f32": 0.5, "f64": 0.5, "str": "a", "lstr": "a", "bool": True, "ts_ms": 0, "ts_us": 0,
    "dec10": "1.25", "dec20": "1.25", "bin": b"x", "li32": [], "li64": [], "lf64": [], "v32": [0.5, 1.5],
    "v64": [0.5, 1.5], "dict": "a",
}  # fmt: skip


def _fitting(value: Any, column: Column) -> Any:
    if column.type == "struct":
        if not isinstance(value, dict):
            return None if column.nullable else {child.name: None for child in column.children}
        return {child.name: _fitting(value.get(child.name), child) for child in column.children}
    try:
        pa.array([_raw(value, column)], arrow_schema((column,)).field(0).type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, decimal.InvalidOperation, TypeError, ValueError):
        value = None
    return DEFAULTS[column.type] if value is None and not column.nullable else value


def unique(fitted: list[Row], rows: list[dict[str, Any]], key: tuple[int, ...]) -> list[dict[str, Any]]:
    """The first row of each key."""
    if not key:
        return rows
    seen, result = set[tuple[Any, ...]](), list[dict[str, Any]]()
    for row, raw in zip(fitted, rows, strict=True):
        value = tuple(row[fid] for fid in key)
        if value not in seen:
            seen.add(value)
            result.append(raw)
    return result


IN_SPARK = {"i32", "i64", "f32", "f64", "str", "bool", "bin", "li32", "li64", "lf64", "struct"}
"""Types that a DataFrame brings back as they are."""


class Statement:
    """A statement on one table: what the table is after it, how to do it, and how it reads in Python."""

    after: Table
    code: str
    run: Callable[[Any], Any]
    """Does it to a table, or to a table in a transaction."""

    def __init__(self, table: Table, what: tuple[Any, ...], spark: Any = None) -> None:
        self._table = table
        self._spark = spark if {column.type for column in table.columns} <= IN_SPARK else None
        self._how = {} if self._spark is None else {"spark": self._spark}
        getattr(self, f"_{what[0]}")(*what[1:])

    def _given(self, data: pa.Table) -> Any:
        return data if self._spark is None else self._spark.createDataFrame(data)

    def _append(self, rows: list[dict[str, Any]]) -> None:
        table = self._table
        rows = _adapted(rows, table)
        if table.key:
            known = {table.key_of(row) for row in table.rows.values()}
            rows = [
                raw
                for raw in unique(table.fit(rows), rows, table.key)
                if table.key_of(table.fit([raw])[0]) not in known
            ]
        if not rows:
            raise NotApplicable
        data = arrow_rows(rows, table.columns)
        self.after, self.run = table.append(table.fit(rows)), lambda handle: handle.append(self._given(data))
        self.code = f".append(pa.Table.from_pylist({shown_rows(rows)}, schema={schema_code(table.columns)}))"

    def _overwrite(self, rows: list[dict[str, Any]]) -> None:
        table = self._table
        rows = _adapted(rows, table)
        rows = unique(table.fit(rows), rows, table.key)
        data = arrow_rows(rows, table.columns)
        notes = {name.encode(): value.encode() for name, value in table.schema_notes.items()}
        data = data.replace_schema_metadata(notes or None)
        self.after, self.run = table.renewed(table.fit(rows)), lambda handle: handle.overwrite(data)
        self.code = f".overwrite(pa.Table.from_pylist({shown_rows(rows)}, schema={schema_code(table.columns)}))"

    def _upsert(self, rows: list[dict[str, Any]], on: tuple[str, ...]) -> None:
        table = self._table
        columns = [table.column(name) for name in on]
        if table.key:
            columns = [table.by_fid(fid) for fid in table.key]
        if any(column is None or column.type not in ("i32", "i64", "str", "lstr", "f64", "bool") for column in columns):
            raise NotApplicable
        fids = tuple(column.fid for column in columns if column is not None)
        names = [column.name for column in columns if column is not None]
        rows = _adapted(rows, table)
        rows = unique(table.fit(rows), rows, fids)
        data = arrow_rows(rows, table.columns)
        self.after = table.upsert(table.fit(rows), fids)
        self.run = lambda handle: (
            handle.merge(self._given(data), on=names).when_matched_update_all().when_not_matched_insert_all().execute()
        )
        data_code = f"pa.Table.from_pylist({shown_rows(rows)}, schema={schema_code(table.columns)})"
        self.code = f".merge({data_code}, on={names}).when_matched_update_all().when_not_matched_insert_all().execute()"

    def _where(self, where: tuple[Any, ...] | None) -> tuple[str | None, list[int]]:
        if where is None:
            return None, list(self._table.rows)
        column = self._table.column(where[0])
        if column is None or column.type not in ("i32", "i64", "f32", "f64", "str", "lstr", "bool"):
            raise NotApplicable
        if where[1] == "null":
            text, wanted = f"{column.name} IS NULL", {None}
        elif where[1] == "nan":
            if column.type not in ("f32", "f64"):
                raise NotApplicable
            text, wanted = f"isnan({column.name})", {"NaN"}
        else:
            values = [each for each in where[2] if _fitting(each, replace(column, nullable=True)) == each]
            values = [each for each in values if isinstance(each, bool) == (column.type == "bool")]
            if not values:
                raise NotApplicable
            text = f"{column.name} IN ({', '.join(map(literal, values))})"
            wanted = {canonical(each, column) for each in values}
        return text, [uid for uid, row in self._table.rows.items() if row[column.fid] in wanted]

    def _delete(self, where: tuple[Any, ...] | None) -> None:
        text, uids = self._where(where)
        text = text or "true"
        self.after = self._table.delete(uids) if uids else self._table
        self.run, self.code = lambda handle: handle.delete(text, **self._how), f".delete({text!r})"

    def _value(self, name: str, value: Any) -> tuple[Column, str]:
        column = self._table.column(name)
        simple = ("i32", "i64", "f32", "f64", "str", "lstr", "bool")
        if column is None or column.type not in simple or column.fid in self._table.key:
            raise NotApplicable
        if (value is None and not column.nullable) or _fitting(value, replace(column, nullable=True)) is not value:
            raise NotApplicable
        text = "CAST('NaN' AS DOUBLE)" if isinstance(value, float) and value != value else literal(value)
        return column, text

    def _update(self, where: tuple[Any, ...] | None, name: str, value: Any, mode: str) -> None:
        column, text = self._value(name, value)
        condition, uids = self._where(where)
        values = {column.fid: canonical(value, column)}
        self.after = self._table
        if uids:
            self.after = self._table.update(uids, values)
        self.run = lambda handle: handle.update({name: text}, condition, mode=mode, **self._how)
        self.code = f".update({{{name!r}: {text!r}}}, {condition!r}, mode={mode!r})"

    def _replace(self, name: str, value: Any) -> None:
        if value is None or not self._table.rows:
            raise NotApplicable
        column, text = self._value(name, value)
        values = {column.fid: canonical(value, column)}
        self.after = self._table.update(self._table.rows, values)
        self.run = lambda handle: handle.replace_column_data({name: text})
        self.code = f".replace_column_data({{{name!r}: {text!r}}})"
