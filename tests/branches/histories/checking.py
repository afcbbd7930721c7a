"""Whether a lake is what the model says: names, columns, types, rows, settings and notes; and conflicts, one by one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

import conroi
from conroi.lake_snapshot import LakeReader
from tests.branches.histories.model import Entry, State, Table
from tests.branches.histories.three_way import Conflict, Reported
from tests.branches.histories.values import NAN, Column, arrow_schema, canonical, raw_of


class Difference(Exception):
    """The lake is not what the model says."""


def check_state(lake: LakeReader, state: State, *, only: Iterable[str] | None = None) -> int:
    """The names of all tables, and the contents of all or some; the answer is how many were read."""
    found, expected = lake.tables(), sorted(state.names)
    if found != expected:
        raise Difference(f"tables are {found}, expected {expected}")
    spaces = sorted(lake.namespaces())
    if spaces != sorted(state.namespaces):
        raise Difference(f"namespaces are {spaces}, expected {sorted(state.namespaces)}")
    chosen = None if only is None else set(only)
    entries = [each for each in state.tables.values() if chosen is None or each.name in chosen]
    for entry in entries:
        check_table(lake, entry)
    return len(entries)


def check_table(lake: LakeReader, entry: Entry) -> None:
    try:
        table = lake[entry.name]
        schema, key, config, notes = table.schema, tuple(table.key), table.config, table.metadata
        rows = table.to_arrow()
    except conroi.VersionExpired:
        raise
    except Exception as error:
        raise Difference(f"{entry.name} cannot be read: {type(error).__name__}: {error}") from error
    model = entry.table
    _check_columns(entry.name, schema, model)
    expected_key = tuple(model.by_fid(fid).name for fid in model.key)
    if key != expected_key:
        raise Difference(f"{entry.name}: key is {key}, expected {expected_key}")
    _check_rows(entry.name, rows, model)
    if _ours(config) != model.config:
        raise Difference(f"{entry.name}: settings are {_ours(config)}, expected {model.config}")
    if _ours(notes) != model.notes:
        raise Difference(f"{entry.name}: metadata is {_ours(notes)}, expected {model.notes}")


def _check_columns(name: str, schema: pa.Schema, model: Table) -> None:
    expected = arrow_schema(model.columns)
    if not schema.equals(expected, check_metadata=False):
        found = ", ".join(f"{each.name} {each.type}{'' if each.nullable else ' not null'}" for each in schema)
        wanted = ", ".join(f"{each.name} {each.type}{'' if each.nullable else ' not null'}" for each in expected)
        raise Difference(f"{name}: columns are ({found}), expected ({wanted})")
    notes = _ours(_text(schema.metadata))
    if notes != model.schema_notes:
        raise Difference(f"{name}: metadata of the schema is {notes}, expected {model.schema_notes}")
    for field, column in zip(schema, model.columns, strict=True):
        notes = _ours(_text(field.metadata))
        if notes != dict(column.notes):
            raise Difference(f"{name}.{column.name}: metadata of the column is {notes}, expected {dict(column.notes)}")


def bag_of(rows: pa.Table, columns: tuple[Column, ...]) -> Counter[tuple[Any, ...]]:
    """The rows in canonical form."""
    values = [[canonical(raw, column) for raw in rows[column.name].to_pylist()] for column in columns]
    return Counter(zip(*values, strict=True))


def _check_rows(name: str, rows: pa.Table, model: Table) -> None:
    found, expected = bag_of(rows, model.columns), model.content[2]
    if found != expected:
        more, less = list((found - expected).elements()), list((expected - found).elements())
        raise Difference(f"{name}: rows {[_shown(r, model) for r in more]} are too many, "
                         f"{[_shown(r, model) for r in less]} are missing")  # fmt: skip


def _shown(values: tuple[Any, ...], model: Table) -> dict[str, Any]:
    return {column.name: raw_of(value, column) for value, column in zip(values, model.columns, strict=True)}


def _text(notes: Mapping[bytes, bytes] | None) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in (notes or {}).items()}


def _ours(notes: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in notes.items() if name.startswith("x.")}


# ---------------------------------------------------------------------------- conflicts


def reported(conflict: Any) -> Reported:
    """A conflict of the lake, its key in canonical form."""
    key = None if conflict.key is None else tuple(_canonical(value) for value in conflict.key.values())
    return Reported(conflict.kind, conflict.table, key)


def _canonical(value: Any) -> Any:
    if isinstance(value, float):
        return NAN if math.isnan(value) else value + 0.0
    return value


def check_conflicts(found: Iterable[Any], expected: list[Conflict], columns: Mapping[str, Table]) -> None:
    """Each conflict of the model is in the list once, and nothing else is; rows too."""
    raw = list(found)
    listed = [reported(each) for each in raw]
    taken = dict[int, int]()
    """Which of the list stands for which of the model."""

    def assign(wanted: int, seen: set[int]) -> bool:
        for place, each in enumerate(listed):
            if place in seen or not _is_same(expected[wanted], each, columns.get(each.table)):
                continue
            seen.add(place)
            if place not in taken or assign(taken[place], seen):
                taken[place] = wanted
                return True
        return False

    missing = [conflict for wanted, conflict in enumerate(expected) if not assign(wanted, set())]
    left = [place for place in range(len(listed)) if place not in taken]
    if missing:
        what = f"{missing[0].kind} {missing[0].key or ''} of {sorted(missing[0].names)}"
        shown = [f"{listed[place].table}: {listed[place].kind} {listed[place].key or ''}" for place in left]
        raise Difference(f"conflict {what} is not listed; left are {shown}")
    if left:
        kinds = sorted({listed[place].kind for place in left})
        raise Difference(f"conflicts ({', '.join(kinds)}) that are none: {[str(raw[place]) for place in left]}")
    for place, wanted in taken.items():
        _check_conflict_rows(expected[wanted], raw[place], columns.get(listed[place].table))


def _is_same(conflict: Conflict, each: Reported, table: Table | None) -> bool:
    """Tables that swapped their names may have conflicts about the same key: their rows have different fields."""
    is_key = each.kind != "row" or each.key == conflict.key
    known = [row for row in conflict.rows or () if row is not None]
    is_table = table is None or all(row.keys() == table.fids for row in known)
    return conflict.fits_kind(each.kind) and each.table in conflict.names and is_key and is_table


def _check_conflict_rows(conflict: Conflict, raw: Any, table: Table | None) -> None:
    if conflict.rows is None or table is None:
        return
    for side, expected in zip(("base", "source", "target"), conflict.rows, strict=True):
        found = getattr(raw, side)
        wanted = None if expected is None else table.values(expected)
        got = None if found is None else tuple(canonical(found.get(each.name), each) for each in table.columns)
        if got != wanted:
            raise Difference(f"conflict about {conflict.key}: {side} is {found}, expected {wanted}")
