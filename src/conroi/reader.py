"""Reader: scans, streams, samples, searches and frames of a table at one version; nothing here changes it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from conroi import history as past
from conroi.arguments import checked_calls
from conroi.branches.diff import TableDiff, table_diff
from conroi.data.incoming import in_spark
from conroi.data.lookup import Query, Search, checked_count, random_positions, take
from conroi.data.predicates import Predicate, checked_predicate
from conroi.data.pylance import pylance_errors
from conroi.data.scans import Scan
from conroi.data.sql import Params, bound, expression
from conroi.data.table_version import TableVersion
from conroi.display import Listing, to_html
from conroi.display.pages import table_facts, table_history_page, table_page
from conroi.errors import InvalidInputError, about
from conroi.format.manifest import count_rows
from conroi.format.naming import ManifestNaming
from conroi.inserts.fence import unfinished
from conroi.maintenance.expiry import live_leases
from conroi.maintenance.reports import Duration, lease_seconds
from conroi.operations.indices import is_system, unindexed
from conroi.snapshots.branch_storage import holder_of
from conroi.snapshots.snapshot import Snapshot, TableStorage, expired, version_in_use
from conroi.snapshots.tags import Tags
from conroi.versions.retention import Lease, LeaseInfo

if TYPE_CHECKING:
    import duckdb
    import lance
    import pandas as pd
    import polars as pl
    from pyspark.sql import DataFrame, SparkSession


Columns = Sequence[str] | Mapping[str, str]
"""Names of columns, or computed columns by expression."""


@checked_calls
class Reader(ABC):
    """Reading verbs of one Lance table; a subclass says at which version it stands, and which history it shows."""

    lease: Lease | None = None
    """Lease on this version, if at(…, keep=…) was used."""

    _files: TableStorage

    @property
    @abstractmethod
    def _pinned(self) -> TableVersion:
        """The version that is read."""

    @property
    @abstractmethod
    def _history(self) -> past.TableHistory:
        """The versions that it shows."""

    def _version_read(self) -> None:  # noqa: B027 (only a transaction records it)
        """Called where a result depends on version numbers, indices or row addresses, which change without any change
        of rows.
        """

    # ------------------------------------------------------------------------- rows

    def count_rows(self, filter: Predicate | None = None, *, params: Params | None = None) -> int:
        """The number of rows; without a filter, from metadata alone."""
        if filter is None and params is None:
            return count_rows(self._pinned.manifest.fragments)
        where = checked_predicate(bound(filter, params, self.name), table=self.uri)
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
        """The rows, batch by batch; `complete` excludes those of an unfinished insert.

        `params` are the values of `:name` in the filter: `to_batches(filter="id = :id", params={"id": 3})`.
        """
        where = bound(filter, params, self.name)
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
        """The rows as an Arrow table; `complete` excludes those of an unfinished insert.

        `params` are the values of `:name` in the filter: `to_arrow(filter="id = :id", params={"id": 3})`.

        >>> import conroi
        >>> conroi.create_table("memory://to-arrow", [{"id": 1}, {"id": 2}]).to_arrow(filter="id > 1").to_pylist()
        [{'id': 2}]
        """
        where = bound(filter, params, self.name)
        where = self._without_unfinished(where) if complete else where
        with self._reading():
            return self._scanner(columns, where, limit=limit, with_row_id=with_row_id).to_table()

    def _without_unfinished(self, filter: Predicate | None) -> Predicate | None:
        hidden = unfinished(self._history.files, self._pinned.snapshot)
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
        """The rows as a stream of Arrow batches, read lazily."""
        where = bound(filter, params, self.name)
        scanner = self._scanner(columns, where, limit=limit, batch_size=batch_size, with_row_id=with_row_id)
        scan = self.scan
        with scan.reading():
            return scan.guarded(scanner.to_reader())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows as an Arrow C stream, for any Arrow library: pyarrow, pandas, polars, DuckDB, and our own verbs."""
        return cast("Any", self.to_reader()).__arrow_c_stream__(requested_schema)

    def stored_rows(self) -> pa.RecordBatchReader:
        """All rows as a stream for other tables, blobs with their bytes: `lake["a"].append(lake["b"])`."""
        return self.scan.stored_rows()

    @property
    def scan(self) -> Scan:
        """Internal interface of streams and lazy scans: this very version, for a reader that opens it later."""
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
        """The rows as a polars LazyFrame: projections, filters and limits are pushed down to the scan."""
        return self.scan.to_polars_lazy()

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """The rows as a DuckDB relation: projections and filters are pushed down to the scan.

        Without a connection it belongs to DuckDB's default one. Needs the extra `conroi[duckdb]`.
        """
        return self.scan.to_duckdb(connection)

    def to_spark(
        self,
        spark: SparkSession,
        columns: Columns | None = None,
        filter: str | None = None,
        *,
        params: Params | None = None,
    ) -> DataFrame:
        """The rows as a Spark DataFrame of this very version, whatever is committed before it is used.

        Spark reads all its columns, so select those that are needed. `params` are the values of `:name` in the filter.
        Needs the extra `conroi[spark]`.
        """
        if _names_rows(columns, filter):
            self._version_read()
        return in_spark("source").to_spark(self._pinned, spark, columns, bound(filter, params, self.name))

    def to_lance(self) -> lance.LanceDataset:
        """A pylance dataset pinned at this version, with its indices. Do not write through it."""
        self._version_read()
        return self._pinned.indexed_dataset

    @contextmanager
    def _reading(self) -> Generator[None]:
        """Map pylance's errors to ours; VersionExpired if this version was collected meanwhile."""
        with version_in_use(self._files.objects, self._pinned.snapshot), pylance_errors(self.uri):
            yield

    def _scanner(self, columns: Columns | None, filter: Predicate | None, **options: Any) -> lance.LanceScanner:
        if options.get("with_row_id") or _names_rows(columns, filter):  # a compaction gives rows other ids
            self._version_read()
        wanted: Any = columns
        if columns is not None:
            if isinstance(columns, str):
                raise InvalidInputError("columns is a list of names.", table=self.uri, hint=f"Write [{columns!r}].")
            wanted = _expressions(columns, self.uri) if isinstance(columns, Mapping) else list(columns)
        where = None if filter is None else checked_predicate(filter, table=self.uri)
        given = {name: value for name, value in options.items() if value is not None}
        with self._reading():
            return self._pinned.dataset.scanner(columns=wanted, filter=where, **given)

    # ------------------------------------------------------------------------- some rows

    def head(self, rows: int = 5, columns: Columns | None = None) -> pa.Table:
        """The first rows, in scan order."""
        return self.to_arrow(columns, limit=checked_count(rows, self.name))

    def sample(self, rows: int, columns: Sequence[str] | None = None, *, seed: int | None = None) -> pa.Table:
        """A random sample of this many rows, or all if there are fewer; a `seed` makes it reproducible for the same
        version.
        """
        self._version_read()
        count = checked_count(rows, self.name)
        positions = random_positions(count, self.count_rows(), seed, self._files.environment)
        return self.take(positions, columns)

    def take(self, positions: Sequence[int] | Any, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows at these positions in scan order, counted from 0, in the given order."""
        self._version_read()
        with self._reading():
            return take(self._pinned, positions, columns)

    def search(
        self,
        query: Query,
        column: str | None = None,
        *,
        limit: int = 10,
        columns: Sequence[str] | None = None,
        filter: Predicate | None = None,
        params: Params | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> pa.Table:
        """Nearest-neighbour search for a vector, with `_distance`, or full-text search, with `_score`; best first.

        `column` may be omitted if only one fits. Text search needs an index of kind INVERTED; vector search works with
        or without an index. Rows not covered by an index are searched too. `filter` is applied first (prefilter): the
        result has the best of the matching rows. `options` are pylance's for vectors, such as `{"nprobes": 20}`.

        >>> import conroi, pyarrow as pa
        >>> schema = pa.schema({"id": pa.int64(), "vec": pa.list_(pa.float32(), 2)})
        >>> rows = [{"id": 1, "vec": [0.0, 0.0]}, {"id": 2, "vec": [3.0, 4.0]}]
        >>> table = conroi.create_table("memory://search-example", rows, schema=schema)
        >>> table.search([3.0, 3.0], limit=1, columns=["id"]).to_pylist()
        [{'id': 2, '_distance': 1.0}]
        """
        self._version_read()
        where, count = bound(filter, params, self.name), checked_count(limit, self.name)
        asked = Search(query, column, count, columns, where, options or {})
        with self._reading():
            return asked.run(self._pinned)

    def _name_for_errors(self, table: str | None) -> str:
        return self.name if table is None or table == self._files.root else table

    # ------------------------------------------------------------------------- facts

    @property
    def uri(self) -> str:
        """The location of the table."""
        return self._files.root

    @property
    def name(self) -> str:
        """The name of the table, also in errors: its name in its lake; of a standalone table, its address."""
        return self._files.name

    @property
    def version(self) -> int:
        """The version this table is pinned at."""
        self._version_read()
        return self._pinned.version

    @property
    def schema(self) -> pa.Schema:
        """The columns and their types."""
        return self._pinned.schema

    @property
    def key(self) -> tuple[str, ...]:
        """The primary key columns; empty if there is no key."""
        return self._pinned.key

    @property
    def config(self) -> dict[str, str]:
        """The table's configuration."""
        return dict(self._pinned.manifest.head.config)

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the table."""
        return dict(self._pinned.manifest.head.table_metadata)

    @property
    def has_stable_row_ids(self) -> bool:
        """Whether rows keep their id when they are updated or compacted."""
        return self._pinned.manifest.has_stable_row_ids

    @property
    def naming(self) -> ManifestNaming:
        """The naming scheme of the table's manifests."""
        return self._pinned.snapshot.naming

    @property
    def indices(self) -> dict[str, tuple[str, ...]]:
        """The indexed columns, by name of the index."""
        self._version_read()
        names = {field.id: field.name for field in self._pinned.manifest.fields}
        return {
            index.name: tuple(names.get(i, str(i)) for i in index.fields)
            for index in self._pinned.manifest.indices
            if not is_system(index)
        }

    @property
    def unindexed(self) -> dict[str, int]:
        """Number of rows not covered by each index, by its name; they are found by a scan. See optimize_indices()."""
        self._version_read()
        known = self._pinned.manifest.fragments_by_id
        lacking = unindexed(self._pinned.manifest)
        return {name: count_rows(known[number] for number in fragments) for name, fragments in lacking.items()}

    @property
    def pinned(self) -> TableVersion:
        """Internal interface for reads of this very version."""
        return self._pinned

    # ------------------------------------------------------------------------- the past

    def versions(self) -> list[int]:
        """The numbers of all existing versions, ascending."""
        return self._history.numbers()

    def history(self, limit: int | None = None) -> list[past.Commit]:
        """The commits up to this version, newest first."""
        return Listing(self._history.commits(limit, self.version), table_history_page)

    @property
    def tags(self) -> Tags:
        """Tags: names for versions."""
        return self._history.tags()

    def leases(self) -> list[LeaseInfo]:
        """The active leases on versions of this table, by the storage's own clock."""
        return live_leases(self._files.objects, self._files.environment)

    def _taken(self, keep: Duration | None) -> Lease | None:
        """A lease on this version."""
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
            return self._history.find(version, tag, as_of)

    def diff(self, a: Reader | int | str, b: Reader | int | str | None = None, *, keys: bool = True) -> TableDiff:
        """The differences between version `a` and version `b` of the table (by default this one).

        Each is a version, a tag, or the table at a version. Columns and row counts are compared and, for a table with a
        key, which keys were inserted, updated and deleted; `keys=False` only counts. Only files that differ are read.

        >>> import conroi
        >>> orders = conroi.create_table("memory://diff-example", [{"id": 1, "v": "a"}], key="id")
        >>> newer = orders.append([{"id": 2, "v": "b"}]).update({"v": "'c'"}, where="id = 1")
        >>> print(newer.diff(1).keys)
        1 inserted, 1 updated
        """
        before, after = self._version_of(a), self._pinned if b is None else self._version_of(b)
        with about(self.uri):
            return table_diff(before, after, self.name, keys=keys)

    def _version_of(self, of: Reader | int | str) -> TableVersion:
        if isinstance(of, Reader):
            if of.uri != self.uri:
                raise InvalidInputError(
                    f"{of.name} is another table, or this one on another branch.",
                    table=self.uri,
                    hint="Give a version or a tag of this table; lake.diff(a, b) compares branches.",
                )
            return of.pinned
        found = self._find(None, of, None) if isinstance(of, str) else self._find(of, None, None)
        return TableVersion(self._files, found)

    # ------------------------------------------------------------------------- looking at it

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.uri!r}, version={self.version}, {self.count_rows():,} rows)"

    def _repr_html_(self) -> str:
        return to_html(table_page(table_facts(self.uri, self), key_mark="🔑"))


def _expressions(columns: Mapping[str, str], table: str) -> dict[str, str]:
    return {name: expression(value, table) for name, value in columns.items()}


def _names_rows(columns: Columns | None, filter: Predicate | None) -> bool:
    """Whether rows are requested by position."""
    said = [*(columns.values() if isinstance(columns, Mapping) else columns or ()), filter]
    return any("_rowid" in str(each) or "_rowaddr" in str(each) for each in said if each is not None)
