"""Delete: removes rows, by deletion vectors or with their whole fragment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.operations.base import Step, unknown_fields
from conroi.operations.fragments import replaced, with_fragments
from conroi.operations.indices import retained


@dataclass(frozen=True, slots=True)
class Delete:
    """Replace fragments by post-images with a new deletion file, and drop fragments that have no row left."""

    name: ClassVar[str] = "Delete"

    updated_fragments: tuple[pb.DataFragment, ...] = ()
    deleted_fragment_ids: tuple[int, ...] = ()
    predicate: str = ""
    unknown: bytes = b""

    def to_wire(self) -> pb.Transaction:
        message = pb.Transaction.Delete(
            updated_fragments=self.updated_fragments,
            deleted_fragment_ids=self.deleted_fragment_ids,
            predicate=self.predicate,
        )
        message.MergeFromString(self.unknown)
        return pb.Transaction(delete=message)

    @classmethod
    def from_wire(cls, message: pb.Transaction.Delete) -> Delete:
        return cls(
            updated_fragments=tuple(message.updated_fragments),
            deleted_fragment_ids=tuple(message.deleted_fragment_ids),
            predicate=message.predicate,
            unknown=unknown_fields(message),
        )

    def apply(self, base: Manifest, _step: Step) -> Manifest:
        fragments = replaced(base, removed=self.deleted_fragment_ids, updated=self.updated_fragments)
        indices = retained(
            base.indices,
            field_ids=[field.id for field in base.fields],
            fragment_ids=[fragment.id for fragment in fragments],
        )
        return with_fragments(base, base.editable_head(), fragments, indices=indices)
