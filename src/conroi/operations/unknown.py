"""Unknown operation: one that this version of conroi does not support."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from conroi.errors import UnsupportedError
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.operations.base import Step, unknown_fields


@dataclass(frozen=True, slots=True)
class Unknown:
    """What a newer writer committed, or nothing at all; kept as it is."""

    name: ClassVar[str] = "Unknown"

    unknown: bytes = b""

    def to_wire(self) -> pb.Transaction:
        return pb.Transaction.FromString(self.unknown)

    @classmethod
    def from_wire(cls, message: pb.Transaction) -> Unknown:
        """From a whole transaction: a field it does not know cannot be told from an operation."""
        return cls(unknown=unknown_fields(message))

    def apply(self, _base: Manifest, _step: Step) -> Manifest:
        raise UnsupportedError(
            "The transaction has no operation that this version of conroi knows.", hint="Upgrade conroi."
        )
