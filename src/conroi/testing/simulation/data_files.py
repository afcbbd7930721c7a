"""Stand-in for pylance in simulations: data files in memory, with their rows as Arrow tables.

It reads and writes through the simulated storage, so that a file that was collected is missing here, too. What pylance
decides and the stand-in imitates is little: which fragments a compaction rewrites together, the order of rows, and
which rows a deletion vector hides. A conformance test compares the manifests of both.
"""

from __future__ import annotations

import json
import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from conroi.format import lance_pb2 as pb
from conroi.format.fields import file_field_ids
from conroi.format.json import parse_object
from conroi.format.naming import data_file_name
from conroi.format.on_disk import DATA_DIR
from conroi.format.row_ids import decode_row_ids
from conroi.format.schema import schema_from_fields
from conroi.snapshots.deletions import load_deletions
from conroi.snapshots.snapshot import Snapshot
from conroi.storage.base_paths import objects_of_base
from conroi.storage.location import CloudLocation
from conroi.storage.objects import Objects
from conroi.testing.simulation.expressions import parsed
from conroi.testing.simulation.storage import Bucket, SimulatedObjects

if TYPE_CHECKING:
    from conroi.testing.simulation.world import World

ROW_ID, ROW_ADDRESS = "_rowid", "_rowaddr"


class DataFile(bytes):
    """The bytes of a data file, which carry its rows."""

    rows: pa.Table

    @classmethod
    def of(cls, rows: pa.Table) -> DataFile:
        """A file of so many bytes as rows need about."""
        made = cls(b"simulated" + bytes(8 * rows.num_rows * max(1, rows.num_columns)))
        made.rows = rows
        return made


class StandIn:
    """Reads and writes the data files of one world: see conroi.data.pylance.DataFiles."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._scratch = Bucket()

    def session(self, objects: Objects) -> Any:
        return Session(weakref.proxy(objects))  # it is kept for as long as they are: see conroi.data.pylance

    def scratch(self) -> Objects:
        return SimulatedObjects(self._world, CloudLocation("s3", "scratch", ""), None, self._scratch)

    def dataset(self, objects: Objects, snapshot: Snapshot) -> Any:
        return Dataset(objects, snapshot, self._new_id)

    def plan_compaction(self, dataset: Any, options: Mapping[str, Any]) -> list[str]:
        groups = planned_groups(
            dataset.fragments, options["target_rows_per_fragment"], options["materialize_deletions_threshold"]
        )
        most = options["target_rows_per_fragment"]
        return [json.dumps({"task": {"fragments": [{"id": i} for i in group]}, "most": most}) for group in groups]

    def compact(self, dataset: Any, task: str) -> str:
        asked = parse_object(task, "A task of a compaction")
        ids = [each["id"] for each in asked["task"]["fragments"]]
        return json.dumps(dataset.rewritten(ids, asked["most"]))

    def _new_id(self) -> uuid.UUID:
        """Of a file that pylance itself would name."""
        actor = self._world.scheduler.current
        chance = self._world.chance if actor is None else actor.client.chance
        return uuid.UUID(int=chance.getrandbits(128), version=4)


def planned_groups(fragments: Sequence[pb.DataFragment], target: int, deleted_share: float) -> list[list[int]]:
    """The ids of fragments that a compaction rewrites together, by pylance's rules."""
    groups: list[list[pb.DataFragment]] = [[]]
    alone: set[int] = set()
    for fragment in fragments:
        deleted = fragment.deletion_file.num_deleted_rows
        if fragment.physical_rows and deleted / fragment.physical_rows > deleted_share:
            alone.add(fragment.id)
        elif fragment.physical_rows >= target:
            groups.append([])
            continue
        groups[-1].append(fragment)
    found: list[list[int]] = []
    for group in groups:
        parts = [[each.id for each in part] for part in _split(group, target)]
        found += [part for part in parts if len(part) > 1 or not alone.isdisjoint(part)]
    return found


