"""Conflict attribution: add the facts of the concurrent commit to an error that names only its version."""

from __future__ import annotations

import contextlib

from conroi import operations
from conroi.conflicts import ConcurrentCommit, Reason
from conroi.errors import ConflictError, ConroiError, ExpectedVersionMismatch, TooMuchContention
from conroi.snapshots.snapshot import load_snapshot, load_transaction
from conroi.snapshots.table_storage import TableStorage

RULES: dict[type[ConflictError], str] = {
    ExpectedVersionMismatch: "table/moved",
    TooMuchContention: "table/contended",
}


def attribute(files: TableStorage, error: ConflictError, mine: str = "") -> None:
    """Add author and time of the concurrent commit to a conflict; `mine` is the operation that lost."""
    if error.reason is None and error.version is not None and error.version > (error.base_version or 0):
        with contextlib.suppress(ConroiError):  # the error that is on its way is the one to be told
            error.reason = _reason(files, error, error.version, mine)


def _reason(files: TableStorage, error: ConflictError, version: int, mine: str) -> Reason | None:
    located = files.versions.locate(version)
    if located is None:
        return None
    snapshot = load_snapshot(files.objects, located)
    transaction = load_transaction(files.objects, snapshot)
    if transaction is None:
        return None
    winner = ConcurrentCommit.of(snapshot.manifest, transaction, operations.of(transaction))
    return Reason(rule=RULES[type(error)], mine=mine, theirs=winner.operation.name, winner=winner)
