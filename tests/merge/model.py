"""A merge in plain Python, row by row: what the fast one is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from conroi.merge.builder import MergeBuilder

Row = dict[str, Any]


class Text(NamedTuple):
    """An expression, once as SQL and once as Python; rows that are not there are empty."""

    sql: str
    of: Callable[[Row, Row], Any]
    """Called with the row of the source and the row of the target."""


class When(NamedTuple):
    """One clause: which method of the builder it is, and its arguments."""

    name: str
    values: Mapping[str, Text] | None = None
    condition: Text | None = None

    @property
    def rows(self) -> str:
        if self.name.startswith("when_matched"):
            return "matched"
        return "target only" if self.name.startswith("when_not_matched_by_source") else "source only"

    @property
    def is_delete(self) -> bool:
        return self.name.endswith("delete")

    def added_to(self, builder: MergeBuilder) -> MergeBuilder:
        condition = None if self.condition is None else self.condition.sql
        if self.values is None:
            return getattr(builder, self.name)(condition)
        return getattr(builder, self.name)({name: text.sql for name, text in self.values.items()}, condition)


@dataclass
class Merged:
    rows: list[Row]
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    def counts(self) -> tuple[int, int, int]:
        return self.inserted, self.updated, self.deleted


def merged(target: Sequence[Row], source: Sequence[Row], on: Sequence[str], clauses: Sequence[When]) -> Merged:
    """The table after the merge; source keys are unique, null keys match nothing."""
    columns = list(next(iter([*target, *source]), {}))
    partner = {key_of(row, on): row for row in source if None not in key_of(row, on)}
    done = Merged([])
    for row in target:
        match = partner.get(key_of(row, on))
        clause = _first(clauses, "target only" if match is None else "matched", match or {}, row)
        if clause is None:
            done.rows.append(row)
        elif clause.is_delete:
            done.deleted += 1
        else:
            done.rows.append({**row, **_new_values(clause, match or {}, row)})
            done.updated += 1
    there = {key_of(row, on) for row in target}
    for row in source:
        if None in key_of(row, on) or key_of(row, on) not in there:
            clause = _first(clauses, "source only", row, {})
            if clause is not None:
                done.rows.append({**dict.fromkeys(columns), **_new_values(clause, row, {})})
                done.inserted += 1
    return done


def key_of(row: Row, on: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[column] for column in on)


def _first(clauses: Sequence[When], rows: str, source: Row, target: Row) -> When | None:
    for clause in clauses:
        if clause.rows == rows and (clause.condition is None or clause.condition.of(source, target) is True):
            return clause
    return None


def _new_values(clause: When, source: Row, target: Row) -> Row:
    if clause.values is None:
        return source
    return {name: text.of(source, target) for name, text in clause.values.items()}


def as_set(rows: Sequence[Row]) -> list[str]:
    """Rows without their order."""
    return sorted(repr(sorted(row.items())) for row in rows)
