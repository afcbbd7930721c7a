"""External manifest stores: the versions of a table whose newest is recorded in a database."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass

from conroi.environment import LONG_AGO, SYSTEM, Environment, Moment
from conroi.errors import (
    ConroiError,
    CorruptionError,
    ExpectedVersionMismatch,
    NotFoundError,
    StoreError,
    StoreUnavailable,
)
from conroi.format.manifest_file import decode_manifest_file
from conroi.format.naming import (
    ManifestNaming,
    is_detached,
    parse_manifest_name,
    parse_staged_name,
    parse_transaction_name,
    staged_name,
)
from conroi.format.on_disk import VERSIONS_DIR
from conroi.format.transaction import decode_transaction
from conroi.storage.objects import ObjectExists, Objects, UnsupportedByStorage
from conroi.versions.folder import FolderVersions, ManifestRef, PutNew
from conroi.versions.records import Record, RecordStore, RecordTaken, SendsPointers

_log = logging.getLogger(__name__)

FINAL_ATTEMPTS = 4
"""Maximum number of puts to a final name that is reported as taken while no file has it."""
FINAL_PAUSE_S = 0.02
"""Upper bound of the first pause between two such puts, in seconds; it doubles."""


class ExternalVersions:
    """The version store of one table under an external store."""

    def __init__(
        self, objects: Objects, records: RecordStore, putter: PutNew | None = None, environment: Environment = SYSTEM
    ) -> None:
        self._objects = objects
        self._records = records
        self._environment = environment
        self._putter = putter or FinalPut()
        self._renames = putter is None
        self._folder = FolderVersions(objects, putter, environment)
        self._key = records.key_of(objects)
        self._completed = 0
        """The newest version known to be under its final name."""
        self._staged: tuple[int, bytes, str] | None = None
        """What was staged last, for a put that is sent again."""
        self._is_in_doubt = False
        """Whether a record that names it was sent without a response."""

    def __repr__(self) -> str:
        return f"ExternalVersions({self._key!r}, {self._records!r})"

    # ---------------------------------------------------------------------------- reading

    def latest(self) -> ManifestRef | None:
        record = self._records.newest(self._key)
        return self.adopt(0) if record is None else self._final(record)

    def locate(self, version: int) -> ManifestRef | None:
        if not is_detached(version):
            record = self._records.get(self._key, version)
            if record is not None and _is_staged(record):
                return self._final(record)
        return self._folder.locate(version)

    def all(self) -> list[ManifestRef]:
        newest = self.latest()
        if newest is None:
            return []
        return [located for located in self._folder.all() if located.version <= newest.version]

    def saw(self, located: ManifestRef, at: Moment = LONG_AGO) -> None:
        self._folder.saw(located, at)

    def confirm(self, located: ManifestRef, since: Moment) -> None:
        """The store itself rejects a record that is not newer than its newest."""

    def records(self) -> list[Record]:
        """The records of the table in the store, ascending."""
        return self._records.all(self._key)

    def forget_missing(self) -> None:
        """Delete the records of older versions whose manifests were collected."""
        there = {located.version for located in self._folder.all()}
        records = self._records.all(self._key)
        missing = [record.version for record in records[:-1] if record.version not in there and not _is_staged(record)]
        if missing:
            self._records.forget(self._key, missing)

    # ---------------------------------------------------------------------------- writing

    def require_conditions(self, path: str, data: bytes) -> None:
        """The store decides which commit wins, not the storage."""

    def put(self, version: int, naming: ManifestNaming, data: bytes) -> ManifestRef:
        final = naming.path(version)
        if is_detached(version):  # off the line of versions, so there is nothing to decide
            return self._folder.put(version, naming, data)
        if version > 1 and self._completed < version - 1:
            self.locate(version - 1)
        record = Record(self._key, version, self._stage(version, final, data), len(data))
        try:
            self._record(record)
        except RecordTaken:
            self._lose(record, final)
        self._complete_own(record, final, data)
        self._staged = None
        return self._completed_as(ManifestRef(version, final, naming))

    def _complete_own(self, record: Record, final: str, data: bytes) -> None:
        try:
            is_ours = self._complete(record, final, data)
        except ConroiError as error:
            # Others may complete it yet, so a refusal here is no answer to "was it committed?".
            raise StoreUnavailable(
                f"Version {record.version} is recorded, but could not be completed: {error.message}",
                table=self._objects.root,
                version=record.version,
                hint=error.hint or "Open the table when the storage works again: that completes it.",
            ) from error
        if not is_ours:
            raise ObjectExists(final)

    def _stage(self, version: int, final: str, data: bytes) -> str:
        if self._staged is not None and self._staged[0] == version and self._staged[1] is data:
            return self._staged[2]
        self._is_in_doubt = False
        path = staged_name(final, self._environment.new_uuid())
        self._objects.put_unique(path, data)
        self._staged = version, data, path
        return path

    def _record(self, record: Record) -> None:
        try:
            self._records.put_if_absent([record], {self._key: record.version - 1})
        except ExpectedVersionMismatch as moved:
            if moved.actual >= record.version:
                raise RecordTaken(record.table, record.version, None) from None
            self._record_after_adoption(record, moved.actual)
        except StoreUnavailable:
            self._is_in_doubt = True  # it may have succeeded: nothing is deleted
            raise
        except ConroiError:
            if not self._is_in_doubt:
                self._discard(record.path)
            raise

    def _record_after_adoption(self, record: Record, known: int) -> None:
        """The store does not have the version before ours: the table is new to it, or the store was set back."""
        before = self.adopt(known)
        expected = known if before is None else before.version
        if expected not in (0, record.version - 1) and expected < record.version:
            if not self._is_in_doubt:
                self._discard(record.path)
            raise self._corrupt(record.version, f"the newest version in the store and in the folder is {expected}")
        try:
            self._records.put_if_absent([record], {self._key: expected})
        except ExpectedVersionMismatch:
            raise RecordTaken(record.table, record.version, None) from None

    def _lose(self, record: Record, final: str) -> None:
        """The version is already recorded. Complete it, so that its manifest can be read; continue if it is our own."""
        there = self._records.get(self._key, record.version)
        if there is not None and there.path == record.path:
            return
        if there is not None and _is_staged(there):
            self._final(there)
        self._discard(record.path)
        raise ObjectExists(final)

    # -------------------------------------------------------------------------- completing

    def _final(self, record: Record) -> ManifestRef:
        """Where the version is under its final name, completed if it was not."""
        name = record.path.removeprefix(f"{VERSIONS_DIR}/")
        staged, found = parse_staged_name(name), parse_manifest_name(name)
        parsed = found if staged is None else staged[0]
        if parsed is None or parsed.version != record.version:
            raise self._corrupt(record.version, f"its record names the file {record.path}")
        located = ManifestRef(record.version, parsed.naming.path(record.version), parsed.naming)
        if staged is not None:
            self._complete_for_reader(record, located.path)
        elif located.naming is ManifestNaming.V1:  # the manifests may have got new names since
            located = self._folder.locate(record.version) or located
        return self._completed_as(located)

    def _complete_for_reader(self, record: Record, final: str) -> None:
        try:
            self._complete(record, final, self._objects.get(record.path), is_own=False)
        except NotFoundError:
            self._completed_by_others(record, final)
        except StoreError as error:
            raise type(error)(
                f"Version {record.version} is committed but not yet under its final name, and completing it failed: "
                f"{error.message}",
                table=self._objects.root,
                version=record.version,
                hint="Open the table once with credentials that may write, or open the version before it by number.",
            ) from error

    def _completed_by_others(self, record: Record, final: str) -> None:
        """The staged file is gone: other processes completed the version since we read its record."""
        info = self._objects.head(final)
        if info is None:
            raise self._corrupt(record.version, f"neither {record.path} nor {final} is there")
        self._point(record, final, info.size)

    def _complete(self, record: Record, final: str, data: bytes, *, is_own: bool = True) -> bool:
        """Steps three and four; False if the final name holds a commit of a client without the store."""
        is_renamed = is_own and self._rename(record.path, final)
        theirs = None if is_renamed else self._put_final(final, data, is_own=is_own)
        if theirs is not None and not is_same_commit(data, theirs):
            self._give_way(record, final, theirs)
            return False
        if is_renamed:
            self._send_pointer(record, final, len(data))
        elif self._point(record, final, len(data)):
            self._discard(record.path)
        if not self._objects.is_listing_ordered:
            self._folder.write_hint(record.version)
        return True

    def _rename(self, staged: str, final: str) -> bool:
        """On local disk: rename the staged file, which is one file less to write and to delete."""
        if not self._objects.is_local or not self._renames:
            return False
        try:
            self._objects.rename_if_absent(staged, final)
        except (ObjectExists, NotFoundError):  # completed by others, or taken: the put finds out which
            return False
        return True

    def _put_final(self, final: str, data: bytes, *, is_own: bool) -> bytes | None:
        """Put the manifest under its final name; returns the existing file, if there is one.

        A name that is reported as taken while no file has it was only busy: the put is repeated after a pause.
        """
        for attempt in range(1, FINAL_ATTEMPTS + 1):
            try:
                # A helping process looks first: the writer has often done it, and some storage ignores conditions.
                if not is_own and self._objects.head(final) is not None:
                    raise ObjectExists(final)
                self._putter.put_new(self._objects, final, data)
                return None
            except ObjectExists:
                try:
                    return self._objects.get(final)
                except NotFoundError:
                    self._environment.sleep(self._environment.uniform(0.0, FINAL_PAUSE_S * (1 << attempt)))
        raise StoreUnavailable(
            f"The storage says that {final} is taken, but no such file exists.",
            table=self._objects.root,
            hint="The version is committed; open the table when the storage works again: that completes it.",
        )

    def _give_way(self, record: Record, final: str, theirs: bytes) -> None:
        _log.warning(
            "version %d of %s was written past %r; it stays, and the commit in %s has to go round again",
            record.version, self._objects.root, self._records, record.path,
        )  # fmt: skip
        self._point(record, final, len(theirs))
        self.adopt(record.version)

    def _point(self, record: Record, final: str, size: int) -> bool:
        """Best effort: a record that still names the staged file is completed again by the next one to read it."""
        try:
            return self._records.point(self._key, record.version, final, size)
        except ConroiError as error:
            _log.info("the record of version %d of %s was not updated: %s", record.version, self._key, error)
            return False

    def _send_pointer(self, record: Record, final: str, size: int) -> None:
        """No staged file waits for it to be deleted, so nothing depends on the answer."""
        if not isinstance(self._records, SendsPointers):
            self._point(record, final, size)
            return
        with contextlib.suppress(ConroiError):
            self._records.send_pointer(self._key, record.version, final, size)

    def adopt(self, known: int) -> ManifestRef | None:
        """Record the newest version in the folder, which is newer than the store's newest."""
        found = self._folder.latest()
        if found is None or found.version <= known:
            return None
        info = self._objects.head(found.path)
        try:
            if info is not None:
                self._records.put_if_absent(
                    [Record(self._key, found.version, found.path, info.size)], {self._key: known}
                )
        except (RecordTaken, ExpectedVersionMismatch):
            record = self._records.newest(self._key)
            return found if record is None else self._final(record)
        except StoreError as error:  # a reader may be one that must not write
            _log.info("version %d of %s was not put into %r: %s", found.version, self._key, self._records, error)
        return self._completed_as(found)

    def _completed_as(self, located: ManifestRef) -> ManifestRef:
        self._completed = max(self._completed, located.version)
        self._folder.saw(located)
        return located

    def _discard(self, path: str) -> None:
        self._staged = None
        try:
            self._objects.delete([path])
        except ConroiError as error:
            _log.debug("the staged manifest %s stays: %s", path, error)

    def _corrupt(self, version: int, what: str) -> CorruptionError:
        return CorruptionError(
            f"Version {version} cannot be resolved: {what}.",
            table=self._objects.root,
            version=version,
            hint="Is this the store of the table? conroi.stores.detach and attach create its record again.",
        )


