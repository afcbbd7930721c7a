"""Lake methods for maintenance: retention and garbage collection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conroi.arguments import checked_calls
from conroi.errors import NotFoundError
from conroi.maintenance.collection import MIN_AGE
from conroi.maintenance.expiry import KEEP, OLDER_THAN, live_leases
from conroi.maintenance.reports import Collected, Duration, Expired, lease_seconds
from conroi.snapshots.branch_storage import holder_of
from conroi.snapshots.table_storage import TableStorage, expired
from conroi.storage.objects import Objects
from conroi.versions.leases import Lease, LeaseInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from conroi.catalog.catalog import Catalog


@checked_calls
class LakeUpkeep:
    """Retention and garbage collection of a lake."""

    _catalog: Catalog
    _manifest: TableStorage | None

    if TYPE_CHECKING:

        def _refuse_pinned(self) -> None: ...

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

    def expire(
        self,
        older_than: Duration = OLDER_THAN,
        *,
        keep: int = KEEP,
        dry_run: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> Expired:
        """Expire versions of the lake that were superseded this long ago, and table versions that only they pin.

        The newest `keep`, tagged ones and what branches need stay. By default it is a dry run. `progress` is called
        with the number of tables processed. See docs/maintenance.md.
        """
        from conroi.maintenance.lake_expiry import expire_lake

        self._refuse_pinned()
        return expire_lake(self._catalog, older_than=older_than, keep=keep, dry_run=dry_run, progress=progress)

    def gc(
        self,
        *,
        min_age: Duration = MIN_AGE,
        dry_run: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> Collected:
        """Garbage collection: delete unreferenced files that are older than this.

        Files staged by running writers are safe while they are younger; a writer that takes longer detects the deletion
        before it commits, and repeats its work. `progress` is called with the number of folders processed.
        """
        from conroi.maintenance.lake_collection import collect_lake

        self._refuse_pinned()
        return collect_lake(self._catalog, min_age=min_age, dry_run=dry_run, progress=progress)
