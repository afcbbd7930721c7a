"""What every operation is: facts, their wire form, and what they do to a manifest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Step:
    """The commit for which a manifest is being built: what an operation itself does not know."""

    version: int
    """The number the new manifest gets."""
    restored: Manifest | None = None
    """For Restore: the manifest of the version to go back to."""
    source: Manifest | None = None
    """For Clone: the manifest of the table being cloned."""


class Operation(Protocol):
    """One of the fifteen changes that a Lance transaction can make."""

    name: ClassVar[str]

    def to_wire(self) -> pb.Transaction:
        """A transaction message with only the operation set."""
        ...

    def apply(self, base: Manifest, step: Step) -> Manifest:
        """The fragments, schema, indices, config and high-water marks after this operation.

        Version, time, flags and the like are the business of `conroi.operations.build`.
        """
        ...
