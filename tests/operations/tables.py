"""Small manifests made by hand, and small tables made by pylance, for the tests of the operations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from uuid import UUID

import lance
import pyarrow as pa
from pyroaring import BitMap

from conroi import operations
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.operations import Operation, Step

# -------------------------------------------------------------------------------------------------- by hand


def data_file(
    path: str = "a.lance", fields: Sequence[int] = (0, 1), *, version: tuple[int, int] = (2, 2), size: int = 100
) -> pb.DataFile:
    return pb.DataFile(
        path=path,
        fields=fields,
        column_indices=range(len(fields)),
        file_major_version=version[0],
        file_minor_version=version[1],
        file_size_bytes=size,
    )


def fragment(
    id: int = 0, rows: int = 10, *files: pb.DataFile, deleted: int = 0, row_ids: bytes | None = None
) -> pb.DataFragment:
    made = pb.DataFragment(id=id, physical_rows=rows, files=files or [data_file(f"{id}.lance")])
    if deleted:
        made.deletion_file.num_deleted_rows = deleted
    if row_ids is not None:
        made.inline_row_ids = row_ids
    return made


def field(id: int, name: str, *, parent: int = -1, type: str = "int64", nullable: bool = True) -> pb.Field:
    return pb.Field(id=id, name=name, parent_id=parent, logical_type=type, nullable=nullable)


def index(
    name: str,
    fields: Sequence[int],
    covers: Iterable[int] | None,
    *,
    number: int = 1,
    kind: str = "BTree",
    version: int = 1,
) -> pb.IndexMetadata:
    made = pb.IndexMetadata(
        uuid=pb.UUID(uuid=UUID(int=number).bytes), name=name, fields=fields, dataset_version=version
    )
    made.index_details.type_url = f"/lance.table.{kind}IndexDetails"
    if covers is not None:
        made.fragment_bitmap = BitMap(covers).serialize()
    return made


def covered(made: pb.IndexMetadata) -> list[int] | None:
    return list(BitMap.deserialize(made.fragment_bitmap)) if made.fragment_bitmap else None


def manifest(
    *fragments: pb.DataFragment,
    version: int = 1,
    fields: Sequence[pb.Field] = (field(0, "id", nullable=False), field(1, "v")),
    indices: Sequence[pb.IndexMetadata] = (),
    stable_row_ids: bool = False,
    next_row_id: int = 0,
    max_fragment_id: int | None = None,
) -> Manifest:
    whole = pb.Manifest(
        version=version,
        fields=fields,
        fragments=fragments,
        data_format=pb.DataFormat(file_format="lance", version="2.2"),
        max_fragment_id=max_fragment_id
        if max_fragment_id is not None
        else max((f.id for f in fragments), default=None),
        next_row_id=next_row_id,
    )
    flags = (2 if stable_row_ids else 0) | (1 if any(f.HasField("deletion_file") for f in fragments) else 0)
    whole.reader_feature_flags = whole.writer_feature_flags = flags
    return Manifest(whole.SerializeToString(), indices)


def built(base: Manifest | None, operation: Operation, step: Step | None = None) -> Manifest:
    """What the operation makes of the base, in the next version."""
    version = base.version if base is not None else 0
    transaction = operations.transaction(operation, read_version=version, uuid="11111111-2222-4333-8444-555555555555")
    return operations.build(
        base,
        transaction,
        operation,
        step or Step(version=version + 1),
        timestamp_ns=1_700_000_000_123_456_789,
        writer_version=("conroi", "0.1"),
    )


def ids(made: Manifest) -> list[int]:
    return [each.id for each in made.fragments]


# --------------------------------------------------------------------------------------------------- by pylance


def rows(start: int, end: int) -> pa.Table:
    numbers = range(start, end)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "v": pa.array(numbers, pa.int64()),
            "s": pa.array([f"s{number}" for number in numbers], pa.string()),
        }
    )


def pylance_table(root: Path, *, stable_row_ids: bool = False, count: int = 20) -> lance.LanceDataset:
    """A table of `count` rows in fragments of five."""
    return lance.write_dataset(rows(0, count), str(root), max_rows_per_file=5, enable_stable_row_ids=stable_row_ids)


def pylance_append(root: Path, start: int, end: int) -> lance.LanceDataset:
    return lance.write_dataset(rows(start, end), str(root), mode="append", max_rows_per_file=5)
