"""Transaction: one operation, its base version, and its author."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from conroi.errors import CorruptionError
from conroi.format import lance_pb2 as pb
from conroi.format.checksums import seal_message, unseal_message
from conroi.format.on_disk import AUTHOR_PROPERTY, COMMIT_MESSAGE_PROPERTY


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Transaction:
    """What a commit does, as it stands in `_transactions/` and inside the manifest. Immutable.

    It wraps the wire message, so that fields this version does not know survive. `conroi.operations.of(transaction)`
    gives the operation as facts.
    """

    wire: pb.Transaction

    @property
    def read_version(self) -> int:
        """The version the operation was computed on."""
        return self.wire.read_version

    @property
    def uuid(self) -> str:
        return self.wire.uuid

    @property
    def properties(self) -> Mapping[str, str]:
        return dict(self.wire.transaction_properties)

    @property
    def message(self) -> str | None:
        """The commit message, if there is one."""
        return self.wire.transaction_properties.get(COMMIT_MESSAGE_PROPERTY)

    @property
    def author(self) -> str | None:
        """The author of the commit, as given."""
        return self.wire.transaction_properties.get(AUTHOR_PROPERTY)

    @property
    def operation_name(self) -> str:
        """`Append`, `Delete`, … or `Unknown` for an operation this version does not know."""
        field = self.wire.WhichOneof("operation")
        return "Unknown" if field is None else "".join(word.capitalize() for word in field.split("_"))

    @property
    def file_name(self) -> str:
        """Its name below `_transactions/`."""
        return f"{self.wire.read_version}-{self.wire.uuid}.txn"

    def __eq__(self, other: object) -> bool:
        return self.wire == other.wire if isinstance(other, Transaction) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.uuid)

    def __repr__(self) -> str:
        return f"Transaction({self.operation_name}, read_version={self.read_version}, uuid={self.uuid!r})"


def decode_transaction(data: bytes) -> Transaction:
    """The transaction in these bytes (the content of a `.txn` file, or of a manifest's inline section)."""
    message = unseal_message(data, what="transaction")
    try:
        wire = pb.Transaction.FromString(message)
    except DecodeError as error:
        raise CorruptionError(
            f"The transaction is not a valid message ({error}).",
            hint="The file is damaged; restore it from a copy, or start again from the newest version.",
        ) from error
    if not wire.uuid:
        raise CorruptionError(
            "The transaction has no id.",
            hint="The file is damaged or cut off; restore it from a copy, or start again from the newest version.",
        )
    # An operation that we do not know is among the unknown fields; with none at all the end of the file is missing.
    if wire.WhichOneof("operation") is None and len(UnknownFieldSet(wire)) == 0:
        raise CorruptionError(
            "The transaction has no operation.",
            hint="The file is damaged or cut off; restore it from a copy, or start again from the newest version.",
        )
    return Transaction(wire)


def encode_transaction(transaction: Transaction) -> bytes:
    """The inverse of `decode_transaction`, with a checksum that other readers skip."""
    return seal_message(transaction.wire.SerializeToString(deterministic=True))
