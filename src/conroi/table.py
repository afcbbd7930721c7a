"""Lance table: an immutable snapshot with verbs. A verb starts at the newest version and returns the new Table."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Self, TypeVar

from conroi import verbs
from conroi.arguments import checked_calls
from conroi.branches.lake_ref import LakeRef
from conroi.catalog.catalog import Catalog
from conroi.catalog.names import object_id
from conroi.commit.change import Plan
from conroi.commit.execution import WriteOptions, run
from conroi.commit.fairness import Turns
from conroi.data.incoming import Data
from conroi.data.table_version import TableVersion
from conroi.data.writer import Progress
from conroi.doctor import Diagnosis, examine_table
from conroi.errors import ConroiError, about
from conroi.format.on_disk import AUTO_COMPACT_SETTING
from conroi.history import TableHistory
from conroi.insertion import insert_into
from conroi.maintenance.auto_compaction import compact_after
from conroi.maintenance.collection import MIN_AGE, collect_table
from conroi.maintenance.expiry import KEEP, OLDER_THAN, expire_table
from conroi.maintenance.naming_migration import migrate_manifest_names
from conroi.maintenance.reports import Collected, Duration, Expired
from conroi.registration import register
from conroi.snapshots.snapshot import Snapshot, TableStorage
from conroi.table_location import LakeAddress, Reduced, Store, clone_target, opened_table, table_address
from conroi.table_transaction import TableTransaction
from conroi.verbs.compact import lost_by
from conroi.versions.folder import CommitLock, Put
from conroi.writer import Writer

_log = logging.getLogger(__name__)

T = TypeVar("T")


@checked_calls
class Table(Writer):
    """One Lance table, pinned at one version.

    Every verb takes `message`, `properties`, `retries`, `strict` and `expect` besides its own arguments. It starts at
    the newest version, commits, and returns the Table at its new version (or at the newest one, if it was a no-op).

    >>> import conroi
    >>> orders = conroi.create_table("memory://orders", [{"id": 1, "amount": 5.0}], key="id")
    >>> orders = orders.append([{"id": 2, "amount": -1.0}], message="second")
    >>> orders = orders.delete("amount < 0")
    >>> orders.version, orders.to_arrow().to_pylist()
    (3, [{'id': 1, 'amount': 5.0}])
    """

    def __init__(self, files: TableStorage, snapshot: Snapshot, earlier: TableVersion | None = None) -> None:
        self._at = TableVersion(files, snapshot, earlier)
        self._files = self._at.files

    @property
    def _pinned(self) -> TableVersion:
        return self._at

    @property
    def _history(self) -> TableHistory:
        return TableHistory(self._files, self._at.version)

    def _planned(self, verb: Callable[[TableVersion], Plan | None], how: WriteOptions) -> tuple[Self, Plan | None]:
        early: Callable[[TableVersion], None] | None = getattr(verb, "prepare", None)
        prepare = None if early is None else partial(self._at_head, early)
        done = run(self._files, self._at.snapshot, partial(self._at_head, verb), how, prepare)
        if done.result is not None and AUTO_COMPACT_SETTING in done.snapshot.manifest.head.config:
            compact_after(self._files, done.result)
        return type(self)(self._files, done.snapshot, self._at), done.work

    def _at_head(self, work: Callable[[TableVersion], T], head: Snapshot) -> T:
        """Do some work at the newest version: on this handle, with its open resources, if it is pinned there."""
        is_contended = not self._files.is_managed and self._files.kept(Turns).is_contended()
        if head is self._at.snapshot and not is_contended:
            return work(self._at)
        return work(TableVersion(self._files, head, self._at, is_contended=is_contended))

    def _reindexed(self, plan: Plan, message: str | None) -> Self:
        """Never raises, since the compaction is already committed."""
        names = lost_by(plan, self._at.manifest)
        if not names:
            return self
        try:
            return self.optimize_indices(names, message=message or "indices after a compaction")
        except ConroiError as error:
            _log.warning("%s: rows are missing in %s; run optimize_indices(): %s", self.uri, ", ".join(names), error)
            return self

    def __reduce__(self) -> Reduced:
        """Pickle as an address and a version; the other process opens the table again, with credentials from its
        environment.
        """
        return _reopened, table_address(self._files, self.version)

    # ------------------------------------------------------------------------- which version

    def latest(self) -> Table:
        """The table at its newest version."""
        return Table(self._files.current(), self._files.newest(self._at.snapshot))

    def at(
        self,
        version: int | None = None,
        *,
        tag: str | None = None,
        as_of: datetime | str | None = None,
        keep: Duration | None = None,
    ) -> Table:
        """The table as of a version, a tag, or a time (time travel).

        `keep="1h"` protects the version from garbage collection for this time: `table.lease` can be renewed and
        released.
        """
        past = Table(self._files, self._find(version, tag, as_of))
        past.lease = past._taken(keep)
        return past

    # ------------------------------------------------------------------------- transactions

    def begin(
        self,
        message: str | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        retries: int | None = None,
        strict: bool = False,
        idempotency_key: str | None = None,
        keep: Duration | None = None,
    ) -> TableTransaction:
        """Begin a transaction on this table alone: `with table.begin("load") as tx: tx.append(…); tx.delete(…)`.

        It starts at the newest version and creates one new version. `strict` refuses after any concurrent commit. With
        an `idempotency_key` that was committed before, it is a no-op. `keep="1h"` protects its base version from
        garbage collection for this time, or until the transaction ends.
        """
        self._files.refuse_past()
        with about(self.uri):
            base = self._files.newest(self._at.snapshot)
        transaction = TableTransaction(
            self._files.holding(base),
            base,
            message=message,
            properties=properties,
            retries=retries,
            strict=strict,
            idempotency_key=idempotency_key,
        )
        transaction.hold(Table(self._files, base)._taken(keep))  # noqa: SLF001 (a Table like ourselves)
        return transaction

    def insert(
        self,
        data: Data,
        *,
        chunk_rows: int | None = None,
        wait_s: float | None = None,
        message: str | None = None,
    ) -> Table:
        """Insert rows with consecutive row ids, under the table's insert lock: see lake.insert(). For tables of a
        lake.
        """
        done = insert_into(self._files, data, chunk_rows=chunk_rows, wait_s=wait_s, message=message)
        return Table(self._files, done, self._at)

    # ------------------------------------------------------------------------- whole table

    def migrate_manifest_names(self) -> Table:
        """Rename the manifests of an old table (V1, `7.manifest`) to naming scheme V2.

        There must be no concurrent writers. An interrupted migration is completed by calling this again.
        """
        migrate_manifest_names(self._files)
        return self.latest()

    def doctor(self, *, fix: bool = False, deep: bool = False, progress: Progress | None = None) -> Diagnosis:
        """Check the integrity of the table and report findings; `fix` repairs what is safe.

        For a table in a lake, only what concerns this table. `deep` also reads all rows of all versions.
        """
        with about(self.uri):
            return examine_table(self._files, fix=fix, deep=deep, progress=progress)

    def expire(self, older_than: Duration = OLDER_THAN, *, keep: int = KEEP, dry_run: bool = True) -> Expired:
        """Expire versions that were superseded this long ago; the newest `keep` and tagged ones stay.

        By default it is a dry run. For a standalone table; a lake has lake.expire().
        """
        with about(self.uri):
            return expire_table(self._files, older_than=older_than, keep=keep, dry_run=dry_run)

    def gc(
        self, *, min_age: Duration = MIN_AGE, dry_run: bool = True, progress: Callable[[int], None] | None = None
    ) -> Collected:
        """Garbage collection: delete unreferenced files that are older than this; by default a dry run.

        For a standalone table; a lake has lake.gc().
        """
        with about(self.uri):
            return collect_table(self._files, min_age=min_age, dry_run=dry_run, progress=progress)

    def clone(
        self,
        uri: str | os.PathLike[str],
        *,
        deep: bool = False,
        storage_options: Mapping[str, str] | None = None,
        store: Store | None = None,
        durable: bool = False,
        commit_lock: CommitLock | None = None,
        put: Put = "conditional",
    ) -> Table:
        """A new table with the rows of this version: shallow, sharing its files, or (`deep`) with copies of its own.

        Any table can be cloned deeply: clones, tables on branches, tables with files under other roots. In the folder
        of a lake a deep clone becomes a table of the lake; a shallow one is refused there.
        """
        with about(self.uri):
            target, lake = clone_target(
                uri,
                deep=deep,
                store=store,
                storage_options=storage_options,
                durable=durable,
                commit_lock=commit_lock,
                put=put,
                environment=self._files.environment,
            )
            made = verbs.clone(self._at, target, deep=deep)
        if lake is None:
            return Table(target, made)
        catalog, name, folder = lake
        register(catalog, name, folder)
        return table_of(catalog, name)


def table_of(catalog: Catalog, name: str) -> Table:
    """The table as this lake has just published it. No request is sent: a failure after the commit would look like a
    conflict.
    """
    with about(name):
        row = catalog.row(object_id(name), catalog.known_state())
        return Table(LakeRef(catalog).storage(row), catalog.snapshot(row))


def _reopened(address: LakeAddress, name: str | None, version: int) -> Table:
    """A table that came from another process."""
    return Table(*opened_table(address, name, version))
