"""Table handle of a transaction: opened once, read and changed by any number of statements."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Self, Unpack

from conroi.arguments import checked_calls
from conroi.commit.change import Plan
from conroi.commit.execution import WriteOptions
from conroi.data.predicates import Predicate
from conroi.data.scans import Base, Scan
from conroi.data.sql import Params
from conroi.data.table_version import TableVersion
from conroi.environment import LONG_AGO, Moment
from conroi.errors import ClosedError, ConroiError, InvalidInputError, NotFoundError, UnsupportedError, about
from conroi.folding import Statements, Verb
from conroi.format.fields import key_columns
from conroi.format.naming import ManifestNaming, is_detached
from conroi.history import Commit, TableHistory
from conroi.maintenance.reports import Duration
from conroi.reader import Reader
from conroi.refusals import IN_TRANSACTION, PAST_IN_TRANSACTION, refuses
from conroi.snapshots.snapshot import Snapshot
from conroi.snapshots.table_storage import TableStorage, version_in_use
from conroi.snapshots.tags import Tags, TagsAtBeginning
from conroi.storage.parallel import stays_in_process
from conroi.verbs import Appending
from conroi.verbs.update import Mode
from conroi.versions.folder import ManifestRef, VersionStore
from conroi.versions.leases import Lease
from conroi.writer import Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
        self._lock = threading.Lock()

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
        *,
        versions: VersionStore | None = None,
        must_fold: bool = False,
    ) -> None:
        self.name = name
        self.files = files
        self.statements = statements
        self.life = life
        self._must_fold = must_fold
        self.past = files if versions is None else replace(files, versions=versions)
        """The storage with the versions of the transaction's snapshot."""
        base = 0 if statements.base is None else statements.base.version
        self.tags = TagsAtBeginning(self.past, base, life.began_ns)
        self.is_read = False
        """Whether anything but its columns was read."""
        self.is_version_read = False
        """Whether anything was read that a compaction or a new index changes as well."""
        self._pinned_at: tuple[Snapshot, TableVersion] | None = None
        self._lock = threading.RLock()

    def pinned(self) -> TableVersion:
        """What the next statement sees."""
        with self._lock:
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
                if plan is None or self._still_fits(before):
                    return self._add(plan)
        with self._lock:
            if not is_append:  # it looks for rows; new keys are looked up again when the transaction commits
                self.is_read = True
            with self.using_base():
                plan = verb(self.pinned())
            return self._add(plan)

    def using_base(self) -> AbstractContextManager[None]:
        """Context manager around reads: BaseVersionExpired if the base version was collected meanwhile."""
        return version_in_use(self.files.objects, self.statements.base, is_base=True)

    def _pinned_for_append(self, statements: Statements) -> TableVersion:
        """The columns that an append needs: those of the base, while only rows have changed."""
        if statements.base is None or not statements.has_fields_of_base:
            return self.pinned()
        pinned_at = self._pinned_at
        if pinned_at is None or pinned_at[0] is not statements.base:
            pinned_at = self._pinned_at = (statements.base, TableVersion(self.files, statements.base))
        return pinned_at[1]

    def _still_fits(self, before: Statements) -> bool:
        return self.statements is before or self.statements.fields == before.fields

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
            return self.statements


class StagedHistory(TableHistory):
    """The history of a table in a transaction's snapshot. Under serializable isolation what was read of it counts."""

    def __init__(self, handle: Handle) -> None:
        base = handle.statements.base
        super().__init__(handle.past, 0 if base is None else base.version)
        self._handle = handle

    def numbers(self) -> list[int]:
        self._handle.look_at_versions()
        return super().numbers()

    def commits(self, limit: int | None, newest: int) -> Iterator[Commit]:
        self._handle.look_at_versions()
        return super().commits(limit, newest)

    def tags(self) -> Tags:
        """The tags of the table in the transaction's snapshot; read-only here."""
        self._handle.life.check_open()
        return self._handle.tags

    def find(self, version: int | None, tag: str | None, as_of: datetime | str | None) -> Snapshot:
        self._handle.life.check_open()
        if version is None and tag is not None and as_of is None:
            version, tag = self.tags().get(tag).version, None
        elif version is None:
            self._handle.look_at_versions()
        try:
            return super().find(version, tag, as_of)
        except NotFoundError:
            self._handle.look_at_versions()
            raise


