"""Text view of a diff."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conroi.views.grid import Grid, grid
from conroi.views.words import changed_rows, key_text, number, plain

if TYPE_CHECKING:
    from conroi.branching.diff import LakeDiff, TableDiff

MOST_KEYS = 5


def diff_page(diff: LakeDiff) -> Grid:
    """What differs between two states of a lake."""
    rows = [
        (
            each.name,
            each.kind if each.renamed_from is None else f"renamed from {each.renamed_from}",
            _versions(each.version_before, each.version_after),
            f"{number(each.rows_before)} → {number(each.rows_after)}",
            _row_difference(each),
        )
        for each in diff.tables
    ]
    title = f"{diff.before} → {diff.after}"
    return grid("table|what|version|rows|difference", rows, title=title, empty="There is no difference.")


def diff_details(diff: LakeDiff) -> Grid:
    """The columns and keys in which tables differ."""
    rows = [(each.name, line) for each in diff.tables for line in _details(each)]
    return grid("table|detail", rows)


def _versions(before: int | None, after: int | None) -> str:
    return " → ".join(str(each) for each in (before, after) if each is not None)


def _row_difference(table: TableDiff) -> str:
    if table.kind != "changed":
        return changed_rows(table.rows_after, table.rows_before)
    if table.keys is not None:
        kinds = (("+", table.keys.inserted), ("−", table.keys.deleted), ("~", table.keys.updated))
        return " ".join(f"{sign}{keys.num_rows:,}" for sign, keys in kinds if keys.num_rows) or "same rows"
    return changed_rows(table.rows_added, table.rows_removed) or "same rows"


def _details(table: TableDiff) -> list[str]:
    if table.kind != "changed":
        return []
    lines = [f"+ column {plain(name)} {plain(type_)}" for name, type_ in table.columns_added.items()]
    lines += [f"− column {plain(name)} {plain(type_)}" for name, type_ in table.columns_dropped.items()]
    lines += [f"~ column {plain(name)} {then} → {now}" for name, (then, now) in table.columns_changed.items()]
    if table.keys is not None:
        kinds = (("+", table.keys.inserted), ("−", table.keys.deleted), ("~", table.keys.updated))
        for sign, keys in kinds:
            lines += [f"{sign} {key_text(row)}" for row in keys.slice(0, MOST_KEYS).to_pylist()]
            more = keys.num_rows - MOST_KEYS
            lines += [f"{sign} … {more:,} more"] if more > 0 else []
    return lines
