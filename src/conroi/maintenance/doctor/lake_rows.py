"""Catalog row check: each row of the lake's catalog by itself, and in relation to the others."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from conroi.catalog.catalog import Catalog
from conroi.catalog.names import parents, shown
from conroi.catalog.rows import NAMESPACE, TABLE, Row
from conroi.catalog.state import SETTINGS
from conroi.errors import ConroiError
from conroi.format.naming import check_relative_path
from conroi.locks.fence import note_of
from conroi.locks.locks import TEMPORARY, locks_of
from conroi.maintenance.doctor.findings import Findings
from conroi.maintenance.doctor.lake_history import LakeHistory
from conroi.stores.listed import Folders


def check_lake_rows(catalog: Catalog, history: LakeHistory, folders: Folders, findings: Findings) -> list[Row]:
    """Findings about the rows; those of tables that make sense."""
    rows = [row for row in history.rows if row.object_id != SETTINGS]
    sound = [row for row in rows if _is_sound(row, findings)]
    tables = [row for row in sound if row.is_table]
    findings.checked["tables"] += len(tables)
    _check_names(rows, findings)
    _check_locks(catalog, tables, findings)
    _check_folders(catalog, tables, folders, findings)
    return tables


def _is_sound(row: Row, findings: Findings) -> bool:
    name = shown(row.object_id)
    problem = _problem(row)
    if problem is not None:
        findings.add(problem[0], problem[1], table=name, path=row.location)
    return problem is None


def _problem(row: Row) -> tuple[str, str] | None:
    try:
        notes: Any = row.notes
        if not all(isinstance(value, str) for value in notes.values()):
            return "bad-row", "The metadata of the row has a value that is not text, which pylance refuses."
        if row.object_type not in (TABLE, NAMESPACE):
            return "bad-row", f"The row is a {row.object_type!r}, which is not known here."
        if not row.is_table:
            return None
        if row.pin is not None:
            row.pin.final  # noqa: B018  # raises if the pin names no manifest
        _ = row.lock, row.mended, note_of(row)
    except ConroiError as error:
        return "bad-row", error.message
    except (ValueError, TypeError) as error:
        return "bad-row", f"The metadata of the row does not make sense ({error})."
    return _location_problem(row)


def _location_problem(row: Row) -> tuple[str, str] | None:
    if row.location is None:
        return "row-without-folder", "The row says of no folder where the table is."
    try:
        check_relative_path(row.location)
    except ConroiError:
        return "path-outside-table", f"The row says that the table is at {row.location!r}, outside the lake."
    return None


def _check_names(rows: list[Row], findings: Findings) -> None:
    names = Counter(row.object_id for row in rows)
    for object_id, count in names.items():
        if count > 1:
            findings.add("row-twice", f"There are {count} rows of this name.", table=shown(object_id))
        missing = [parent for parent in parents(object_id) if parent not in names]
        if missing:
            what = f"There is no row for the namespace {shown(missing[0])!r}."
            findings.add("missing-namespace", what, table=shown(object_id))


def _check_locks(catalog: Catalog, tables: list[Row], findings: Findings) -> None:
    holders: dict[int, list[str]] = defaultdict(list)
    for row in tables:
        if row.lock is None and row.is_inherited:
            pass  # its first writer on the branch mints one
        elif row.lock is None:
            findings.add(
                "lock-id-missing",
                "The table has no lock id.",
                table=shown(row.object_id),
                fix=lambda: locks_of(catalog).ids.backfill(),
            )
        else:
            holders[row.lock].append(shown(row.object_id))
        if TEMPORARY.fullmatch(row.object_id):
            findings.add("temporary-table", "A worker's own table.", table=shown(row.object_id))
    for names in holders.values():
        if len(names) > 1:
            findings.add("lock-id-twice", f"{' and '.join(names)} have one lock id.", table=names[-1])


def _check_folders(catalog: Catalog, tables: list[Row], folders: Folders, findings: Findings) -> None:
    by_folder: dict[str, set[str]] = defaultdict(set)
    for row in tables:
        assert row.location is not None
        by_folder[row.location.strip("/")].add(shown(row.object_id))
        is_listed = bool(folders.at(row.location).files)
        # One that was made while we listed is there by now.
        if not is_listed and next(iter(catalog.objects(row.location).list_names("")), None) is None:
            kind = "declared-only" if row.pin is None else "missing-folder"
            what = f"The folder {row.location} is empty or not there."
            findings.add(kind, what, table=shown(row.object_id), path=row.location)
    for folder, found in by_folder.items():
        names = sorted(found)
        if len(names) > 1:
            findings.add("folder-twice", f"{' and '.join(names)} are both in {folder}.", table=names[0], path=folder)
