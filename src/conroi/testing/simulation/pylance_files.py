"""Second lane of the simulator: pylance writes, reads and compacts the data files, in a folder on a RAM disk.

The bucket stays the simulated one: each of its objects is a file of the folder from the moment a write takes effect
until a deletion does, so that what was collected is missing for pylance, too. The stand-in makes the requests, with
their latencies and faults, and computes what it expects. Then pylance does the same work on the folder, and its answer
is the one that is used. An answer that the stand-in did not expect is a problem of the run.

So both lanes make the same requests in the same order. A run is repeatable here, too: pylance's own random names of
compacted files are replaced. Sizes of data files, and so the hash of the trace, are those of pylance.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from conroi.data.pylance import (
    PrivateSession,
    compacted_by_pylance,
    opened_by_pylance,
    planned_by_pylance,
    rows_by_path,
    session_at,
)
from conroi.errors import CorruptionError, NotFoundError
from conroi.format.json import parse_object
from conroi.format.naming import data_file_name, deletion_path
from conroi.format.on_disk import DATA_DIR
from conroi.snapshots.snapshot import Snapshot
from conroi.storage.base_paths import objects_of_base
from conroi.storage.memory import process_folder, ram_disk
from conroi.storage.objects import Objects
from conroi.testing.simulation.data_files import (
    DataFile,
    Dataset,
    FileReader,
    Fragment,
    Scanner,
    Session,
    StandIn,
    Writer,
)
from conroi.testing.simulation.storage import Bucket

if TYPE_CHECKING:
    from conroi.table import Table
    from conroi.testing.simulation.world import World

T = TypeVar("T")
SCRATCH = "scratch"
"""Folder of files that are being written."""


class MirroredBucket(Bucket):
    """A bucket whose objects are files, too."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder

    def put(self, key: str, data: bytes, now_ns: int) -> None:
        super().put(key, data, now_ns)
        path = f"{self._folder}/{key}"
        if not os.path.isdir(os.path.dirname(path)):
            os.makedirs(os.path.dirname(path))
        with open(path, "wb") as file:
            file.write(data)

    def delete(self, key: str) -> None:
        super().delete(key)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self._folder}/{key}")


@cache
def _home(parent: str) -> str:
    """The folder of this process."""
    return process_folder("conroi-simulation-", parent)


class PylanceFiles(StandIn):
    """Reads and writes the data files of one world with pylance."""

    def __init__(self, world: World, folder: str | None = None) -> None:
        super().__init__(world)
        self.folder = tempfile.mkdtemp(prefix="run-", dir=_home(folder or ram_disk()))
        self.bucket = MirroredBucket(self.folder)
        os.mkdir(f"{self.folder}/{SCRATCH}")

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, root: str) -> str:
        """The folder of the table with this root."""
        return f"{self.folder}/{root.partition('://')[2].partition('/')[2]}"

    def session(self, objects: Objects) -> Any:
        return CheckedSession(weakref.proxy(objects), self)  # it is kept for as long as they are

    def dataset(self, objects: Objects, snapshot: Snapshot, private: PrivateSession | None = None) -> Any:
        return CheckedDataset(objects, snapshot, self, private)

    def plan_compaction(self, dataset: Any, options: Mapping[str, Any]) -> list[str]:
        expected = [parse_object(each, "A task") for each in super().plan_compaction(dataset, options)]
        found = planned_by_pylance(dataset.real, options)
        groups = [[each["id"] for each in parse_object(task, "A task")["task"]["fragments"]] for task in found]
        if groups != [[each["id"] for each in task["task"]["fragments"]] for task in expected]:
            self.differs(f"compaction of {dataset.objects.root}", expected, groups)
        most = options["target_rows_per_fragment"]
        return [
            json.dumps({"task": {"fragments": [{"id": number} for number in group]}, "most": most, "pylance": task})
            for group, task in zip(groups, found, strict=True)
        ]

    def compact(self, dataset: Any, task: str) -> str:
        asked = parse_object(task, "A task")
        ids = [each["id"] for each in asked["task"]["fragments"]]
        return json.dumps(dataset.rewritten_by_pylance(ids, asked["most"], asked["pylance"]))

    def check_by_path(self, table: Table) -> None:
        """The newest version that has its final name, opened as any Lance reader does."""
        at = table.at(table.versions()[-1])
        if at.pinned.manifest.head.base_paths:  # addresses in the simulated bucket, which pylance cannot reach
            return
        found = rows_by_path(self.path(table.uri), at.version)
        expected = at.to_arrow()
        if not same_rows(expected, found):
            self.differs(f"{table.uri} at version {at.version}, by its path", expected, found)

    @cached_property
    def scratch_session(self) -> Any:
        """Writes files that are put into the bucket when they are complete."""
        return session_at(f"{self.folder}/{SCRATCH}")

    # ------------------------------------------------------------------------ comparison

    def differs(self, what: str, expected: object, found: object) -> None:
        """Note that pylance gave something else than the stand-in."""
        self.differences.append(
            f"pylance differs from the stand-in: {what}: {found!s:.500} instead of {expected!s:.500}"
        )

    def both(
        self,
        what: str,
        expect: Callable[[], T],
        find: Callable[[], T],
        *,
        is_lacking: Callable[[], bool],
        is_same: Callable[[T, T], bool],
    ) -> T:
        """What pylance finds, after the stand-in's requests and compared with what it expects.

        A file that is missing is pylance's to notice. It may be deleted between the stand-in's request and pylance's.
        What pylance has open, or in its cache, it goes on reading.
        """
        lost: Exception | None = None
        expected: T | None = None
        try:
            expected = expect()
        except (NotFoundError, CorruptionError, OSError) as error:
            lost = error
        try:
            found = find()
        except BaseException as error:  # a panic of pylance is not an Exception
            if lost is None and not is_lacking():
                self.differs(what, expected, repr(error))
            raise
        if lost is not None:
            if not is_lacking():
                self.differs(what, repr(lost), found)
        elif not is_same(expected, found):  # pyright: ignore[reportArgumentType]
            self.differs(what, expected, found)
        return found


