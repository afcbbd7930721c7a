"""`lake.diff(a, b)`: the differences between two states of a lake, table by table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from conroi.branches.columns import Carry, columns_of
from conroi.branches.lake_ref import LakeRef, Side, TableAtState
from conroi.branches.row_differences import Comparison, key_ids, keyed_changes
from conroi.catalog.names import shown
from conroi.data.table_version import TableVersion
from conroi.display import to_html
from conroi.display.pages import diff_details, diff_page
from conroi.format.fields import key_columns
from conroi.format.manifest import count_rows

MOST_KEYS = 100
"""Maximum number of keys of each kind in to_dict()."""


@dataclass(frozen=True)
class KeyChanges:
    """The keys of the rows that differ, as tables with the key's columns."""

    inserted: pa.Table
    updated: pa.Table
    deleted: pa.Table

    @property
    def is_different(self) -> bool:
        return bool(self.inserted.num_rows or self.updated.num_rows or self.deleted.num_rows)

    def to_dict(self) -> dict[str, object]:
        """How many of each, and the first of them."""
        kinds = {"inserted": self.inserted, "updated": self.updated, "deleted": self.deleted}
        counts: dict[str, object] = {name: keys.num_rows for name, keys in kinds.items()}
        return {**counts, "keys": {name: keys.slice(0, MOST_KEYS).to_pylist() for name, keys in kinds.items()}}

    def __str__(self) -> str:
        counts = {"inserted": self.inserted, "updated": self.updated, "deleted": self.deleted}
        return ", ".join(f"{keys.num_rows:,} {name}" for name, keys in counts.items() if keys.num_rows) or "same rows"


@dataclass(frozen=True)
class TableDiff:
    """The difference of one table."""

    name: str
    """As it is called in the second, or in the first if it is only there."""
    kind: str
    """`added`, `dropped` or `changed`."""
    version_before: int | None = None
    version_after: int | None = None
    rows_before: int = 0
    rows_after: int = 0
    renamed_from: str | None = None
    columns_added: Mapping[str, str] = field(default_factory=dict[str, str])
    """By name, the type."""
    columns_dropped: Mapping[str, str] = field(default_factory=dict[str, str])
    columns_changed: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """By name, the type before and after."""
    key: tuple[str, ...] = ()
    keys: KeyChanges | None = None
    """For a table with a key, which of its rows differ."""
    rows_removed: int | None = None
    """Without keys: rows in what only the first has; rows that were moved to another file count, too."""
    rows_added: int | None = None

    def alone(self, before: str, after: str) -> LakeDiff:
        """The same as the difference between two states that have only this table."""
        return LakeDiff(before, after, (self,) if self.is_different else ())

    @property
    def is_different(self) -> bool:
        """Whether there is a difference: an index or a compaction alone is none."""
        rows = (self.rows_added or self.rows_removed) if self.keys is None else self.keys.is_different
        columns = self.columns_added or self.columns_dropped or self.columns_changed
        return self.kind != "changed" or bool(self.renamed_from or columns or rows)

    def to_dict(self) -> dict[str, object]:
        """The facts as plain values."""
        return {
            "name": self.name,
            "kind": self.kind,
            "renamed_from": self.renamed_from,
            "version_before": self.version_before,
            "version_after": self.version_after,
            "rows_before": self.rows_before,
            "rows_after": self.rows_after,
            "columns_added": dict(self.columns_added),
            "columns_dropped": dict(self.columns_dropped),
            "columns_changed": {name: list(types) for name, types in self.columns_changed.items()},
            "key": list(self.key),
            "rows": None if self.keys is None else self.keys.to_dict(),
            "rows_removed": self.rows_removed,
            "rows_added": self.rows_added,
        }

    def __str__(self) -> str:
        if self.kind != "changed":
            rows = self.rows_after if self.kind == "added" else self.rows_before
            return f"{self.name}: {self.kind}, {rows:,} rows"
        facts = [f"renamed from {self.renamed_from}"] if self.renamed_from else []
        facts += [f"column {name} added ({type_})" for name, type_ in self.columns_added.items()]
        facts += [f"column {name} dropped" for name in self.columns_dropped]
        facts += [f"column {name} is {now}, was {then}" for name, (then, now) in self.columns_changed.items()]
        if self.keys is not None:
            facts.append(str(self.keys))
        elif self.rows_added or self.rows_removed:
            facts.append(f"{self.rows_added or 0:,} rows added, {self.rows_removed or 0:,} removed")
        if self.rows_before != self.rows_after:
            facts.append(f"{self.rows_before:,} -> {self.rows_after:,} rows")
        return f"{self.name}: {', '.join(facts) or 'same rows'}"


