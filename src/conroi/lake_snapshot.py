"""Reading verbs of a lake, and the snapshot of a lake at one version, which `lake.at()` gives and cannot write."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from conroi.arguments import checked_calls
from conroi.branches.branches import Branches
from conroi.branches.diff import LakeDiff, lake_diff
from conroi.branches.lake_ref import LakeRef
from conroi.catalog.catalog import Catalog
from conroi.catalog.names import known_id, object_id, shown
from conroi.catalog.rows import NAMESPACE, Row
from conroi.catalog.state import LakeState
from conroi.data.incoming import in_spark
from conroi.display import Listing, to_html
from conroi.display.pages import lake_history_page, lake_page
from conroi.errors import NotFoundError, about
from conroi.history import find
from conroi.inserts import LockInfo, locks_of
from conroi.lake_history import LakeCommit, lake_commit
from conroi.maintenance.expiry import live_leases
from conroi.maintenance.reports import Duration, lease_seconds
from conroi.query import QueryParams, QueryResult, query
from conroi.refusals import PAST_LAKE, refuses
from conroi.snapshots.branch_storage import holder_of
from conroi.snapshots.snapshot import TableStorage, expired
from conroi.snapshots.tags import Tags
from conroi.storage.objects import Objects
from conroi.table import Table
from conroi.table_location import LakeAddress, Reduced, lake_address, opened_lake
from conroi.versions.retention import Lease, LeaseInfo

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from conroi.lake import Lake
    from conroi.spark.sql import Statement

OpenLake = Callable[[LakeRef], "Lake"]
"""The constructor of a lake that can be written."""


@checked_calls
class LakeReader(ABC):
    """Reading verbs of a lake; a subclass moves with its newest version, or stays at one."""

    lease: Lease | None = None
    """Lease on the version of a past lake, if at(…, keep=…) was used."""

    def __init__(self, ref: LakeRef, open_lake: OpenLake) -> None:
        self._ref = ref
        self._catalog = ref.catalog
        self._manifest = ref.manifest
        self._open_lake = open_lake

    # ------------------------------------------------------------------------ facts

    @property
    def uri(self) -> str:
        """The location of the lake."""
        return self._catalog.uri

    @property
    def version(self) -> int:
        """The newest version of the lake; for a lake from at(), its version."""
        return self._ref.state().version

    @property
    def catalog(self) -> Catalog:
        """Internal interface for publishing through this lake."""
        return self._catalog

    @property
    def pinned(self) -> LakeState | None:
        """The state of a lake from at(); None for the lake itself."""
        return self._ref.pinned

    def _name_for_errors(self, table: str | None) -> str | None:
        return self._catalog.name_for_errors(table)

    def tables(self, namespace: str | None = None) -> list[str]:
        """The names of all tables, or of those in a namespace."""
        names = [shown(row.object_id) for row in self._ref.state().tables()]
        if namespace is None:
            return names
        object_id(namespace)
        return [name for name in names if name.startswith(f"{namespace}.")]

    def namespaces(self) -> list[str]:
        """The names of all namespaces."""
        rows = [row for row in self._ref.state().rows.values() if row.object_type == NAMESPACE]
        return sorted(shown(row.object_id) for row in rows if not row.object_id.startswith("__"))

    def __contains__(self, name: str) -> bool:
        return self._ref.state().table(object_id(name)) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables())

    def __len__(self) -> int:
        return len(self._ref.state().tables())

    # ------------------------------------------------------------------------ tables

    @abstractmethod
    def __getitem__(self, name: str) -> Table:
        """The table of this name, pinned at its newest version."""

    def files_at(self, folder: str) -> TableStorage | None:
        """The storage of the table in this folder of the lake; None if there is none."""
        return self._ref.storage_in(folder)

    def table(
        self,
        name: str,
        version: int | None = None,
        *,
        tag: str | None = None,
        as_of: datetime | str | None = None,
    ) -> Table:
        """The table of this name; optionally at a version, at a tag, or as of a time."""
        if version is None and tag is None and as_of is None:
            return self[name]
        row = self._catalog.row(object_id(name), self._ref.state())
        files = self._ref.storage(row)
        with about(shown(row.object_id)):
            return Table(files, find(files, version, tag, as_of))

    # ------------------------------------------------------------------------ queries

    def query(self, text: str, params: QueryParams | None = None) -> QueryResult:
        """Run one SELECT in DuckDB's SQL over a snapshot of all tables; `params` fill in `?` or `$name`.

        Only the tables can be read, and nothing can be written. Needs the extra `conroi[duckdb]`.

        >>> import conroi
        >>> lake = conroi.connect("memory://query-example")
        >>> orders = lake.create_table("orders", [{"id": 1, "amount": 5.0}, {"id": 2, "amount": 7.5}])
        >>> lake.query("SELECT max(amount) AS most FROM orders WHERE id < $id", {"id": 2}).to_pylist()
        [{'most': 5.0}]
        """
        return query(self.current(), text, params)

    def sql(self, spark: SparkSession, query: str) -> DataFrame | Statement:
        """Run one statement of Spark SQL: a query over a snapshot of all tables, or a change of one table.

        SELECT returns a DataFrame; INSERT, UPDATE, DELETE and MERGE INTO are one transaction each, and return a
        summary.
        """
        return in_spark("sql").lake_sql(self, spark, query)

    # ------------------------------------------------------------------------ the past

    def at(
        self,
        version: int | None = None,
        *,
        tag: str | None = None,
        as_of: datetime | str | None = None,
        keep: Duration | None = None,
    ) -> LakeSnapshot:
        """The lake as of a version, a tag, or a time (time travel). Read-only.

        `keep="1h"` protects the version and all its table versions from garbage collection for this time: `past.lease`
        can be renewed, released, and used as a `with` block.
        """
        past = LakeSnapshot(self._ref.at(version, tag, as_of), self._open_lake)
        past.lease = past._leased(past.version, keep)  # noqa: SLF001 (a lake like ourselves)
        return past

    def current(self) -> LakeSnapshot:
        """A read-only snapshot of the lake, with all tables at their newest versions."""
        return LakeSnapshot(self._ref.current(), self._open_lake)

    def history(self, limit: int | None = None) -> list[LakeCommit]:
        """The commits of the lake, newest first."""
        published = self._catalog.heads.history(self._ref.state().version, limit)
        return Listing(map(lake_commit, published), lake_history_page)

    # ------------------------------------------------------------------------ branches and tags

    @property
    def branch_name(self) -> str:
        """The name of this lake's branch; `main` for the main branch."""
        return self._catalog.identity.name

    @property
    def branches(self) -> Branches:
        """The branches of the lake."""
        return Branches(self._ref)

    def branch(self, name: str) -> Lake:
        """A branch as a lake of its own; its commits are not visible on main until it is merged."""
        return self._open_lake(self._ref.branch(name))

    @property
    def tags(self) -> Tags:
        """Tags: names for versions of the lake, on any branch; a new one names a version of this branch."""
        return self._ref.tags

    def resolve(self, of: LakeReader | int | str) -> LakeReader:
        """The lake of a reference: a branch, a tag, a version of this lake, or a lake itself.

        A name that is both a branch and a tag is the branch.
        """
        if isinstance(of, LakeReader):
            return of
        found = self._ref.resolve(of)
        return self._open_lake(found) if found.pinned is None else LakeSnapshot(found, self._open_lake)

    def diff(self, a: LakeReader | int | str, b: LakeReader | int | str, *, keys: bool = True) -> LakeDiff:
        """The differences between two states of the lake, by table: rows, columns and (`keys`) changed keys.

        Each is a branch, a tag, a version of this lake, or a lake. Only files that differ are read.
        """
        before, after = self.resolve(a)._ref, self.resolve(b)._ref  # noqa: SLF001 (lakes like ourselves)
        return lake_diff(before, after, keys=keys)

    # ------------------------------------------------------------------------ leases and locks

    def _leased(self, version: int, keep: Duration | None) -> Lease | None:
        """A lease on a version of the lake."""
        if keep is None:
            return None
        objects, heads = self._lease_objects(), self._catalog.heads
        located = None if self._manifest is None else self._manifest.versions.locate(version)
        objects = objects if located is None else holder_of(objects, located.path)

        def is_there() -> bool:
            try:
                heads.at(version)
            except NotFoundError:
                return False
            return True

        return Lease(
            objects,
            version,
            lease_seconds(keep),
            self._catalog.environment,
            is_there,
            lambda: expired(objects, version, table=self._catalog.uri),
        )

    def _lease_objects(self) -> Objects:
        """The storage of leases: beside the branch's `__manifest`, or in the lake's folder if a store has the
        history.
        """
        return self._catalog.root if self._manifest is None else self._manifest.objects

    def leases(self) -> list[LeaseInfo]:
        """The active leases on versions of the lake, by the storage's own clock.

        Those on versions of one table are in `table.leases()`.
        """
        return live_leases(self._lease_objects(), self._catalog.environment)

    def locks(self) -> list[LockInfo]:
        """The holders of insert locks of this lake, and the workers that wait for them."""
        return locks_of(self._catalog).listing()

    # ------------------------------------------------------------------------ looking at it

    def __reduce__(self) -> Reduced:
        """Pickle as an address; the other process opens the lake again, with credentials from its environment."""
        version = None if self._ref.pinned is None else self._ref.pinned.version
        return _reopened, (self._open_lake, lake_address(self._catalog), version)

    def __repr__(self) -> str:
        state = self._ref.state()
        on = "" if self._catalog.identity.is_main else f" on branch {self.branch_name!r}"
        return f"{type(self).__name__}({self.uri!r}{on}, version={state.version}, {len(state.tables())} tables)"

    def _repr_html_(self) -> str:
        return to_html(lake_page(self))


