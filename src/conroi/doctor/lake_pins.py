"""Pinned table versions as the doctor checks them, and adoption of versions that were committed out of band."""

from __future__ import annotations

import contextlib

from conroi.catalog.branch_rows import table_of
from conroi.catalog.branches import BranchedLake
from conroi.catalog.catalog import Catalog
from conroi.catalog.names import shown
from conroi.catalog.participant import TableChange
from conroi.catalog.preconditions import refuse_duplicate_keys
from conroi.catalog.publication import Publishing, PublishRequest
from conroi.catalog.rows import Row
from conroi.catalog.state import CommitMetadata
from conroi.catalog.tables import table_files
from conroi.doctor.lake_history import LIST, LakeHistory, PinUse, place_of
from conroi.doctor.lines import Line
from conroi.doctor.subject import Examination, Subject
from conroi.errors import ConroiError, ExpectedVersionMismatch, NotFoundError, TooMuchContention
from conroi.inserts.fence import note_of
from conroi.maintenance.repair import mend
from conroi.snapshots.external_manifest import CLEANUP_CONFIG, read_final
from conroi.snapshots.pin import Pin, finalize, load_pinned
from conroi.storage.base_paths import copies_of_data_file
from conroi.versions.folder import ManifestRef
from conroi.versions.listing import Listed


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
                fix=None if self._is_branch else lambda: mend(self._catalog, object_id),
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
            fix=lambda: adopt(self._catalog, object_id),
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
            examination.findings.add("lake-unreadable", f"Branch {branch.name!r}: {error.message}", table=LIST)
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


def adopt(catalog: Catalog, object_id: str) -> int:
    """Publish out-of-band versions, one by one, as the next commit to the table would; returns how many."""
    for count in range(MOST_VERSIONS):
        state = catalog.state()
        row = catalog.row(object_id, state)
        files = table_files(catalog, row)
        foreign = read_final(files.objects, catalog.version_of(row) + 1, catalog.naming(row))
        if foreign is None:
            return count
        refuse_duplicate_keys(files, catalog.snapshot(row), foreign)
        notes = CommitMetadata(
            f"adopt version {foreign.version} of {shown(object_id)}, which was written past the lake"
        )
        wanted = TableChange(object_id, object_id, files, None, row, foreign)
        with contextlib.suppress(ExpectedVersionMismatch):  # concurrent publication: look again
            Publishing(catalog, PublishRequest(state, [wanted], notes=notes)).run()
    raise TooMuchContention(
        f"The table {shown(object_id)!r} is written by its path faster than that can be taken over.",
        table=shown(object_id),
        hint="Stop the writers by path, and try again.",
    )
