"""Rows of `__manifest` and records of a store as the doctor checks them."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from conroi.catalog.catalog import Catalog
from conroi.catalog.names import parents, shown
from conroi.catalog.rows import NAMESPACE, TABLE, Row
from conroi.catalog.state import SETTINGS
from conroi.doctor.findings import Findings
from conroi.doctor.lake_history import LakeHistory
from conroi.doctor.subject import Subject
from conroi.errors import ConroiError
from conroi.format.naming import check_relative_path, parse_staged_name
from conroi.inserts.fence import note_of
from conroi.inserts.insert_locks import TEMPORARY, locks_of
from conroi.versions.external import ExternalVersions
from conroi.versions.folder import ManifestRef
from conroi.versions.listing import Folders, Listed
from conroi.versions.records import Record


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


def recorded_head(versions: ExternalVersions, listed: Listed) -> ManifestRef | None:
    """The newest version, if it has no final name yet; None if the folder knows by itself."""
    record = newest_recorded(versions)
    staged = None if record is None else parse_staged_name(record.path.rpartition("/")[2])
    if record is None or staged is None or record.version in listed.manifests or record.path not in listed.staged:
        return None
    return ManifestRef(record.version, record.path, staged[0].naming)


def newest_recorded(versions: ExternalVersions) -> Record | None:
    """The newest version that the store knows."""
    records = versions.records()
    return records[-1] if records else None


def check_records(subject: Subject, versions: ExternalVersions) -> None:
    """Findings about the records of the table."""
    records = versions.records()
    subject.examination.looked_at("records", len(records))
    for record in records:
        _check(subject, versions, record, is_newest=record == records[-1])
    newest, recorded = max(subject.listed.manifests, default=0), records[-1].version if records else 0
    if newest > recorded and not _is_known_now(versions, newest):
        subject.add(
            "past-the-store",
            f"The folder has version {newest}, the store knows {recorded}.",
            version=newest,
            fix=lambda: versions.adopt(recorded),
        )


def _is_known_now(versions: ExternalVersions, version: int) -> bool:
    """Whether it was committed through the store while we looked."""
    record = newest_recorded(versions)
    return record is not None and record.version >= version


def _check(subject: Subject, versions: ExternalVersions, record: Record, *, is_newest: bool) -> None:
    if record.version in subject.listed.manifests:
        return
    if record.path in subject.listed.staged:
        info = subject.listed.files[record.path]
        if subject.examination.is_settled(info.modified_ns):
            subject.add(
                "unfinished-record",
                "The version is recorded, but has no final name.",
                version=record.version,
                path=record.path,
                fix=lambda: versions.locate(record.version),
            )
    elif is_newest and subject.objects.head(record.path) is None and not _is_known_now(versions, record.version + 1):
        what = "The store has the version, but its manifest does not exist."
        subject.add("record-without-manifest", what, version=record.version, path=record.path)
