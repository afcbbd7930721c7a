"""The reading half of a table: everything that leaves it as it is."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from conroi import history as past
from conroi.arguments import checked_calls
from conroi.commit.expiry import expired, version_in_use
from conroi.commit.files import TableFiles
from conroi.commit.forked import holder_of
from conroi.commit.snapshot import Snapshot
from conroi.data.elsewhere import in_spark
from conroi.data.expressions import expression
from conroi.data.literals import Params, bound
from conroi.data.pinned import Pinned
from conroi.data.predicates import Predicate, checked_predicate
from conroi.data.pylance import pylance_errors
from conroi.data.rows import count_rows
from conroi.data.scans import Scan
from conroi.errors import InvalidInputError, about
from conroi.format.fields import key_columns
from conroi.format.naming import ManifestNaming
from conroi.maintenance.durations import Duration, lease_seconds
from conroi.operations.fragment_reuse import unindexed
from conroi.operations.indices import is_system
from conroi.refs.tags import Tags
from conroi.stores.leases import Lease
from conroi.views.facts import table_facts
from conroi.views.grid import to_html
from conroi.views.listing import Listing
from conroi.views.pages import table_history_page, table_page

if TYPE_CHECKING:
    import duckdb
    import lance
    import pandas as pd
    import polars as pl
    from pyspark.sql import DataFrame, SparkSession

Columns = Sequence[str] | Mapping[str, str]
"""Names of columns, or new columns by expression."""


@checked_calls
class ReadableTable:
    """One Lance table, pinned at one version."""

    def __init__(self, files: TableFiles, snapshot: Snapshot, earlier: Pinned | None = None) -> None:
        self._pinned = Pinned(files, snapshot, earlier)
        self._files = self._pinned.files

    lease: Lease | None = None
    """Keeps this version from being collected, if at(…, keep=…) was asked to."""

    def _name_for_errors(self, table: str | None) -> str:
        return self.name if table is None or table == self._files.root else table

    # ------------------------------------------------------------------------- facts

    @property
    def uri(self) -> str:
        """Where the table is."""
        return self._files.root

    @property
    def name(self) -> str:
        """What the table is called, in errors too: its name in its lake; if it stands alone, its address."""
        return self._files.name

    @property
    def version(self) -> int:
        """The version this table is pinned at."""
        return self._pinned.version

    @property
    def schema(self) -> pa.Schema:
        """The columns and their types."""
        return self._pinned.schema

    @property
    def key(self) -> tuple[str, ...]:
        """The declared key columns; empty if there is no key."""
        return key_columns(self._pinned.manifest.fields)

    @property
    def config(self) -> dict[str, str]:
        """The table's settings."""
        return dict(self._pinned.manifest.head.config)

    @property
    def metadata(self) -> dict[str, str]:
        """The notes on the table."""
        return dict(self._pinned.manifest.head.table_metadata)

    @property
    def has_stable_row_ids(self) -> bool:
        """Whether rows keep their id when they are updated or compacted."""
        return self._pinned.manifest.has_stable_row_ids

    @property
    def naming(self) -> ManifestNaming:
        """How the manifests of this table are named."""
        return self._pinned.snapshot.naming

    @property
    def indices(self) -> dict[str, tuple[str, ...]]:
        """The indexed columns, by name of the index."""
        names = {field.id: field.name for field in self._pinned.manifest.fields}
        return {
            index.name: tuple(names.get(i, str(i)) for i in index.fields)
            for index in self._pinned.manifest.indices
            if not is_system(index)
        }

    @property
    def unindexed(self) -> dict[str, int]:
        """How many rows each index does not have, by its name; they are found by a scan. See optimize_indices()."""
        known = self._pinned.manifest.fragments_by_id
        lacking = unindexed(self._pinned.manifest)
        return {name: count_rows(known[number] for number in fragments) for name, fragments in lacking.items()}

    @property
    def pinned(self) -> Pinned:
        """The lower layer, for what reads this very version besides the verbs here."""
        return self._pinned

    # ------------------------------------------------------------------------- rows

    def count_rows(self, filter: Predicate | None = None, *, params: Params | None = None) -> int:
        """How many rows there are; without a filter, from metadata alone."""
        if filter is None and params is None:
            return count_rows(self._pinned.manifest.fragments)
        where = checked_predicate(bound(filter, params, self.uri), table=self.uri)
        with self._reading():
            return self._pinned.dataset.count_rows(filter=where)

    def __len__(self) -> int:
        return self.count_rows()

    def to_batches(
        self,
        columns: Columns | None = None,
        filter: Predicate | None = None,
        *,
        limit: int | None = None,
        batch_size: int | None = None,
        with_row_id: bool = False,
        complete: bool = False,
        params: Params | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows, batch by batch; `complete` leaves out those of an insert that is not finished.

        `params` are the values of `:name` in the filter: `to_batches(filter="id = :id", params={"id": 3})`.
        """
        where = bound(filter, params, self.uri)
        where = self._without_unfinished(where) if complete else where
        scanner = self._scanner(columns, where, limit=limit, batch_size=batch_size, with_row_id=with_row_id)
        with self._reading():
            yield from scanner.to_reader()

    def to_arrow(
        self,
        columns: Columns | None = None,
        filter: Predicate | None = None,
        *,
        limit: int | None = None,
        with_row_id: bool = False,
        complete: bool = False,
        params: Params | None = None,
    ) -> pa.Table:
        """The rows as an Arrow table; `complete` leaves out those of an insert that is not finished.

        `params` are the values of `:name` in the filter: `to_arrow(filter="id = :id", params={"id": 3})`.

        >>> import conroi
        >>> conroi.create_table("memory://to-arrow", [{"id": 1}, {"id": 2}]).to_arrow(filter="id > 1").to_pylist()
        [{'id': 2}]
        """
        where = bound(filter, params, self.uri)
        where = self._without_unfinished(where) if complete else where
        with self._reading():
            return self._scanner(columns, where, limit=limit, with_row_id=with_row_id).to_table()

    def _without_unfinished(self, filter: Predicate | None) -> Predicate | None:
        from conroi.table_inserting import unfinished

        hidden = unfinished(self._past, self._pinned.snapshot)
        if hidden is None:
            return filter
        others = f"(_rowid < {hidden[0]} OR _rowid >= {hidden[1]})"
        if filter is not None and not isinstance(filter, str):
            raise InvalidInputError(
                "With complete=True the filter is a text.", table=self.uri, hint='Write it as SQL, such as "id > 1".'
            )
        return others if filter is None else f"({filter}) AND {others}"

    def to_reader(
        self,
        columns: Columns | None = None,
        filter: Predicate | None = None,
        *,
        limit: int | None = None,
        batch_size: int | None = None,
        with_row_id: bool = False,
        params: Params | None = None,
    ) -> pa.RecordBatchReader:
        """The rows as a stream of Arrow batches, which is read while it is used and never held as a whole."""
        where = bound(filter, params, self.uri)
        scanner = self._scanner(columns, where, limit=limit, batch_size=batch_size, with_row_id=with_row_id)
        scan = self.scan
        with scan.reading():
            return scan.guarded(scanner.to_reader())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows as a stream for any library that takes Arrow: pyarrow, pandas, polars, DuckDB, and our own verbs."""
        return cast("Any", self.to_reader()).__arrow_c_stream__(requested_schema)

    def stored_rows(self) -> pa.RecordBatchReader:
        """All rows as a stream that other tables can take, blobs with their bytes: `lake["a"].append(lake["b"])`."""
        return self.scan.stored_rows()

    @property
    def scan(self) -> Scan:
        """The lower layer of streams and lazy scans: this very version, for whoever reads it later."""
        return Scan(self._pinned)

    def to_pandas(
        self, columns: Columns | None = None, filter: Predicate | None = None, *, params: Params | None = None
    ) -> pd.DataFrame:
        """The rows as a pandas frame."""
        return self.to_arrow(columns, filter, params=params).to_pandas()

    def to_polars(
        self, columns: Columns | None = None, filter: Predicate | None = None, *, params: Params | None = None
    ) -> pl.DataFrame:
        """The rows as a polars frame."""
        import polars

        frame = polars.from_arrow(self.to_arrow(columns, filter, params=params))
        assert isinstance(frame, polars.DataFrame)
        return frame

    def to_polars_lazy(self) -> pl.LazyFrame:
        """The rows as a lazy frame of polars: columns, filters and limits of a query are pushed down to the scan."""
        return self.scan.to_polars_lazy()

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """The rows as a relation of DuckDB: columns and filters of a query are pushed down to the scan.

        Without a connection it belongs to DuckDB's default one. Wants the extra `conroi[duckdb]`.
        """
        return self.scan.to_duckdb(connection)

    def to_spark(self, spark: SparkSession, columns: Columns | None = None, filter: str | None = None) -> DataFrame:
        """The rows as a Spark DataFrame of this very version, whatever is committed before it is used.

        Spark reads every column of it, so name those that are needed. Wants the extra `conroi[spark]`.
        """
        return in_spark("reading").to_spark(self._pinned, spark, columns, filter)

    def to_lance(self) -> lance.LanceDataset:
        """A pylance dataset pinned at this version, for vector and text search. Do not write through it."""
        return self._pinned.dataset

    @contextmanager
    def _reading(self) -> Generator[None]:
        """pylance's errors as ours; VersionExpired if this version was collected meanwhile."""
        with version_in_use(self._files.objects, self._pinned.snapshot), pylance_errors(self.uri):
            yield

    def _scanner(self, columns: Columns | None, filter: Predicate | None, **options: Any) -> lance.LanceScanner:
        wanted: Any = columns
        if columns is not None:
            if isinstance(columns, str):
                raise InvalidInputError("columns is a list of names.", table=self.uri, hint=f"Write [{columns!r}].")
            wanted = _expressions(columns, self.uri) if isinstance(columns, Mapping) else list(columns)
        where = None if filter is None else checked_predicate(filter, table=self.uri)
        given = {name: value for name, value in options.items() if value is not None}
        with self._reading():
            return self._pinned.dataset.scanner(columns=wanted, filter=where, **given)

    # ------------------------------------------------------------------------- the past

    @property
    def _past(self) -> TableFiles:
        """The storage with the versions that this table knows of; inside a transaction those of its beginning."""
        return self._files

    def versions(self) -> list[int]:
        """The numbers of all versions that can be opened, ascending."""
        return [located.version for located in self._past.versions.all()]

    def history(self, limit: int | None = None) -> list[past.Commit]:
        """What was committed up to this version, newest first."""
        return Listing(past.history(self._past, limit, newest=self.version), table_history_page)

    @property
    def tags(self) -> Tags:
        """Names for versions."""
        return Tags(self._past, self.version)

    def _taken(self, keep: Duration | None) -> Lease | None:
        """A lease on this version for so long."""
        if keep is None:
            return None
        versions, version = self._files.versions, self.version
        objects = holder_of(self._files.objects, self._pinned.snapshot.located.path)
        return Lease(
            objects,
            version,
            lease_seconds(keep),
            self._files.environment,
            lambda: versions.locate(version) is not None,
            lambda: expired(objects, version),
        )

    def _find(self, version: int | None, tag: str | None, as_of: datetime | str | None) -> Snapshot:
        with about(self.uri):
            return past.find(self._past, version, tag, as_of)

    # ------------------------------------------------------------------------- looking at it

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.uri!r}, version={self.version}, {self.count_rows():,} rows)"

    def _repr_html_(self) -> str:
        return to_html(table_page(table_facts(self.uri, self), key_mark="🔑"))


def _expressions(columns: Mapping[str, str], table: str) -> dict[str, str]:
    return {name: expression(value, table) for name, value in columns.items()}
