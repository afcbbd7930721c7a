"""Arrow types as Lance spells them: logical types of fields, and the Arrow schema message in the manifest."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Protocol, cast

import pyarrow as pa

from conroi.errors import CorruptionError

BFLOAT16 = "lance.bfloat16"
_TIME_UNITS = {"s": "s", "m": "ms", "u": "us", "n": "ns"}

# Arrow's letters for the types without parameters, and Lance's names for them.
_SIMPLE_FORMATS = {
    "n": "null",
    "b": "bool",
    "c": "int8",
    "C": "uint8",
    "s": "int16",
    "S": "uint16",
    "i": "int32",
    "I": "uint32",
    "l": "int64",
    "L": "uint64",
    "e": "halffloat",
    "f": "float",
    "g": "double",
    "u": "string",
    "U": "large_string",
    "vu": "string",
    "z": "binary",
    "Z": "large_binary",
    "vz": "binary",
    "tdD": "date32:day",
    "tdm": "date64:ms",
    "tts": "time32:s",
    "ttm": "time32:ms",
    "ttu": "time64:us",
    "ttn": "time64:ns",
    "tDs": "duration:s",
    "tDm": "duration:ms",
    "tDu": "duration:us",
    "tDn": "duration:ns",
}
_SIMPLE_TYPES: dict[str, pa.DataType] = {
    "null": pa.null(),
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "uint8": pa.uint8(),
    "int16": pa.int16(),
    "uint16": pa.uint16(),
    "int32": pa.int32(),
    "uint32": pa.uint32(),
    "int64": pa.int64(),
    "uint64": pa.uint64(),
    "halffloat": pa.float16(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "large_string": pa.large_string(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "json": pa.string(),  # the extension name that makes it JSON is the field's business
    "date32:day": pa.date32(),
    "date64:ms": pa.date64(),
    "time32:s": pa.time32("s"),
    "time32:ms": pa.time32("ms"),
    "time64:us": pa.time64("us"),
    "time64:ns": pa.time64("ns"),
    "duration:s": pa.duration("s"),
    "duration:ms": pa.duration("ms"),
    "duration:us": pa.duration("us"),
    "duration:ns": pa.duration("ns"),
}


def logical_type_of(field: ArrowField) -> str | None:
    """Lance's name for a field's type; None if Lance cannot store it."""
    if field.dictionary is not None:
        return _dictionary_name(field.format, field.dictionary)
    if field.format in _SIMPLE_FORMATS:
        return _SIMPLE_FORMATS[field.format]
    kind, _, parameters = field.format.partition(":")
    if kind.startswith("ts"):
        return f"timestamp:{_TIME_UNITS[kind[2]]}:{parameters or '-'}"
    if kind == "w":
        return f"fixed_size_binary:{parameters}"
    if kind == "d":
        return _decimal_name(parameters)
    return _nested_name(field, kind, parameters)


def simple_type(name: str) -> pa.DataType:
    """The Arrow type of a name that needs no children."""
    if name in _SIMPLE_TYPES:
        return _SIMPLE_TYPES[name]
    kind, *parts = name.split(":")
    try:
        return _type_with_parameters(kind, parts)
    except (ValueError, KeyError, IndexError, OverflowError, TypeError, RecursionError, pa.ArrowException) as error:
        raise CorruptionError(
            f"The manifest has a column of type {name[:100]!r}, which does not exist.",
            hint="The manifest is damaged, or a newer version of Lance wrote it.",
        ) from error


def _type_with_parameters(kind: str, parts: list[str]) -> pa.DataType:
    if kind == "timestamp":
        unit, zone = parts[0], ":".join(parts[1:])
        if unit not in _TIME_UNITS.values() or not zone:
            raise KeyError(unit)
        return pa.timestamp(cast("Any", unit), cast("Any", None if zone == "-" else zone))
    if kind == "fixed_size_binary" and len(parts) == 1:
        return pa.binary(int(parts[0]))
    if kind == "decimal" and len(parts) == 3:
        make = {"128": pa.decimal128, "256": pa.decimal256}[parts[0]]
        return make(int(parts[1]), int(parts[2]))
    if kind == "dict" and len(parts) == 3:
        return pa.dictionary(cast("Any", _SIMPLE_TYPES[parts[1]]), cast("Any", _SIMPLE_TYPES[parts[0]]))
    if kind == "fixed_size_list":
        return _fixed_size_list(":".join(parts[:-1]), int(parts[-1]))
    raise KeyError(kind)


def _fixed_size_list(item: str, size: int) -> pa.DataType:
    if item == BFLOAT16:
        metadata = {"ARROW:extension:name": BFLOAT16, "ARROW:extension:metadata": ""}
        return pa.list_(pa.field("item", pa.binary(2), metadata=metadata), size)
    return pa.list_(pa.field("item", simple_type(item)), size)


def _decimal_name(parameters: str) -> str | None:
    precision, scale, *width = parameters.split(",")
    bits = width[0] if width else "128"
    return f"decimal:{bits}:{precision}:{scale}" if bits in ("128", "256") else None


def _dictionary_name(index_format: str, values: ArrowField) -> str | None:
    index, value = _SIMPLE_FORMATS.get(index_format), logical_type_of(values)
    # A value type with parameters could not be told apart from the rest of the name.
    is_plain = value in _SIMPLE_TYPES and ":" not in value and values.dictionary is None
    return f"dict:{value}:{index}:false" if is_plain else None


def _nested_name(field: ArrowField, kind: str, parameters: str) -> str | None:
    if kind == "+s":
        return "struct"
    if kind == "+m":
        return None if field.has_sorted_keys else "map"
    if kind in ("+l", "+L"):
        name = "list" if kind == "+l" else "large_list"
        return f"{name}.struct" if field.children[0].format == "+s" else name
    if kind == "+w" and int(parameters) > 0:
        item = _fixed_item_name(field.children[0])
        return None if item is None else f"fixed_size_list:{item}:{parameters}"
    return None


def _fixed_item_name(item: ArrowField) -> str | None:
    if item.metadata.get("ARROW:extension:name") == BFLOAT16.encode():
        return BFLOAT16
    name = logical_type_of(item)
    if name is None or name.split(".")[0] in ("list", "large_list", "map"):
        return None
    # Structs may be items, but not items of items.
    return None if name.startswith("fixed_size_list:struct") else name


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
