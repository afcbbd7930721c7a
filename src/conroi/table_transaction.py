"""Single-table transaction: several statements become one version, with or without a lake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType

from conroi.arguments import checked_calls
from conroi.commit.change import Change, checked_texts
from conroi.commit.idempotency import AlreadyCommitted, IdempotencyKey
from conroi.commit.table_commit import commit
from conroi.environment import moment
from conroi.errors import ClosedError, about
from conroi.folding import Statements
from conroi.format.naming import is_detached
from conroi.format.on_disk import COMMIT_MESSAGE_PROPERTY, IDEMPOTENCY_PROPERTY
from conroi.maintenance.auto_compaction import compact_after
from conroi.retry_policy import COMMIT_RETRIES, checked_retries
from conroi.snapshots.snapshot import Snapshot, TableStorage
from conroi.staged_table import StagedTable
from conroi.transaction_tables import Handle, TransactionState, VersionsUpTo
from conroi.versions.retention import Lease


@dataclass(frozen=True, slots=True)
class TableTransactionResult:
    """Result of a transaction on one table."""

    version: int
    """Its new version, or the newest one if it was a no-op."""
    attempts: int = 0
    rebased: tuple[int, ...] = ()
    """The concurrent versions that it was rebased over."""
    was_done_before: bool = False
    """Whether a commit with the same idempotency key already existed."""


@checked_calls
class TableTransaction(StagedTable):
    """A transaction on one table: its statements are committed together or not at all. Made by `table.begin()`.

    Statements that add, delete or change rows fold into one Lance operation. What cannot be one, such as a new column
    and a setting, is refused as soon as it is tried; in a lake, `lake.begin()` can do that too.

    >>> import conroi
    >>> orders = conroi.create_table("memory://begin-example", [{"id": 1, "n": 1}], key="id")
    >>> with orders.begin("two statements") as tx:
    ...     one = tx.append([{"id": 2, "n": 2}])
    ...     two = tx.update({"n": "n * 10"})
    >>> tx.result.version, orders.latest().to_arrow()["n"].to_pylist()
    (2, [10, 20])
    """

    def __init__(
        self,
        files: TableStorage,
        base: Snapshot,
        *,
        message: str | None = None,
        properties: Mapping[str, str] | None = None,
        retries: int | None = None,
        strict: bool = False,
        idempotency_key: str | None = None,
    ) -> None:
        notes = {} if message is None else {COMMIT_MESSAGE_PROPERTY: message}
        self._properties = checked_texts({**(properties or {}), **notes})
        self._retries = COMMIT_RETRIES if retries is None else checked_retries(retries)
        self._strict = strict
        self._life = TransactionState("table.begin()", files.environment.now_ns())
        self._base = base
        self._begun_at = moment(files.environment)
        self._result: TableTransactionResult | None = None
        self._once = None if idempotency_key is None else IdempotencyKey(files, idempotency_key)
        # After the base was read: later commits are checked for conflicts when this one commits.
        self._earlier = None if self._once is None else self._once.done_at()
        self._life.is_done = self._earlier is not None
        # A detached version is in no line of versions that could be bounded.
        known = files.versions
        if not is_detached(base.version):
            known = VersionsUpTo(files.versions, base.version, lambda: base.located)
        statements = Statements(files, base)
        super().__init__(Handle(files.root, files, statements, self._life, lambda: known, must_fold=True))

    def hold(self, lease: Lease | None) -> None:
        """Internal interface of begin(keep=…): a lease that ends with the transaction."""
        self.lease = self._life.lease = lease

    def __enter__(self) -> TableTransaction:
        self._life.check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._life.ended is None:
            self.commit() if kind is None else self.rollback()

    def rollback(self) -> None:
        """Roll back. Files that were written are left to garbage collection."""
        self._life.end("was rolled back")
        self._life.release()

    def commit(self) -> TableTransactionResult:
        """Commit all statements as the table's next version; afterwards the transaction is closed in any case."""
        self._life.end("has committed")
        try:
            with about(self.uri):
                self._result = self._committed(self._handle.close())
        except BaseException:
            self._life.ended = "failed to commit"
            raise
        finally:
            self._life.release()
        return self._result

    def _committed(self, statements: Statements) -> TableTransactionResult:
        if self._earlier is not None:
            return TableTransactionResult(self._earlier, was_done_before=True)
        with self._handle.using_base():
            plan = statements.folded()
        if plan is None:
            return TableTransactionResult(self._base.version)
        change = Change(
            plan,
            self._base,
            uuid=str(self._files.environment.new_uuid()),
            base_is_fresh=not plan.has_reserved,
            properties=self._properties
            if self._once is None
            else {**self._properties, IDEMPOTENCY_PROPERTY: self._once.key},
            is_strict=self._strict,
            begun_at=self._begun_at,
            once=self._once,
        )
        try:
            done = commit(self._files, change, self._retries)
        except AlreadyCommitted as earlier:
            return TableTransactionResult(earlier.version, was_done_before=True)
        if self._once is not None:
            self._once.landed(done.version)
        compact_after(self._files, done)
        return TableTransactionResult(done.version, done.attempts, done.rebased_over)

    @property
    def result(self) -> TableTransactionResult:
        """The result, once it has committed."""
        if self._result is None:
            raise ClosedError(
                f"The transaction {self._life.ended or 'has not committed yet'}, so it has no result.",
                hint="Leave the with block, or call commit(), first.",
            )
        return self._result

    @property
    def is_done(self) -> bool:
        """Whether its idempotency key was committed before it began: then its statements do nothing."""
        return self._life.is_done

    def __repr__(self) -> str:
        return f"TableTransaction({self.uri!r}, version={self._base.version}, {self._life.ended or 'open'})"
