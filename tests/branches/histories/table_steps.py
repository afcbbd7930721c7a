"""Steps on the tables of one branch: rows, columns, settings, names, namespaces, compaction and indices."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

import conroi
from tests.branches.histories.checking import Difference
from tests.branches.histories.model import Branch, Row, Table, fresh
from tests.branches.histories.observing import Observed
from tests.branches.histories.statements import (
    NotApplicable,
    Statement,
    arrow_rows,
    column_of,
    noted,
    schema_code,
    shown_rows,
    type_code,
    unique,
)
from tests.branches.histories.values import SIMPLE, CannotCast, Column, arrow_schema, retyped


class TableSteps(Observed):
    """What can be done on one branch."""

    # ------------------------------------------------------------------ rows

    def _rows(self, branch_name: str, name: str, what: tuple[Any, ...]) -> Branch:
        branch, tid, table = self._table(branch_name, name)
        ready = Statement(table, what, self.spark)
        self._say(f"{branch_name}[{name!r}]{ready.code}")
        ready.run(self.lakes[branch.id][name])
        return self._put(branch, tid, ready.after)

    def _transaction(self, branch_name: str, statements: tuple[tuple[str, tuple[Any, ...]], ...]) -> Branch:
        branch = self._branch(branch_name)
        state, ready = branch.head.state, list[tuple[str, Statement]]()
        for name, what in statements:
            tid = state.named(name)
            if tid is None:
                continue
            with contextlib.suppress(NotApplicable):
                one = Statement(state.tables[tid].table, what)
                ready.append((name, one))
                state = state.having(tid, name, one.after)
        if not ready:
            raise NotApplicable
        self._say(f"with {branch_name}.begin() as tx: " + "; ".join(f"tx[{name!r}]{one.code}" for name, one in ready))
        with self.lakes[branch.id].begin("several") as tx:
            for name, one in ready:
                one.run(tx[name])
        if self._touched is not None:
            self._touched |= {name for name, _ in ready}
        return self._commit(branch, state)

    def _refused(self, branch_name: str, name: str) -> Branch:
        """Rows that the table cannot take: refused, and nothing happens."""
        branch, _, table = self._table(branch_name, name)
        required = [column for column in table.columns if not column.nullable]
        if not required:
            raise NotApplicable
        bad = pa.table({column.name: pa.nulls(1, arrow_schema((column,)).field(0).type) for column in table.columns})
        self._say(f"{branch_name}[{name!r}].append(nulls)  # refused")
        try:
            self.lakes[branch.id][name].append(bad)
        except conroi.InvalidInputError:
            return branch
        raise Difference(f"{name}: null in {required[0].name} was accepted")

    # ------------------------------------------------------------------ columns

    def _add_column(self, branch_name: str, name: str, how: str, what: tuple[Any, ...]) -> Branch:
        branch, tid, table = self._table(branch_name, name)
        if table.column(what[0]) is not None or (how != "null" and not table.rows):
            raise NotApplicable
        lake = self.lakes[branch.id]
        if how == "null":
            column = column_of(what)
            value: Callable[[Row], Any] = lambda _: None  # noqa: E731
            new: Any = pa.schema([arrow_schema((column,)).field(0)])
            shown = schema_code((column,))
        elif how == "literal":
            column = Column(fresh(), what[0], "i64", nullable=False)
            value, new = (lambda _: what[2]), {what[0]: str(what[2])}
            shown = repr(new)
        else:
            copied = table.column(what[1])
            if copied is None or copied.type not in SIMPLE:
                raise NotApplicable
            column = Column(fresh(), what[0], copied.type, copied.nullable, notes=copied.notes)
            value, new = (lambda row: row[copied.fid]), {what[0]: what[1]}
            shown = repr(new)
        self._say(f"{branch_name}[{name!r}].add_columns({shown})")
        lake[name].add_columns(new)
        rows = {uid: {**row, column.fid: value(row)} for uid, row in table.rows.items()}
        return self._put(branch, tid, table.changed(columns=(*table.columns, column), rows=rows))

    def _drop_column(self, branch_name: str, name: str, column_name: str) -> Branch:
        branch, tid, table, column = self._column(branch_name, name, column_name)
        if column.fid in table.key or len(table.columns) == 1:
            raise NotApplicable
        self._say(f"{branch_name}[{name!r}].drop_columns([{column_name!r}])")
        self.lakes[branch.id][name].drop_columns([column_name])
        left = tuple(each for each in table.columns if each is not column)
        return self._put(branch, tid, table.with_columns(left))

    def _column(self, branch_name: str, name: str, column_name: str) -> tuple[Branch, int, Table, Column]:
        branch, tid, table = self._table(branch_name, name)
        column = table.column(column_name)
        if column is None:
            raise NotApplicable
        return branch, tid, table, column

    def _replaced(self, table: Table, before: Column, after: Column) -> Table:
        columns = tuple(after if each is before else each for each in table.columns)
        try:
            return table.with_columns(columns)
        except CannotCast:
            raise NotApplicable from None

    def _rename_column(self, branch_name: str, name: str, column_name: str, new: str) -> Branch:
        branch, tid, table, column = self._column(branch_name, name, column_name)
        if table.column(new) is not None:
            raise NotApplicable
        self._say(f"{branch_name}[{name!r}].rename_columns({{{column_name!r}: {new!r}}})")
        self.lakes[branch.id][name].rename_columns({column_name: new})
        return self._put(branch, tid, self._replaced(table, column, replace(column, name=new)))

    def _retype(self, branch_name: str, name: str, column_name: str, type_: str) -> Branch:
        branch, tid, table, column = self._column(branch_name, name, column_name)
        if column.fid in table.key or column.type == type_ or column.type == "struct":
            raise NotApplicable
        after = retyped(column, type_)
        changed = self._replaced(table, column, after)
        arrow = arrow_schema((after,)).field(0).type
        self._say(f"{branch_name}[{name!r}].alter_columns({{{column_name!r}: {{'type': {type_code(arrow)}}}}})")
        self.lakes[branch.id][name].alter_columns({column_name: {"type": arrow}})
        return self._put(branch, tid, changed)

    def _null(self, branch_name: str, name: str, column_name: str, nullable: bool) -> Branch:
        branch, tid, table, column = self._column(branch_name, name, column_name)
        has_null = any(row[column.fid] is None for row in table.rows.values())
        if column.fid in table.key or column.nullable == nullable or (not nullable and has_null):
            raise NotApplicable
        self._say(f"{branch_name}[{name!r}].alter_columns({{{column_name!r}: {{'nullable': {nullable}}}}})")
        self.lakes[branch.id][name].alter_columns({column_name: {"nullable": nullable}})
        return self._put(branch, tid, self._replaced(table, column, replace(column, nullable=nullable)))

    def _nested(self, branch_name: str, name: str, column_name: str, what: tuple[str, str | None]) -> Branch:
        branch, tid, table, column = self._column(branch_name, name, column_name)
        child = next((each for each in column.children if each.name == what[0]), None)
        if child is None or any(each.name == what[1] for each in column.children):
            raise NotApplicable
        path = f"{column_name}.{child.name}"
        if what[1] is None:
            children = tuple(each for each in column.children if each is not child)
            if not children:
                raise NotApplicable
            self._say(f"{branch_name}[{name!r}].drop_columns([{path!r}])")
            self.lakes[branch.id][name].drop_columns([path])
        else:
            children = tuple(replace(each, name=what[1]) if each is child else each for each in column.children)
            self._say(f"{branch_name}[{name!r}].rename_columns({{{path!r}: {what[1]!r}}})")
            self.lakes[branch.id][name].rename_columns({path: what[1]})
        return self._put(branch, tid, self._replaced(table, column, replace(column, children=children)))

    def _declare_key(self, branch_name: str, name: str, column_name: str) -> Branch:
        branch, tid, table, column = self._column(branch_name, name, column_name)
        values = [row[column.fid] for row in table.rows.values()]
        if (
            table.key
            or column.type not in ("i32", "i64", "str", "f64")
            or None in values
            or len(set(values)) < len(values)
        ):
            raise NotApplicable
        self._say(f"{branch_name}[{name!r}].declare_key({column_name!r})")
        self.lakes[branch.id][name].declare_key(column_name)
        changed = self._replaced(table, column, replace(column, nullable=False))
        return self._put(branch, tid, replace(changed, key=(column.fid,)))

    # ------------------------------------------------------------------ settings

    def _config(self, branch_name: str, name: str, setting: str, value: str | None) -> Branch:
        branch, tid, table = self._table(branch_name, name)
        if table.config.get(setting) == value:
            raise NotApplicable
        self._say(f"{branch_name}[{name!r}].set_config({{{setting!r}: {value!r}}})")
        self.lakes[branch.id][name].set_config({setting: value})
        return self._put(branch, tid, table.changed(config=noted(table.config, setting, value)))

    def _metadata(
        self, branch_name: str, name: str, where: str, column_name: str | None, note: str, value: str | None
    ) -> Branch:
        branch, tid, table = self._table(branch_name, name)
        what = {note: value}
        if where == "field":
            column = table.column(column_name or "")
            if column is None or dict(column.notes).get(note) == value:
                raise NotApplicable
            notes = tuple(sorted(noted(dict(column.notes), note, value).items()))
            changed = self._replaced(table, column, replace(column, notes=notes))
            how: dict[str, Any] = {"fields": {column_name: what}}
        elif where == "schema":
            if table.schema_notes.get(note) == value:
                raise NotApplicable
            changed, how = table.changed(schema_notes=noted(table.schema_notes, note, value)), {"schema": what}
        else:
            if table.notes.get(note) == value:
                raise NotApplicable
            changed, how = table.changed(notes=noted(table.notes, note, value)), {"table": what}
        shown = ", ".join(f"{each}={values!r}" for each, values in how.items())
        self._say(f"{branch_name}[{name!r}].set_metadata({shown})")
        self.lakes[branch.id][name].set_metadata(**how)
        return self._put(branch, tid, changed)

    # ------------------------------------------------------------------ tables and namespaces

    def _made(
        self, columns: tuple[Any, ...], key: tuple[str, ...], rows: list[dict[str, Any]]
    ) -> tuple[Table, pa.Table, str]:
        made = tuple(column_of(each) for each in columns)
        table = Table(made, tuple(column.fid for column in made if column.name in key))
        wanted = unique(table.fit(rows), rows, table.key)
        data = arrow_rows(wanted, made)
        code = f"pa.Table.from_pylist({shown_rows(wanted)}, schema={schema_code(made)}), key={list(key) or None}"
        return table.append(table.fit(wanted)), data, code

    def _create(
        self, branch_name: str, name: str, columns: tuple[Any, ...], key: tuple[str, ...],
        rows: list[dict[str, Any]], stable: bool,
    ) -> Branch:  # fmt: skip
        branch = self._branch(branch_name)
        if name in branch.head.state.names:
            raise NotApplicable
        table, data, code = self._made(columns, key, rows)
        self._say(f"{branch_name}.create_table({name!r}, {code}, stable_row_ids={stable})")
        self.lakes[branch.id].create_table(name, data, key=list(key) or None, stable_row_ids=stable)
        return self._put(branch, fresh(), table, name)

    def _drop(self, branch_name: str, name: str) -> Branch:
        branch, tid, _ = self._table(branch_name, name)
        self._say(f"{branch_name}.drop_table({name!r})")
        self.lakes[branch.id].drop_table(name)
        return self._commit(branch, branch.head.state.without(tid))

    def _rename(self, branch_name: str, name: str, new: str) -> Branch:
        branch, tid, table = self._table(branch_name, name)
        if new in branch.head.state.names:
            raise NotApplicable
        self._say(f"{branch_name}.rename_table({name!r}, {new!r})")
        self.lakes[branch.id].rename_table(name, new)
        return self._put(branch, tid, table, new)

    def _swap(self, branch_name: str, first: str, second: str) -> Branch:
        branch, one, table = self._table(branch_name, first)
        _, other, rest = self._table(branch_name, second)
        if one == other:
            raise NotApplicable
        moves = ((first, "swapped"), (second, first), ("swapped", second))
        self._say(f"with {branch_name}.begin() as tx: " + "; ".join(f"tx.rename_table({a!r}, {b!r})" for a, b in moves))
        with self.lakes[branch.id].begin("swap") as tx:
            for before, after in moves:
                tx.rename_table(before, after)
        self._touched = {first, second}
        return self._commit(branch, branch.head.state.having(one, second, table).having(other, first, rest))

    def _recreate(
        self, branch_name: str, name: str, columns: tuple[Any, ...], key: tuple[str, ...],
        rows: list[dict[str, Any]], together: bool,
    ) -> Branch:  # fmt: skip
        branch, tid, _ = self._table(branch_name, name)
        table, data, code = self._made(columns, key, rows)
        lake = self.lakes[branch.id]
        if together:
            self._say(f"with {branch_name}.begin() as tx: tx.drop_table({name!r}); tx.create_table({name!r}, {code})")
            with lake.begin("again") as tx:
                tx.drop_table(name)
                tx.create_table(name, data, key=list(key) or None)
        else:
            self._say(f"{branch_name}.drop_table({name!r}); {branch_name}.create_table({name!r}, {code})")
            lake.drop_table(name)
            self._commit(branch, branch.head.state.without(tid))
            lake.create_table(name, data, key=list(key) or None)
        self._touched = {name}
        return self._commit(branch, branch.head.state.without(tid).having(fresh(), name, table))

    def _namespace(self, branch_name: str, name: str, drops: bool) -> Branch:
        branch = self._branch(branch_name)
        state = branch.head.state
        if drops:
            if name not in state.namespaces or any(each.startswith(f"{name}.") for each in state.names):
                raise NotApplicable
            self._say(f"{branch_name}.drop_namespace({name!r})")
            self.lakes[branch.id].drop_namespace(name)
            return self._commit(branch, replace(state, namespaces=state.namespaces - {name}))
        if name in state.namespaces:
            raise NotApplicable
        self._say(f"{branch_name}.create_namespace({name!r})")
        self.lakes[branch.id].create_namespace(name)
        return self._commit(branch, replace(state, namespaces=state.namespaces | {name}))
