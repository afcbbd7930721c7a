"""Tables of a transaction: names, a handle with the statements on each that was opened, the write set, the read set.

The read set is what serializable isolation checks at the commit: the tables that were read, and the names that were
looked up, found or not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import cached_property, partial

from conroi.catalog.catalog import Catalog
from conroi.catalog.names import Named, Names, no_table, parents, shown
from conroi.catalog.participant import TableChange
from conroi.catalog.preconditions import Expectation, ListingExpectation, TagsExpectation
from conroi.catalog.rows import Row
from conroi.catalog.state import LakeState
from conroi.catalog.tables import LakeTableStorage, table_files
from conroi.commit.change import Change, Plan
from conroi.data.table_version import TableVersion
from conroi.environment import LONG_AGO, Moment
from conroi.errors import AlreadyExistsError, ClosedError, ConroiError, NotFoundError, UnsupportedError, about
from conroi.folding import Statements, Verb
from conroi.format.fields import key_columns
from conroi.format.naming import ManifestNaming, is_detached
from conroi.snapshots.snapshot import Snapshot, TableStorage, version_in_use
from conroi.snapshots.tags import TagsAtBeginning
from conroi.storage.parallel import ProcessLock, Running
from conroi.verbs import Appending
from conroi.versions.folder import ManifestRef, VersionStore
from conroi.versions.retention import Lease


class TransactionState:
    """State of a transaction: open or ended, and how; shared with its tables."""

    def __init__(self, begin: str, began_ns: int) -> None:
        self.ended: str | None = None
        self.began_ns = began_ns
        self.is_done = False
        """Whether its idempotency key was published before, so that it is a no-op."""
        self.lease: Lease | None = None
        """Lease on the base version."""
        self._begin = begin
        self._lock = ProcessLock()

    def end(self, how: str) -> None:
        """End it; only the first call succeeds."""
        with self._lock:
            self.check_open()
            self.ended = how

    def release(self) -> None:
        """Release the base version. Best effort: the lease expires by itself."""
        if self.lease is not None:
            with suppress(ConroiError):
                self.lease.release()

    def check_open(self) -> None:
        """ClosedError if the transaction has ended."""
        if self.ended is not None:
            raise ClosedError(
                f"The transaction {self.ended}; it and its tables cannot be used any more.",
                hint=f"Begin a new one with {self._begin}.",
            )


class VersionsUpTo:
    """The versions of a table up to its base version: the history visible in a transaction's snapshot."""

    def __init__(self, inner: VersionStore, version: int, newest: Callable[[], ManifestRef] | None) -> None:
        self._inner = inner
        self._version = version
        self._newest = newest
        """The location of the newest of them; None for a table that has none yet."""

    def latest(self) -> ManifestRef | None:
        return None if self._newest is None else self._newest()

    def locate(self, version: int) -> ManifestRef | None:
        if self._newest is None or version == self._version:
            return self.latest()
        return self._inner.locate(version) if version < self._version or is_detached(version) else None

    def all(self) -> list[ManifestRef]:
        newest = self.latest()
        if newest is None:
            return []
        return [*(each for each in self._inner.all() if each.version < newest.version), newest]

    def require_conditions(self, path: str, data: bytes) -> None:
        self._inner.require_conditions(path, data)

    def put(self, version: int, naming: ManifestNaming, data: bytes) -> ManifestRef:  # noqa: ARG002
        raise AssertionError("nothing is put inside a transaction")

    def confirm(self, located: ManifestRef, since: Moment) -> None:  # noqa: ARG002
        raise AssertionError("nothing is put inside a transaction")

    def saw(self, located: ManifestRef, at: Moment = LONG_AGO) -> None:
        """No-op: newer versions are not visible here."""


