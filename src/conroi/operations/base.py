"""Operation interface: facts, wire format, and effect on a manifest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from conroi.errors import UnsupportedError
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
    read: Manifest | None = None
    """The manifest at the transaction's read version; may be left out when that is the base."""
    reuse: pb.FragmentReuseInline | None = None
    """The content of the base's fragment reuse index, if that is kept in a file (`fragment_reuse.reuse_details`)."""
    timestamp_ns: int = 0
    """When the commit happens; `build` fills it in."""
    transaction_uuid: str = ""
    """Whose commit it is; `build` fills it in."""


class Operation(Protocol):
    """One of the fifteen changes that a Lance transaction can make."""

    name: ClassVar[str]

    def to_wire(self) -> pb.Transaction:
        """A transaction message with only the operation set."""
        ...

    def apply(self, base: Manifest, step: Step, /) -> Manifest:
        """The fragments, schema, indices, config and high-water marks after this operation.

        Version, time, flags and the like are the business of `conroi.operations.build`.
        """
        ...


_Message = TypeVar("_Message", bound=Message)


def copied(message: _Message) -> _Message:
    """A copy that may be changed; messages that were handed in never are."""
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def unknown_fields(message: Message) -> bytes:
    """The fields of a message that this version does not know, encoded, so that they can be written back."""
    if not len(UnknownFieldSet(message)):
        return b""
    rest = copied(message)
    for field, _ in message.ListFields():
        rest.ClearField(field.name)
    return rest.SerializeToString(deterministic=True)


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
