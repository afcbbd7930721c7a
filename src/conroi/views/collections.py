"""Text views of expired versions and deleted files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from conroi.views.grid import Grid, grid
from conroi.views.words import number, plain, plural, size

if TYPE_CHECKING:
    from conroi.maintenance.reports import Collected, Expired


SHOWN_PATHS = 20
"""Maximum number of displayed paths; `paths` of a report and the JSON output have all of them."""


def expired_page(found: Expired) -> Grid:
    """Versions that were expired, or would be."""
    what = "would be expired" if found.is_dry_run else "expired"
    title = f"{plural(len(found.removed), 'version')} of the lake {what}, {len(found.kept):,} kept"
    lines = [f"{_ranges(found.removed)}"] if found.removed else []
    rows = [(name, number(len(versions)), _ranges(versions)) for name, versions in sorted(found.tables.items())]
    lines += [f"{folder} was left alone: {plain(why)}" for folder, why in sorted(found.skipped.items())]
    return grid("table|>versions|which", rows, title=title, lines=[*lines, *_paths(found)])


def collected_page(found: Collected) -> Grid:
    """Files that were deleted, or would be."""
    what = "would be deleted" if found.is_dry_run else "deleted"
    title = f"{plural(found.files, 'file')} {what}, {size(found.bytes)}"
    rows = [(each.table, each.kind, number(each.files), size(each.bytes)) for each in found.garbage]
    lines = [f"{table} was left alone: {plain(why)}" for table, why in sorted(found.skipped.items())]
    return grid("table|kind|>files|>size", rows, title=title, lines=[*lines, *_paths(found)])


def _paths(found: Expired | Collected) -> list[str]:
    """The first files that would go."""
    if not found.is_dry_run:
        return []
    lines = [plain(path) for path in found.paths[:SHOWN_PATHS]]
    more = len(found.paths) - SHOWN_PATHS
    return [*lines, f"… and {more:,} more files"] if more > 0 else lines


def _ranges(numbers: Iterable[int]) -> str:
    """Such as `1-4, 7`."""
    runs: list[list[int]] = []
    for each in sorted(numbers):
        if runs and each == runs[-1][1] + 1:
            runs[-1][1] = each
        else:
            runs.append([each, each])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