@refuses(PAST_LAKE)
@checked_calls
class LakeSnapshot(LakeReader):
    """A lake at one version, read-only: what `lake.at()` and `lake.current()` give.

    >>> import conroi
    >>> lake = conroi.connect("memory://snapshot-example")
    >>> orders = lake.create_table("orders", [{"id": 1}]).append([{"id": 2}])
    >>> lake.at(2)["orders"].count_rows(), lake["orders"].count_rows()
    (1, 2)
    """

    def __getitem__(self, name: str) -> Table:
        """The table of this name, at its version in the snapshot."""
        state = self._ref.state()
        sought = known_id(name, state.rows)
        with about(shown(sought)):
            row = self._row(sought, state)
            return Table(replace(self._ref.storage(row), past=state.version), self._catalog.snapshot(row))

    def _row(self, sought: str, state: LakeState) -> Row:
        if state.table(sought) is None:
            now = self._catalog.known_state()
            later = f"The lake has it at version {now.version}; lake.history() shows since when."
            had = ", ".join(shown(row.object_id) for row in state.tables()[:10]) or "no table"
            raise NotFoundError(
                f"The lake had no table {shown(sought)!r} at version {state.version}.",
                hint=later if now.table(sought) is not None else f"It had {had} then.",
            )
        return self._catalog.row(sought, state)


def _reopened(open_lake: OpenLake, address: LakeAddress, version: int | None) -> LakeReader:
    """A lake that came from another process."""
    lake = opened_lake(address)
    return open_lake(lake) if version is None else LakeSnapshot(lake.at(version), open_lake)
