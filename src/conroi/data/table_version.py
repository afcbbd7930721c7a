"""A table version opened for reading: the starting point of every verb and every read. Its fields by dotted path."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
from pyroaring import BitMap

from conroi.conflicts import Staged
from conroi.data.pylance import PrivateSession, open_dataset, open_with_indices_of
from conroi.data.writer import DataWriter
from conroi.errors import InvalidInputError, NotFoundError
from conroi.format import lance_pb2 as pb
from conroi.format.fields import fields_by_path, key_columns, lineage
from conroi.format.manifest import Manifest
from conroi.format.schema import schema_from_fields
from conroi.operations import Operation
from conroi.snapshots.snapshot import Snapshot, TableStorage
from conroi.storage.parallel import Running

if TYPE_CHECKING:
    import lance


@dataclass(frozen=True)
class TableVersion:
    """One table at one version: the starting point of every verb."""

    files: TableStorage
    snapshot: Snapshot
    earlier: InitVar[TableVersion | None] = None
    """The same table at an earlier version: results for unchanged parts are reused."""
    private: PrivateSession | None = None
    """Inside a transaction: pylance's session for all private versions of the table."""
    closing: list[Running[None]] | None = None
    """Inside a transaction, for appends that nothing reads before the commit: files that are being completed."""
    is_contended: bool = False
    """Other writers are active, so work that depends on the newest version is best left to the commit."""

    def __post_init__(self, earlier: TableVersion | None) -> None:
        object.__setattr__(self, "files", self.files.holding(self.snapshot))
        if earlier is None or "schema" not in earlier.__dict__:
            return
        now, then = self.snapshot.manifest.head, earlier.snapshot.manifest.head
        if now.fields == then.fields and now.schema_metadata == then.schema_metadata:
            for name in ("schema", "key"):
                if name in earlier.__dict__:
                    self.__dict__[name] = earlier.__dict__[name]

    @property
    def manifest(self) -> Manifest:
        return self.snapshot.manifest

    @property
    def version(self) -> int:
        return self.snapshot.version

    @property
    def root(self) -> str:
        return self.files.root

    @cached_property
    def dataset(self) -> lance.LanceDataset:
        """pylance's handle on this very version; opened once."""
        return open_dataset(self.files.objects, self.snapshot, self.private)

    @cached_property
    def indexed_dataset(self) -> lance.LanceDataset:
        """The same handle; inside a transaction one that also has the indices, while they are those of its base."""
        base = None if self.private is None else self.private.base
        if base is None or not self.snapshot.is_private:
            return self.dataset
        return open_with_indices_of(self.files.objects, self.snapshot, base) or self.dataset

    @cached_property
    def schema(self) -> pa.Schema:
        head = self.manifest.head
        columns = pb.ManifestHead(fields=head.fields, schema_metadata=head.schema_metadata)
        return _schema(columns.SerializeToString(deterministic=True))

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The columns of the declared key; empty if there is none."""
        return key_columns(self.manifest.fields)

    def writer(self, fields: Sequence[pb.Field] | None = None) -> DataWriter:
        """Writes data files that fit this table; `fields` if its schema is about to change."""
        return DataWriter(
            objects=self.files.objects,
            environment=self.files.environment,
            fields=self.manifest.fields if fields is None else fields,
            data_format=self.manifest.head.data_format.version or "2.0",
            closing=self.closing,
        )

    def staged(
        self,
        operation: Operation,
        affected_rows: Mapping[int, BitMap] | None = None,
        *,
        keys_checked: bool = False,
        unwritten: frozenset[int] = frozenset(),
    ) -> Staged:
        """The operation on this version; `keys_checked` if a guard compares the keys that it inserts."""
        return Staged(
            operation=operation,
            base=self.manifest,
            affected_rows=affected_rows,
            keys_checked_exactly=keys_checked,
            unwritten=unwritten,
        )

    def field(self, column: str) -> pb.Field:
        """The top-level field of this name."""
        for field_ in self.manifest.fields:
            if field_.parent_id == -1 and field_.name == column:
                return field_
        raise unknown_column(self, column)


@lru_cache(maxsize=256)
def _schema(columns: bytes) -> pa.Schema:
    """Cached for all versions that have these columns."""
    head = pb.ManifestHead.FromString(columns)
    return schema_from_fields(head.fields, head.schema_metadata)


def unknown_column(pinned: TableVersion, column: str) -> NotFoundError:
    """The error for a column that does not exist."""
    return NotFoundError(
        f"The table has no column {column!r}.",
        table=pinned.root,
        version=pinned.version,
        hint=f"Its columns are {', '.join(pinned.schema.names)}.",
    )


def find(pinned: TableVersion, column: str) -> pb.Field:
    """The field with this name, or this dotted path inside a struct."""
    field = fields_by_path(pinned.manifest.fields).get(column)
    if field is None:
        raise unknown_column(pinned, column)
    return field


def paths_of_fields(pinned: TableVersion) -> dict[tuple[str, ...], pb.Field]:
    """Every field by the names from its column down; a name may have dots in it."""
    by_id = {field.id: field for field in pinned.manifest.fields}
    return {
        tuple(outer.name for outer in reversed(list(lineage(field, by_id)))): field for field in pinned.manifest.fields
    }


def path_of(pinned: TableVersion, column: str) -> tuple[str, ...]:
    """The names from the column down to the field that is meant: `a`, `a.b`, or quoted as in SQL, in any case.

    A path that fits as it is written comes before one that fits in another case.
    """
    known = paths_of_fields(pinned)
    dotted = [path for path in known if ".".join(path) == column]
    parts = tuple(quoted or plain for quoted, plain in _PARTS.findall(column))
    same = [path for path in known if tuple(map(str.lower, path)) == tuple(map(str.lower, parts))]
    found = dotted or [path for path in same if path == parts] or same
    if len(found) > 1:
        raise InvalidInputError(
            f"{column!r} may be any of {', '.join('.'.join(path) for path in found)}.",
            table=pinned.root,
            hint="Write the name as the table does, with backticks around a part that has dots in it.",
        )
    if not found:
        raise unknown_column(pinned, column)
    return found[0]


_PARTS = re.compile(r"`([^`]+)`|([^`.]+)")


def descendants(fields: Sequence[pb.Field], field_id: int) -> set[int]:
    """The ids of all fields below this one."""
    found: set[int] = set()
    for field in fields:  # parents stand before their children
        if field.parent_id == field_id or field.parent_id in found:
            found.add(field.id)
    return found
