"""DataOverlay: recognised for conflict checking, but not applied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from conroi.errors import UnsupportedError
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.operations.base import Step, unknown_fields


@dataclass(frozen=True, slots=True)
class DataOverlay:
    """New values laid over some rows; an unstable feature that released versions of pylance refuse."""

    name: ClassVar[str] = "DataOverlay"

    groups: tuple[pb.Transaction.DataOverlay.Group, ...] = ()
    unknown: bytes = b""

    def to_wire(self) -> pb.Transaction:
        message = pb.Transaction.DataOverlay(groups=self.groups)
        message.MergeFromString(self.unknown)
        return pb.Transaction(data_overlay=message)

    @classmethod
    def from_wire(cls, message: pb.Transaction.DataOverlay) -> DataOverlay:
        return cls(groups=tuple(message.groups), unknown=unknown_fields(message))

    def apply(self, _base: Manifest, _step: Step) -> Manifest:
        raise UnsupportedError(
            "conroi does not commit data overlays.", hint="Use an update, or replace the data files of the columns."
        )
