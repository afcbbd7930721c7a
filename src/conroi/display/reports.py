"""Reports as grids of text: expiry, garbage collection, diagnoses, diffs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from conroi.display.grid import Grid, changed_rows, grid, key_text, number, plain, plural, size

if TYPE_CHECKING:
    from conroi.branches.diff import LakeDiff, TableDiff
    from conroi.doctor.findings import Diagnosis, Finding
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


MOST_FINDINGS = 10


def diagnosis_page(diagnosis: Diagnosis) -> Grid:
    """What a doctor found."""
    counts: dict[str, int] = {}
    rows: list[tuple[str, str, str, str]] = []
    for finding in diagnosis.findings:
        counts[finding.kind] = counts.get(finding.kind, 0) + 1
        if counts[finding.kind] <= MOST_FINDINGS:
            rows.append(_finding(finding))
    rows += [
        ("…", "", "", f"{count - MOST_FINDINGS:,} more of {kind}")
        for kind, count in counts.items()
        if count > MOST_FINDINGS
    ]
    looked = ", ".join(f"{count:,} {what}" for what, count in diagnosis.checked.items())
    fixed = sum(finding.fixed for finding in diagnosis.findings)
    verdict = "Healthy." if diagnosis.is_healthy else "Not healthy."
    said = f" {plural(fixed, 'finding')} fixed." if fixed else ""
    return grid("severity|kind|where|finding", rows, title=f"{verdict}{said}", lines=[f"Looked at {looked}."])


def _finding(finding: Finding) -> tuple[str, str, str, str]:
    version = "" if finding.version is None else f"@{finding.version}"
    todo = "Fixed." if finding.fixed else finding.hint
    return finding.severity, finding.kind, f"{finding.table or ''}{version}", plain(f"{finding.what} {todo}")


def environment_page(diagnosis: Diagnosis) -> Grid:
    """What a lake runs on."""
    return grid("what|is", [(plain(key), plain(text)) for key, text in diagnosis.environment.items()])


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
