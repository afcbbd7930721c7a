"""Append: adds rows in new fragments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.operations.base import Step, unknown_fields
from conroi.operations.fragments import check_given_ids, check_new, next_fragment_id, numbered, with_added
from conroi.operations.lineage import assign_row_ids, stamp_new


@dataclass(frozen=True, slots=True)
class Append:
    """Add fragments; their ids and row ids are given at commit."""

    name: ClassVar[str] = "Append"

    fragments: tuple[pb.DataFragment, ...]
    unknown: bytes = b""

    def to_wire(self) -> pb.Transaction:
        wire = pb.Transaction(append=pb.Transaction.Append(fragments=self.fragments))
        wire.append.MergeFromString(self.unknown)
        return wire

    @classmethod
    def from_wire(cls, message: pb.Transaction.Append) -> Append:
        return cls(fragments=tuple(message.fragments), unknown=unknown_fields(message))

    def apply(self, base: Manifest, step: Step) -> Manifest:
        head = base.editable_head()
        check_new(self.fragments, head)
        check_given_ids(self.fragments, base)
        added = numbered(self.fragments, next_fragment_id(head))
        if base.has_stable_row_ids:
            head.next_row_id = assign_row_ids(added, head.next_row_id)
            for fragment in added:
                stamp_new(fragment, step.version)
        return with_added(base, head, added)
