"""Catalog store interface: read the newest state of a lake, and compare-and-swap it for all tables of a publication."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, runtime_checkable

from conroi.catalog.state import Changes, CommitMetadata, LakeState, Member
from conroi.commit.fairness import PriorityToken, Turns
from conroi.environment import utc_time

Task = Callable[[], object]


@dataclass(frozen=True)
class Published:
    """One commit of the lake, as history() lists it. A group commit has several of one version."""

    version: int
    timestamp: datetime
    notes: CommitMetadata
    uuid: str | None
    """The id of the publication."""
    changes: Changes | None
    """The changes; None if they are not recorded (other software wrote it)."""
    operation: str = ""

    @classmethod
    def of(cls, member: Member, version: int, timestamp_ns: int) -> Published:
        """One of the commits of a version."""
        return cls(version, utc_time(timestamp_ns), member.notes, member.uuid, member.changes, "Update")


@dataclass(frozen=True)
class Seen:
    """The newest state, and the commits since a known state."""

    state: LakeState
    commits: Sequence[Published] = field(default_factory=tuple[Published, ...])
    """Newer publications, oldest first."""
    is_complete: bool = True
    """Whether `commits` has all of them; if not, the rows were read instead."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What must be unchanged at the put, besides the rows that are written: everything that was checked."""

    objects: frozenset[str] = frozenset()
    """Objects that were looked at, also names that must be absent."""
    listing: bool = False
    """Whether no table may be added or removed."""
    everything: bool = False
    """Whether there may be no other publication at all."""


DependenciesOf = Callable[[], Dependencies]


class Attempt(Protocol):
    """One commit attempt of a publication, built on one state. Its `tasks` are done first, then it is put."""

    @property
    def tasks(self) -> Sequence[Task]:
        """What must be written before the put; in any order, or in parallel."""
        ...

    def put(self) -> LakeState | Published | None:
        """Commit it by compare-and-swap; None if a concurrent publication since the state it is built on forbids it.

        Published is a commit whose state must be looked up, or the earlier one that has the idempotency key.
        """
        ...


class CatalogStore(Protocol):
    """Catalog store: the versioned states of a lake."""

    @property
    def turns(self) -> Turns:
        """Fair ordering among active publishers."""
        ...

    @property
    def compares_in_put(self) -> bool:
        """Whether looking before the put saves nothing: the put compares the rows that a publication depends on."""
        ...

    def priority_token(self) -> PriorityToken:
        """Priority token of a publication that keeps losing races."""
        ...

    def newest(self, known: LakeState | None) -> Seen:
        """The newest state; cheap if `known` is not far behind."""
        ...

    def has_moved(self, known: LakeState, versions: int) -> bool:
        """Whether there are this many newer states; asked only where that costs nothing."""
        ...

    def build(
        self, base: LakeState, changes: Changes, notes: CommitMetadata, uuid: str, dependencies: DependenciesOf
    ) -> Attempt:
        """The publication of these changes on top of a state, on which its dependencies were checked."""
        ...

    def at(self, version: int) -> LakeState:
        """An older state; NotFoundError if it never existed, or was collected."""
        ...

    def as_of(self, moment: datetime | str) -> LakeState:
        """The newest state that is not newer than this."""
        ...

    def history(self, newest: int, limit: int | None) -> Iterator[Published]:
        """The versions up to this one, newest first, read lazily."""
        ...

    def published_as(self, key: str) -> Published | None:
        """The publication with this idempotency key that is not newer than the newest known state."""
        ...

    def will_try(self, key: str, version: int) -> None:
        """Record that a publication with this idempotency key is about to be put as this version."""
        ...


@runtime_checkable
class GroupStore(Protocol):
    """A catalog store that can have several publications in one version."""

    def follow_known(self, state: LakeState) -> Seen:
        """The newest state that can be computed from versions in memory, and the commits since this one."""
        ...

    def build_group(self, base: LakeState, members: Sequence[Member]) -> Attempt:
        """Publications with disjoint changes on top of a state."""
        ...

    def will_try(self, key: str, version: int) -> None:
        """As in `CatalogStore`."""
        ...
