"""The request and the result of one commit, and detached versions, which are outside the line of versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from conroi.commit.fairness import PriorityToken
from conroi.commit.idempotency import IdempotencyKey
from conroi.conflicts import ConcurrentCommit, Staged
from conroi.environment import Moment
from conroi.errors import InvalidInputError, UnsupportedError
from conroi.format.naming import DETACHED_BIT, ManifestNaming
from conroi.format.transaction import Transaction
from conroi.retry_policy import COMMIT_RETRIES
from conroi.snapshots.snapshot import Snapshot
from conroi.snapshots.table_storage import TableStorage

Guard = Callable[[Snapshot, Sequence[ConcurrentCommit]], None]
"""Precondition: checks the newest version and the commits since our base just before a put; raises the conflict."""


@dataclass(frozen=True)
class Change:
    """A staged operation on one table, ready to be committed."""

    staged: Staged
    base: Snapshot | None
    """The version that the operation was computed on; None creates the table."""
    uuid: str
    uuid_is_fresh: bool = False
    """The id was generated for this change, so no file has it in its name yet."""
    base_is_fresh: bool = False
    """The base was the newest version a moment ago, so the first attempt skips the look-up of newer ones: its put
    detects them.
    """
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    must_not_move: bool = False
    """Refuse if there was a commit since the base, even where the format would allow ours."""
    guard: Guard | None = None
    restored: Snapshot | None = None
    """For Restore: the version to restore."""
    cloned: Snapshot | None = None
    """For Clone: the version to clone."""
    is_detached: bool = False
    """Create a version outside the table's linear history, on the base as it is: no race, no rebase."""
    baton: PriorityToken | None = None
    """The priority token of a verb that may be executed again: it is held until the verb ends."""
    once: IdempotencyKey | None = None
    """The idempotency key of this commit, of a table that is not in a lake."""
    begun_at: Moment | None = None
    """When the work began, before its base was looked up; None: possibly long ago."""
    new_table_naming: ManifestNaming = ManifestNaming.V2
    """For a new table: the naming scheme of its manifests."""


@dataclass(frozen=True, slots=True)
class CommitOptions:
    """Retry limits of a commit."""

    retries: int = COMMIT_RETRIES
    timeout_s: float | None = None
    """Time limit in seconds, however many retries are left."""


DEFAULT_OPTIONS = CommitOptions()


@dataclass(frozen=True)
class CommitResult:
    """A successful commit."""

    snapshot: Snapshot
    transaction: Transaction
    attempts: int
    rebased_over: tuple[int, ...]
    """The concurrent versions between our base and our commit."""
    orphans: tuple[str, ...] = ()
    """Unreferenced files of lost attempts of this commit, left to garbage collection."""

    @property
    def version(self) -> int:
        return self.snapshot.version


def detached_version(base: Snapshot | None, files: TableStorage) -> int:
    """A unique random number that no version of the linear history can have."""
    if base is None:
        raise InvalidInputError(
            "The first version of a table cannot be a detached one.", table=files.root, hint="Create the table first."
        )
    if base.naming is ManifestNaming.V1:
        raise UnsupportedError(
            "Detached versions need manifest names of the newer kind, which this table does not have.",
            table=files.root,
            hint="Call table.migrate_manifest_names() first.",
        )
    return files.environment.random_u64() | DETACHED_BIT