def _split(group: list[pb.DataFragment], target: int) -> Iterator[list[pb.DataFragment]]:
    """Parts with at least so many rows each; what is left at the end goes with the last one."""
    counts = [each.physical_rows - each.deletion_file.num_deleted_rows for each in group]
    start = 0
    while start < len(group):
        end, rows = start, 0
        while rows < target and end < len(group):
            rows += counts[end]
            end += 1
        if sum(counts[end:]) < target:
            end = len(group)
        yield group[start:end]
        start = end


# ---------------------------------------------------------------------------------- single files


@dataclass
class Session:
    """In the place of a LanceFileSession."""

    objects: Objects

    def open_writer(self, name: str, *, schema: pa.Schema, version: str) -> Writer:  # noqa: ARG002
        return Writer(self.objects, name, schema, [])

    def open_reader(self, name: str, columns: Sequence[str] | None = None) -> FileReader:
        rows = read_file(self.objects, name)
        return FileReader(rows if columns is None else rows.select(list(columns)), rows.schema)


@dataclass
class Writer:
    """A data file that is being written; it appears when it is closed."""

    objects: Objects
    name: str
    schema: pa.Schema
    batches: list[pa.RecordBatch]
    size_bytes: int = 0

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)

    def close(self) -> int:
        data = DataFile.of(pa.Table.from_batches(self.batches, self.schema).combine_chunks())
        self.objects.put(f"{DATA_DIR}/{self.name}", data)
        self.size_bytes = len(data)
        return data.rows.num_rows


@dataclass
class FileReader:
    """A data file that is being read."""

    rows: pa.Table
    stored: pa.Schema

    def num_rows(self) -> int:
        return self.rows.num_rows

    def metadata(self) -> Any:
        return _Metadata(self.stored)

    def read_all(self, *, batch_size: int = 0) -> FileReader:  # noqa: ARG002
        return self

    def to_table(self) -> pa.Table:
        return self.rows


@dataclass
class _Metadata:
    schema: pa.Schema


def read_file(objects: Objects, name: str) -> pa.Table:
    """The rows of a data file of the table."""
    data = objects.get(f"{DATA_DIR}/{name}")
    if not isinstance(data, DataFile):
        raise OSError(f"{name} is not a data file of this simulation")
    return data.rows


# ---------------------------------------------------------------------------------- a version


