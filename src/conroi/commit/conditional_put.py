"""Put-if-absent of a manifest. A lost response is resolved by reading back and comparing transaction ids.

After any request of this commit had no response, only a definite observation avoids CommitStateUnknown: our version, or
another one, read back under the name. A free name may still be filled by the request in flight. A name that was
collected since may have held our version.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from conroi.environment import Moment, moment, seconds_since
from conroi.errors import (
    CommitStateUnknown,
    ConroiError,
    NotFoundError,
    RetryableConflict,
    StoreError,
    StoreUnavailable,
)
from conroi.format.manifest_file import ManifestFile
from conroi.format.on_disk import TRANSACTIONS_DIR
from conroi.snapshots.snapshot import Snapshot, TableStorage, load_snapshot, load_transaction
from conroi.storage.objects import ObjectExists
from conroi.versions.folder import ManifestRef
from conroi.versions.retention import VersionCollected, ages, watermark

_log = logging.getLogger(__name__)

RESENDS = 3
"""Number of times the same bytes are sent again to a name that is still free after an error."""
RESEND_PAUSE_S = 0.02
"""Upper bound of the pause before the first resend, in seconds; it doubles."""


@dataclass
class Putting:
    """The puts of one commit, identified by its transaction id."""

    _files: TableStorage
    _uuid: str
    taken: Snapshot | None = None
    """The version that was last found under a name we wanted."""
    _is_unanswered: bool = False
    """Whether a request for the version that is being put had no response."""

    def put(self, located: ManifestRef, data: bytes, file: ManifestFile) -> Snapshot | None:
        """The committed version; None if a concurrent writer has its name."""
        self.taken, self._is_unanswered = None, False
        if not self._files.objects.is_local:
            self._require_conditions(file)
        sent_at = moment(self._files.environment)
        for resend in range(RESENDS + 1):
            try:
                landed = self._files.versions.put(located.version, located.naming, data)
                return Snapshot(file.manifest, landed, file.transaction)
            except VersionCollected as collected:
                raise self._collected(located, collected) from None
            except ObjectExists:
                return self._look_for_mine(located, sent_at)
            except StoreError as error:
                self._is_unanswered |= isinstance(error, StoreUnavailable)
                if self._is_there(located, error):
                    return self._look_for_mine(located, sent_at)
                if not isinstance(error, StoreUnavailable) or resend == RESENDS:
                    raise self._unknown_or(error, located) from error
                _log.info("the put of %s failed and its name is free: sending again", located.path)
            except ConroiError as error:
                raise self._unknown_or(error, located) from error
            self._pause(resend)
        raise AssertionError("unreachable")

    def _require_conditions(self, file: ManifestFile) -> None:
        """Probe for conditional writes: the transaction file exists, so a conditional put of it must be refused."""
        path = f"{TRANSACTIONS_DIR}/{file.manifest.head.transaction_file}"
        for resend in range(RESENDS):
            try:
                return self._files.versions.require_conditions(path, file.transaction or b"")
            except StoreUnavailable:
                self._pause(resend)
        return self._files.versions.require_conditions(path, file.transaction or b"")

    def _pause(self, resend: int) -> None:
        environment = self._files.environment
        environment.sleep(environment.uniform(0.0, RESEND_PAUSE_S * (1 << resend)))

    def _is_there(self, located: ManifestRef, cause: StoreError) -> bool:
        try:
            return self._files.objects.head(located.path) is not None
        except ConroiError:
            raise self._unknown_or(StoreUnavailable(str(cause)), located) from cause

    def _look_for_mine(self, located: ManifestRef, sent_at: Moment) -> Snapshot | None:
        """The version under the name, if it is ours: the put succeeded and only its response was lost. Else None."""
        try:
            snapshot = self.taken = load_snapshot(self._files.objects, located)
            transaction = load_transaction(self._files.objects, snapshot)
            if transaction is None or transaction.uuid != self._uuid:
                self._refuse_reused(located, sent_at)
                return None
            self._files.versions.confirm(located, sent_at)
        except VersionCollected as collected:
            raise self._collected(located, collected) from None
        except NotFoundError:
            self._refuse_doubt(located, sent_at)
            return None
        except ConroiError as error:
            raise self._unknown_or(StoreUnavailable(str(error)), located) from error
        return snapshot

    def _refuse_reused(self, located: ManifestRef, sent_at: Moment) -> None:
        """Another version has the name: a paused writer may have reused it after ours was there and was collected."""
        is_recent = seconds_since(self._files.environment, sent_at) < ages().version_s
        if self._is_unanswered and not is_recent and watermark(self._files.objects) >= located.version:
            raise self._may_be_collected(located)

    def _refuse_doubt(self, located: ManifestRef, sent_at: Moment) -> None:
        """The name was reported as taken, but no file has it: the version there was collected, and may have been ours.

        Certain only if the one request was refused just now: nothing that young is collected.
        """
        if self._is_unanswered or seconds_since(self._files.environment, sent_at) >= ages().version_s:
            raise self._may_be_collected(located)

    def _collected(self, located: ManifestRef, collected: VersionCollected) -> RetryableConflict | CommitStateUnknown:
        """The error of a process that was paused while others committed that version, continued, and collected it."""
        if self._is_unanswered or not collected.is_certain:
            return self._may_be_collected(located)
        return RetryableConflict(
            f"Other writers committed version {located.version}, and it was collected, while this commit was paused; "
            "nothing of it is visible.",
            table=self._files.root,
            version=located.version,
            base_version=located.version - 1,
            hint="Run the work again on the newest version.",
        )

    def _may_be_collected(self, located: ManifestRef) -> CommitStateUnknown:
        return CommitStateUnknown(
            f"This process was paused for so long that version {located.version} may have been collected since.",
            table=self._files.root,
            version=located.version,
            transaction_uuid=self._uuid,
            hint="Check whether its rows exist before doing the work again.",
        )

    def _unknown_or(self, error: ConroiError, located: ManifestRef) -> ConroiError:
        """The given refusal if every request had a response; CommitStateUnknown otherwise."""
        if not self._is_unanswered and not isinstance(error, StoreUnavailable):
            return error
        return CommitStateUnknown(
            f"The storage did not say whether version {located.version} was written: {error.message}",
            table=self._files.root,
            version=located.version,
            transaction_uuid=self._uuid,
            hint="When the storage responds again, look for the transaction id in history() before doing the work "
            "again. No file was deleted.",
        )
