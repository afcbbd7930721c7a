"""Insert locks of a lake: `with lake.insert_lock(name):`, the id of each table's lock, its back end, acquiring it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import threading
from collections.abc import Generator
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from types import TracebackType
from typing import Literal, cast, get_args

from conroi.arguments import checked_calls
from conroi.catalog.catalog import Catalog
from conroi.catalog.names import no_table, shown
from conroi.catalog.participant import PublishRequest
from conroi.catalog.publication import Publishing
from conroi.catalog.rows import Row, new_lock_id
from conroi.catalog.state import CommitMetadata, LakeState
from conroi.errors import InvalidInputError, LocksRequired, RetryableConflict
from conroi.format.on_disk import INSERTS_SETTING, LOCKS_DIR
from conroi.inserts.lock_back_ends import Backend, Cancellation, FileLocks, Held, LockInfo, NoLocks
from conroi.inserts.postgres_locks import PostgresLocks
from conroi.storage.parallel import stays_in_process, this_thread

Mode = Literal["postgresql", "file", "none"]
TEMPORARY = re.compile(r"tmp_[0-9a-f]{32}")
"""Temporary tables of one worker, which are not locked."""


def checked_mode(mode: str) -> Mode:
    """One of the kinds there are."""
    if mode not in get_args(Mode):
        raise InvalidInputError(f"locks={mode!r} are not known.", hint='Give "postgresql", "file" or "none".')
    return cast("Mode", mode)


def checked_address(address: str | None) -> str | None:
    """An address of a PostgreSQL database."""
    if address is not None and not re.match(r"postgres(ql)?://", address):
        raise InvalidInputError(
            "The address of the locks cannot be read.", hint='Write locks="postgresql://user:password@host/database".'
        )
    return address


@dataclass
class Holding:
    """A lock that this worker holds, and its table."""

    held: Held
    row: Row
    mode: Mode
    is_over: bool = field(default=False)
    process: int = field(default_factory=os.getpid)
    """The owning process: a forked child does not hold the lock."""
    owner: object = None
    """The thread or task that took it with insert_lock(); tasks and threads that it starts may insert under it."""

    def confirm(self) -> None:
        """InsertInterrupted if the lock is known to be lost."""
        self.held.confirm()

    def release(self) -> None:
        """Release the lock."""
        self.is_over = True
        self.held.release()


_MINE: ContextVar[dict[tuple[str, str, str | None], Holding]] = ContextVar("conroi_insert_locks")
"""What this thread or task holds, by lake, table and folder (a table has another one on each branch), so that an insert
inside `with lake.insert_lock(…)` does not wait for itself."""


class Locks:
    """The insert locks of one lake, as one connection has them."""

    def __init__(self, catalog: Catalog, address: str | None = None) -> None:
        self._catalog = catalog
        self._address = checked_address(address)
        self.ids = LockIds(catalog)
        self.taken = 0
        """Number of requested locks, of any kind."""
        self._targets: dict[int, str] = {}
        """What was locked by its id: targets of exports, and tables before their creation."""

    @property
    def has_address(self) -> bool:
        """Whether they are in a database that was named when the lake was opened."""
        return self._address is not None

    def beside(self, catalog: Catalog) -> Locks:
        """The locks of a branch of the lake, in the same place."""
        return Locks(catalog, self._address)

    # ------------------------------------------------------------------------ which kind

    def mode(self, state: LakeState) -> Mode:
        """The lake's setting; without one, locks are taken by connections that gave an address."""
        recorded = state.setting(INSERTS_SETTING)
        if recorded is None:
            return "none" if self._address is None else "postgresql"
        return checked_mode(recorded)

    def check_available(self) -> None:
        """LocksRequired if the lake requires locks that this connection cannot take."""
        self._backend(self.mode(self._catalog.state()))

    def _backend(self, mode: Mode) -> Backend:
        if mode == "none":
            return NoLocks()
        return self._files if mode == "file" else self._postgres

    @cached_property
    def _postgres(self) -> PostgresLocks:
        if self._address is None:
            raise LocksRequired(
                "This lake requires insert locks in PostgreSQL, and this connection has no locks.",
                table=self._catalog.uri,
                hint='Connect with conroi.connect(uri, locks="postgresql://…"), as the other workers do.',
            )
        return PostgresLocks(self._address)

    @cached_property
    def _files(self) -> FileLocks:
        root = self._catalog.root
        if not root.is_local or "://" in root.root:
            raise LocksRequired(
                "This lake requires file locks for inserts, and it is not on a local disk.",
                table=self._catalog.uri,
                hint='Use lake.set_locks("postgresql") and connect with locks="postgresql://…".',
            )
        return FileLocks(root.root, LOCKS_DIR, self._catalog.environment)

    # ------------------------------------------------------------------------ one lock

    @contextlib.contextmanager
    def held(self, object_id: str, wait_s: float | None = None) -> Generator[Holding]:
        """Hold the lock of a table; reentrant within this thread or task."""
        mine = self.mine(object_id)
        if mine is not None:
            yield mine
            return
        holding = self.take(object_id, wait_s)
        try:
            yield holding
        finally:
            holding.release()

    def take(self, object_id: str, wait_s: float | None, cancellation: Cancellation | None = None) -> Holding:
        """Acquire the lock of the table that has this name at that time."""
        check_wait(wait_s)
        state = self._catalog.known_state()
        if state.table(object_id) is None:
            state = self._catalog.state()
        while True:
            row, mode = self._catalog.row(object_id, state), self.mode(state)
            if TEMPORARY.fullmatch(object_id):
                mode = "none"
            lock = 0 if mode == "none" else self.ids.of(row)
            self.taken += mode != "none"
            held = self._backend(mode).hold(lock, shown(object_id), wait_s, cancellation or Cancellation())
            try:
                state = self._catalog.state()
                now = self._catalog.row(object_id, state)
                is_right = self.mode(state) in (mode, *_unlocked(object_id)) and self._is_for(now, row, mode, lock)
            except BaseException:
                held.release()
                raise
            if is_right:
                return Holding(held, now, mode)
            held.release()  # dropped and made again while we waited: that table has another lock

    def _is_for(self, now: Row, row: Row, mode: Mode, lock: int) -> bool:
        """Whether the lock that we took for a table is the one of the table that has its name now."""
        is_same = (now.incarnation, now.location) == (row.incarnation, row.location)
        return is_same and (mode == "none" or self.ids.of(now) == lock)

    def hold(self, lock: int, target: str, wait_s: float | None) -> Held:
        """Acquire a lock by its id: of the target of an export, or of a table that the lake does not have yet."""
        check_wait(wait_s)
        mode = self.mode(self._catalog.state())
        self._targets[lock] = target
        self.taken += mode != "none"
        return self._backend(mode).hold(lock, target, wait_s, Cancellation())

    def mine(self, object_id: str) -> Holding | None:
        """The lock of this table, if this thread or task has it."""
        row = self._catalog.known_state().table(object_id)
        holding = None if row is None else _MINE.get({}).get(self._key(row))
        return None if holding is None or holding.is_over or holding.process != os.getpid() else holding

    def remember(self, holding: Holding) -> None:
        """Inserts of this thread or task use this lock until it is released."""
        _MINE.set({**_MINE.get({}), self._key(holding.row): holding})

    def _key(self, row: Row) -> tuple[str, str, str | None]:
        return self._catalog.uri, row.incarnation, row.location

    # ------------------------------------------------------------------------ all of them

    def listing(self) -> list[LockInfo]:
        """Holders and waiters, for all tables of the lake, and for targets that this connection exported to."""
        state = self._catalog.state()
        tables = self._targets | {row.lock: shown(row.object_id) for row in state.tables() if row.lock is not None}
        return self._backend(self.mode(state)).listing(tables)


