"""Schema queries on the flat list of fields of a table."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from conroi.errors import CorruptionError, InvalidInputError
from conroi.format import lance_pb2 as pb

TOP_LEVEL = -1
DEEPEST = 100
"""So many columns may be inside each other; Arrow reads 64."""
BLOB_EXTENSION = "lance.blob.v2"
# Data files spell two of the data formats in their own way.
_OLD_SPELLINGS = {(0, 0): "0.1", (0, 1): "0.1", (0, 2): "0.1", (0, 3): "2.0"}
_TRUE_WORDS = (b"true", b"1", b"yes", b"on", b"y")
_PACKED_KEYS = ("packed", "lance-encoding:packed")


def is_true(text: bytes | None) -> bool:
    """Whether a value in a field's metadata means yes."""
    return text is not None and text.lower() in _TRUE_WORDS


def max_field_id(fields: Iterable[pb.Field], fragments: Iterable[pb.DataFragment] = ()) -> int:
    """The largest id in use, -1 if none; data files may still hold columns that the schema has dropped."""
    in_files = (number for fragment in fragments for file in fragment.files for number in file.fields)
    return max([TOP_LEVEL, *(field.id for field in fields), *in_files])


def children_of(fields: Iterable[pb.Field]) -> dict[int, list[pb.Field]]:
    """The fields inside each field, by its id; the columns of the table are under -1."""
    children: dict[int, list[pb.Field]] = {}
    for field in fields:
        children.setdefault(field.parent_id, []).append(field)
    return children


def check_tree(fields: Sequence[pb.Field]) -> None:
    """CorruptionError unless the fields are a tree: no id twice, no field inside itself, none too deep."""
    parents = {field.id: field.parent_id for field in fields}
    if len(parents) != len(fields):
        raise _no_tree("two of its columns have one id")
    depths: dict[int, int] = {TOP_LEVEL: 0}
    for field in fields:
        chain: list[int] = []
        at = field.id
        while at not in depths and at in parents and len(chain) <= DEEPEST:
            chain.append(at)
            at = parents[at]
        depth = depths.get(at, 0)
        if depth + len(chain) > DEEPEST:
            raise _no_tree(f"a column is inside itself, or inside more than {DEEPEST} others")
        for number in reversed(chain):
            depth += 1
            depths[number] = depth


def _no_tree(how: str) -> CorruptionError:
    return CorruptionError(
        f"The schema in the manifest is damaged: {how}.",
        hint="The manifest is damaged, or its writer is broken; open another version.",
    )


def file_field_ids(fields: Sequence[pb.Field], columns: Sequence[str], data_format: str) -> list[int]:
    """What a data file of this version with these columns lists: up to 2.0 the outer fields have a column too."""
    encoded = pb.ManifestHead(fields=fields).SerializeToString(deterministic=True)
    return list(_file_field_ids(encoded, tuple(columns), data_format))


@functools.lru_cache(maxsize=64)
def _file_field_ids(encoded: bytes, columns: tuple[str, ...], data_format: str) -> tuple[int, ...]:
    """The same for encoded fields; worked out once, since most commits write the same columns as the one before."""
    fields = pb.ManifestHead.FromString(encoded).fields
    if data_format in ("2.1", "2.2"):
        return tuple(leaf_field_ids(fields, columns))
    children = children_of(fields)
    by_name = {field.name: field for field in children.get(TOP_LEVEL, [])}
    return tuple(field.id for name in columns for field in _with_inside(named(by_name, name), children))


def leaf_field_ids(fields: Sequence[pb.Field], columns: Sequence[str] | None = None) -> list[int]:
    """What a data file of version 2.1 or 2.2 with these columns (None: all) lists: the fields that hold values."""
    children = children_of(fields)
    tops = children.get(TOP_LEVEL, [])
    if columns is not None:
        by_name = {field.name: field for field in tops}
        tops = [named(by_name, name) for name in columns]
    return [leaf.id for top in tops for leaf in _leaves(top, children)]


def column_field_ids(fields: Sequence[pb.Field], columns: Sequence[str]) -> list[int]:
    """The ids of these columns and of all fields inside them."""
    children = children_of(fields)
    by_name = {field.name: field for field in children.get(TOP_LEVEL, [])}
    return sorted(field.id for name in columns for field in _all_inside(named(by_name, name), children))


