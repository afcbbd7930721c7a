"""Rows of `__manifest`, their pins, and records of a store as the doctor checks them."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from typing import Any

from conroi.catalog.adoption import adoption
from conroi.catalog.branches import BranchedLake
from conroi.catalog.catalog import Catalog
from conroi.catalog.names import parents, shown
from conroi.catalog.preconditions import refuse_duplicate_keys
from conroi.catalog.publication import Publishing
from conroi.catalog.rows import NAMESPACE, TABLE, Row, table_of
from conroi.catalog.state import SETTINGS
from conroi.catalog.tables import table_files
from conroi.doctor.findings import Findings
from conroi.doctor.lake_history import LakeHistory, PinUse, place_of
from conroi.doctor.subject import Examination, Subject
from conroi.doctor.versions import Line
from conroi.errors import ConroiError, ExpectedVersionMismatch, NotFoundError, TooMuchContention
from conroi.format.naming import check_relative_path, parse_staged_name
from conroi.format.on_disk import LAKE_MANIFEST
from conroi.inserts.fence import note_of
from conroi.inserts.insert_locks import TEMPORARY, locks_of
from conroi.maintenance.repair import repair
from conroi.snapshots.pin import CLEANUP_CONFIG, Pin, finalize, load_pinned
from conroi.storage.base_paths import copies_of_data_file
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
        _ = row.lock, row.repaired_in, note_of(row)
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


def head_of(pin: Pin, listed: Listed) -> ManifestRef | None:
    """Where the pinned manifest is by the listing: under its final name, or where it was staged."""
    if pin.version in listed.manifests:
        return pin.final
    return pin.published if pin.manifest in listed.files else None


class PinChecks:
    """Compares what the lake says of one folder with what is in it."""

    def __init__(self, catalog: Catalog, history: LakeHistory, subject: Subject, line: Line, row: Row) -> None:
        self._catalog = catalog
        self._history = history
        self._subject = subject
        self._line = line
        self._row = row
        """The newest row of the folder; if the table is gone, the last that it had."""
        self._location = place_of(row) or ""
        self._is_branch = table_of(self._location) != self._location

    def run(self) -> None:
        """Findings about every pin of the folder, and about what is newer than the newest."""
        is_forked = False
        for (location, pin), use in self._history.pins.items():
            if location == self._location:
                is_head = not self._subject.is_gone and pin == self._row.pin
                is_forked = self._check(pin, use, is_head=is_head) or is_forked
        if self._subject.is_gone or self._row.pin is None or self._is_branch:
            return
        if not is_forked:
            self._check_foreign(self._row.pin)
        self._check_insert(self._row.pin)
        self._check_config()

    def _check(self, pin: Pin, use: PinUse, *, is_head: bool) -> bool:
        """Whether the table has diverged there."""
        listed, is_staged_there = self._subject.listed, pin.is_staged and pin.manifest in self._subject.listed.files
        facts = self._line.facts.get(pin.version)
        self._subject.examination.looked_at("pins")
        if pin.version in listed.manifests:
            if facts is None or not facts.uuid or facts.uuid == pin.transaction:
                return False  # as it should be, or found to be damaged already
            return self._check_other(pin, use, is_staged_there=is_staged_there, is_head=is_head)
        if is_staged_there:
            self._check_unfinished(pin)
        elif self._is_missing(pin, use):
            self._add("missing-pin", self._told(use, "is not there"), pin)
        return False

    def _check_other(self, pin: Pin, use: PinUse, *, is_staged_there: bool, is_head: bool) -> bool:
        """The final name belongs to another transaction."""
        if not is_staged_there:
            self._add("pin-mismatch", self._told(use, "was made by another transaction"), pin)
            return False
        if is_head:
            object_id = self._row.object_id
            self._subject.add(
                "forked-table",
                f"The lake published version {pin.version}, but its final name holds an out-of-band commit.",
                version=pin.version,
                path=pin.manifest,
                fix=None if self._is_branch else lambda: repair(self._catalog, object_id),
            )
        return is_head  # an older divergence was repaired: both sides stay

    def _check_unfinished(self, pin: Pin) -> None:
        info = self._subject.listed.files[pin.manifest]
        if not self._subject.examination.is_settled(info.modified_ns):
            return  # its publisher is still working
        if self._subject.objects.head(pin.final.path) is not None:
            return
        objects, environment = self._subject.objects, self._subject.files.environment
        self._subject.add(
            "unfinished-publication",
            "The lake has published the version, but it has no final name.",
            version=pin.version,
            path=pin.manifest,
            fix=None if self._is_branch else lambda: finalize(objects, pin, environment),
        )

    def _is_missing(self, pin: Pin, use: PinUse) -> bool:
        """Whether it really does not exist, and some version of the lake still needs it."""
        if not self._subject.listed.files:
            return False  # the whole folder is missing, which is said once
        try:
            load_pinned(self._subject.objects, pin)
        except NotFoundError:
            return use.is_on_branch or self._is_kept(use.last)
        except ConroiError:
            return False  # it is there, and damaged: found elsewhere
        return False

    def _is_kept(self, version: int) -> bool:
        """Whether this version of the lake was not collected concurrently."""
        try:
            self._catalog.heads.at(version)
        except NotFoundError:
            return False
        except ConroiError:
            return True
        return True

    def _told(self, use: PinUse, what: str) -> str:
        which = f"Version {use.first}" if use.first == use.last else f"Versions {use.first} to {use.last}"
        lake = "a branch of the lake" if use.is_on_branch else "the lake"
        return f"{which} of {lake} {'pins' if use.first == use.last else 'pin'} a manifest that {what}."

    def _add(self, kind: str, what: str, pin: Pin) -> None:
        self._subject.add(kind, what, version=pin.version, path=pin.manifest)

    # ------------------------------------------------------------------------ beside the pins

    def _check_foreign(self, pin: Pin) -> None:
        newest = max(self._subject.listed.manifests, default=0)
        if newest <= pin.version or self._has_moved_on(newest):
            return
        object_id = self._row.object_id
        which = f"Version {newest} was" if newest == pin.version + 1 else f"Versions up to {newest} were"
        self._subject.add(
            "foreign-commit",
            f"{which} written by path; the lake has version {pin.version}.",
            version=newest,
            fix=lambda: adopt_out_of_band(self._catalog, object_id),
        )

    def _has_moved_on(self, version: int) -> bool:
        """Whether it was the lake itself that published concurrently."""
        try:
            now = self._catalog.state().table(self._row.object_id)
        except ConroiError:
            return False
        if now is None or now.incarnation != self._row.incarnation:
            return True
        return now.pin is None or now.pin.version >= version

    def _check_insert(self, pin: Pin) -> None:
        note, facts = note_of(self._row), self._line.facts.get(pin.version)
        if note is None or note.is_complete or facts is None:
            return
        if self._subject.examination.is_settled(facts.timestamp_ns):
            what = f"An insert of {note.next - note.first:,} rows so far was not finished."
            self._subject.add("incomplete-insert", what, version=pin.version)

    def _check_config(self) -> None:
        head = self._line.head
        config = {} if head is None else dict(head.manifest.head.config)
        found = sorted(key for key in config if key.startswith(CLEANUP_CONFIG))
        if head is not None and found:
            what = f"The table has {', '.join(found)} in its config."
            unset = ", ".join(f'"{key}": None' for key in found)
            hint = f"table.set_config({{{unset}}})."
            self._subject.add("auto-cleanup", what, version=head.version, hint=hint)


# ----------------------------------------------------------------------- as a branch reads them


def check_branches(catalog: Catalog, examination: Examination) -> None:
    """Every table of every branch as its readers find it: by its row, through the folders that the row names.

    Nothing is written, so tables that were not written on the branch are not forked.
    """
    main = catalog.main
    if main.manifest is None:
        return
    branched, seen = BranchedLake(main, main.manifest), set[str]()
    for branch in branched.names.all():
        try:
            on_branch, _ = branched.opened(branch)
            tables = on_branch.state().tables()
        except ConroiError as error:
            examination.findings.add("lake-unreadable", f"Branch {branch.name!r}: {error.message}", table=LAKE_MANIFEST)
            continue
        for row in tables:
            examination.looked_at("tables on branches")
            problem = _unreadable(on_branch, row, seen)
            if problem is not None:
                what = f"On branch {branch.name!r}: {problem}"
                pin = row.pin
                version = None if pin is None else pin.version
                name = f"{shown(row.object_id)}@{branch.name}"
                examination.findings.add("unreadable-on-branch", what, table=name, version=version, path=row.location)


def _unreadable(catalog: Catalog, row: Row, seen: set[str]) -> str | None:
    """Why a table cannot be read; `seen` has the files that were found before."""
    if row.pin is None:
        return None
    try:
        objects = catalog.objects_of(row)
        manifest = load_pinned(objects, row.pin).manifest
        for fragment in manifest.fragments:
            for file in fragment.files:
                for copy in copies_of_data_file(objects, manifest, file)[:1]:
                    path = f"{copy.source.root}/{copy.there}"
                    if path not in seen and copy.source.head(copy.there) is None:
                        return f"the data file {path} does not exist."
                    seen.add(path)
    except ConroiError as error:
        return error.message
    return None


MOST_VERSIONS = 1000
"""Maximum number of versions that are adopted in one call."""


def adopt_out_of_band(catalog: Catalog, object_id: str) -> int:
    """Publish out-of-band versions, one by one, as the next commit to the table would; returns how many."""
    for count in range(MOST_VERSIONS):
        state = catalog.state()
        row = catalog.row(object_id, state)
        files = table_files(catalog, row)
        found = adoption(state, row, files, catalog.version_of(row) + 1, catalog.naming(row))
        if found is None:
            return count
        foreign = found.tables[0].foreign
        assert foreign is not None, "other software built it"
        refuse_duplicate_keys(files, catalog.snapshot(row), foreign)
        with contextlib.suppress(ExpectedVersionMismatch):  # concurrent publication: look again
            Publishing(catalog, found).run()
    raise TooMuchContention(
        f"The table {shown(object_id)!r} is written by its path faster than that can be taken over.",
        table=shown(object_id),
        hint="Stop the writers by path, and try again.",
    )
