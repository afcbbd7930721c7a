"""Simulated insert locks: a lock server, as PostgreSQL is one, to which each client has one session.

A lock belongs to a session. The server ends the session of a client that crashed, and of one that stood still for
longer than `KEPT_S`; its locks are free then, and the client learns of it with its next request to the server, not
before. Then the fence of an insert must prevent that two runs of rows mix.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conroi.catalog.catalog import Catalog
from conroi.catalog.state import LakeState
from conroi.errors import LockTimeout
from conroi.inserts.insert_locks import Locks, Mode
from conroi.inserts.lock_back_ends import Cancellation, LockInfo

if TYPE_CHECKING:
    from conroi.testing.simulation.scheduler import Client
    from conroi.testing.simulation.world import World

KEPT_S = 60.0
"""The server ends the session of a client that it did not hear of for so long."""
CUT = 0.03
"""Share of the requests for a lock at which the server has just lost the connection of its holder."""
ASK_AGAIN_S = 10.0
_PLACE = "lock server"


@dataclass(eq=False)
class Session:
    """A lock in the hands of a client, as the client sees it: see conroi.inserts.lock_back_ends.Held."""

    server: LockServer
    client: Client
    lock: int

    def confirm(self) -> None:
        """The client does not know that it lost the lock before it asks the server, and this asks nothing."""

    def release(self) -> None:
        self.server.release(self)


class LockServer:
    """Who has which lock; first come, first served is not promised."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = random.Random(f"{world.seed} locks")  # noqa: S311  # to be repeatable is the point
        self._holders: dict[int, Session] = {}
        self._queues: dict[int, object] = {}
        """By lock, what its waiters wait for."""
        self.lost = 0
        """Sessions that the server ended while their client was alive."""

    def client(self, client: Client) -> ClientLocks:
        """The locks as this client takes them: see conroi.inserts.lock_back_ends.Backend."""
        return ClientLocks(self, client)

    def acquire(self, client: Client, lock: int, wait_s: float | None, table: str) -> Session:
        scheduler = self._world.scheduler
        until = None if wait_s is None else scheduler.now + wait_s
        session = Session(self, client, lock)
        while not self._world.request(f"lock {lock}", _PLACE, table, lambda: self._take(session)):
            left_s = ASK_AGAIN_S if until is None else until - scheduler.now
            if left_s <= 0:
                raise LockTimeout(
                    f"Waited {wait_s} s for the insert lock of {table!r}.", table=table, hint="Try again."
                )
            scheduler.wait(self._queues.setdefault(lock, object()), min(left_s, ASK_AGAIN_S))
        return session

    def _take(self, session: Session) -> bool:
        holder = self._holders.get(session.lock)
        if holder is not None and not self._is_over(holder):
            return False
        self._holders[session.lock] = session
        return True

    def _is_over(self, holder: Session) -> bool:
        """Whether the server has ended the session."""
        client = holder.client
        if client.is_dead:
            return True
        is_silent = client.paused_until > self._world.scheduler.now + KEPT_S
        is_cut = self._world.faults.is_active and self._chance.random() < CUT
        self.lost += is_silent or is_cut
        return is_silent or is_cut

    def release(self, session: Session) -> None:
        """Without a request: closing a connection needs no answer."""
        if self._holders.get(session.lock) is session:
            del self._holders[session.lock]
        self._world.scheduler.notify(self._queues.setdefault(session.lock, object()))


class ClientLocks:
    """The lock server as one client reaches it."""

    def __init__(self, server: LockServer, client: Client) -> None:
        self._server = server
        self._client = client

    def hold(self, lock: int, table: str, wait_s: float | None, cancellation: Cancellation) -> Session:  # noqa: ARG002
        return self._server.acquire(self._client, lock, wait_s, table)

    def listing(self, tables: Mapping[int, str]) -> list[LockInfo]:  # noqa: ARG002
        return []


class SimulatedLocks(Locks):
    """The insert locks of a lake, in the lock server of the run."""

    def __init__(self, catalog: Catalog, server: ClientLocks) -> None:
        super().__init__(catalog)
        self._server = server

    def mode(self, state: LakeState) -> Mode:  # noqa: ARG002
        return "postgresql"

    def beside(self, catalog: Catalog) -> Locks:
        return SimulatedLocks(catalog, self._server)

    def _backend(self, mode: Mode) -> ClientLocks:  # noqa: ARG002
        return self._server
