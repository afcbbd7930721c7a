"""The put: make a manifest real under its name, and find out what happened when the storage does not say."""

from __future__ import annotations

import logging

from conroi.commit.files import TableFiles
from conroi.commit.snapshot import Snapshot, load_snapshot, load_transaction
from conroi.errors import CommitStateUnknown, NotFoundError, RetryableConflict, StoreError, StoreUnavailable
from conroi.format.manifest_file import ManifestFile
from conroi.stores.forgotten import VersionCollected
from conroi.stores.objects import NameTaken
from conroi.stores.versions import Located

_log = logging.getLogger(__name__)

RESENDS = 3
"""So often the same bytes are sent again to a name that is still free after an error."""


class Putting:
    """The puts of one commit, which is known by the id of its transaction."""

    def __init__(self, files: TableFiles, uuid: str) -> None:
        self._files = files
        self._uuid = uuid
        self.taken: Snapshot | None = None
        """The version that was last found under a name we wanted."""

    def put(self, located: Located, data: bytes, file: ManifestFile) -> Snapshot | None:
        """The version, now real; None if somebody else has its name."""
        try:
            return self._put(located, data, file)
        except VersionCollected as collected:
            raise self._collected(located, collected) from None

    def _put(self, located: Located, data: bytes, file: ManifestFile) -> Snapshot | None:
        sent_at = self._files.environment.monotonic()
        for resend in range(RESENDS + 1):
            try:
                landed = self._files.versions.put(located.version, located.naming, data)
                return Snapshot(file.manifest, landed, file.transaction)
            except NameTaken:
                return self._look_for_mine(located, sent_at)
            except StoreError as error:
                if self._is_there(located, error):
                    return self._look_for_mine(located, sent_at)
                if not isinstance(error, StoreUnavailable) or resend == RESENDS:
                    raise self._unknown_or(error, located) from error
                _log.info("the put of %s failed and its name is free: sending again", located.path)
        raise AssertionError("unreachable")

    def _is_there(self, located: Located, cause: StoreError) -> bool:
        try:
            return self._files.objects.head(located.path) is not None
        except StoreError:
            raise self._unknown_or(StoreUnavailable(str(cause)), located) from cause

    def _look_for_mine(self, located: Located, sent_at: float) -> Snapshot | None:
        """The version that took the name: ours, if the put landed and only its answer was lost; else None."""
        try:
            snapshot = self.taken = load_snapshot(self._files.objects, located)
            transaction = load_transaction(self._files.objects, snapshot)
        except NotFoundError:
            return None
        except StoreError as error:
            raise self._unknown_or(StoreUnavailable(str(error)), located) from error
        if transaction is None or transaction.uuid != self._uuid:
            return None
        try:
            self._files.versions.confirm(located, sent_at)
        except StoreError as error:
            raise self._unknown_or(StoreUnavailable(str(error)), located) from error
        return snapshot

    def _collected(self, located: Located, collected: VersionCollected) -> RetryableConflict | CommitStateUnknown:
        """This process stood still while others made that version, went on, and collected it."""
        if collected.is_certain:
            return RetryableConflict(
                f"Others made version {located.version}, and collected it, while this commit stood still; nothing of "
                "it is visible.",
                table=self._files.root,
                version=located.version,
                base_version=located.version - 1,
                hint="Run the work again on the newest version.",
            )
        return CommitStateUnknown(
            f"This process stood still for so long that version {located.version} may have been collected since.",
            table=self._files.root,
            version=located.version,
            transaction_uuid=self._uuid,
            hint="Look whether its rows are there before doing the work again.",
        )

    def _unknown_or(self, error: StoreError, located: Located) -> StoreError | CommitStateUnknown:
        """A refusal is an answer; silence is not."""
        if not isinstance(error, StoreUnavailable):
            return error
        return CommitStateUnknown(
            f"The storage did not say whether version {located.version} was written: {error.message}",
            table=self._files.root,
            version=located.version,
            transaction_uuid=self._uuid,
            hint="When the storage answers again, look for the transaction id in history() before doing the work "
            "again. No file was deleted.",
        )
