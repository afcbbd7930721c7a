"""Storage of one table: its files, its version store, and the environment (clock, randomness, ids)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from conroi.commit.snapshot import Snapshot, load_snapshot
from conroi.commit.turns import Turns
from conroi.environment import Environment
from conroi.errors import NotFoundError
from conroi.stores.objects import Objects
from conroi.stores.versions import VersionStore

if TYPE_CHECKING:
    from conroi.commit.change import Change, CommitOptions, CommitResult


class Publisher(Protocol):
    """Commits for a table whose versions are published together with those of other tables."""

    def publish(self, files: TableFiles, change: Change, options: CommitOptions) -> CommitResult: ...


@dataclass(frozen=True)
class TableFiles:
    """Storage of one table: everything that a commit reads or writes."""

    objects: Objects
    versions: VersionStore
    environment: Environment
    publisher: Publisher | None = None
    """Commits through a lake; None for a standalone table."""

    @cached_property
    def turns(self) -> Turns:
        """Fair ordering among the active writers of this table."""
        return Turns(self.environment)

    @property
    def root(self) -> str:
        return self.objects.root

    @property
    def name(self) -> str:
        """The table's name in errors: its address, or its name in a lake."""
        return self.root

    @property
    def may_branch(self) -> bool:
        """Whether its versions may be merged with those of a branch, where the same field id may mean another field.

        The next field id is the same on every branch, and the id of a dropped column is assigned again.
        """
        return False

    def refuse_past(self) -> None:
        """InvalidInputError if this is a table of a past lake version, which is read-only."""

    def current(self) -> TableFiles:
        """The storage of the table at its newest state."""
        return self

    def holding(self, snapshot: Snapshot) -> TableFiles:  # noqa: ARG002 (a table of a lake may go on in another folder)
        """The storage that has this version of the table."""
        return self

    def head(self) -> Snapshot:
        """The newest version, loaded."""
        located = self.versions.latest()
        if located is None:
            raise NotFoundError(
                f"There is no Lance table at {self.root}.",
                table=self.root,
                hint="Check the path, or make the table with conroi.create_table(uri, schema_or_data).",
            )
        return load_snapshot(self.objects, located)

    def newest(self, known: Snapshot) -> Snapshot:
        """The newest version; `known` itself, without reading it again, if it still is the newest."""
        located = self.versions.latest()
        if located is None or located.version < known.version:
            return self.head()
        return known if located == known.located else load_snapshot(self.objects, located)
