"""Data file writer: a stream of batches becomes fragments that no version refers to yet."""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from conroi.data.arrow_types import fragment_from_pylance
from conroi.data.pylance import file_session, pylance_errors
from conroi.environment import Environment
from conroi.errors import ConroiError, InvalidInputError, StoreError
from conroi.format import lance_pb2 as pb
from conroi.format.fields import file_field_ids
from conroi.format.naming import data_file_name
from conroi.format.on_disk import DATA_DIR
from conroi.storage.local import check_folders
from conroi.storage.objects import Objects
from conroi.storage.parallel import Running, aside

ROWS_PER_FILE = 1_048_576
"""As many rows as pylance puts into one fragment."""

MOST_ROWS = 1 << 31
"""Row limit of a file: enough for all rows of a fragment."""
MOST_BYTES = 1 << 40
MOST_UNDER_WAY = 3
"""Maximum number of files of one table that are completed at the same time, each over a connection of its own."""

Progress = Callable[[int], None]
"""Called with the number of rows done so far."""


@dataclass
class WrittenFiles:
    """Fragments without ids, and the names of their files (garbage if the commit never happens)."""

    fragments: list[pb.DataFragment] = field(default_factory=list[pb.DataFragment])
    rows: int = 0
    paths: list[str] = field(default_factory=list[str])
    """Of the files that we wrote ourselves."""

    def add(self, file: OpenFile, progress: Progress | None) -> None:
        """One fragment more: the end of this file; where that takes a request it is done in the background, if the
        writer has a list for what is under way.
        """
        closing = file.of.closing
        fragment = pb.DataFragment(files=[file.described()], physical_rows=file.rows)
        data_file = fragment.files[0]
        if closing is None or file.of.objects.is_local:
            file.end_into(data_file)
        else:
            while len(closing) >= MOST_UNDER_WAY:
                closing[0].result()
                closing.pop(0)
            closing.append(aside(partial(file.end_into, data_file)))
        self.fragments.append(fragment)
        self.paths.append(f"{DATA_DIR}/{data_file.path}")
        self.rows += file.rows
        if progress is not None:
            progress(self.rows)


