"""Encoding of catalog rows: the rows of `__manifest` as Arrow data, written and read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache

import pyarrow as pa
from pyroaring import BitMap

from conroi.catalog.rows import Row
from conroi.catalog.state import LakeState
from conroi.data.pylance import data_files_of, pylance_errors
from conroi.data.rows import addresses_of
from conroi.data.table_version import TableVersion
from conroi.data.writer import DataWriter
from conroi.environment import Environment
from conroi.errors import CorruptionError, UnsupportedError
from conroi.format import lance_pb2 as pb
from conroi.format.deletions import encode_deletions
from conroi.format.fields import key_columns
from conroi.format.keyfilter import bloom_filter
from conroi.format.manifest import Manifest
from conroi.format.naming import deletion_path
from conroi.format.on_disk import DATA_DIR
from conroi.snapshots.snapshot import Snapshot, TableStorage
from conroi.storage import open_objects
from conroi.storage.memory import process_folder
from conroi.storage.objects import Objects

KEY = "object_id"
SCHEMA = pa.schema(
    [
        pa.field(KEY, pa.string(), nullable=False, metadata={"lance-schema:unenforced-primary-key:position": "0"}),
        pa.field("object_type", pa.string(), nullable=False),
        pa.field("location", pa.string()),
        pa.field("metadata", pa.string()),
        pa.field("base_objects", pa.list_(pa.field(KEY, pa.string()))),
    ]
)
"""Exactly the schema of pylance's directory namespace, which drops any other column when it rewrites the table."""


def check_columns(manifest: Manifest, lake: str) -> None:
    """Refuse a `__manifest` that cannot be published to safely."""
    check_is_lake(manifest, lake)
    if key_columns(manifest.fields) != (KEY,):
        raise UnsupportedError(
            "__manifest does not have object_id marked as its key, so two writers could register one name twice.",
            table=lake,
            hint="Call conroi.catalog.migrate(uri) once; it checks the names and sets the mark.",
        )


def check_is_lake(manifest: Manifest, lake: str) -> None:
    """Refuse a table of that name which is something else."""
    names = {field.name for field in manifest.fields if field.parent_id == -1}
    missing = set(SCHEMA.names) - names
    if missing:
        raise UnsupportedError(
            f"__manifest has no column {', '.join(sorted(missing))}, so this is not a lake.",
            table=lake,
            hint="Choose another folder for the lake, or delete __manifest if nothing needs it.",
        )


def load_rows(files: TableStorage, snapshot: Snapshot) -> LakeState:
    """The state of the lake, by reading every row."""
    pinned = TableVersion(files, snapshot)
    physical = {fragment.id: fragment.physical_rows for fragment in snapshot.manifest.fragments}
    with pylance_errors(files.root):
        table = pinned.dataset.scanner(columns=SCHEMA.names, with_row_address=True).to_table()
    addresses = [int(address) for address in addresses_of(table["_rowaddr"])]
    columns = [table[name].to_pylist() for name in SCHEMA.names]
    rows: dict[str, Row] = {}
    places: dict[str, tuple[int, int]] = {}
    live: dict[int, BitMap] = {number: BitMap() for number in physical}
    for address, key, kind, location, metadata, bases in zip(addresses, *columns, strict=True):
        if key in rows:
            raise CorruptionError(
                f"__manifest has two rows for {key!r}.",
                table=files.root,
                version=snapshot.version,
                hint="Open an older version of the lake with lake.at(version=…).",
            )
        rows[key] = Row(key, kind, location, metadata, None if bases is None else tuple(bases))
        places[key] = (address >> 32, address & 0xFFFFFFFF)
        live[address >> 32].add(address & 0xFFFFFFFF)
    dead = {number: BitMap(range(count)) - live[number] for number, count in physical.items()}
    return LakeState(
        snapshot.version,
        snapshot.timestamp_ns,
        rows,
        places,
        dead={number: gone for number, gone in dead.items() if gone},
        physical=physical,
        config=dict(snapshot.manifest.head.config),
    )


def write_fragment(
    files: TableStorage, manifest: Manifest, rows: Sequence[Row]
) -> tuple[pb.DataFragment, tuple[str, bytes] | None]:
    """Write these rows as a fragment of `__manifest`; with the file that is still to be put, unless it exists already.

    Not straight to an object store: the size must be known before the transaction can be written at the same time.
    """
    stand_in = None if files.objects.is_local else data_files_of(files.objects)
    scratch = _scratch if stand_in is None else stand_in.scratch
    objects = files.objects if files.objects.is_local else scratch()
    writer = DataWriter(objects, files.environment, manifest.fields, manifest.head.data_format.version or "2.0")
    table = pa.Table.from_pylist(list(map(vars, rows)), schema=SCHEMA)  # its columns are the fields of a row
    file = writer.begin(table.schema)
    for batch in table.to_batches():
        file.add(batch)
    data_file, count = file.end()
    fragment = pb.DataFragment(files=[data_file], physical_rows=count)
    path = f"{DATA_DIR}/{data_file.path}"
    if files.objects.is_local:
        objects.sync([path])
        return fragment, None
    data = objects.get(path)
    if stand_in is None:
        os.unlink(objects.pylance_uri(path))
    return fragment, (path, data)


def _scratch() -> Objects:
    """A folder of this process: a forked child has its own, and deletes only that."""
    return _scratch_of(os.getpid())


@cache
def _scratch_of(_process: int) -> Objects:
    folder = process_folder("conroi-scratch-")
    os.makedirs(os.path.join(folder, DATA_DIR))
    return open_objects(folder)


def write_deletions(
    environment: Environment, fragment: int, version: int, gone: BitMap
) -> tuple[pb.DeletionFile, tuple[str, bytes]]:
    """A deletion vector, and the file that is still to be put."""
    file_type, data = encode_deletions(gone)
    file = pb.DeletionFile(
        file_type=file_type, read_version=version, id=environment.random_u64(), num_deleted_rows=len(gone)
    )
    return file, (deletion_path(fragment, file), data)


def key_filter(manifest: Manifest, rows: Sequence[Row]) -> pb.KeyExistenceFilter:
    """The key filter of the new names, for a later pylance merge."""
    field = next(field for field in manifest.fields if field.parent_id == -1 and field.name == KEY)
    return bloom_filter([field.id], [pa.array([row.object_id for row in rows], pa.string())])
