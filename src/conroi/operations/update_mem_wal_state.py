"""UpdateMemWalState: records progress of a write-ahead log, without a change of the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.operations.base import Step, unknown_fields
from conroi.operations.mem_wal import with_compacted


@dataclass(frozen=True, slots=True)
class UpdateMemWalState:
    """Record the newest generation of each shard that is in the table."""

    name: ClassVar[str] = "UpdateMemWalState"

    compacted_sstables: tuple[pb.CompactedSsTable, ...]
    unknown: bytes = b""

    def to_wire(self) -> pb.Transaction:
        message = pb.Transaction.UpdateMemWalState(compacted_sstables=self.compacted_sstables)
        message.MergeFromString(self.unknown)
        return pb.Transaction(update_mem_wal_state=message)

    @classmethod
    def from_wire(cls, message: pb.Transaction.UpdateMemWalState) -> UpdateMemWalState:
        return cls(compacted_sstables=tuple(message.compacted_sstables), unknown=unknown_fields(message))

    def apply(self, base: Manifest, step: Step) -> Manifest:
        return base.changed(indices=with_compacted(base.indices, self.compacted_sstables, step))
