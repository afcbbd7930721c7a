"""Text views of branches and merges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from conroi.display.grid import Grid, grid, key_text, moment, number, plain, plural

if TYPE_CHECKING:
    from conroi.branches.results import Conflict, LakeMerge
    from conroi.snapshots.branch_names import Branch


def branches_page(branches: Iterable[Branch], names: dict[str, str], current: str) -> Grid:
    """The branches of a lake; `names` has the name of each by its id."""
    rows = [
        (
            f"* {each.name}" if each.name == current else f"  {each.name}",
            "" if each.is_main else f"{names.get(each.parent or '', each.parent or '')}@{each.parent_version}",
            moment(each.created_at),
        )
        for each in branches
    ]
    return grid("  branch|from|created", rows)


def merge_page(result: LakeMerge) -> Grid:
    """What a merge did, or would do."""
    would = "Would merge" if result.is_dry_run else "Merged"
    rows = [
        (
            each.table,
            each.kind,
            _count(each.inserted),
            _count(each.updated),
            _count(each.deleted),
            _count(each.conflicts),
        )
        for each in result.tables
    ]
    source, target = f"{result.source}@{result.source_version}", f"{result.target}@{result.version}"
    title = f"{would} {source} into {target}"
    return grid("table|what|>inserted|>updated|>deleted|>settled", rows, title=title, empty="There is nothing to do.")


def _count(value: int | None) -> str:
    return "" if value is None else number(value)


def conflicts_page(conflicts: Sequence[Conflict]) -> Grid:
    """What stands in the way of a merge."""
    rows = [
        (each.table, key_text(dict(each.key)) if each.key else each.kind, plain(each.message)) for each in conflicts
    ]
    return grid("table|key|why", rows, title=f"{plural(len(rows), 'conflict')}:")
