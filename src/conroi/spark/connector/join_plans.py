"""Joins with small tables that workers evaluate below an aggregate: which ones, and what each task does.

One table is probed: its fragments are shared out to tasks. Each of the others is small enough that every task holds it
in memory. Only inner joins on one equality of integers, texts or dates, which are equal where Spark's are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import types as st

from conroi.data.arrow_types import row_width
from conroi.format.json import parse_object
from conroi.spark.connector.grouped import is_computed
from conroi.spark.connector.predicates import Tree, aggregate_step
from conroi.spark.connector.tasks import schema_from_text
from conroi.spark.expressions import Kind, column_kind, integer_bits
from conroi.spark.types import spark_type

Request = Mapping[str, Any]
MOST_ROWS = 32_768
"""Rows of a table that every task holds in memory: a hash table of more misses the processor's caches."""
MOST_BYTES = 10 * 1024 * 1024
"""Bytes of its columns; the same as Spark's default for a broadcast join."""
MOST_GROUPS = 1_000_000
"""Product of the rows of all tables in memory: at most so many groups has a task."""

_LITERALS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_COMPARED = (Kind.INTEGER, Kind.TEXT, Kind.DATE)


@dataclass(frozen=True)
class Column:
    """A column of one of the joined tables."""

    side: int
    name: str

    def moved(self, offset: int) -> Column:
        return Column(self.side + offset, self.name)


@dataclass(frozen=True)
class Key:
    """What is compared: a column, or the remainder of its division by a number, with the sign of the column."""

    column: Column
    modulus: int | None = None

    def moved(self, offset: int) -> Key:
        return Key(self.column.moved(offset), self.modulus)


@dataclass(frozen=True)
class Build:
    """A table in memory: its key column, and the key of the probed table that is looked up in it."""

    on: Column
    key: Key

    def moved(self, offset: int) -> Build:
        return Build(self.on.moved(offset), self.key.moved(offset))


@dataclass(frozen=True)
class JoinPlan:
    """A join of tables, and the columns that Spark sees of it."""

    probe: int
    builds: tuple[Build, ...]
    columns: Mapping[str, Column]

    def moved(self, offset: int) -> JoinPlan:
        """The same plan where the tables have higher numbers."""
        columns = {name: column.moved(offset) for name, column in self.columns.items()}
        return JoinPlan(self.probe + offset, tuple(build.moved(offset) for build in self.builds), columns)

    def to_text(self) -> str:
        columns = {name: [column.side, column.name] for name, column in self.columns.items()}
        builds = [
            [build.on.side, build.on.name, build.key.column.side, build.key.column.name, build.key.modulus]
            for build in self.builds
        ]
        return json.dumps({"probe": self.probe, "builds": builds, "columns": columns})

    @staticmethod
    def from_text(text: str) -> JoinPlan:
        facts: Any = parse_object(text, "The join")
        builds = tuple(
            Build(Column(side, name), Key(Column(probe, key), modulus))
            for side, name, probe, key, modulus in facts["builds"]
        )
        columns = {name: Column(*column) for name, column in facts["columns"].items()}
        return JoinPlan(facts["probe"], builds, columns)


@dataclass(frozen=True)
class _Side:
    rows: int
    schema: pa.Schema

    @staticmethod
    def of(facts: Request) -> _Side:
        return _Side(int(facts["rows"]), schema_from_text(facts["columns"]))


class _Operand:
    """Left or right of a join: a table, or a join of tables."""

    def __init__(self, facts: Request, offset: int) -> None:
        self.sides = [_Side.of(side) for side in facts["sides"]]
        self._offset = offset
        self._join = None if facts.get("join") is None else JoinPlan.from_text(facts["join"]).moved(offset)
        self.columns = {alias: self._column(name) for name, alias in facts["columns"]}

    def _column(self, name: str) -> Column:
        return Column(self._offset, name) if self._join is None else self._join.columns[name]

    @property
    def is_table(self) -> bool:
        return self._join is None

    @property
    def rows(self) -> int:
        return self.sides[0].rows

    @cached_property
    def probe(self) -> int:
        return self._offset if self._join is None else self._join.probe

    @property
    def builds(self) -> tuple[Build, ...]:
        return () if self._join is None else self._join.builds


class _Refused(Exception):
    """Spark evaluates this join."""


def join(request: Request) -> dict[str, Any]:
    """The plan of a join, and its columns; no plan if Spark evaluates it."""
    try:
        plan, sides = _planned(request)
    except _Refused:
        return {"plan": None}
    schema = joined_schema(plan, [side.schema for side in sides])
    fields = [st.StructField(field.name, found) for field in schema if (found := spark_type(field.type)) is not None]
    return {"plan": plan.to_text(), "schema": st.StructType(fields).json()}