def _unlocked(object_id: str) -> tuple[Mode, ...]:
    """Temporary tables need no lock."""
    return get_args(Mode) if TEMPORARY.fullmatch(object_id) else ()


def check_wait(wait_s: float | None) -> None:
    """A time to wait for a lock, or None."""
    if wait_s is not None and not 0 <= wait_s <= threading.TIMEOUT_MAX:
        raise InvalidInputError(f"wait_s={wait_s!r} is not a time.", hint="Give seconds; None waits for ever.")


_GUARD = threading.Lock()


def locks_of(catalog: Catalog, address: str | None = None) -> Locks:
    """The locks of a lake, shared by all users of this catalog."""
    with _GUARD:
        if not isinstance(catalog.locks, Locks):
            catalog.locks = Locks(catalog, address)
        return catalog.locks


class LockIds:
    """The lock ids of one lake."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._known: dict[tuple[str, str | None], int] = {}
        self._guard = threading.Lock()
        self.lookups = 0
        """Number of cache misses."""

    def of(self, row: Row) -> int:
        """The lock id of this table; generated if it has none."""
        with self._guard:
            known = self._known.get((row.incarnation, row.location))
        if known is not None and row.lock in (None, known):
            return known
        self.lookups += 1
        found = row.lock
        if found is None:
            found = self._registered(row)
        with self._guard:
            self._known[row.incarnation, row.location] = found
        return found

    def _registered(self, row: Row) -> int:
        """Publish an id for the table, unless it has one; of concurrent callers exactly one succeeds."""
        while True:
            state = self._catalog.state()
            now = state.table(row.object_id)
            if now is None or now.incarnation != row.incarnation:
                raise no_table(row.object_id, state)
            if now.lock is not None:
                return now.lock
            _register(self._catalog, state, [now])

    def backfill(self) -> list[str]:
        """Give every table of the lake without a lock id one, in one publication; returns their names."""
        while True:
            state = self._catalog.state()
            rows = [row for row in state.tables() if row.lock is None]
            if not rows or _register(self._catalog, state, rows):
                return [shown(row.object_id) for row in rows]


def _register(catalog: Catalog, state: LakeState, rows: list[Row]) -> bool:
    notes = CommitMetadata(
        f"lock ids for {', '.join(shown(row.object_id) for row in rows[:5])}{' …' if rows[5:] else ''}"
    )
    amendments = [Registration(row.object_id, row.incarnation, new_lock_id(catalog.environment)) for row in rows]
    try:
        Publishing(catalog, PublishRequest(state, amendments=amendments, notes=notes)).run()
    except RetryableConflict:
        return False
    return True


@dataclass(frozen=True)
class Registration:
    """A lock id for a table that has none at the time of the publication."""

    object_id: str
    incarnation: str
    lock: int

    def check(self, row: Row | None) -> None:
        if row is None or row.incarnation != self.incarnation or row.lock is not None:
            raise RetryableConflict(
                "A concurrent worker was first to give the table its lock id, or it no longer exists.",
                table=shown(self.object_id),
                hint="Look at the table again.",
            )

    def amended(self, row: Row) -> Row:
        return row.with_lock(self.lock)


# ---------------------------------------------------------------------------- lake.insert_lock(name)


@checked_calls
@stays_in_process("An insert lock", "Hand over the lake and call insert_lock() there.")
class InsertLock:
    """Mutual exclusion of workers, over all processes and hosts; inserts inside use this very lock."""

    def __init__(self, locks: Locks, object_id: str, wait_s: float | None) -> None:
        self._locks = locks
        self._object_id = object_id
        self._wait_s = wait_s
        self._holding: Holding | None = None
        self._depth = 0
        """Reentrancy depth within this thread or task."""

    @property
    def is_held(self) -> bool:
        """Whether the lock is held, as far as is known without a request."""
        return self._holding is not None or self._depth > 0

    def confirm(self) -> None:
        """Raise InsertInterrupted if the lock is known to be lost; sends no request."""
        holding = self._holding or self._locks.mine(self._object_id)
        if holding is not None:
            holding.confirm()

    def __enter__(self) -> InsertLock:
        if self._is_mine():
            return self
        self._keep(self._locks.take(self._object_id, self._wait_s))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._depth:
            self._depth -= 1
            return
        holding, self._holding = self._holding, None
        if holding is not None:
            holding.release()

    def _is_mine(self) -> bool:
        """The lock is reentrant for its holder, but not for tasks that the holder started."""
        holding = self._locks.mine(self._object_id)
        is_mine = holding is not None and holding.owner == _here()
        self._depth += is_mine
        return is_mine

    async def __aenter__(self) -> InsertLock:
        if self._is_mine():
            return self
        cancellation = Cancellation()
        taking: Future[Holding] = Future()

        def take() -> None:
            try:
                taking.set_result(self._locks.take(self._object_id, self._wait_s, cancellation))
            except BaseException as error:  # noqa: BLE001 (it is raised where it is waited for)
                taking.set_exception(error)

        # A thread of its own: the loop's executor has few, and the holder might need one of them.
        threading.Thread(target=take, name="conroi-insert-lock", daemon=True).start()
        try:
            self._keep(await asyncio.shield(asyncio.wrap_future(taking)))
        except asyncio.CancelledError:
            taking.add_done_callback(_let_go)
            cancellation.cancel()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def _keep(self, holding: Holding) -> None:
        self._holding, holding.owner = holding, _here()
        self._locks.remember(holding)

    def __repr__(self) -> str:
        return f"InsertLock({shown(self._object_id)!r}, {'held' if self.is_held else 'not held'})"


def _here() -> tuple[object, object]:
    """This thread, and this task if it is one."""
    task = None
    with contextlib.suppress(RuntimeError):  # no loop runs here
        task = asyncio.current_task()
    return this_thread(), task


def _let_go(taking: Future[Holding]) -> None:
    """Release a lock that is acquired after its waiter gave up."""
    with contextlib.suppress(BaseException):
        taking.result().release()
