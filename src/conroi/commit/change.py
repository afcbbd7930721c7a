"""The work of a verb, the request and the result of one commit; detached versions, outside the linear history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from conroi.commit.fairness import PriorityToken
from conroi.commit.idempotency import IdempotencyKey
from conroi.conflicts import ConcurrentCommit, Staged
from conroi.environment import Moment
from conroi.errors import InvalidInputError, UnsupportedError
from conroi.format.naming import DETACHED_BIT, ManifestNaming
from conroi.format.transaction import Transaction
from conroi.snapshots.snapshot import Snapshot, TableStorage

Guard = Callable[[Snapshot, Sequence[ConcurrentCommit]], None]
"""Precondition: checks the newest version and the commits since our base just before a put; raises the conflict."""


@dataclass(frozen=True)
class Plan:
    """The work of a verb, done but not committed: the operation and its preconditions."""

    staged: Staged
    must_not_move: bool = False
    """Refuse if there was a commit since the base, even where the format would allow ours."""
    guard: Guard | None = None
    restored: Snapshot | None = None
    """For Restore: the version to restore."""
    cloned: Snapshot | None = None
    """For Clone: the version to clone."""
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    """Statistics for the user: rows added, deleted, updated."""
    has_reserved: bool = False
    """Whether the work committed a reservation of fragment ids, so that its base is not the newest version."""


@dataclass(frozen=True)
class Change:
    """A plan for one table, bound to the version that it was made on, and ready to be committed."""

    plan: Plan
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
    is_strict: bool = False
    """Refuse if there was a commit since the base, whatever the plan says."""
    is_detached: bool = False
    """Create a version outside the table's linear history, on the base as it is: no race, no rebase."""
    priority_token: PriorityToken | None = None
    """The priority token of a verb that may be executed again: it is held until the verb ends."""
    once: IdempotencyKey | None = None
    """The idempotency key of this commit, of a table that is not in a lake."""
    begun_at: Moment | None = None
    """When the work began, before its base was looked up; None: possibly long ago."""
    new_table_naming: ManifestNaming = ManifestNaming.V2
    """For a new table: the naming scheme of its manifests."""


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
    is_shared: bool = False
    """Another thread's commit has the same version, and sees to its maintenance."""

    @property
    def version(self) -> int:
        return self.snapshot.version


IfMoved: TypeAlias = Literal["fail", "win"]
"""What an overwrite or a restore does after a concurrent commit: raise a conflict, or win."""


def must_not_move(if_moved: str, table: str) -> bool:
    """Whether any concurrent commit is a conflict."""
    if if_moved not in ("fail", "win"):
        raise InvalidInputError(
            f"if_moved={if_moved!r} is not known.",
            table=table,
            hint='"fail" refuses if there was a concurrent commit, "win" goes ahead.',
        )
    return if_moved == "fail"


def all_of(guards: Sequence[Guard]) -> Guard | None:
    """One guard that combines all of them; None if there is none."""
    if not guards:
        return None

    def check(head: Snapshot, winners: Sequence[ConcurrentCommit]) -> None:
        for guard in guards:
            guard(head, winners)

    return check


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


def checked_texts(texts: Mapping[str, str]) -> dict[str, str]:
    """Validate a message, properties or settings: all must be strings."""
    for key, value in texts.items():
        if not isinstance(key, str) or not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInputError(
                f"{key!r}: {value!r} is not text, so it cannot be kept with a commit.", hint="Put str() around it."
            )
    return dict(texts)