def same_rows(one: pa.Table, other: pa.Table) -> bool:
    """Whether the columns have the same names, types and values, in the same order."""
    if one.schema.names != other.schema.names or one.schema.types != other.schema.types:
        return False
    return (
        all(one[number].equals(other[number]) for number in range(one.num_columns)) and one.num_rows == other.num_rows
    )


# ---------------------------------------------------------------------------------- single files


@dataclass
class CheckedSession(Session):
    """Single files of a table."""

    files: PylanceFiles

    def open_writer(self, name: str, *, schema: pa.Schema, version: str) -> Writer:
        real = self.files.scratch_session.open_writer(name, schema=schema, version=version)
        return CheckedWriter(self.objects, name, schema, [], real=real, files=self.files)

    def open_reader(self, name: str, columns: Sequence[str] | None = None) -> Any:
        folder = f"{self.files.path(self.objects.root)}/{DATA_DIR}"

        def read() -> Any:
            reader = session_at(folder).open_reader(name, columns=None if columns is None else list(columns))
            return CheckedReader(reader, reader.read_all(batch_size=1 << 20).to_table())

        imitated = super().open_reader
        return self.files.both(
            f"{self.objects.root}/{name}",
            lambda: imitated(name, columns),
            read,
            is_lacking=lambda: not os.path.exists(f"{folder}/{name}"),
            is_same=lambda expected, found: same_rows(expected.rows, found.rows),
        )


@dataclass
class CheckedReader:
    """A data file that pylance has read."""

    reader: Any
    rows: pa.Table

    def num_rows(self) -> int:
        return self.reader.num_rows()

    def metadata(self) -> Any:
        return self.reader.metadata()

    def read_all(self, *, batch_size: int = 0) -> FileReader:  # noqa: ARG002
        return FileReader(self.rows, self.rows.schema)


@dataclass
class CheckedWriter(Writer):
    """A data file that pylance writes; it is put when it is complete."""

    real: Any = None
    files: Any = None

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self.real.write_batch(batch)
        super().write_batch(batch)

    def file_of(self, rows: pa.Table) -> DataFile:
        self.real.close()
        return _taken(f"{self.files.folder}/{SCRATCH}/{self.name}", rows)


def _taken(path: str, rows: pa.Table) -> DataFile:
    """A file that pylance wrote, without its name."""
    with open(path, "rb") as file:
        data = DataFile(file.read())
    os.unlink(path)
    data.rows = rows
    return data


# ---------------------------------------------------------------------------------- a version