class Handle:
    """One table of a transaction: opened once, whatever the number of statements and threads."""

    def __init__(
        self,
        name: str,
        files: TableStorage,
        statements: Statements,
        life: TransactionState,
        versions: Callable[[], VersionStore],
        *,
        must_fold: bool = False,
    ) -> None:
        self.name = name
        self.files = files
        self.statements = statements
        self.life = life
        self.base_version = 0 if statements.base is None else statements.base.version
        self._versions = versions
        self._must_fold = must_fold
        self.tags_seen: TagsAtBeginning | None = None
        """The tags of the transaction's snapshot, once they were looked at."""
        self.is_read = False
        """Whether anything but its columns was read."""
        self.is_version_read = False
        """Whether anything was read that a compaction or a new index changes as well."""
        self._pinned_at: tuple[Snapshot, TableVersion] | None = None
        self._for_append: tuple[Snapshot, TableVersion] | None = None
        """The base as appends have it, whose files may be completed in the background."""
        self._closing: list[Running[None]] = []
        """Data files of appends that are being completed in the background."""
        self._lock = ProcessLock()

    @cached_property
    def past(self) -> TableStorage:
        """The storage with the versions of the transaction's snapshot."""
        return replace(self.files, versions=self._versions())

    def tags(self) -> TagsAtBeginning:
        """The tags of the table in the transaction's snapshot; read-only."""
        with self._lock:
            if self.tags_seen is None:
                self.tags_seen = TagsAtBeginning(self.past, self.base_version, self.life.began_ns)
            return self.tags_seen

    def pinned(self) -> TableVersion:
        """What the next statement sees."""
        with self._lock:
            self._complete()
            current = self.statements.current
            if self._pinned_at is None or self._pinned_at[0] is not current:
                self._pinned_at = (current, TableVersion(self.files, current, private=self.statements.session))
            return self._pinned_at[1]

    def stage(self, verb: Verb) -> Plan | None:
        """Execute a statement and stage its result; serialized between threads, except while rows are only written."""
        if self.life.is_done:
            return None
        is_append = isinstance(verb, Appending) and verb.adds_only_rows
        before = self.statements
        if is_append and not key_columns(before.fields):
            with self.using_base():
                plan = verb(self._pinned_for_append(before))
            with self._lock:
                if plan is None or self.statements is before or self.statements.fields == before.fields:
                    return self._add(plan)
        with self._lock:
            if not is_append:  # it looks for rows; new keys are looked up again when the transaction commits
                self.is_read = True
            with self.using_base():
                plan = verb(self.pinned())
            return self._add(plan)

    def using_base(self) -> AbstractContextManager[None]:
        """Context manager around reads: RetryableConflict if the base version, or what is staged, was collected
        meanwhile.
        """
        at = self.statements

        def staged() -> Snapshot | None:
            self._complete()
            return at.current if at.plans else None

        return version_in_use(self.files.objects, at.base, is_base=True, staged=staged)

    def _pinned_for_append(self, statements: Statements) -> TableVersion:
        """The columns that an append needs: those of the base, while only rows have changed."""
        if statements.base is None or not statements.has_fields_of_base:
            return self.pinned()
        if self._for_append is None or self._for_append[0] is not statements.base:
            version = TableVersion(self.files, statements.base, closing=self._closing)
            self._for_append = (statements.base, version)
        return self._for_append[1]

    def _complete(self) -> None:
        """Wait for the files that are being completed; raises what went wrong with one, whenever it is asked."""
        with self._lock:
            while self._closing:
                self._closing[0].result()
                self._closing.pop(0)

    def _add(self, plan: Plan | None) -> Plan | None:
        self.life.check_open()
        if plan is not None:
            after = self.statements.then(plan)
            if self._must_fold and not after.is_one_operation:
                raise UnsupportedError(
                    f"{plan.staged.operation.name} cannot become one version with the statements before it: Lance has "
                    "no operation for that.",
                    table=self.name,
                    hint="Commit what there is and do this in a transaction of its own; or use a lake, where "
                    "lake.begin() can do both.",
                )
            self.statements = after
        return plan

    def look_at_versions(self) -> None:
        """Under serializable isolation no version may be committed until the transaction is."""
        self.life.check_open()
        self.is_version_read = True

    def close(self) -> Statements:
        """All statements, at the end of the transaction: no more can be added."""
        with self._lock:
            self._complete()
            return self.statements


