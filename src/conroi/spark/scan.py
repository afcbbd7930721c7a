"""The scan of `format("conroi")`: planned on the driver, sized from metadata alone, read by tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from conroi.data.arrow_types import row_width
from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import count_rows
from conroi.format.schema import schema_from_fields, stored_as_read
from conroi.spark.pins import PinnedVersion
from conroi.spark.types import arrow_schema, cast_for_spark, spark_schema

if TYPE_CHECKING:
    import lance
    from pyspark.sql.types import StructType

    from conroi.table import Table


BYTES_PER_TASK = 64 * 1024 * 1024
"""Approximate number of bytes of the requested columns that a task reads."""
_BYTES_PER_BATCH = 2 * 1024 * 1024
_FEWEST_ROWS, _MOST_ROWS = 1024, 32_768


@dataclass(frozen=True)
class Statistics:
    """Table statistics from metadata; no row is read."""

    rows: int
    fragments: int
    file_bytes: int
    """What its data files take on disk, with all columns and with rows that were deleted since."""


def statistics(table: Table) -> Statistics:
    """How big a table is. Spark knows no sizes of sources that are written in Python: use this to choose a join.

    `table.count_rows()` is the count that Spark would read the whole table for.
    """
    fragments = table.pinned.manifest.fragments
    file_bytes = sum(file.file_size_bytes for fragment in fragments for file in fragment.files)
    return Statistics(count_rows(fragments), len(fragments), file_bytes)


def shared_out(fragments: Sequence[pb.DataFragment], columns: pa.Schema, bytes_per_task: int) -> list[list[int]]:
    """The ids of the fragments that each task reads: neighbours together, until there is enough for a task."""
    width = max(1, row_width(columns))
    tasks: list[list[int]] = []
    room = 0
    for fragment in fragments:
        size = max(1, count_rows([fragment]) * width)
        if not tasks or size > room:
            tasks.append([])
            room = bytes_per_task
        tasks[-1].append(fragment.id)
        room -= size
    return tasks


def batch_rows(columns: pa.Schema) -> int:
    """How many rows of these columns to hand over at once."""
    return max(_FEWEST_ROWS, min(_MOST_ROWS, _BYTES_PER_BATCH // max(1, row_width(columns))))


Wanted = Sequence[str] | Mapping[str, str]


class Fragments(InputPartition):
    """What one task reads."""

    def __init__(self, ids: Sequence[int]) -> None:
        super().__init__(None)
        self.ids = tuple(ids)


@dataclass
class Scan:
    """Which rows and columns of which version are wanted."""

    version: PinnedVersion
    columns: Wanted | None = None
    filter: str | None = None
    bytes_per_task: int = 0

    def schema(self) -> StructType:
        """The columns, as Spark calls them."""
        return spark_schema(self.arrow_schema(), table=self.version.place.uri)

    def arrow_schema(self) -> pa.Schema:
        """The columns, as the scan gives them: by the manifest, or where it does not tell, by pylance."""
        fields = self.version.contents().head.fields
        if not isinstance(self.columns, Mapping) and stored_as_read(fields):
            stored = schema_from_fields(fields)
            wanted = list(self.columns or stored.names)
            if len(set(wanted)) == len(wanted) and set(wanted) <= set(stored.names):
                return pa.schema([stored.field(name) for name in wanted])
        return self._projected()

    def _projected(self) -> pa.Schema:
        from conroi.data.pylance import pylance_errors

        with pylance_errors(self.version.place.uri):
            return self.scanner(self.columns, None).projected_schema

    def scanner(
        self,
        columns: Wanted | None,
        where: str | None,
        ids: Sequence[int] | None = None,
        batch_size: int | None = None,
    ) -> lance.LanceScanner:
        """A scan of these fragments, or of all."""
        from conroi.data.pylance import pylance_errors

        pinned = self.version.opened()
        with pylance_errors(pinned.root):
            chosen = None if ids is None else [pinned.dataset.get_fragment(number) for number in ids]
            wanted = dict(columns) if isinstance(columns, Mapping) else list(columns or ()) or None
            return pinned.dataset.scanner(
                columns=wanted,
                filter=where,
                fragments=chosen,
                batch_size=batch_size,
                blob_handling="all_binary",
            )


class ConroiReader(DataSourceReader):
    """Reads one version, the same for all tasks.

    It takes no filters from Spark (`pushFilters`): Spark 4.3 remembers those of a source in one place for all scans of
    one DataFrame, so `df.where(a).union(df)` would read only what fits `a`, twice. Ours come with the DataFrame.
    """

    def __init__(self, scan: Scan, schema: StructType) -> None:
        self._scan = scan
        self._target = arrow_schema(schema)
        check_columns(scan, self._target)

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks: fragments that are neighbours, together about as big as one task should be."""
        fragments = self._scan.version.contents().fragments
        chosen = shared_out(fragments, self._target, self._scan.bytes_per_task)
        return [Fragments(ids) for ids in chosen]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of some fragments."""
        if not isinstance(partition, Fragments):
            return  # what Spark makes of a table without fragments
        yield from read_rows(self._scan, self._target, partition.ids)


class FollowingReader(DataSourceReader):
    """Reads the version that is the newest when the task runs.

    Spark plans a Python source once: it keeps the reader and its partitions with the relation, for every later query of
    the view or DataFrame. So the version is chosen in the task, and one task reads all rows, which are then of one
    version.
    """

    def __init__(self, find: Callable[[], Scan], schema: StructType) -> None:
        self._find = find
        self._target = arrow_schema(schema)
        check_columns(find(), self._target)

    def partitions(self) -> Sequence[InputPartition]:
        """One task, for whatever the table will hold."""
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """All rows of the newest version."""
        del partition
        scan = self._find()
        check_columns(scan, self._target)
        yield from read_rows(scan, self._target, None)


def check_columns(scan: Scan, target: pa.Schema) -> None:
    """InvalidInputError if the version has not all columns that are wanted."""
    stored = scan.arrow_schema().names
    missing = [name for name in target.names if name not in stored]
    if missing:
        raise InvalidInputError(
            f"The table has no column {', '.join(missing)}.",
            table=scan.version.place.uri,
            version=scan.version.contents().version,
            hint=f"It has {', '.join(stored)}.",
        )


def read_rows(scan: Scan, target: pa.Schema, ids: Sequence[int] | None) -> Iterator[pa.RecordBatch]:
    """The rows of some fragments, or of all, in exactly these types."""
    from conroi.data.pylance import pylance_errors

    table = scan.version.place.uri
    scanner = scan.scanner(_columns(scan.columns, target), scan.filter, ids, batch_rows(target))
    with pylance_errors(table):
        for batch in scanner.to_reader():
            yield cast_for_spark(batch, target, table)


def _columns(given: Wanted | None, target: pa.Schema) -> Wanted:
    """Only the columns of the schema, so that other columns are not read."""
    return {name: given[name] for name in target.names} if isinstance(given, Mapping) else target.names


def checked_filter(where: object, table: str) -> str | None:
    """The condition, which must be text to travel."""
    if where is None:
        return None
    from conroi.data.predicates import checked_predicate

    predicate = checked_predicate(where, table=table)
    if not isinstance(predicate, str):
        raise InvalidInputError(
            "A pyarrow expression cannot be handed to Spark.", table=table, hint="Write the condition as SQL text."
        )
    return predicate