class CheckedDataset(Dataset):
    """One version, opened by pylance and by the stand-in."""

    def __init__(
        self, objects: Objects, snapshot: Snapshot, files: PylanceFiles, private: PrivateSession | None
    ) -> None:
        super().__init__(objects, snapshot, files.new_id)
        self.files = files
        self.root = files.path(objects.root)
        self.real: Any = opened_by_pylance(objects, self.root, self._found_by_pylance(snapshot), private)

    def _found_by_pylance(self, snapshot: Snapshot) -> Snapshot:
        """With the bases in the folder."""
        if not snapshot.manifest.head.base_paths:
            return snapshot
        head = snapshot.manifest.editable_head()
        for base in head.base_paths:
            base.path = self.files.path(base.path)
        return replace(snapshot, manifest=snapshot.manifest.changed(head=head))

    def is_lacking(self) -> bool:
        """Whether a file of this version is missing, as happens when it was collected."""
        return not all(os.path.exists(path) for path in self._paths())

    def _paths(self) -> Iterator[str]:
        for fragment in self.fragments:
            for file in fragment.files:
                yield f"{self._folder(file.base_id if file.HasField('base_id') else None)}/{DATA_DIR}/{file.path}"
            if fragment.HasField("deletion_file"):
                gone = fragment.deletion_file
                folder = self._folder(gone.base_id if gone.HasField("base_id") else None)
                yield f"{folder}/{deletion_path(fragment.id, gone)}"

    def _folder(self, base: int | None) -> str:
        return self.files.path(objects_of_base(self.objects, self.manifest, base).root)

    def _both(self, what: str, expect: Callable[[], T], find: Callable[[], T], is_same: Callable[[T, T], bool]) -> T:
        told = f"{what} of {self.objects.root} at version {self.manifest.version}"
        return self.files.both(told, expect, find, is_lacking=self.is_lacking, is_same=is_same)

    def get_fragment(self, number: int) -> Fragment | None:
        found = super().get_fragment(number)
        return None if found is None else CheckedFragment(self, found.fragment)

    def get_fragments(self) -> list[Fragment]:
        return [CheckedFragment(self, each) for each in self.fragments]

    def count_rows(self, filter: Any = None) -> int:
        expect = super().count_rows
        return self._both(
            f"count of {filter}", lambda: expect(filter), lambda: self.real.count_rows(filter), int.__eq__
        )

    def take(self, positions: Sequence[int], columns: Sequence[str] | None = None) -> pa.Table:
        expect = super().take
        wanted = None if columns is None else list(columns)
        return self._both(
            "some rows",
            lambda: expect(positions, columns),
            lambda: self.real.take(list(positions), columns=wanted),
            same_rows,
        )

    def scanner(self, columns: Any = None, filter: Any = None, fragments: Any = None, **options: Any) -> Any:
        chosen = None if fragments is None else [self.real.get_fragment(each.fragment_id) for each in fragments]
        imitated = super().scanner(columns, filter, fragments, **options)
        asked = {"columns": columns, "filter": filter, "fragments": chosen, **options}
        return CheckedScanner(self, imitated, lambda: self.real.scanner(**asked), f"a scan of {columns}, {filter}")

    def compared(self, what: str, imitated: Scanner, real: Callable[[], Any]) -> pa.Table:
        """The rows of a scan."""
        return self._both(what, imitated.to_table, lambda: real().to_table(), same_rows)

    def rewritten_by_pylance(self, ids: Sequence[int], most: int, task: str) -> dict[str, Any]:
        """The live rows of these fragments in new ones; files of pylance under names of this run."""
        written: list[dict[str, Any]] = []
        session = session_at(f"{self.root}/{DATA_DIR}")

        def find() -> list[pa.Table]:
            written.extend(parse_object(compacted_by_pylance(self.real, task), "A result")["new_fragments"])
            names = [each["files"][0]["path"] for each in written]
            rows = [session.open_reader(name).read_all(batch_size=1 << 20).to_table() for name in names]
            waiting.extend(
                _taken(f"{self.root}/{DATA_DIR}/{name}", part) for name, part in zip(names, rows, strict=True)
            )
            return rows

        waiting: list[DataFile] = []
        self._both("a compaction", lambda: self.parts(ids, most), find, _same_parts)
        for fragment, data in zip(written, waiting, strict=True):
            name = fragment["files"][0]["path"] = data_file_name(self.new_id())
            self.objects.put(f"{DATA_DIR}/{name}", data)
        return {"original_fragments": [{"id": number} for number in ids], "new_fragments": written}


def _same_parts(one: list[pa.Table], other: list[pa.Table]) -> bool:
    return len(one) == len(other) and all(map(same_rows, one, other))


class CheckedFragment(Fragment):
    """One fragment of a version."""

    dataset: Any

    @property
    def _real(self) -> Any:
        return self.dataset.real.get_fragment(self.fragment_id)

    def scanner(self, columns: Any = None, filter: Any = None, **options: Any) -> Any:
        imitated = Dataset.scanner(self.dataset, columns, filter, [self], **options)
        asked = {"columns": columns, "filter": filter, **options}
        what = f"a scan of {columns}, {filter} in fragment {self.fragment_id}"
        return CheckedScanner(self.dataset, imitated, lambda: self._real.scanner(**asked), what)


@dataclass
class CheckedScanner:
    """One scan by pylance, after the requests of the stand-in and compared with it."""

    dataset: CheckedDataset
    imitated: Scanner
    real: Callable[[], Any]
    what: str

    @property
    def projected_schema(self) -> pa.Schema:
        return self.real().projected_schema

    def to_reader(self) -> pa.RecordBatchReader:
        rows = self.to_table()
        return pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches())

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self.to_table().to_batches())

    def to_table(self) -> pa.Table:
        return self.dataset.compared(self.what, self.imitated, self.real)