class TransactionTables:
    """The tables of a transaction, by their current names."""

    def __init__(self, catalog: Catalog, base: LakeState, life: TransactionState, lock: ProcessLock) -> None:
        self.names = Names(base)
        self.handles: dict[str, Handle] = {}
        """Those that were opened, by the current name of the table."""
        self._catalog = catalog
        self._base = base
        self._life = life
        self._lock = lock
        self._opening: dict[str, ProcessLock] = {}
        self._reads: dict[str, Expectation] = {}
        """Of tables that were read and then dropped, and of those that have no version yet."""
        self._dropped: list[Handle] = []
        self._present: set[str] = set()
        """Names of the snapshot that were looked up and found."""
        self._missed: set[str] = set()
        """Names that were looked up and not found."""
        self._is_listed = False

    # ------------------------------------------------------------------------ looking up

    def find(self, key: str) -> Named | None:
        """The table of this name; the result, found or not, is part of the read set."""
        named = self.names.get(key)
        (self._missed if named is None else self._present).add(key)
        return named

    def list(self) -> list[str]:
        """All names, which are part of the read set."""
        self._is_listed = True
        return self.names.all()

    def check_free(self, key: str) -> None:
        """AlreadyExistsError if the name cannot be given to a table; counts as a read."""
        try:
            self.names.check_free(key)
        except AlreadyExistsError:
            self._present |= {each for each in (key, *parents(key)) if self.names.get(each) is not None}
            raise

    def note_missing(self, key: str) -> None:
        """A name that is to go: that it is there is checked anyway when the transaction commits."""
        if self.names.get(key) is None:
            self._missed.add(key)

    # ------------------------------------------------------------------------ opening

    def open(self, key: str) -> Handle:
        """Opened once; a failed opening is not cached."""
        with self._lock:
            self._life.check_open()
            found = self.handles.get(key)
            if found is not None:
                return found
            named = self.find(key)
            if named is None:
                raise no_table(key, self._base)
            row = named.row
            opening = self._opening.setdefault(key, ProcessLock())
        with opening:
            with self._lock:
                if key in self.handles:
                    return self.handles[key]
            objects = self._catalog.objects_of(row)
            try:
                with about(shown(key)), version_in_use(objects, None, is_base=True):
                    snapshot = self._catalog.snapshot(row)
            except NotFoundError:
                self._unwritten(key, row)
                raise
            files = table_files(self._catalog, row)
            handle = self._new_handle(row, files, Statements(files, snapshot))
            with self._lock:
                self._life.check_open()
                return self.handles.setdefault(key, handle)

    def _new_handle(self, row: Row, files: LakeTableStorage, statements: Statements) -> Handle:
        def versions() -> VersionStore:
            base = statements.base
            newest = None if base is None else partial(self._catalog.located, row)
            return VersionsUpTo(self._catalog.folder_of(row), 0 if base is None else base.version, newest)

        return Handle(shown(row.object_id), files, statements, self._life, versions)

    def _unwritten(self, key: str, row: Row) -> None:
        """A declared table without versions was read: it must still have none at the commit."""
        if row.pin is None:
            with self._lock:
                self._reads[key] = Expectation(key, 0, row.incarnation, is_explicit=False)

    # ------------------------------------------------------------------------ creating, renaming, dropping

    def add(self, row: Row, files: LakeTableStorage, first: Plan, name: Callable[[Names, Row], None]) -> None:
        """A table that begins with this plan; `name` puts its row among the names."""
        statements = Statements(files, None).then(first)
        with self._lock:
            self._life.check_open()
            name(self.names, row)
            self.handles[row.object_id] = self._new_handle(row, files, statements)

    def remove(self, key: str) -> None:
        """A dropped table stays in the read set, if it was read."""
        with self._lock:
            self._life.check_open()
            read = self._read_expectation(key)
            self.note_missing(key)
            self.names.forget(key)
            handle = self.handles.pop(key, None)
            if read is not None:
                self._reads[read.object_id] = read
            if handle is not None:
                self._dropped.append(handle)

    def rename(self, key: str, wanted: str) -> None:
        """A table that is open keeps its statements."""
        with self._lock:
            self._life.check_open()
            self.note_missing(key)
            if self.names.get(key) is not None:
                self.check_free(wanted)
            self.names.rename(key, wanted)
            handle = self.handles.pop(key, None)
            if handle is not None:
                handle.name = shown(wanted)
                self.handles[wanted] = handle

    def arrange(self, moves: Mapping[str, str | None]) -> None:
        """New names of tables by their old ones, None for those dropped, all at once; before any table is opened."""
        with self._lock:
            self._life.check_open()
            assert not self.handles, "a table was opened under its old name"
            self.names.arrange(moves)

    # ------------------------------------------------------------------------ the write set

    def changes(self, properties: Mapping[str, str], begun_at: Moment) -> dict[str, TableChange]:
        """One change for each table with statements, by name; no statement can be added any more."""
        found: dict[str, TableChange] = {}
        for key, handle in self.handles.items():
            with about(shown(key)), handle.using_base():
                statements = handle.close()
                plan = statements.folded()
            if plan is None:
                continue
            uuid = str(self._catalog.environment.new_uuid())
            change = Change(
                plan,
                statements.base,
                uuid=uuid,
                uuid_is_fresh=True,
                base_is_fresh=statements.base is not None and not plan.has_reserved,
                properties=properties,
                begun_at=begun_at,
            )
            named = self.names.get(key)
            assert named is not None, "a table that was dropped has no handle"
            found[key] = TableChange(key, named.was, handle.files, change, named.row)
        return found

    # ------------------------------------------------------------------------ the read set

    def expectations(self) -> list[Expectation]:
        """Every table that was read, and every name that was looked up, found or not."""
        found = dict(self._reads)
        opened: set[str] = set()
        for key in self.handles:
            read = self._read_expectation(key)
            if read is not None:
                found[read.object_id] = read
                opened.add(read.object_id)
        present = [self._presence(key) for key in sorted(self._present - opened) if self._base.table(key) is not None]
        absent = [key for key in sorted(self._missed) if self._base.table(key) is None]
        return [*found.values(), *present, *(Expectation(key, 0, is_explicit=False) for key in absent)]

    def _presence(self, key: str) -> Expectation:
        """That the lake has a table of this name."""
        row = self._base.table(key)
        version = 1 if row is None or row.pin is None else row.pin.version
        return Expectation(key, version, is_explicit=False, is_presence=True)

    def _read_expectation(self, key: str) -> Expectation | None:
        """That a table which was opened still exists, and is unchanged as far as it was read."""
        handle, named = self.handles.get(key), self.names.get(key)
        if handle is None or named is None or named.was is None:
            return None
        base = handle.statements.base
        assert base is not None, "only a table that is made here has no base"
        return Expectation(
            named.was,
            base.version,
            named.row.incarnation,
            is_explicit=False,
            allows_maintenance=not handle.is_version_read,
            is_presence=not (handle.is_read or handle.is_version_read),
            seen=named.row,
        )

    def tags_expectations(self) -> list[TagsExpectation]:
        """The tags of every table of which they were read."""
        handles = (*self.handles.values(), *self._dropped)
        looked = [(handle, handle.tags_seen.seen) for handle in handles if handle.tags_seen is not None]
        return [TagsExpectation(handle.name, handle.files, tuple(seen)) for handle, seen in looked if seen is not None]

    def listing(self) -> ListingExpectation | None:
        """The names of all tables, if they were listed."""
        return ListingExpectation(frozenset(row.object_id for row in self._base.tables())) if self._is_listed else None