def joined_schema(plan: JoinPlan, schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The columns that Spark sees of a join, as they are stored."""
    return pa.schema(
        [pa.field(name, schemas[column.side].field(column.name).type) for name, column in plan.columns.items()]
    )


def _planned(request: Request) -> tuple[JoinPlan, list[_Side]]:
    left = _Operand(request["operands"][0], 0)
    right = _Operand(request["operands"][1], len(left.sides))
    sides = left.sides + right.sides
    columns = {**left.columns, **right.columns}
    if any(column.name not in sides[column.side].schema.names for column in columns.values()):
        raise _Refused  # a metadata column
    probed, held = (left, right) if _is_held(right, left) else (right, left)
    condition = request["condition"]
    if request["kind"] != "INNER_JOIN" or not held.is_table or condition.get("name") != "=":
        raise _Refused
    keys = [_key(tree, columns, sides)[0] for tree in condition["children"]]
    on, key = keys if keys[0].column.side == held.probe else reversed(keys)
    if on.column.side != held.probe or on.modulus is not None or key.column.side != probed.probe:
        raise _Refused
    builds = (*probed.builds, Build(on.column, key))
    _check_sizes(builds, columns, sides)
    if _kind(on, sides) != _kind(key, sides):
        raise _Refused
    return JoinPlan(probed.probe, builds, columns), sides


def _is_held(operand: _Operand, other: _Operand) -> bool:
    return operand.is_table and (not other.is_table or operand.rows <= other.rows)


def _kind(key: Key, sides: Sequence[_Side]) -> Kind:
    kind = column_kind(sides[key.column.side].schema.field(key.column.name).type)
    if kind not in _COMPARED:
        raise _Refused
    return kind


def _check_sizes(builds: Sequence[Build], columns: Mapping[str, Column], sides: Sequence[_Side]) -> None:
    groups = 1
    for build in builds:
        side = sides[build.on.side]
        names = {column.name for column in columns.values() if column.side == build.on.side}
        width = row_width(pa.schema([side.schema.field(name) for name in names]))
        groups *= max(1, side.rows)
        if side.rows > MOST_ROWS or side.rows * width > MOST_BYTES:
            raise _Refused
    if groups > MOST_GROUPS:
        raise _Refused


def _key(tree: Tree, columns: Mapping[str, Column], sides: Sequence[_Side]) -> tuple[Key, int]:
    """A column or a remainder of one, and how wide an integer it is. A cast to a wider integer changes no value."""
    if "column" in tree:
        column = columns.get(tree["column"][0]) if len(tree["column"]) == 1 else None
        if column is None:
            raise _Refused
        return Key(column), integer_bits(sides[column.side].schema.field(column.name).type)
    children = tree.get("children", ())
    if tree.get("name") == "CAST":
        key, bits = _key(children[0], columns, sides)
        wanted = _LITERALS.get(str(tree["to"]), 0)
        if not bits or wanted < bits:
            raise _Refused
        return key, wanted
    if tree.get("name") == "%" and children[1].get("type") in _LITERALS and children[1].get("literal") is not None:
        key, bits = _key(children[0], columns, sides)
        divisor = int(children[1]["literal"])
        if not bits or key.modulus is not None or divisor <= 0:
            raise _Refused
        return Key(key.column, divisor), max(bits, _LITERALS[children[1]["type"]])
    raise _Refused


# ---------------------------------------------------------------------------- aggregates


def aggregates(request: Request) -> tuple[str, st.StructType] | None:
    """The groups and functions that workers compute of a join, and their columns; None if they cannot.

    All columns of groups are those of tables in memory, or equal to one of them: so there are few groups.
    """
    plan = JoinPlan.from_text(request["join"])
    schemas = [schema_from_text(side["columns"]) for side in request["sides"]]
    schema = joined_schema(plan, schemas)
    number_of = {build.on.side: number for number, build in enumerate(plan.builds)}
    same = {build.key.column: build.on for build in plan.builds if build.key.modulus is None}
    groups: list[list[Any]] = []
    fields: list[st.StructField] = []
    for tree in request["groups"]:
        column = _column(tree, plan)
        column = None if column is None else same.get(column, column)
        if column is None or column.side not in number_of:
            return None
        type_ = schemas[column.side].field(column.name).type
        found = spark_type(type_) if _is_grouped(type_) else None
        if found is None:
            return None
        groups.append([number_of[column.side], column.name])
        fields.append(st.StructField(f"group_{len(groups)}", found))
    steps: list[list[Any]] = []
    for number, function in enumerate(request["functions"]):
        step = aggregate_step(function, schema)
        if step is None:
            return None
        if isinstance(step[0], str):
            steps.append([step[0], None, None])
        else:
            function_name, name = step[0]
            column = plan.columns[name]
            if not is_computed(function_name, schema.field(name).type, is_held=column.side in number_of):
                return None
            steps.append([function_name, number_of.get(column.side), column.name])
        fields.append(st.StructField(f"{function['function']}_{number}", step[1]))
    return json.dumps({"groups": groups, "steps": steps}), st.StructType(fields)


def _column(tree: Tree, plan: JoinPlan) -> Column | None:
    path = tree.get("column", ())
    return plan.columns.get(path[0]) if len(path) == 1 else None


def _is_grouped(type_: pa.DataType) -> bool:
    """Spark groups the groups of all tasks again, so it does no harm if values differ that are equal to Spark."""
    return (
        (pa.types.is_primitive(type_) and type_ != pa.float16())
        or column_kind(type_) is Kind.TEXT
        or pa.types.is_decimal(type_)
    )


# ---------------------------------------------------------------------------- tasks


def task_plan(request: Request) -> tuple[JoinPlan, dict[str, Any]]:
    """The join and its aggregates in the form that workers take, without the tables in memory."""
    plan = JoinPlan.from_text(request["join"])
    facts: Any = parse_object(request["aggregates"], "The aggregates")
    builds = [
        {
            "on": build.on.name,
            "key": build.key.column.name,
            "modulus": build.key.modulus,
            "groups": list(dict.fromkeys(name for of, name in facts["groups"] if of == number)),
            "values": list(dict.fromkeys(name for _, of, name in facts["steps"] if of == number)),
        }
        for number, build in enumerate(plan.builds)
    ]
    return plan, {"builds": builds, **facts}


def probed_columns(task: Mapping[str, Any]) -> list[str]:
    """The columns of the probed table that a task reads."""
    keys = [build["key"] for build in task["builds"]]
    values = [name for _, of, name in task["steps"] if of is None and name is not None]
    return list(dict.fromkeys([*keys, *values]))
