"""Records of an external manifest store: which file holds which version of which table. Protocol and schema."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from conroi.errors import ExpectedVersionMismatch, InvalidInputError
from conroi.format.naming import is_detached
from conroi.storage.location import CloudLocation, parse_location
from conroi.storage.objects import Objects


@dataclass(frozen=True, slots=True)
class Record:
    """Version `version` of `table` is the file `path` (below the table's root) of `size` bytes."""

    table: str
    version: int
    path: str
    size: int


class RecordTaken(Exception):
    """Internal: the version already exists. It is a result, not a failure; `path` is None if its record was deleted."""

    def __init__(self, table: str, version: int, path: str | None) -> None:
        super().__init__(f"version {version} of {table} is taken")
        self.table, self.version, self.path = table, version, path

    def __reduce__(self) -> tuple[type[RecordTaken], tuple[str, int, str | None]]:
        return RecordTaken, (self.table, self.version, self.path)


class RecordStore(Protocol):
    """External manifest store. Every method may be called from any thread, and is one request where possible.

    A `StoreUnavailable` from a method that writes means that its outcome is unknown; to repeat it with the same
    arguments is always safe.
    """

    def key_of(self, objects: Objects) -> str:
        """The canonical id of the table with these files in this store: the same on all hosts and for all spellings."""
        ...

    def put_if_absent(self, records: Sequence[Record], expected: Mapping[str, int] | None = None) -> None:
        """Put all records, or none.

        `expected` gives the versions that tables must be at, those that are written and those that are only read; 0 is
        a table that the store does not have. If one is not, ExpectedVersionMismatch names it. A record that is not
        newer than its table's newest raises RecordTaken. Records that already exist with these very paths are accepted:
        so a request whose response was lost can be sent again.
        """
        ...

    def newest(self, table: str) -> Record | None:
        """The newest version of a table, or None if the store does not have the table."""
        ...

    def get(self, table: str, version: int) -> Record | None:
        """The record of one version."""
        ...

    def all(self, table: str) -> list[Record]:
        """Every record of a table, ascending."""
        ...

    def point(self, table: str, version: int, path: str, size: int) -> bool:
        """Change the file of a record; False, without effect, if there is no such record."""
        ...

    def forget(self, table: str, versions: Sequence[int]) -> None:
        """Delete records, as collection and detach do; one that does not exist is ignored."""
        ...

    def close(self) -> None:
        """Close connections; the next call opens them again."""
        ...


@runtime_checkable
class SendsPointers(Protocol):
    """A store that can change the file of a record without a round trip, where nothing depends on the answer."""

    def send_pointer(self, table: str, version: int, path: str, size: int) -> None:
        """Change the file of a record, sooner or later; or not, if the connection breaks."""
        ...


def check_batch(records: Sequence[Record], expected: Mapping[str, int]) -> None:
    """Validate a batch: no version twice, and valid numbers."""
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
    """The error for a table that is not at the expected version."""
    where = "is not in the store" if actual == 0 else f"is at version {actual}"
    wanted = "not to be there" if expected == 0 else f"at version {expected}"
    return ExpectedVersionMismatch(
        f"{table} was expected {wanted}, but {where}; nothing was written.",
        table=table,
        expected=expected,
        actual=actual,
        hint="Look at what changed, and run the work again on the newest versions.",
    )


_ACCOUNT_OPTIONS = ("azure_storage_account_name", "account_name")


def full_key(objects: Objects) -> str:
    """Scheme, bucket and path, so that one store can serve tables of many buckets."""
    location = parse_location(objects.root)
    if not isinstance(location, CloudLocation):
        return f"file://{os.path.realpath(location.folder)}"
    if location.scheme not in ("az", "abfss"):
        return location.uri()
    # Both schemes mean the same storage, but only one of them names the account.
    container, _, host = location.authority.partition("@")
    account = host.partition(".")[0] or _account(objects)
    return f"az://{account}/{container}/{location.key}"


def bucketless_key(objects: Objects) -> str:
    """Only the path within the bucket, decoded: what pylance writes to DynamoDB."""
    location = parse_location(objects.root)
    if isinstance(location, CloudLocation):
        return location.key
    return os.path.realpath(location.folder).lstrip("/")


def _account(objects: Objects) -> str:
    named = [objects.storage_options[name] for name in _ACCOUNT_OPTIONS if name in objects.storage_options]
    return named[0] if named else os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
