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
    """Commits for a table whose versions become real together with those of other tables."""

    def publish(self, files: TableFiles, change: Change, options: CommitOptions) -> CommitResult: ...


@dataclass(frozen=True)
class TableFiles:
    """All that a commit touches of one table."""

    objects: Objects
    versions: VersionStore
    environment: Environment
    publisher: Publisher | None = None
    """Who commits; None for a table that stands alone."""

    @cached_property
    def turns(self) -> Turns:
        """Who else writes this table just now."""
        return Turns(self.environment)

    @property
    def root(self) -> str:
        return self.objects.root

    @property
    def name(self) -> str:
        """What its users call the table, in errors too: its address, or in a lake its name there."""
        return self.root

    @property
    def may_branch(self) -> bool:
        """Whether its versions may be merged with those of a branch, where the same id may be another field's.

        The next field id is the same on every branch, and that of a column which was dropped is given again.
        """
        return False

    def refuse_past(self) -> None:
        """InvalidInputError if this is a table of a lake as it was, which can only be read."""

    def current(self) -> TableFiles:
        """The storage of the table as it is now."""
        return self

    def holding(self, snapshot: Snapshot) -> TableFiles:  # noqa: ARG002 (a table of a lake may go on in another folder)
        """The storage of the table that has this version."""
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
        """The newest version; `known` itself, with nothing read again, if it still is."""
        located = self.versions.latest()
        if located is None or located.version < known.version:
            return self.head()
        return known if located == known.located else load_snapshot(self.objects, located)
