"""Scans of one table version for other engines: Arrow streams, DuckDB and polars, with projection and filter pushdown.

A scan is bound to its version when it is created. Engines read it later, from threads of their own, so nothing in it
takes a lock of a transaction. A filter that an engine pushes down goes to Lance only where Lance and the engine agree
about every value; it is applied once more to the result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds

from conroi.commit.expiry import version_in_use
from conroi.commit.snapshot import Snapshot
from conroi.data.fitting import cast_batch
from conroi.data.pinned import Pinned
from conroi.data.polars_predicates import to_lance_filter
from conroi.data.pylance import pylance_errors
from conroi.errors import ConroiError, UnsupportedError
from conroi.stores.objects import Objects

if TYPE_CHECKING:
    import duckdb
    import polars as pl


@dataclass(frozen=True)
class Base:
    """The base version of a transaction, for scans of its private versions."""

    objects: Objects
    snapshot: Snapshot | None
    check_open: Callable[[], None]
    """ClosedError once the transaction has ended: its staged files may be gone then."""


@dataclass(frozen=True)
class Scan:
    """The rows of one version, which can be read any number of times and from any thread."""

    pinned: Pinned
    base: Base | None = None
    failures: list[ConroiError] = field(default_factory=list[ConroiError])
    """Errors during a read by an engine: on its way through the engine an error loses its type."""

    def reader(self, columns: Any = None, filter: Any = None, **options: Any) -> pa.RecordBatchReader:
        """A stream of the rows. `columns`, `filter` and `options` are those of pylance's scanner."""
        if self.base is not None:
            self.base.check_open()
        with self.reading():
            dataset = self.pinned.dataset
            rows = dataset.scanner(columns=columns, filter=filter, **options).to_reader()
        return self.guarded(rows)

    def stored_rows(self) -> pa.RecordBatchReader:
        """All rows in the table's own types, blobs with their bytes: what can be written to another table."""
        schema, root = self.pinned.schema, self.pinned.root
        rows = self.reader(blob_handling="all_binary")
        return pa.RecordBatchReader.from_batches(schema, (cast_batch(batch, schema, root) for batch in rows))

    def guarded(self, rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
        """The stream with typed errors."""
        return pa.RecordBatchReader.from_batches(rows.schema, self._batches(rows))

    def _batches(self, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            with self.reading():
                yield from rows
        except ConroiError as error:
            self.failures.append(error)
            raise

    @contextmanager
    def reading(self) -> Generator[None]:
        """Map pylance's errors to ours; VersionExpired if the version was collected meanwhile."""
        with ExitStack() as stack:
            if self.base is not None:
                stack.enter_context(version_in_use(self.base.objects, self.base.snapshot, is_base=True))
            stack.enter_context(version_in_use(self.pinned.files.objects, self.pinned.snapshot))
            stack.enter_context(pylance_errors(self.pinned.root))
            yield

    # ------------------------------------------------------------------------ engines

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """The rows as a relation of DuckDB, which asks for the columns and rows that a query needs."""
        try:
            import duckdb
        except ImportError as error:
            raise missing_duckdb() from error
        at: Any = duckdb if connection is None else connection
        return at.from_arrow(DuckDBSource(self))

    def to_polars_lazy(self) -> pl.LazyFrame:
        """The rows as a lazy frame of polars, which asks for the columns and rows that a query needs."""
        import polars
        from polars.io.plugins import register_io_source

        schema = polars.DataFrame(pa.table(self._empty())).schema

        def frames(
            columns: list[str] | None, predicate: pl.Expr | None, limit: int | None, batch_size: int | None
        ) -> Iterator[pl.DataFrame]:
            pushed = None if predicate is None else to_lance_filter(predicate, self.pinned.schema)
            needed = columns
            if columns is not None and predicate is not None:
                needed = list(dict.fromkeys([*columns, *predicate.meta.root_names()]))
            # pylance reads no rows without columns, and rows must be counted.
            needed = needed or self.pinned.schema.names[:1] if needed is not None else None
            left = limit
            for batch in self.reader(needed, pushed, batch_size=batch_size):
                frame = polars.DataFrame(batch)
                frame = frame if predicate is None else frame.filter(predicate)
                frame = frame if columns is None else frame.select(columns)
                if left is not None:
                    frame = frame.head(left)
                    left -= len(frame)
                yield frame
                if left == 0:
                    return

        return register_io_source(frames, schema=schema, is_pure=True, explain_name="conroi")

    def _empty(self) -> pa.Table:
        return self.reader(limit=0).read_all()


class DuckDBSource(ds.Dataset):
    """A scan in the form in which DuckDB pushes columns and filters down: it takes what is a pyarrow dataset."""

    def __init__(self, scan: Scan) -> None:  # the base class has no state that DuckDB looks at
        self._scan = scan
        self._schema = scan.reader(limit=0).schema

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **_: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """A scan of these columns, of the rows for which the filter holds by pyarrow's rules, which DuckDB knows."""
        if filter is None:
            return _Once(self._scan.reader(None if columns is None else list(columns)))
        named = _named(filter, self._schema)
        needed = None if columns is None else list(dict.fromkeys([*columns, *named]))
        pushed = filter if all(_is_exact(self._schema.field(name).type) for name in named) else None
        try:
            rows = self._scan.reader(needed, pushed)
        except ConroiError:
            if pushed is None:
                raise
            rows = self._scan.reader(needed)  # an expression that Lance does not know
        wanted = self._schema.names if columns is None else list(columns)
        return ds.Scanner.from_batches(rows, columns=wanted, filter=filter)


@dataclass(frozen=True)
class _Once:
    """What DuckDB uses of a scanner."""

    reader: pa.RecordBatchReader

    def to_reader(self) -> pa.RecordBatchReader:
        return self.reader

    @property
    def projected_schema(self) -> pa.Schema:
        return self.reader.schema


def _named(filter: Any, schema: pa.Schema) -> list[str]:
    """The columns that an expression may name. Its text is all that pyarrow tells: a name too many does no harm."""
    text = str(filter)
    words = set(re.findall(r"\w+", text))
    return [name for name in schema.names if name in words or (not re.fullmatch(r"\w+", name) and name in text)]


def _is_exact(type_: pa.DataType) -> bool:
    """Whether Lance and pyarrow agree about every comparison. For floats they differ about NaN and the two zeros."""
    return (
        pa.types.is_integer(type_)
        or pa.types.is_boolean(type_)
        or pa.types.is_string(type_)
        or pa.types.is_large_string(type_)
        or pa.types.is_date32(type_)
        or (pa.types.is_timestamp(type_) and type_.unit == "us")
    )


def missing_duckdb() -> UnsupportedError:
    """The error for a Python without DuckDB."""
    return UnsupportedError("This needs DuckDB, which is not installed.", hint='pip install "conroi[duckdb]"')
