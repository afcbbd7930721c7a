"""Lake methods that insert, each under the insert lock of its table."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from conroi.arguments import checked_calls
from conroi.catalog.catalog import Catalog
from conroi.catalog.names import object_id
from conroi.catalog.publication import Publishing, PublishRequest
from conroi.catalog.rows import Row
from conroi.catalog.state import SETTINGS, CommitMetadata
from conroi.data.incoming import is_one_shot, to_reader
from conroi.data.remote_rows import from_elsewhere
from conroi.data.scans import Scan
from conroi.data.table_version import TableVersion
from conroi.errors import AlreadyExistsError
from conroi.insertion import Insert, Remains, insert
from conroi.inserts import InsertLock, LockInfo, Mode, locks_of
from conroi.inserts.insert_locks import SETTING, checked_mode
from conroi.snapshots.table_storage import TableStorage
from conroi.table import Table

if TYPE_CHECKING:
    from conroi.data.incoming import Data
    from conroi.lake import Lake


@checked_calls
class LakeInserts:
    """Inserts of a lake, and their locks."""

    _catalog: Catalog
    _manifest: TableStorage | None

    if TYPE_CHECKING:

        def _published(self, name: str) -> Table: ...
        def __contains__(self, name: str) -> bool: ...
        def _refuse_pinned(self) -> None: ...

    def insert(
        self,
        name: str,
        data: Data,
        *,
        chunk_rows: int | None = None,
        wait_s: float | None = None,
        message: str | None = None,
        remains: Remains = "remove",
    ) -> Table:
        """Insert rows with consecutive row ids, in one commit or, with `chunk_rows`, in pieces of at most this many
        rows.

        The rows of a Spark DataFrame are written by executors, in one job.

        `wait_s` is the timeout of the insert lock in seconds, where the lake has locks. The partial insert of a crashed
        worker is removed first; `remains="keep"` keeps it.
        """
        return self.concat(name, [data], chunk_rows=chunk_rows, wait_s=wait_s, message=message, remains=remains)

    def concat(
        self,
        name: str,
        sources: Sequence[Data],
        *,
        chunk_rows: int | None = None,
        wait_s: float | None = None,
        message: str | None = None,
        remains: Remains = "remove",
    ) -> Table:
        """Insert the rows of several sources, in this order, with consecutive row ids."""
        self._refuse_pinned()
        insert(self._catalog, object_id(name), Insert(list(sources), chunk_rows, wait_s, message, remains))
        return self._published(name)

    def write(
        self,
        name: str,
        data: Data,
        *,
        key: str | Sequence[str] | None = None,
        chunk_rows: int | None = None,
        wait_s: float | None = None,
        message: str | None = None,
        remains: Remains = "remove",
    ) -> Table:
        """Insert into the table of this name; one that does not exist is created with these rows, with stable row ids.

        A new table and its rows are one commit. With `chunk_rows` the table is created first; it stays, empty, if the
        rows then turn out to be unreadable.
        """
        self._refuse_pinned()
        Insert([], chunk_rows, wait_s, message, remains)  # refused before the table is created
        rows: Any = data
        if name not in self:
            locks_of(self._catalog).check_available()
            if chunk_rows is None:
                rows = self._create_with(name, data, key, wait_s, message)
                if rows is None:
                    return self._published(name)
            else:
                rows = from_elsewhere(data) or to_reader(data)
                with contextlib.suppress(AlreadyExistsError):  # created concurrently by another worker
                    cast("Lake", self).create_table(name, rows.schema, key=key, stable_row_ids=True)
        return self.insert(name, rows, chunk_rows=chunk_rows, wait_s=wait_s, message=message, remains=remains)

    def _create_with(
        self, name: str, rows: Any, key: str | Sequence[str] | None, wait_s: float | None, message: str | None
    ) -> Any:
        """Create a table with its rows, in one commit, under the lock of the new table.

        Returns None; or, if a concurrent worker created the table first, the rows again: those of a consumed stream are
        read from the files that were written for the table.
        """
        written: TableVersion | None = None
        try:
            with contextlib.ExitStack() as stack, cast("Lake", self).begin(message or f"insert into {name}") as tx:
                written = tx.create_table(name, rows, key=key, stable_row_ids=True).scan.pinned
                lock = tx.row_of(name).lock
                assert lock is not None, "a new row has a lock id"
                stack.callback(locks_of(self._catalog).hold(lock, name, wait_s).release)
        except AlreadyExistsError:
            return rows if written is None or not is_one_shot(rows) else Scan(written).stored_rows()
        return None

    # ------------------------------------------------------------------------ locks

    def insert_lock(self, name: str, *, wait_s: float | None = None) -> InsertLock:
        """The insert lock of a table: `with lake.insert_lock("orders"):`, or `async with`."""
        self._refuse_pinned()
        return InsertLock(locks_of(self._catalog), object_id(name), wait_s)

    def locks(self) -> list[LockInfo]:
        """The holders of insert locks of this lake, and the workers that wait for them."""
        return locks_of(self._catalog).listing()

    def set_locks(self, mode: Mode) -> None:
        """Set the kind of insert locks of the lake: "postgresql", "file" (one machine) or "none"."""
        self._refuse_pinned()
        checked_mode(mode)
        if self._manifest is not None:
            Table(self._manifest, self._manifest.head()).set_config({SETTING: mode}, message=f"locks: {mode}")
            self._catalog.state()
            return
        state = self._catalog.state()
        row = state.rows.get(SETTINGS) or Row(SETTINGS, "settings")
        rows = {SETTINGS: row.with_notes({SETTING: mode})}
        Publishing(self._catalog, PublishRequest(state, rows=rows, notes=CommitMetadata(f"locks: {mode}"))).run()
