"""Fields that no version of conroi knows, planted into messages to see whether they survive."""

from __future__ import annotations

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

UNKNOWN_FIELD = 900


def varint(number: int) -> bytes:
    """A number in the variable-length form of protobuf."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def unknown_field(content: bytes) -> bytes:
    """Field 900 with this content, on the wire."""
    return varint(UNKNOWN_FIELD << 3 | 2) + varint(len(content)) + content


def plant(message: Message, content: bytes) -> None:
    """Give a message a field that its description does not have."""
    message.MergeFromString(unknown_field(content))


def planted(message: Message) -> list[bytes]:
    """What was planted into the message."""
    return [field.data for field in UnknownFieldSet(message) if field.field_number == UNKNOWN_FIELD]