def _is_staged(record: Record) -> bool:
    return parse_staged_name(record.path.removeprefix(f"{VERSIONS_DIR}/")) is not None


@dataclass(frozen=True, slots=True)
class FinalPut:
    """The conditional put; on storage that has no conditions, look and then put.

    Between the look and the put only a process that completes the same version can write it, with the same bytes: a
    client that commits by path would need conditions. Any other refusal says nothing of conditions and is raised.
    """

    def put_new(self, objects: Objects, path: str, data: bytes) -> None:
        try:
            objects.put_if_absent(path, data)
        except UnsupportedByStorage:
            if objects.head(path) is not None:
                raise ObjectExists(path) from None
            objects.put(path, data)


def is_same_commit(mine: bytes, theirs: bytes) -> bool:
    """Whether two manifest files are of one transaction."""
    if mine == theirs:
        return True
    ids = {_transaction_id(mine), _transaction_id(theirs)}
    return len(ids) == 1 and None not in ids


def _transaction_id(data: bytes) -> str | None:
    try:
        file = decode_manifest_file(data)
        if file.transaction is not None:
            return decode_transaction(file.transaction).uuid
        named = parse_transaction_name(file.manifest.head.transaction_file)
    except ConroiError:
        return None
    return None if named is None else str(named[1])
