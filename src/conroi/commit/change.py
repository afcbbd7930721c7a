"""What one commit is asked to do, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from conroi.commit.snapshot import Snapshot
from conroi.conflicts import Staged
from conroi.format.naming import ManifestNaming
from conroi.format.transaction import Transaction

Guard = Callable[[Snapshot], None]
"""Looks at the head just before a put and raises what forbids it (keys that are there already, for example)."""


@dataclass(frozen=True)
class Change:
    """A staged operation on one table, ready to be committed."""

    staged: Staged
    base: Snapshot | None
    """The version the operation was computed on; None creates the table."""
    uuid: str
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
    new_table_naming: ManifestNaming = ManifestNaming.V2
    """For a new table: how its manifests are named."""


@dataclass(frozen=True, slots=True)
class CommitOptions:
    """How hard to try."""

    retries: int = 20
    timeout_s: float | None = None
    """Give up after so long, whatever is left of the retries."""


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
