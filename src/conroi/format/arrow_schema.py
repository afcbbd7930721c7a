"""Arrow schemas through the Arrow C data interface: exactly what pylance sees.

pyarrow resolves extension types and hides their metadata; the C interface shows name, format, metadata and children of
every field, whatever library the schema comes from.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Protocol

_NULLABLE = 2
_KEYS_SORTED = 4


class HasArrowSchema(Protocol):
    """Anything with an Arrow schema: of pyarrow, polars, pandas, …"""

    def __arrow_c_schema__(self) -> object: ...


@dataclass(frozen=True, slots=True)
class ArrowField:
    """One field of an Arrow schema; `format` is the type in the letters of the C interface."""

    name: str
    format: str
    is_nullable: bool
    has_sorted_keys: bool
    metadata: dict[str, bytes]
    children: tuple[ArrowField, ...]
    dictionary: ArrowField | None


class _CSchema(ctypes.Structure):
    """`struct ArrowSchema`."""


_CSchemaPointer = ctypes.POINTER(_CSchema)
_CSchema._fields_ = [  # pyright: ignore[reportPrivateUsage]
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_void_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(_CSchemaPointer)),
    ("dictionary", _CSchemaPointer),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def read_arrow_schema(schema: HasArrowSchema) -> ArrowField:
    """The schema as one field, whose children are the columns."""
    capsule = schema.__arrow_c_schema__()  # owns the memory: alive until all is copied
    address = _capsule_pointer(capsule, b"arrow_schema")
    return _read(_CSchema.from_address(address))


def _read(raw: _CSchema) -> ArrowField:
    return ArrowField(
        name=(raw.name or b"").decode(),
        format=raw.format.decode(),
        is_nullable=bool(raw.flags & _NULLABLE),
        has_sorted_keys=bool(raw.flags & _KEYS_SORTED),
        metadata=_read_metadata(raw.metadata) if raw.metadata else {},
        children=tuple(_read(raw.children[index].contents) for index in range(raw.n_children)),
        dictionary=_read(raw.dictionary.contents) if raw.dictionary else None,
    )


def _read_metadata(address: int) -> dict[str, bytes]:
    """Pairs, each half with its length before it."""
    found: dict[str, bytes] = {}
    count, address = _read_length(address)
    for _ in range(count):
        key, address = _read_bytes(address)
        found[key.decode()], address = _read_bytes(address)
    return found


def _read_length(address: int) -> tuple[int, int]:
    return ctypes.c_int32.from_address(address).value, address + 4


def _read_bytes(address: int) -> tuple[bytes, int]:
    length, address = _read_length(address)
    return ctypes.string_at(address, length), address + length
