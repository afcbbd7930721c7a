"""Lake methods for maintenance: retention and garbage collection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conroi.arguments import checked_calls
from conroi.commit.expiry import expired
from conroi.commit.files import TableFiles
from conroi.commit.forked import holder_of
from conroi.errors import NotFoundError
from conroi.maintenance.collecting import MIN_AGE
from conroi.maintenance.durations import Duration, lease_seconds
from conroi.maintenance.expiring import KEEP, OLDER_THAN
from conroi.maintenance.reports import Collected, Expired
from conroi.maintenance.versions import live_leases
from conroi.stores.leases import Lease, LeaseInfo
from conroi.stores.objects import Objects

if TYPE_CHECKING:
    from collections.abc import Callable

    from conroi.catalog.catalog import Catalog


@checked_calls
class LakeUpkeep:
    """Forgetting and collecting."""

    _catalog: Catalog
    _manifest: TableFiles | None

    if TYPE_CHECKING:

        def _refuse_pinned(self) -> None: ...

    def _leased(self, version: int, keep: Duration | None) -> Lease | None:
        """A lease on a version of the lake for so long."""
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
        """Where leases are: beside the list of the branch, or in the lake's folder if a store has the history."""
        return self._catalog.root if self._manifest is None else self._manifest.objects

    def leases(self) -> list[LeaseInfo]:
        """The leases on versions of the lake that have not ended, by the storage's own clock.

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
        """Forget versions of the lake that others followed so long ago, and versions of tables that only they had.

        The newest `keep`, tagged ones and what branches need stay. By default it only says what it would do.
        `progress` is called with the number of tables looked at. See docs/maintenance.md.
        """
        from conroi.maintenance.lake_expiring import expire_lake

        self._refuse_pinned()
        return expire_lake(self._catalog, older_than=older_than, keep=keep, dry_run=dry_run, progress=progress)

    def gc(
        self,
        *,
        min_age: Duration = MIN_AGE,
        dry_run: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> Collected:
        """Delete files that no version refers to any more and that are older than this.

        What running writers have staged is safe if it is younger; a writer that takes longer finds out before it
        commits, and does its work again. `progress` is called with the number of folders looked at.
        """
        from conroi.maintenance.lake_collecting import collect_lake

        self._refuse_pinned()
        return collect_lake(self._catalog, min_age=min_age, dry_run=dry_run, progress=progress)
