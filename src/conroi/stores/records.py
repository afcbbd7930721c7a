"""External manifest store interface: records that map each version of a table to its manifest file.

A record first names a staged manifest, `_versions/7.manifest-{uuid}`, and after the version was completed its final
name. The implementations differ in where the records are stored. The guarantees are stated here and tested by one
suite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from conroi.errors import ExpectedVersionMismatch, InvalidInputError
from conroi.format.naming import is_detached
from conroi.stores.objects import Objects


@dataclass(frozen=True, slots=True)
class Record:
    """Version `version` of `table` is the file `path` (below the table's root) of `size` bytes."""

    table: str
    version: int
    path: str
    size: int


class RecordTaken(Exception):
    """Internal: the version is there already. It is an answer, not a failure; `path` is None if it was forgotten."""

    def __init__(self, table: str, version: int, path: str | None) -> None:
        super().__init__(f"version {version} of {table} is taken")
        self.table, self.version, self.path = table, version, path

    def __reduce__(self) -> tuple[type[RecordTaken], tuple[str, int, str | None]]:
        return RecordTaken, (self.table, self.version, self.path)


class RecordStore(Protocol):
    """Where records are kept. Every method may be called from any thread, and is one request where that can be.

    A `StoreUnavailable` from a method that writes means that nobody knows whether it happened; to ask again with the
    same arguments is always right.
    """

    def key_of(self, objects: Objects) -> str:
        """How this store calls the table whose files these are: the same on all hosts and for all spellings."""
        ...

    def put_if_absent(self, records: Sequence[Record], expected: Mapping[str, int] | None = None) -> None:
        """Put all records, or none.

        `expected` says at which version tables must be, those that are written and those that are only read; 0 is a
        table that the store does not know. If one is not, ExpectedVersionMismatch tells which. A record that is not
        newer than its table's newest raises RecordTaken. Records that are there already, with these very paths, are
        fine: so a request whose answer got lost can be sent again.
        """
        ...

    def newest(self, table: str) -> Record | None:
        """The newest version of a table, or None if the store does not know the table."""
        ...

    def get(self, table: str, version: int) -> Record | None:
        """The record of one version."""
        ...

    def all(self, table: str) -> list[Record]:
        """Every record of a table, ascending."""
        ...

    def point(self, table: str, version: int, path: str, size: int) -> bool:
        """Let a record name another file; False, and nothing done, if there is no such record."""
        ...

    def forget(self, table: str, versions: Sequence[int]) -> None:
        """Remove records, as collection and detach do; one that is not there is fine."""
        ...

    def close(self) -> None:
        """Let go of connections; the next call opens them again."""
        ...


def check_batch(records: Sequence[Record], expected: Mapping[str, int]) -> None:
    """Refuse what no store could put: one version twice, or a number that is none."""
    names = [(record.table, record.version) for record in records]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInputError(
            f"Version {twice[1]} of {twice[0]} is in the batch twice.", table=twice[0], hint="Put each version once."
        )
    for table, version in names:
        if version < 1 or is_detached(version):
            raise InvalidInputError(
                f"{version} is not a version that a store can hold.", table=table, hint="Versions count from 1."
            )
    for table, version in expected.items():
        if version < 0:
            raise InvalidInputError(
                f"{table} cannot be expected at version {version}.", table=table, hint="0 means: not there."
            )


def mismatch(table: str, expected: int, actual: int) -> ExpectedVersionMismatch:
    """The error for a table that is not where it has to be."""
    where = "is not in the store" if actual == 0 else f"is at version {actual}"
    wanted = "not to be there" if expected == 0 else f"at version {expected}"
    return ExpectedVersionMismatch(
        f"{table} was expected {wanted}, but {where}; nothing was written.",
        table=table,
        expected=expected,
        actual=actual,
        hint="Look at what changed, and run the work again on the newest versions.",
    )
