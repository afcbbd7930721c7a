"""The history of a lake: its versions, and what each of them did to its tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from conroi.catalog.names import shown
from conroi.catalog.store import Published
from conroi.errors import NotFoundError
from conroi.format.on_disk import BASE_PROPERTY
from conroi.snapshots.snapshot import load_transaction

if TYPE_CHECKING:
    from conroi.catalog.catalog import Catalog
    from conroi.catalog.rows import Row
    from conroi.format.manifest import Manifest
    from conroi.format.transaction import Transaction
    from conroi.lake_snapshot import LakeReader


@dataclass(frozen=True, slots=True)
class LakeCommit:
    """One version of a lake, as history() lists it."""

    version: int
    timestamp: datetime
    message: str | None
    author: str | None
    tables: dict[str, int | None] = field(default_factory=dict[str, "int | None"])
    """The tables that it changed, with their new versions; None for a dropped one."""
    properties: dict[str, str] = field(default_factory=dict[str, str])
    idempotency_key: str | None = None
    operation: str = ""
    """The operation on `__manifest`; anything but `Update` is by other software."""


def lake_commit(published: Published) -> LakeCommit:
    """What history() says of a publication."""
    changes = published.changes or {}
    tables = {
        shown(key): None if row is None or row.pin is None else row.pin.version
        for key, row in changes.items()
        if row is None or row.is_table
    }
    return LakeCommit(
        version=published.version,
        timestamp=published.timestamp,
        message=published.notes.message,
        author=published.notes.author,
        tables=tables,
        properties=dict(published.notes.properties),
        idempotency_key=published.notes.idempotency_key,
        operation=published.operation,
    )


Rows = Mapping[str, "Row"]
MAINTENANCE = frozenset({"Rewrite", "CreateIndex", "ReserveFragments"})
"""Operations that leave the rows unchanged, possibly in other files."""


@dataclass(frozen=True, slots=True)
class TableChange:
    """The change of one table by one version of a lake."""

    name: str
    what: str
    """`created`, `dropped`, `renamed from …`, or the Lance operation, such as `Append`."""
    before: int | None
    """The previous version of the table; None for a new one."""
    version: int | None
    """The new version of the table; None for a dropped one."""
    rows_added: int | None = 0
    """None if unknown, because versions were collected."""
    rows_removed: int | None = 0
    rebased_over: tuple[int, ...] = ()
    """The concurrent versions that it was rebased over."""


@dataclass(frozen=True, slots=True)
class LakeChange:
    """One version of a lake, with its changes by table."""

    entry: LakeCommit
    """Its entry in history()."""
    tables: tuple[TableChange, ...]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "version": self.entry.version,
            "timestamp": self.entry.timestamp.isoformat(),
            "author": self.entry.author,
            "message": self.entry.message,
            "tables": [
                {
                    "name": each.name,
                    "what": each.what,
                    "before": each.before,
                    "version": each.version,
                    "rows_added": each.rows_added,
                    "rows_removed": each.rows_removed,
                    "rebased_over": list(each.rebased_over),
                }
                for each in self.tables
            ],
            "idempotency_key": self.entry.idempotency_key,
            "properties": dict(self.entry.properties),
        }


def lake_changes(lake: LakeReader, limit: int | None = None) -> list[LakeChange]:
    """The newest versions of a lake, newest first, each compared with the one before it."""
    catalog = lake.catalog
    window = list(catalog.heads.history(lake.version, limit))[::-1]
    rows = _rows_before(catalog, window[0].version) if window else None
    changes: list[LakeChange] = []
    for published in window:
        after = _rows_after(catalog, rows, published)
        touched = () if rows is None or after is None else _table_changes(catalog, rows, after)
        changes.append(LakeChange(lake_commit(published), touched))
        rows = after
    return changes[::-1]


def _rows_before(catalog: Catalog, version: int) -> Rows | None:
    """All tables before the window; None if that version was collected."""
    try:
        return {} if version <= 1 else catalog.at(version - 1).rows
    except NotFoundError:
        return None


def _rows_after(catalog: Catalog, rows: Rows | None, published: Published) -> Rows | None:
    if rows is None or published.changes is None:
        return _rows_before(catalog, published.version + 1)
    after = {**rows, **{key: row for key, row in published.changes.items() if row is not None}}
    return {key: row for key, row in after.items() if published.changes.get(key, row) is not None}


def _table_changes(catalog: Catalog, before: Rows, after: Rows) -> tuple[TableChange, ...]:
    gone = {row.incarnation: key for key, row in before.items() if row.is_table and key not in after}
    moved = {row.incarnation for key, row in after.items() if row.is_table and key not in before}
    found: list[TableChange] = []
    for key in sorted({*before, *after}):
        old, new = before.get(key), after.get(key)
        row = new or old
        if old == new or row is None or not row.is_table:
            continue
        if new is None:
            assert old is not None
            if old.incarnation not in moved:
                found.append(TableChange(shown(key), "dropped", _version(old), None))
            continue
        came_from = gone.get(new.incarnation) if old is None else None
        change = _change(catalog, shown(key), old or (before[came_from] if came_from else None), new)
        if came_from is not None:
            change = _renamed(shown(key), shown(came_from), change, _version(new))
        if change is not None:
            found.append(change)
    return tuple(found)


def _renamed(name: str, came_from: str, change: TableChange | None, version: int | None) -> TableChange:
    what = f"renamed from {came_from}"
    if change is None:
        return TableChange(name, what, version, version)
    return TableChange(name, what, change.before, version, change.rows_added, change.rows_removed, change.rebased_over)


def _change(catalog: Catalog, name: str, old: Row | None, new: Row) -> TableChange | None:
    """None if only a note in the table's row is new."""
    is_same_table = old is not None and old.incarnation == new.incarnation
    if new.pin is None or (old is not None and is_same_table and old.pin == new.pin):
        return None
    before = _version(old) if is_same_table else None
    try:
        snapshot = catalog.snapshot(new)
        transaction = load_transaction(catalog.objects_of(new), snapshot)
        compared = _manifest(catalog, old) if is_same_table else None
    except NotFoundError:  # collected
        return TableChange(name, "Unknown", before, new.pin.version, None, None)
    operation = "Unknown" if transaction is None else transaction.operation_name
    added, removed = row_changes(compared, snapshot.manifest)
    if operation in MAINTENANCE and added == removed:
        added, removed = 0, 0
    what = operation if is_same_table else "created"
    return TableChange(name, what, before, new.pin.version, added, removed, rebased_over(new.pin.version, transaction))


def _manifest(catalog: Catalog, row: Row | None) -> Manifest | None:
    return None if row is None else catalog.snapshot(row).manifest


def _version(row: Row | None) -> int | None:
    return None if row is None or row.pin is None else row.pin.version


def row_changes(before: Manifest | None, after: Manifest) -> tuple[int, int]:
    """How many rows were added and removed; an updated row counts as both, as a changed line does in git."""
    old = {} if before is None else before.fragments_by_id
    new = after.fragments_by_id
    added = sum(_live(each) for number, each in new.items() if number not in old)
    removed = sum(_live(each) - (_live(new[number]) if number in new else 0) for number, each in old.items())
    return added, removed


def _live(fragment: Any) -> int:
    return fragment.physical_rows - fragment.deletion_file.num_deleted_rows


def rebased_over(version: int, transaction: Transaction | None) -> tuple[int, ...]:
    """The concurrent versions that were committed while this one was prepared."""
    if transaction is None or transaction.read_version == 0 or transaction.read_version >= version:
        return ()
    made_on = int(transaction.properties.get(BASE_PROPERTY) or transaction.read_version)
    return tuple(range(min(made_on, transaction.read_version) + 1, version))
