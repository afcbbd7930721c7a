"""Table handle of a transaction: opened once, read and changed by any number of statements."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
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
from conroi.errors import InvalidInputError, NotFoundError, about
from conroi.folding import Verb
from conroi.history import Commit, TableHistory
from conroi.maintenance.reports import Duration
from conroi.reader import Reader
from conroi.refusals import IN_TRANSACTION, PAST_IN_TRANSACTION, refuses
from conroi.snapshots.snapshot import Snapshot, TableStorage
from conroi.snapshots.tags import Tags
from conroi.storage.parallel import stays_in_process
from conroi.transaction_tables import Handle
from conroi.verbs.update import Mode
from conroi.writer import Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class StagedHistory(TableHistory):
    """The history of a table in a transaction's snapshot. Under serializable isolation what was read of it counts."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    @property
    def files(self) -> TableStorage:
        return self._handle.past

    def numbers(self) -> list[int]:
        self._handle.look_at_versions()
        return super().numbers()

    def commits(self, limit: int | None, newest: int) -> Iterator[Commit]:
        self._handle.look_at_versions()
        return super().commits(limit, newest)

    def tags(self) -> Tags:
        """The tags of the table in the transaction's snapshot; read-only here."""
        self._handle.life.check_open()
        return self._handle.tags()

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
        if how:
            _check_how(how)
        with about(self._handle.name):
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
