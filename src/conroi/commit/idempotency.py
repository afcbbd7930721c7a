"""Idempotency keys of one table: a commit with a key that was committed before is a no-op.

Before each put the writer records at which version the commit with this key may be. So a later call finds it with one
request, whatever the length of the history. This record alone proves nothing: the version itself does, or a second
record that was written after the commit succeeded. The second record stays valid after the version was collected. Keys
of a lake are in its store: `catalog.publication`.
"""

from __future__ import annotations

import contextlib
import hashlib

from conroi.errors import CommitStateUnknown, InvalidInputError, StoreError
from conroi.format.on_disk import IDEMPOTENCY_DIR, IDEMPOTENCY_PROPERTY
from conroi.format.transaction import Transaction
from conroi.snapshots.snapshot import TableStorage, load_snapshot, load_transaction
from conroi.versions.folder import ManifestRef

_TRIED, _LANDED = b'{"state":"tried"}', b'{"state":"landed"}'


class AlreadyCommitted(Exception):
    """Internal: a commit with this idempotency key already exists. It is a result, not a failure."""

    def __init__(self, version: int) -> None:
        super().__init__(f"version {version} has the same key")
        self.version = version


class IdempotencyKey:
    """The idempotency key of one commit to one table."""

    def __init__(self, files: TableStorage, key: str) -> None:
        if files.is_managed:
            raise InvalidInputError(
                "This table belongs to a lake, which keeps the keys of its commits.",
                table=files.root,
                hint="Use lake.begin(idempotency_key=…).",
            )
        self.key = key
        self._files = files
        self._folder = f"{IDEMPOTENCY_DIR}/{hashlib.sha256(key.encode()).hexdigest()[:40]}"

    def done_at(self) -> int | None:
        """The version that was committed with this key; None if there is none."""
        for path in self._files.objects.list_names(self._folder):
            name = path.rpartition("/")[2]
            # A file that is being written, or was left by a crashed writer, has another kind of name.
            if name.isdecimal() and self._is_done(path, int(name)):
                return int(name)
        return None

    def _is_done(self, note: str, version: int) -> bool:
        if self._files.objects.get(note) == _LANDED:
            return True
        located = self._files.versions.locate(version)
        if located is not None:
            return self._is_mine(self._transaction(located))
        latest = self._files.versions.latest()
        if latest is None or version > latest.version:
            return False
        raise CommitStateUnknown(
            f"A commit with the key {self.key!r} was tried as version {version}, and that version was collected since.",
            table=self._files.root,
            version=version,
            hint="Check whether its rows exist. If they do, leave it; if not, commit them with another key.",
        )

    def _transaction(self, located: ManifestRef) -> Transaction | None:
        return load_transaction(self._files.objects, load_snapshot(self._files.objects, located))

    def _is_mine(self, transaction: Transaction | None) -> bool:
        return transaction is not None and transaction.properties.get(IDEMPOTENCY_PROPERTY) == self.key

    # ------------------------------------------------------------------------ while it is committed

    def refuse_repeated(self, version: int, transaction: Transaction) -> None:
        """AlreadyCommitted if this concurrent commit has the key."""
        if self._is_mine(transaction):
            raise AlreadyCommitted(version)

    def will_try(self, version: int) -> None:
        """Record that a commit with this key is about to be put as this version."""
        self._files.objects.put(f"{self._folder}/{version}", _TRIED)

    def landed(self, version: int) -> None:
        """Record the commit beyond the life of its version; without this, it is known only while the version exists."""
        with contextlib.suppress(StoreError):
            self._files.objects.put(f"{self._folder}/{version}", _LANDED)
