"""CreateIndex: adds, replaces or drops indices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.operations.base import Step, unknown_fields
from conroi.operations.fragments import check_published_path


@dataclass(frozen=True, slots=True)
class CreateIndex:
    """Add index segments and remove others, each known by its id; a name may have several segments."""

    name: ClassVar[str] = "CreateIndex"

    new_indices: tuple[pb.IndexMetadata, ...] = ()
    removed_indices: tuple[pb.IndexMetadata, ...] = ()
    unknown: bytes = b""

    def to_wire(self) -> pb.Transaction:
        message = pb.Transaction.CreateIndex(new_indices=self.new_indices, removed_indices=self.removed_indices)
        message.MergeFromString(self.unknown)
        return pb.Transaction(create_index=message)

    @classmethod
    def from_wire(cls, message: pb.Transaction.CreateIndex) -> CreateIndex:
        return cls(
            new_indices=tuple(message.new_indices),
            removed_indices=tuple(message.removed_indices),
            unknown=unknown_fields(message),
        )

    def apply(self, base: Manifest, _step: Step) -> Manifest:
        for index in self.new_indices:
            _check(index)
        replaced = {index.uuid.uuid for index in (*self.new_indices, *self.removed_indices)}
        kept = [index for index in base.indices if index.uuid.uuid not in replaced]
        return base.changed(indices=[*kept, *self.new_indices])


def _check(index: pb.IndexMetadata) -> None:
    if len(index.uuid.uuid) != 16 or not index.name:
        raise InvalidInputError("A new index has no id or no name.", hint="Both are needed to find its files.")
    for file in index.files:
        check_published_path(file.path)
    keyed = len(index.fields) - len(index.covering_fields)
    if index.covering_fields and (keyed < 1 or list(index.fields[keyed:]) != list(index.covering_fields)):
        raise InvalidInputError(
            f"Index {index.name!r} carries the fields {list(index.covering_fields)}, which are not the last ones of "
            f"its fields {list(index.fields)}.",
            hint="List the indexed fields first, then the carried ones.",
        )
