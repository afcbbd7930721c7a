"""Catalog store interface: read the newest state of a lake, and compare-and-swap it for all tables of a publication."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from conroi.catalog.records import Notes
from conroi.catalog.state import Changes, LakeState
from conroi.commit.baton import Baton
from conroi.commit.turns import Turns

Task = Callable[[], object]


@dataclass(frozen=True)
class Published:
    """One version of the lake, as history() lists it."""

    version: int
    timestamp: datetime
    notes: Notes
    uuid: str | None
    """The id of the publication."""
    changes: Changes | None
    """What it did; None if it does not say (another software wrote it)."""
    operation: str = ""


@dataclass(frozen=True)
class Seen:
    """What was found newer than a state that was known: the newest one, and what led to it."""

    state: LakeState
    commits: Sequence[Published] = field(default_factory=tuple[Published, ...])
    """Newer publications, oldest first."""
    is_complete: bool = True
    """Whether `commits` has all of them; if not, the rows were read instead."""


class Attempt(Protocol):
    """A publication that is built on one state. First its `tasks` are done, then it is put."""

    @property
    def tasks(self) -> Sequence[Task]:
        """What must be written before the put; in any order, also at the same time."""
        ...

    def put(self) -> LakeState | None:
        """Make it real, unless anybody published since the state it is built on: then None."""
        ...


class Heads(Protocol):
    """The store of a lake's states."""

    @property
    def turns(self) -> Turns:
        """Who else publishes just now."""
        ...

    def baton(self) -> Baton:
        """How a publication that keeps losing asks the others to wait."""
        ...

    def newest(self, known: LakeState | None) -> Seen:
        """The newest state; cheap if `known` is not far behind."""
        ...

    def has_moved(self, known: LakeState, versions: int) -> bool:
        """Whether there are so many newer states; asked only where that costs nothing."""
        ...

    def build(self, base: LakeState, changes: Changes, notes: Notes, uuid: str) -> Attempt:
        """The publication of these changes on top of a state."""
        ...

    def at(self, version: int) -> LakeState:
        """An older state; NotFoundError if it never was, or was collected."""
        ...

    def as_of(self, moment: datetime | str) -> LakeState:
        """The newest state that is not newer than this."""
        ...

    def history(self, newest: int, limit: int | None) -> Iterator[Published]:
        """The versions up to this one, newest first, read as you go."""
        ...

    def published_as(self, key: str) -> Published | None:
        """The publication with this idempotency key that is not newer than the newest state we know."""
        ...

    def will_try(self, key: str, version: int) -> None:
        """Leave a note that a publication with this key is about to be put as this version."""
        ...