@checked_calls
@refuses(IN_TRANSACTION)
@stays_in_process("A table inside a transaction", "Pickle lake[name], or hand over table.to_arrow().")
class StagedTable(Writer):
    """A table inside a transaction: reads see the transaction's own changes, and verbs stage changes."""

    def __init__(self, handle: Handle) -> None:
        self._files = handle.files
        self._handle = handle

    @property
    def _pinned(self) -> TableVersion:
        """What the next statement sees; counts as a read."""
        self._handle.life.check_open()
        self._handle.is_read = True
        return self._handle.pinned()

    @property
    def _history(self) -> StagedHistory:
        return StagedHistory(self._handle)

    def _version_read(self) -> None:
        self._handle.look_at_versions()

    @property
    def scan(self) -> Scan:
        """The lower layer of streams and lazy scans: what the next statement sees, for a reader that opens it later."""
        handle, pinned = self._handle, self._pinned
        return Scan(pinned, Base(handle.files.objects, handle.statements.base, handle.life.check_open))

    @contextmanager
    def _reading(self) -> Generator[None]:
        with self._handle.using_base(), super()._reading():
            yield

    @property
    def name(self) -> str:
        """The name of the table."""
        return self._handle.name

    def at(
        self,
        version: int | None = None,
        *,
        tag: str | None = None,
        as_of: datetime | str | None = None,
        keep: Duration | None = None,
    ) -> PastTable:
        """The table at a version of the transaction's snapshot, read-only."""
        return PastTable(self._handle, self._find(version, tag, as_of), keep)

    def update(
        self,
        values: Mapping[str, object],
        where: Predicate | None = None,
        *,
        params: Params | None = None,
        mode: Mode = "auto",
        spark: SparkSession | None = None,
        **how: Unpack[WriteOptions],
    ) -> Self:
        """As Table.update(); here "auto" means "rows", which folds with other row changes into one Lance operation."""
        return super().update(values, where, params=params, mode="rows" if mode == "auto" else mode, spark=spark, **how)

    def do(self, verb: Verb) -> Plan | None:
        """Internal interface of merges: any statement."""
        return self._planned(verb, {})[1]

    def _planned(self, verb: Verb, how: WriteOptions) -> tuple[Self, Plan | None]:
        self._handle.life.check_open()
        _check_how(how)
        with about(self.name):
            return self, self._handle.stage(_Strict(verb) if how.get("strict") else verb)

    def _reindexed(self, plan: Plan, message: str | None) -> Self:  # noqa: ARG002
        return self  # nothing is committed yet


class TransactionTable(StagedTable):
    """One table of a multi-table transaction: `tx[name]`."""

    def __repr__(self) -> str:
        self._handle.is_version_read = True
        base = self._handle.statements.base
        return f"TransactionTable({self.name!r}, {'new' if base is None else f'version={base.version}'})"


@checked_calls
@refuses(PAST_IN_TRANSACTION)
@stays_in_process("A table inside a transaction", "Pickle lake[name], or hand over table.to_arrow().")
class PastTable(Reader):
    """A past version of a table inside a transaction: read-only."""

    def __init__(self, handle: Handle, snapshot: Snapshot, keep: Duration | None) -> None:
        self._at = TableVersion(handle.files, snapshot)
        self._files = self._at.files
        self._handle = handle
        self.lease = self._taken(keep)

    @property
    def _pinned(self) -> TableVersion:
        return self._at

    @property
    def _history(self) -> StagedHistory:
        return StagedHistory(self._handle)

    def at(
        self,
        version: int | None = None,
        *,
        tag: str | None = None,
        as_of: datetime | str | None = None,
        keep: Duration | None = None,
    ) -> PastTable:
        """The table at another version of the transaction's snapshot, read-only."""
        return PastTable(self._handle, self._find(version, tag, as_of), keep)


def _check_how(how: WriteOptions) -> None:
    refused = sorted(set(how) - {"strict"})
    if refused:
        raise InvalidInputError(
            f"{', '.join(refused)} cannot be given to a statement inside a transaction.",
            hint="Give it to begin(), where the transaction starts.",
        )


class _Strict:
    """A verb that conflicts with any concurrent commit to its table."""

    def __init__(self, verb: Verb) -> None:
        self._verb = verb

    def __call__(self, at: TableVersion) -> Plan | None:
        plan = self._verb(at)
        return None if plan is None else replace(plan, must_not_move=True)
