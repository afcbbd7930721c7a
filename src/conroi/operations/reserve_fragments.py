"""ReserveFragments: reserves fragment ids for a rewrite that must know them before it commits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.operations.base import Step, unknown_fields

_LARGEST_ID = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class ReserveFragments:
    """Raise the highest fragment id by a number; the ids in between belong to the writer of this commit."""

    name: ClassVar[str] = "ReserveFragments"

    num_fragments: int
    unknown: bytes = b""

    def to_wire(self) -> pb.Transaction:
        message = pb.Transaction.ReserveFragments(num_fragments=self.num_fragments)
        message.MergeFromString(self.unknown)
        return pb.Transaction(reserve_fragments=message)

    @classmethod
    def from_wire(cls, message: pb.Transaction.ReserveFragments) -> ReserveFragments:
        return cls(num_fragments=message.num_fragments, unknown=unknown_fields(message))

    def apply(self, base: Manifest, _step: Step) -> Manifest:
        head = base.editable_head()
        # On a table that never had a fragment this wastes id 0, as it does in pylance: its rewrites number their
        # fragments from the highest id downwards, so both must count alike.
        highest = head.max_fragment_id + self.num_fragments
        if highest > _LARGEST_ID:
            raise InvalidInputError(
                f"Reserving {self.num_fragments} fragment ids would go beyond 32 bits.",
                hint="The ids of this table are used up; copy it into a new one.",
            )
        head.max_fragment_id = highest
        return base.changed(head=head)

    def reserved(self, after: Manifest) -> range:
        """The ids that were put aside, given the manifest that this operation made."""
        highest = after.head.max_fragment_id
        return range(highest - self.num_fragments + 1, highest + 1)
