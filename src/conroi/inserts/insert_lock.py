"""Public insert lock: `with lake.insert_lock(name):`, and `async with`."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import Future
from types import TracebackType

from conroi.arguments import checked_calls
from conroi.catalog.names import shown
from conroi.inserts.insert_locks import Holding, Locks
from conroi.inserts.lock_back_ends import Cancellation
from conroi.storage.parallel import stays_in_process


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


def _here() -> tuple[int, object]:
    """This thread, and this task if it is one."""
    task = None
    with contextlib.suppress(RuntimeError):  # no loop runs here
        task = asyncio.current_task()
    return threading.get_ident(), task


def _let_go(taking: Future[Holding]) -> None:
    """Release a lock that is acquired after its waiter gave up."""
    with contextlib.suppress(BaseException):
        taking.result().release()
