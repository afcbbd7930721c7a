"""Predicates, orders and aggregates of Spark for Lance: only those that mean the same; Spark evaluates the others."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql import types as st
from sqlglot import exp

from conroi.data.sql import quoted
from conroi.spark.expressions import Kind, NotSimple, column_kind, simple_condition
from conroi.spark.types import spark_type

Tree = Mapping[str, Any]

_COMPARING: dict[str, type[exp.Binary]] = {
    "=": exp.EQ,
    "<>": exp.NEQ,
    "<": exp.LT,
    "<=": exp.LTE,
    ">": exp.GT,
    ">=": exp.GTE,
    "AND": exp.And,
    "OR": exp.Or,
}
_INTEGERS = {"byte", "short", "integer", "long"}
_EPOCH = date(1970, 1, 1)


def lance_filter(tree: Tree, schema: pa.Schema) -> str | None:
    """The predicate as Lance writes it; None if it may mean something else there."""
    try:
        return simple_condition(_node(tree), lambda column: _resolved(column, schema))
    except NotSimple:
        return None


ALWAYS = "true"
"""The filter that leaves all rows."""
_REFUSING_NULL = {"=", "<>", "<", "<=", ">", ">=", "IN", "STARTS_WITH", "ENDS_WITH", "CONTAINS"}


def scan_filters(trees: Sequence[Tree], schema: pa.Schema) -> list[str | None]:
    """The filter of Lance for each predicate of a scan; None if Spark evaluates it.

    Spark adds IS NOT NULL for each column of a comparison or join. Beside the comparison it is always true.
    """
    found = [lance_filter(tree, schema) for tree in trees]
    compared = {
        _path(child)
        for tree, text in zip(trees, found, strict=True)
        if text is not None and tree.get("name") in _REFUSING_NULL
        for child in tree["children"]
        if "column" in child
    }
    return [
        ALWAYS if text is not None and tree.get("name") == "IS_NOT_NULL" and _path(tree["children"][0]) in compared
        else text
        for tree, text in zip(trees, found, strict=True)
    ]  # fmt: skip


def _path(tree: Tree) -> tuple[str, ...]:
    return tuple(tree.get("column", ()))


@cache
def not_null_filter(column: str) -> str | None:
    """The filter of IS NOT NULL for a column, whatever its type."""
    return lance_filter(
        {"name": "IS_NOT_NULL", "children": [{"column": [column]}]}, pa.schema([pa.field(column, pa.int64())])
    )


def has_plain_nulls(type_: pa.DataType) -> bool:
    """Whether an array of this type counts its nulls, and has no others inside."""
    return pa.types.is_primitive(type_) or pa.types.is_string(type_) or pa.types.is_large_string(type_)


def _resolved(column: exp.Column, schema: pa.Schema) -> tuple[str, pa.DataType] | None:
    if column.name not in schema.names:
        return None  # a field of a struct, or a metadata column
    return quoted(column.name), schema.field(column.name).type


def _node(tree: Tree) -> exp.Expr:
    if "column" in tree:
        if len(tree["column"]) != 1:
            raise NotSimple(".".join(tree["column"]))
        return exp.column(exp.to_identifier(tree["column"][0], quoted=True))
    if "type" in tree:
        return _literal(str(tree["type"]), tree.get("literal"))
    name = str(tree.get("name"))
    if name in _COMPARING:
        left, right = (_node(child) for child in tree["children"])
        return _COMPARING[name](this=left, expression=right)
    build = _BUILDING.get(name)
    if build is None:
        raise NotSimple(name)
    return build(tree)


def _literal(kind: str, value: str | None) -> exp.Expr:
    if value is None:
        return exp.Null()
    if kind in _INTEGERS:
        number = exp.Literal.number(value.removeprefix("-"))
        return exp.Neg(this=number) if value.startswith("-") else number
    if kind == "string":
        return exp.Literal.string(value)
    if kind == "boolean":
        return exp.Boolean(this=value == "true")
    if kind == "date":
        return exp.cast(exp.Literal.string((_EPOCH + timedelta(days=int(value))).isoformat()), "date")
    if kind == "double" and math.isfinite(float(value)):
        text = repr(abs(float(value)))
        number = exp.Literal.number(text)
        return exp.Neg(this=number) if float(value) < 0 else number
    raise NotSimple(kind)


def _among(tree: Tree) -> exp.Expr:
    first, *others = (_node(child) for child in tree["children"])
    return exp.In(this=first, expressions=others)


def _like(before: str, after: str) -> Callable[[Tree], exp.Expr]:
    def build(tree: Tree) -> exp.Expr:
        value, pattern = tree["children"]
        text = pattern.get("literal") if pattern.get("type") == "string" else None
        if text is None or any(letter in text for letter in "%_\\"):
            raise NotSimple(str(pattern))
        return exp.Like(this=_node(value), expression=exp.Literal.string(f"{before}{text}{after}"))

    return build


def _cast(tree: Tree) -> exp.Expr:
    wanted = {"long": "bigint", "double": "double"}.get(str(tree["to"]))
    if wanted is None:
        raise NotSimple(str(tree["to"]))
    return exp.cast(_node(tree["children"][0]), wanted, dialect="spark")


def _is_null(tree: Tree) -> exp.Expr:
    return exp.Is(this=_node(tree["children"][0]), expression=exp.Null())


_BUILDING: dict[str, Callable[[Tree], exp.Expr]] = {
    "NOT": lambda tree: exp.Not(this=_node(tree["children"][0])),
    "IS_NULL": _is_null,
    "IS_NOT_NULL": lambda tree: exp.Not(this=_is_null(tree)),
    "IN": _among,
    "STARTS_WITH": _like("", "%"),
    "ENDS_WITH": _like("%", ""),
    "CONTAINS": _like("%", "%"),
    "ALWAYS_TRUE": lambda _: exp.true(),
    "ALWAYS_FALSE": lambda _: exp.false(),
    "CAST": _cast,
}


# ---------------------------------------------------------------------------- orders

_ORDERED = (Kind.INTEGER, Kind.TEXT, Kind.DATE)
"""What has the same order everywhere; floating-point numbers have NaN and a zero with a sign."""
MOST_TOP_ROWS = 10_000
"""First rows in an order that a worker keeps in memory."""


def is_ordered(type_: pa.DataType) -> bool:
    """Whether values of this type are equal and in order for Lance and pyarrow where they are for Spark."""
    return column_kind(type_) in _ORDERED and not pa.types.is_dictionary(type_)


def top_plan(keys: Sequence[Tree], rows: int, schema: pa.Schema) -> str | None:
    """ORDER BY with LIMIT as a worker evaluates it for its fragments; None if it cannot."""
    found = [key["of"].get("column", []) for key in keys]

    def is_simple(path: Sequence[str]) -> bool:
        return len(path) == 1 and path[0] in schema.names and is_ordered(schema.field(path[0]).type)

    if rows > MOST_TOP_ROWS or len({key["nullsFirst"] for key in keys}) != 1:  # pyarrow has one place for all nulls
        return None
    if not all(map(is_simple, found)):
        return None
    order = [
        [path[0], "descending" if key["descending"] else "ascending"] for key, path in zip(keys, found, strict=True)
    ]
    return json.dumps({"rows": rows, "order": order, "nulls": "at_start" if keys[0]["nullsFirst"] else "at_end"})


# ---------------------------------------------------------------------------- aggregates

_WHOLE_NUMBERS = (st.ByteType, st.ShortType, st.IntegerType, st.LongType)
"""What Spark adds as 64-bit integers: exact in any order."""


def aggregate_plan(functions: Sequence[Tree], schema: pa.Schema) -> tuple[str, st.StructType] | None:
    """The functions that a worker computes for its fragments, and their columns; None if it cannot."""
    steps: list[str | list[str]] = []
    fields: list[st.StructField] = []
    for number, function in enumerate(functions):
        step = aggregate_step(function, schema)
        if step is None:
            return None
        steps.append(step[0])
        fields.append(st.StructField(f"{function['function']}_{number}", step[1], True))
    return json.dumps(steps), st.StructType(fields)


def aggregate_step(function: Tree, schema: pa.Schema) -> tuple[str | list[str], st.DataType] | None:
    """One of these functions, and its type; None if workers cannot compute it."""
    name, of = str(function["function"]), function.get("of")
    if name == "count" and of is None:
        return "count", st.LongType()
    path = [] if of is None else of.get("column", [])
    if len(path) != 1 or path[0] not in schema.names:
        return None
    type_ = schema.field(path[0]).type
    if name == "count":
        return ["count", path[0]], st.LongType()
    found = spark_type(type_)
    if name == "sum":  # decimals: Spark adds in a type that partial sums may not fit
        if isinstance(found, _WHOLE_NUMBERS):
            return ["sum", path[0]], st.LongType()
        return (["sum", path[0]], st.DoubleType()) if type_ in (pa.float32(), pa.float64()) else None
    if name not in ("min", "max") or found is None or column_kind(type_) not in _ORDERED:
        return None
    return [name, path[0]], found