def _with_inside(field: pb.Field, children: Mapping[int, Sequence[pb.Field]]) -> Iterator[pb.Field]:
    yield field
    if not field.logical_type.startswith("fixed_size_list:") and not _is_one_column(field):
        for child in children.get(field.id, ()):
            yield from _with_inside(child, children)


def _all_inside(field: pb.Field, children: Mapping[int, Sequence[pb.Field]]) -> Iterator[pb.Field]:
    yield field
    for child in children.get(field.id, ()):
        yield from _all_inside(child, children)


def _leaves(field: pb.Field, children: Mapping[int, Sequence[pb.Field]]) -> Iterator[pb.Field]:
    inside = children.get(field.id, ())
    if not inside or _is_one_column(field):
        yield field
        return
    for child in inside:
        yield from _leaves(child, children)


def _is_one_column(field: pb.Field) -> bool:
    """Packed structs and blobs are stored as one column, with all that is inside them."""
    is_packed = any(is_true(field.metadata.get(key)) for key in _PACKED_KEYS)
    return field.logical_type == "struct" and (is_packed or field.extension_name == BLOB_EXTENSION)


def data_format_of(file: pb.DataFile) -> str:
    """The data format, as a manifest names it, that a file is written in."""
    version = (file.file_major_version, file.file_minor_version)
    return _OLD_SPELLINGS.get(version, f"{version[0]}.{version[1]}")


def key_fields(fields: Iterable[pb.Field]) -> tuple[pb.Field, ...]:
    """The fields of the declared key: those with a position first, the others in the order of the schema."""
    key = [field for field in fields if field.unenforced_primary_key]
    return tuple(sorted(key, key=lambda field: (field.unenforced_primary_key_position or 1 << 32, field.id)))


def key_columns(fields: Sequence[pb.Field]) -> tuple[str, ...]:
    """The declared key as column names, in its order; nested ones as `outer.inner`."""
    key = key_fields(fields)
    if not key:
        return ()
    by_id = {field.id: field for field in fields}
    return tuple(field_path(field, by_id) for field in key)


def field_path(field: pb.Field, by_id: Mapping[int, pb.Field]) -> str:
    """The names from the column down to this field, with dots between."""
    return ".".join(outer.name for outer in reversed(list(lineage(field, by_id))))


def has_dictionaries(fields: Iterable[pb.Field]) -> bool:
    """Whether any field, at any depth, has values from a dictionary."""
    return any(field.logical_type.startswith("dict:") for field in fields)


def lineage(field: pb.Field, by_id: Mapping[int, pb.Field]) -> Iterator[pb.Field]:
    """The field, what it is in, and so on outwards."""
    seen: set[int] = set()
    at: pb.Field | None = field
    while at is not None and at.id not in seen:
        yield at
        seen.add(at.id)
        at = by_id.get(at.parent_id)


def never_null_and_missing(fragment: pb.DataFragment, fields: Sequence[pb.Field]) -> list[str]:
    """The columns that may not be null and of which the fragment has nothing: readers refuse it."""
    wanted = {field.id: field.name for field in fields if field.parent_id == TOP_LEVEL and not field.nullable}
    if not wanted:
        return []
    for file in fragment.files:
        for number in file.fields:
            wanted.pop(number, None)
    if wanted:  # columns of which a file lists only what is inside them
        by_id = {field.id: field for field in fields}
        for file in fragment.files:
            for number in file.fields:
                for field in lineage(by_id[number], by_id) if number in by_id else ():
                    wanted.pop(field.id, None)
    return list(wanted.values())


def fields_by_path(fields: Sequence[pb.Field]) -> dict[str, pb.Field]:
    """Every field by its path, such as `outer.inner`."""
    by_id = {field.id: field for field in fields}
    return {field_path(field, by_id): field for field in fields}


def named(by_name: Mapping[str, pb.Field], name: str) -> pb.Field:
    """The field of that name; InvalidInputError if there is none."""
    if name not in by_name:
        raise InvalidInputError(
            f"The table has no column {name!r}.", hint=f"Its columns are {', '.join(map(repr, by_name))}."
        )
    return by_name[name]