@dataclass(frozen=True)
class LakeDiff:
    """The differences between two states of a lake."""

    before: str
    after: str
    tables: tuple[TableDiff, ...] = ()

    def __iter__(self) -> Iterator[TableDiff]:
        return iter(self.tables)

    def __bool__(self) -> bool:
        return bool(self.tables)

    def __getitem__(self, name: str) -> TableDiff:
        for table in self.tables:
            if table.name == name:
                return table
        raise KeyError(name)

    def to_dict(self) -> dict[str, object]:
        """The facts as plain values."""
        return {"before": self.before, "after": self.after, "tables": [table.to_dict() for table in self.tables]}

    def _repr_html_(self) -> str:
        return to_html(diff_page(self), diff_details(self))

    def __str__(self) -> str:
        lines = [f"  {table}" for table in self.tables] or ["  no difference"]
        return "\n".join([f"{self.before} -> {self.after}", *lines])


def lake_diff(before: LakeRef, after: LakeRef, *, keys: bool) -> LakeDiff:
    """Compare two states; tables that both pin at the same version are skipped."""
    one, other = Side.of(before), Side.of(after)
    then, now = one.tables, other.tables
    found: list[TableDiff] = []
    for incarnation in then.keys() | now.keys():
        old, new = then.get(incarnation), now.get(incarnation)
        if old is None or new is None or not old.is_same_version(new) or old.name != new.name:
            found.append(_table_diff(old, new, keys=keys))
    differing = sorted((table for table in found if table.is_different), key=lambda table: table.name)
    return LakeDiff(one.label, other.label, tuple(differing))


def _table_diff(old: TableAtState | None, new: TableAtState | None, *, keys: bool) -> TableDiff:
    if old is None or new is None:
        return _only_one(old, new)
    renamed_from = None if old.name == new.name else shown(old.name)
    return table_diff(old.pinned, new.pinned, shown(new.name), renamed_from, keys=keys)


def table_diff(
    before: TableVersion, after: TableVersion, name: str, renamed_from: str | None = None, *, keys: bool = True
) -> TableDiff:
    """Compare two versions of one table."""
    columns = columns_of(before), columns_of(after)
    compared = Comparison(before, after, Carry.by_name(*columns))
    key, then = (key_columns(each.manifest.fields) for each in (after, before))
    if key != then or key_ids(columns[1], key) != key_ids(columns[0], then):
        key = ()
    changes = None
    removed, added = (None, None) if key and keys else compared.counted()
    if key and keys:
        rows = keyed_changes(compared, key)
        changes = KeyChanges(*(each.select(_tops(key)) for each in (rows.inserted, rows.new, rows.deleted)))
    return TableDiff(
        name=name,
        kind="changed",
        version_before=before.version,
        version_after=after.version,
        rows_before=_rows(before),
        rows_after=_rows(after),
        renamed_from=renamed_from,
        columns_added=_columns_only_in(after.schema, before.schema),
        columns_dropped=_columns_only_in(before.schema, after.schema),
        columns_changed=_columns_changed(before.schema, after.schema),
        key=key,
        keys=changes,
        rows_removed=removed,
        rows_added=added,
    )


def _only_one(old: TableAtState | None, new: TableAtState | None) -> TableDiff:
    version = new or old
    assert version is not None
    there = version.pinned
    columns = {each.name: str(each.type) for each in there.schema}
    is_added = new is not None
    return TableDiff(
        name=shown(version.name),
        kind="added" if is_added else "dropped",
        version_before=None if is_added else there.version,
        version_after=there.version if is_added else None,
        rows_before=0 if is_added else _rows(there),
        rows_after=_rows(there) if is_added else 0,
        columns_added=columns if is_added else {},
        columns_dropped={} if is_added else columns,
    )


def _rows(pinned: TableVersion) -> int:
    return count_rows(pinned.manifest.fragments)


def _tops(key: tuple[str, ...]) -> list[str]:
    return list(dict.fromkeys(column.partition(".")[0] for column in key))


def _columns_only_in(one: pa.Schema, other: pa.Schema) -> dict[str, str]:
    return {each.name: str(each.type) for each in one if each.name not in other.names}


def _columns_changed(before: pa.Schema, after: pa.Schema) -> dict[str, tuple[str, str]]:
    both = [name for name in before.names if name in after.names]
    types = {name: (_shown(before.field(name)), _shown(after.field(name))) for name in both}
    return {name: pair for name, pair in types.items() if pair[0] != pair[1]}


def _shown(column: pa.Field[pa.DataType]) -> str:
    return str(column.type) + ("" if column.nullable else " not null")