class Dataset:
    """In the place of a LanceDataset: one version, opened for reading."""

    def __init__(self, objects: Objects, snapshot: Snapshot, new_id: Any) -> None:
        self.objects = objects
        self.manifest = snapshot.manifest
        self.fragments = list(snapshot.manifest.fragments)
        self._new_id = new_id
        head = snapshot.manifest.head
        columns = pb.ManifestHead(fields=head.fields, schema_metadata=head.schema_metadata)
        self.schema = _schema_of(columns.SerializeToString(deterministic=True))
        self._ids = {field.name: field.id for field in head.fields if field.parent_id == -1}

    def get_fragment(self, number: int) -> Fragment | None:
        found = [each for each in self.fragments if each.id == number]
        return Fragment(self, found[0]) if found else None

    def get_fragments(self) -> list[Fragment]:
        return [Fragment(self, each) for each in self.fragments]

    def count_rows(self, filter: Any = None) -> int:
        if filter is None:
            return sum(each.physical_rows - each.deletion_file.num_deleted_rows for each in self.fragments)
        return self.scanner(columns=[], filter=filter, with_row_address=True).to_table().num_rows

    def take(self, positions: Sequence[int], columns: Sequence[str] | None = None) -> pa.Table:
        return self.scanner(columns=columns).to_table().take(pa.array(positions, pa.int64()))

    def scanner(self, columns: Any = None, filter: Any = None, fragments: Any = None, **options: Any) -> Scanner:
        chosen = self.fragments if fragments is None else [each.fragment for each in fragments]
        known = {
            "with_row_address", "with_row_id", "include_deleted_rows", "limit", "offset", "batch_size", "scan_in_order",
            "blob_handling", "row_addr_allowlist", "use_scalar_index",
        }  # fmt: skip
        if not options.keys() <= known:
            raise NotImplementedError(f"the stand-in for data files does not know {sorted(options.keys() - known)}")
        return Scanner(self, columns, filter, chosen, options)

    def column(self, fragment: pb.DataFragment, name: str, files: dict[str, pa.Table]) -> Any:
        """All rows of one column, as it is stored; null where no file has it."""
        number = self._ids[name]
        for file in fragment.files:
            if number in file.fields:
                stored = files.get(file.path)
                if stored is None:
                    base = file.base_id if file.HasField("base_id") else None
                    stored = files[file.path] = read_file(objects_of_base(self.objects, self.manifest, base), file.path)
                if stored.num_rows != fragment.physical_rows:
                    raise OSError(f"{file.path} has {stored.num_rows} rows, not {fragment.physical_rows}")
                found = name if name in stored.column_names else stored.column_names[list(file.fields).index(number)]
                return stored[found]
        return pa.chunked_array([pa.nulls(fragment.physical_rows, self.schema.field(name).type)])

    def rewritten(self, ids: Sequence[int], most: int) -> dict[str, Any]:
        """The live rows of these fragments in new ones."""
        chosen = [each for each in self.fragments if each.id in set(ids)]
        rows = Scanner(self, None, None, chosen, {}).to_table()
        head = self.manifest.head
        stored = file_field_ids(head.fields, self.schema.names, head.data_format.version)
        major, _, minor = head.data_format.version.partition(".")
        new: list[dict[str, Any]] = []
        # As many files as can be full, of about the same length.
        in_each = -(-rows.num_rows // max(1, rows.num_rows // most)) or 1
        for start in range(0, rows.num_rows, in_each):
            part = rows.slice(start, in_each)
            name = data_file_name(self._new_id())
            writer = Writer(self.objects, name, part.schema, part.to_batches())
            writer.close()
            file = {
                "path": name,
                "fields": list(stored),
                "column_indices": list(range(len(stored))),
                "file_major_version": int(major),
                "file_minor_version": int(minor),
                "file_size_bytes": writer.size_bytes,
                "base_id": None,
            }
            new.append({"id": 0, "files": [file], "physical_rows": part.num_rows})
        return {"original_fragments": [{"id": each.id} for each in chosen], "new_fragments": new}


@lru_cache(maxsize=256)
def _schema_of(columns: bytes) -> pa.Schema:
    head = pb.ManifestHead.FromString(columns)
    return schema_from_fields(head.fields, head.schema_metadata)


@dataclass
class Fragment:
    """One fragment of a version."""

    dataset: Dataset
    fragment: pb.DataFragment

    @property
    def fragment_id(self) -> int:
        return self.fragment.id

    def scanner(self, columns: Any = None, filter: Any = None, **options: Any) -> Scanner:
        return self.dataset.scanner(columns, filter, [self], **options)

    def take(self, positions: Sequence[int], columns: Sequence[str] | None = None) -> pa.Table:
        return self.scanner(columns=columns).to_table().take(pa.array(positions, pa.int64()))


@dataclass
class Scanner:
    """One scan."""

    dataset: Dataset
    columns: Any
    filter: Any
    fragments: Sequence[pb.DataFragment]
    options: Mapping[str, Any]

    @property
    def projected_schema(self) -> pa.Schema:
        """Without reading rows."""
        empty = self.dataset.schema.empty_table()
        return self._projected(empty.column, 0, {}).schema

    def to_reader(self) -> pa.RecordBatchReader:
        rows = self.to_table()
        return pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches())

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self.to_table().to_batches())

    def to_table(self) -> pa.Table:
        if self.options.get("limit") == 0:
            return self.projected_schema.empty_table()
        parts = [self._of(fragment) for fragment in self.fragments]
        if not parts:
            return self.projected_schema.empty_table()
        found = pa.concat_tables(parts).combine_chunks()
        if "limit" in self.options or "offset" in self.options:
            found = found.slice(self.options.get("offset") or 0, self.options.get("limit"))
        return found

    def _of(self, fragment: pb.DataFragment) -> pa.Table:
        dataset, count = self.dataset, fragment.physical_rows
        addresses = np.arange(count, dtype=np.uint64) + np.uint64(fragment.id << 32)
        gone = np.asarray(load_deletions(dataset.objects, dataset.manifest, fragment).to_array(), dtype=np.int64)
        extra: dict[str, npt.NDArray[np.uint64] | pa.Array[Any]] = {ROW_ADDRESS: addresses}
        ids = addresses
        if fragment.inline_row_ids:
            ids = np.asarray(decode_row_ids(fragment.inline_row_ids, rows=count), np.uint64)
        extra[ROW_ID] = ids
        kept = np.ones(count, bool)
        if self.options.get("include_deleted_rows"):
            is_gone = np.zeros(count, bool)
            is_gone[gone] = True
            extra[ROW_ID] = pa.array(ids, mask=is_gone)
        else:
            kept[gone] = False
        allowed = self.options.get("row_addr_allowlist")
        if allowed is not None:
            by = ids if dataset.manifest.has_stable_row_ids else addresses
            kept &= np.isin(by, _addresses(allowed))
        files: dict[str, pa.Table] = {}
        cache: dict[str, Any] = {}

        def column(name: str) -> Any:
            if name in extra:
                return pa.chunked_array([pa.array(cast("Any", extra[name]))])
            if name not in cache:
                cache[name] = dataset.column(fragment, name, files)
            return cache[name]

        if self.filter is not None:
            kept &= self._holds(column, count)
        rows = self._projected(column, count, extra)
        return rows if kept.all() else rows.filter(pa.array(kept))

    def _holds(self, column: Any, count: int) -> npt.NDArray[np.bool_]:
        if isinstance(self.filter, pc.Expression):
            names = self.dataset.schema.names
            table = pa.table({**{name: column(name) for name in names}, "__n": pa.array(range(count))})
            holds = np.zeros(count, bool)
            holds[table.filter(self.filter)["__n"].to_numpy()] = True
            return holds
        expression, _ = parsed(self.filter)
        found = expression(column)
        if isinstance(found, pa.Scalar):
            return np.full(count, bool(found.as_py()))
        return np.asarray(pc.fill_null(found, False).to_numpy(zero_copy_only=False), bool)

    def _projected(self, column: Any, count: int, extra: Mapping[str, Any]) -> pa.Table:
        schema = self.dataset.schema
        columns: dict[str, Any] = {}
        fields: list[pa.Field[Any]] = []
        asked = self.columns if self.columns is not None else schema.names
        items = asked.items() if isinstance(asked, Mapping) else [(name, None) for name in asked]
        for name, text in cast("Any", items):
            plain = name if text is None else text.strip("`")
            if plain in (ROW_ID, ROW_ADDRESS):
                columns[name] = column(plain)
                fields.append(pa.field(name, pa.uint64()))
                continue
            if plain in schema.names:
                columns[name] = column(plain)
                fields.append(schema.field(plain).with_name(name))
                continue
            if text is None:
                raise ValueError(f"Invalid user input: no field named {name}")
            expression, _ = parsed(text)
            value = expression(column)
            if isinstance(value, pa.Scalar):
                value = pa.chunked_array([pa.array([value.as_py()] * count, value.type)])
            columns[name] = value
            fields.append(pa.field(name, value.type))
        for option, name in (("with_row_id", ROW_ID), ("with_row_address", ROW_ADDRESS)):
            if self.options.get(option) and name not in columns:
                given = extra.get(name)
                columns[name] = pa.array([] if given is None else given, pa.uint64())
                fields.append(pa.field(name, pa.uint64()))
        made = [pa.chunked_array([each]) if isinstance(each, pa.Array) else each for each in columns.values()]
        return pa.Table.from_arrays(made, schema=pa.schema(fields))


def _addresses(allowlist: bytes) -> npt.NDArray[np.uint64]:
    """Row addresses from the form in which pylance takes them: see conroi.merge.matching."""
    count, at = int.from_bytes(allowlist[:4], "little"), 4
    found: list[npt.NDArray[np.uint64]] = [np.empty(0, np.uint64)]
    for _ in range(count):
        upper, length = (int.from_bytes(allowlist[at + k : at + k + 4], "little") for k in (0, 4))
        lower = BitMap.deserialize(allowlist[at + 8 : at + 8 + length]).to_array()
        found.append(np.asarray(lower, np.uint64) + np.uint64(upper << 32))
        at += 8 + length
    return np.concatenate(found)
