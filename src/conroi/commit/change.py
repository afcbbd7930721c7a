"""Commit request and commit result of one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from conroi.commit.baton import Baton
from conroi.commit.snapshot import Snapshot
from conroi.conflicts import Staged, Winner
from conroi.environment import Moment
from conroi.format.naming import ManifestNaming
from conroi.format.transaction import Transaction

Guard = Callable[[Snapshot, Sequence[Winner]], None]
"""Looks at the head, and at what others committed since our base, just before a put; raises what forbids it."""


@dataclass(frozen=True)
class Change:
    """A staged operation on one table, ready to be committed."""

    staged: Staged
    base: Snapshot | None
    """The version the operation was computed on; None creates the table."""
    uuid: str
    uuid_is_fresh: bool = False
    """The id was made for this change, so no file has it in its name yet."""
    base_is_fresh: bool = False
    """The base was the newest version a moment ago, so the first attempt need not look for newer ones: its put will
    tell."""
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    must_not_move: bool = False
    """Refuse if anybody else committed since the base, even where the format would let us win."""
    guard: Guard | None = None
    restored: Snapshot | None = None
    """For Restore: the version to go back to."""
    cloned: Snapshot | None = None
    """For Clone: the version to clone."""
    is_detached: bool = False
    """Make a version off the table's line of versions, on the base as it is: nobody is raced, nothing is rebased."""
    baton: Baton | None = None
    """The baton of a verb that may be done again: it is kept until the verb is through."""
    begun_at: Moment | None = None
    """When the work began, before its base was looked up; None: long ago, maybe."""
    new_table_naming: ManifestNaming = ManifestNaming.V2
    """For a new table: how its manifests are named."""


@dataclass(frozen=True, slots=True)
class CommitOptions:
    """How hard to try."""

    retries: int = 20
    timeout_s: float | None = None
    """Give up after so long, whatever is left of the retries."""


DEFAULT_OPTIONS = CommitOptions()


@dataclass(frozen=True)
class CommitResult:
    """A commit that landed."""

    snapshot: Snapshot
    transaction: Transaction
    attempts: int
    rebased_over: tuple[int, ...]
    """The versions others committed between our base and us."""
    orphans: tuple[str, ...] = ()
    """Files that lost attempts of this commit left behind, for collection."""

    @property
    def version(self) -> int:
        return self.snapshot.version