@dataclass(frozen=True)
class DataWriter:
    """Writes data files of one table, in its file version and with its field ids."""

    objects: Objects
    environment: Environment
    fields: Sequence[pb.Field]
    """The table's schema."""
    data_format: str
    """The version of the file format, such as `2.2`: a table has only one."""
    rows_per_file: int = ROWS_PER_FILE
    closing: list[Running[None]] | None = None
    """Files whose last request is under way. Until it is over their sizes are not known, and nothing can read them."""

    def write(self, batches: pa.RecordBatchReader, progress: Progress | None = None) -> WrittenFiles:
        """Write all batches; their schema is that of some or all columns of the table."""
        if self.data_format not in ("2.1", "2.2") or _is_converted(batches.schema):
            return self._write_by_pylance(batches)
        written = WrittenFiles()
        file: OpenFile | None = None
        for batch in batches:  # what the user's own stream raises, reaches the user as it is
            rest = batch
            while rest.num_rows:
                file = file or self.begin(_encoded(batches.schema, rest, self.data_format))
                part = rest.slice(0, self.rows_per_file - file.rows)
                file.add(part)
                rest = rest.slice(part.num_rows)
                if file.rows == self.rows_per_file:
                    written.add(file, progress)
                    file = None
        if file is not None:
            written.add(file, progress)
        self.objects.sync(written.paths)
        return written

    def write_columns(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> pb.DataFile:
        """One file with some columns of one fragment: as many rows as the fragment has, in its order."""
        if _is_converted(schema):
            return self._columns_by_pylance(pa.RecordBatchReader.from_batches(schema, batches))
        file = self.begin(schema)
        for batch in batches:
            file.add(batch)
        data_file, _ = file.end()
        self.objects.sync([f"{DATA_DIR}/{data_file.path}"])
        return data_file

    def _columns_by_pylance(self, batches: pa.RecordBatchReader) -> pb.DataFile:
        """The same for columns that pylance stores in another form, such as blobs: as a fragment of their own."""
        tops = {field.name: field.id for field in self.fields if field.parent_id == -1}
        by_id = {field.id: field for field in self.fields}
        order = [i for name in batches.schema.names for i in _subtree(tops[name], by_id)]
        (fragment,) = self._fragments_by_pylance(batches, MOST_ROWS)
        file = fragment.files[0]
        file.fields[:] = [order[number] for number in file.fields]
        return file

    def begin(self, schema: pa.Schema, name: str | None = None) -> OpenFile:
        """One file, to be written batch by batch."""
        name = name or self.new_name()
        with pylance_errors(self.objects.root):
            writer = file_session(self.objects).open_writer(name, schema=schema, version=self.data_format)
        return OpenFile(self, name, schema.names, writer)

    def new_name(self) -> str:
        """A unique name for a data file."""
        return data_file_name(self.environment.new_uuid())

    def _write_by_pylance(self, batches: pa.RecordBatchReader) -> WrittenFiles:
        if len(batches.schema) != sum(1 for f in self.fields if f.parent_id == -1):
            raise InvalidInputError(
                "A table with JSON or blob columns, or in an old file version, takes only complete rows.",
                table=self.objects.root,
                hint="Give every column.",
            )
        return self._renumbered(self._fragments_by_pylance(batches, self.rows_per_file))

    def _fragments_by_pylance(self, batches: pa.RecordBatchReader, rows_per_file: int) -> list[pb.DataFragment]:
        from lance.fragment import write_fragments

        stream = _Watched(batches)
        check_folders(self.objects, [DATA_DIR])
        with stream.errors(self.objects.root):
            fragments = write_fragments(
                stream.reader(),
                self.objects.pylance_uri(),
                mode="overwrite",  # only says "do not look up the table's schema": nothing is overwritten
                max_rows_per_file=rows_per_file,
                max_bytes_per_file=MOST_BYTES,
                data_storage_version=self.data_format,
                storage_options=dict(self.objects.storage_options) or None,
            )
        return [fragment_from_pylance(fragment) for fragment in fragments]

    def _renumbered(self, fragments: list[pb.DataFragment]) -> WrittenFiles:
        """pylance numbers the fields of a new schema from 0; the table's own numbers may be others."""
        numbers = dict(enumerate(f.id for f in self.fields))
        for fragment in fragments:
            for data_file in fragment.files:
                data_file.fields[:] = [numbers[number] for number in data_file.fields]
        return WrittenFiles(fragments, sum(fragment.physical_rows for fragment in fragments))


@dataclass
class OpenFile:
    """A data file that is being written."""

    of: DataWriter
    name: str
    columns: Sequence[str]
    writer: Any
    rows: int = 0
    """So many were added."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Some rows more."""
        with pylance_errors(self.of.objects.root):
            is_nested = any(map(pa.types.is_nested, batch.schema.types))
            self.writer.write_batch(_with_offsets(batch) if is_nested else batch)
        self.rows += batch.num_rows

    def end(self) -> tuple[pb.DataFile, int]:
        """What the manifest says of the file, and how many rows it has."""
        data_file = self.described()
        self.end_into(data_file)
        return data_file, self.rows

    def end_into(self, data_file: pb.DataFile) -> None:
        """Close the file, and complete what the manifest says of it."""
        with pylance_errors(self.of.objects.root):
            self.writer.close()
        data_file.file_size_bytes = self.writer.size_bytes or 0

    def described(self) -> pb.DataFile:
        """What the manifest says of the file, but for its size."""
        stored = file_field_ids(self.of.fields, list(self.columns), self.of.data_format)
        major, _, minor = self.of.data_format.partition(".")
        return pb.DataFile(
            path=self.name,
            fields=stored,
            column_indices=range(len(stored)),
            file_major_version=int(major),
            file_minor_version=int(minor),
        )


def _subtree(top: int, by_id: Mapping[int, pb.Field]) -> Iterator[int]:
    """A field and all inside it, in the order of the schema."""
    yield top
    for each in by_id.values():
        if each.parent_id == top:
            yield from _subtree(each.id, by_id)


class _Watched:
    """A stream that pylance reads: what the stream itself raises is known by what it is, not as a failure to write."""

    def __init__(self, batches: pa.RecordBatchReader) -> None:
        self._batches = batches
        self._raised: Exception | None = None

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self._batches.schema, self._watched())

    def _watched(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from map(_with_offsets, self._batches)
        except Exception as error:
            self._raised = error
            raise

    @contextmanager
    def errors(self, table: str) -> Generator[None]:
        """Raise what the stream raised, or what pylance thinks of its values, in our words."""
        try:
            with pylance_errors(table):
                yield
        except StoreError as error:
            if isinstance(self._raised, ConroiError):
                self._raised.table = self._raised.table or table
            if self._raised is not None:
                raise self._raised from None
            if _ABOUT_VALUES in str(error.__cause__):
                raise InvalidInputError(
                    f"A value cannot be stored in its column: {error.message.partition(_ABOUT_VALUES)[2].strip(': ')}",
                    table=table,
                    hint="Check that every value fits its column; a JSON column takes valid JSON only.",
                ) from error
            raise


_ABOUT_VALUES = "LanceError(Arrow)"
"""How pylance begins to say that Arrow data is not as it should be."""


def _is_converted(schema: pa.Schema) -> bool:
    """Whether pylance stores a field, at any depth, in another form: JSON, blobs and other extension types."""
    fields = list(schema)
    for each in fields:  # those inside it are added at the end
        if isinstance(each.type, pa.BaseExtensionType):
            return True
        for key in each.metadata or ():
            if key == b"ARROW:extension:name" or key.startswith(b"lance-encoding:blob"):
                return True
        fields.extend(map(each.type.field, range(each.type.num_fields)))
    return False


def read_columns(objects: Objects, path: str, columns: Sequence[str]) -> pa.Table:
    """Some columns of a data file, under the names that it has them by: all rows that were written."""
    with pylance_errors(objects.root):
        reader = file_session(objects, path).open_reader(path, columns=list(columns))
        return reader.read_all().to_table()


# ---------------------------------------------------------------------------- encodings

_NO_DICTIONARY: dict[bytes | str, bytes | str] = {b"lance-encoding:dict-divisor": b"1000000000"}
"""A dictionary is for columns with at most this part of their rows as distinct values: none has so few."""
_NARROW = 1 << 16
"""Integers below it take at most two bytes when their bits are packed."""
_ROWS_TO_JUDGE = 1024


def _encoded(schema: pa.Schema, first: pa.RecordBatch, data_format: str) -> pa.Schema:
    """The schema of a file that begins with these rows, with what pylance needs to know of encodings.

    Files of version 2.2 have dictionaries of 64-bit integers. Of a column with narrow values the dictionary is no
    smaller than packed bits, and takes four times as long to read.
    """
    if data_format != "2.2" or first.num_rows < _ROWS_TO_JUDGE:
        return schema
    fields = list(schema)
    for number, each in enumerate(fields):
        metadata = cast("dict[bytes | str, bytes | str]", each.metadata or {})
        has_own = any(key.startswith(b"lance-encoding:") for key in each.metadata or ())
        if each.type == pa.int64() and not has_own and _is_narrow(first.column(number)):
            fields[number] = each.with_metadata(metadata | _NO_DICTIONARY)
    return pa.schema(fields, cast("Any", schema.metadata))


def _is_narrow(column: pa.Array[Any]) -> bool:
    ends = cast("Any", pc).min_max(column)
    least, most = ends["min"].as_py(), ends["max"].as_py()
    return least is not None and least >= 0 and most < _NARROW


# ---------------------------------------------------------------------------- arrays as pylance expects them


def _with_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, in which empty lists and texts inside of others have offsets.

    Arrow allows an array without values to have none, and Arrow for Java leaves them out. pylance reads the first one
    all the same: beyond the end of the buffer, where anything may be.
    """
    return pa.RecordBatch.from_arrays([_array_with_offsets(column) for column in batch.columns], schema=batch.schema)


def _array_with_offsets(array: pa.Array[Any]) -> pa.Array[Any]:
    type_, found = array.type, cast("Any", array)
    if not len(array) and (pa.types.is_nested(type_) or _has_offsets(type_)):
        return pa.array([], type_)
    if pa.types.is_struct(type_):
        before = [found.field(number) for number in range(type_.num_fields)]
        after = [_array_with_offsets(field) for field in before]
        is_same = all(map(operator.is_, before, after))
        return array if is_same else pa.StructArray.from_arrays(after, fields=list(type_), mask=found.is_null())
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_map(type_):
        inside = found.values if not pa.types.is_map(type_) else _pairs(found)
        after = _array_with_offsets(inside)
        if after is inside:
            return array
        own = array.buffers()[:2]
        return pa.Array.from_buffers(type_, len(array), own, array.null_count, array.offset, cast("Any", [after]))
    return array


def _pairs(maps: Any) -> pa.Array[Any]:
    """Keys and values of all maps, as structs."""
    return pa.StructArray.from_arrays([maps.keys, maps.items], fields=[maps.type.key_field, maps.type.item_field])


def _has_offsets(type_: pa.DataType) -> bool:
    is_text = pa.types.is_string(type_) or pa.types.is_large_string(type_)
    return is_text or pa.types.is_binary(type_) or pa.types.is_large_binary(type_)
