"""Fair ordering of concurrent writers, which bounds starvation: turns, the priority token and reservations.

Each commit records its writer's id, and contending writers take turns in ring order. A writer that keeps losing creates
the priority token, to which the others yield until it is released or expires. A client that builds
manifests itself gets a reservation when it is refused. All of it is advisory: the conditional put still decides which
commit wins.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

from conroi.environment import Environment
from conroi.errors import CorruptionError, NotFoundError, StoreError
from conroi.format.json import decode_document
from conroi.format.on_disk import RESERVED_DIR, TRANSACTIONS_DIR, WRITER_PROPERTY
from conroi.format.transaction import Transaction
from conroi.storage.objects import ObjectExists, Objects
from conroi.storage.parallel import ProcessLock

ACTIVE_FOR_S = 2.0
"""A writer whose last commit is older than this, in seconds, is not waited for."""
SLACK = 2.0
"""Stop waiting for another writer's turn after this multiple of its expected duration."""
SHORTEST_S = 0.0005
PROCESSORS = os.cpu_count() or 1
SLOW_TURNS = 4
LOOK_EVERY = 8
"""A writer without visible contention checks for a priority token once in this many commits."""
LONGEST_PAUSE_S = 0.001
"""Polling interval while waiting for a turn, in seconds, where looking costs nothing."""


class Turns:
    """The writers of one table, as observed by one process."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.me = environment.new_uuid().hex[:12]
        self._last_version = 0
        self._last_writer = self.me
        self._my_version = 0
        self._seen_at: dict[str, float] = {}
        """When each other writer was last seen to commit."""
        self._attempts: deque[float] = deque(maxlen=16)
        self._works: deque[float] = deque(maxlen=16)
        self._times: deque[tuple[int, int]] = deque(maxlen=16)
        self._wasted_at: float | None = None
        self._uncontended = 0
        self.is_awaited = False
        """Whether an uncontended writer found a priority token of another writer."""
        self._lock = ProcessLock()

    def saw(self, version: int, transaction: Transaction, timestamp_ns: int | None = None) -> None:
        """Record an observed commit, by us or by a concurrent writer, with its time by the clock of its writer."""
        writer = transaction.wire.transaction_properties.get(WRITER_PROPERTY, "")
        with self._lock:
            if timestamp_ns is not None:
                self._times.append((version, timestamp_ns))
            if version > self._last_version:
                self._last_version, self._last_writer = version, writer
            if writer == self.me:
                self._my_version = max(self._my_version, version)
            else:
                self._seen_at[writer] = self._environment.monotonic()

    def timed(self, version: int, timestamp_ns: int) -> None:
        """Record the time of a commit that was observed before, by the clock of its writer."""
        with self._lock:
            self._times.append((version, timestamp_ns))

    def is_contended(self) -> bool:
        """Whether other writers were active recently, or one holds the priority token."""
        return self.is_awaited or bool(self._seen_at and self._others())

    def is_look_due(self) -> bool:
        """Whether to check for a priority token with this commit.

        A writer that is faster than all others wins every race. It sees no commits of theirs, so it would never yield:
        they starve. So it checks once in a while, at the cost of one request in many commits.
        """
        with self._lock:
            self._uncontended += 1
            return self._uncontended % LOOK_EVERY == 0 and not self._others_active()

    def look(self, token: PriorityToken) -> None:
        """Check for a priority token of another writer."""
        self.is_awaited = token.is_held()

    def is_crowded(self) -> bool:
        """Whether several other writers are active, so that one of them may have followed the one that was seen."""
        return len(self._others()) > 1

    def are_many(self) -> bool:
        """Whether there are more active writers than processors."""
        return len(self._others()) + 1 > PROCESSORS

    def is_ahead(self) -> bool:
        """Whether we committed recently, and less than a quarter of the others have since."""
        return self._last_version - self._my_version < len(self._others()) // 4

    def places_to_wait(self) -> int:
        """How many other writers have their turn before us; 0 if it is ours."""
        others = self._others()
        last = self._last_writer
        if last != self.me and last not in others:
            return 0
        ring = sorted([self.me, *others])
        return (ring.index(self.me) - ring.index(last) - 1) % len(ring) if others else 0

    def places_before(self, *, may_skip: bool) -> int:
        """How many other writers to let commit first; 0 if that wait was done before the work.

        With more writers than processors most of them are not running, and the next in turn may be one of those. Then
        an occasional lost race may cost less than waiting (`may_skip`). Only a writer that had its turn just now lets
        another one through.
        """
        if self.wastes_work():
            return 0
        if may_skip and self.are_many():
            return int(self.is_ahead())
        return self.places_to_wait()

    def took(self, seconds: float) -> None:
        """Record the duration of an attempt of ours, from the build to the storage's response."""
        with self._lock:
            self._attempts.append(seconds)

    def turn_s(self) -> float:
        """Length of a turn, in seconds: the duration of our own attempts when nothing delays them.

        Not the time between the commits we see: that grows with the waiting itself.
        """
        with self._lock:
            return min(self._attempts, default=SHORTEST_S)

    def place_s(self) -> float:
        """How long to wait for one writer before us, in seconds: the duration of our own attempts, or less if all are
        faster.

        A writer on a slow connection that measured the others by itself would come too late for every turn.
        """
        with self._lock:
            (first, began_ns), (last, ended_ns) = (self._times[0], self._times[-1]) if self._times else ((0, 0), (0, 0))
        pace_s = (ended_ns - began_ns) / 1e9 / (last - first) if last > first and ended_ns > began_ns else None
        return self.turn_s() if pace_s is None else min(self.turn_s(), pace_s)

    def losses(self, attempts: int) -> int:
        """Weighted number of lost races, which decides about the priority token.

        A writer whose attempts take many turns of the others cannot win a race, so its losses count for more.
        """
        is_slow = self.turn_s() > SLOW_TURNS * self.place_s()
        return 2 * attempts if is_slow else attempts

    def worked(self, seconds: float, *, wasted: bool) -> None:
        """Record the duration of a verb, work and commit; `wasted` if a conflict wasted the work."""
        with self._lock:
            self._works.append(seconds)
            if wasted:
                self._wasted_at = self._environment.monotonic()

    def wastes_work(self) -> bool:
        """Whether our recent work was wasted by a conflict: then wait for our turn before working."""
        at = self._wasted_at
        return at is not None and self._environment.monotonic() - at < ACTIVE_FOR_S

    def work_s(self) -> float:
        """Length of a turn that includes the work, in seconds."""
        with self._lock:
            return sorted(self._works)[len(self._works) // 2] if self._works else SHORTEST_S

    def wait(self, places: int, has_moved: Callable[[int], bool] | None, turn_s: float | None = None) -> None:
        """Wait until this many others have committed, or for as long as that should take.

        `has_moved` says whether this many versions exist, where looking costs nothing.
        """
        turn_s = self.place_s() if turn_s is None else turn_s
        self._environment.sleep((places - 1) * turn_s)
        until = self._environment.monotonic() + SLACK * places * turn_s
        pause_s = min(turn_s / 2, LONGEST_PAUSE_S)
        while has_moved is not None and self._environment.monotonic() < until and not has_moved(places):
            self._environment.sleep(pause_s)

    def _others(self) -> list[str]:
        """The other active writers."""
        with self._lock:
            return self._others_active()

    def _others_active(self) -> list[str]:
        since = self._environment.monotonic() - ACTIVE_FOR_S
        for writer in [writer for writer, when in self._seen_at.items() if when < since]:
            del self._seen_at[writer]
        return list(self._seen_at)


TOKEN_PATH = f"{TRANSACTIONS_DIR}/.conroi-baton"
LOSSES_BEFORE_ASKING = 3
LOSSES_BEFORE_WAITING = 4
"""Number of lost races after which a writer waits for a token that another writer holds."""
SHORTEST_LOOK_S = 0.001
LONGEST_COURTESY_TURNS = 40
"""Expiry of a token, in median commit times, unless its holder asks for more to repeat its work."""
LONGEST_COURTESY_S = 5.0


@dataclass(slots=True)
class PriorityToken:
    """The priority token of one table, as used by one commit."""

    _objects: Objects
    _environment: Environment
    _writer: str
    is_mine: bool = False
    _needs_s: float = 0.0

    def ask(self, losses: int, needs_s: float = 0.0, turn_s: float = SHORTEST_LOOK_S) -> None:
        """Create the token after several lost races, if it is free. `needs_s`: how long the other writers should yield.

        A holder that loses again renews it, for longer: other writers may have removed it. A writer that repeatedly
        finds the token taken, because it is slower than other writers that ask, yields to its holder first.
        """
        if losses < LOSSES_BEFORE_ASKING:
            return
        if self.is_mine:
            self._needs_s = needs_s = max(needs_s, 2 * self._needs_s)
        if not self._take(needs_s) and not self.is_mine and losses >= LOSSES_BEFORE_WAITING:
            self.give_way(turn_s)
            self._take(needs_s)

    def _take(self, needs_s: float) -> bool:
        content = json.dumps({"writer": self._writer, "needs_s": needs_s, "id": self._environment.new_uuid().hex})
        try:
            self._objects.put_if_absent(TOKEN_PATH, content.encode())
        except (ObjectExists, StoreError):
            return False
        self.is_mine, self._needs_s = True, needs_s
        return True

    def is_held(self) -> bool:
        """Whether another writer holds the token. One request."""
        try:
            return not self.is_mine and self._objects.head(TOKEN_PATH) is not None
        except StoreError:
            return False

    def give_way(self, turn_s: float) -> bool:
        """Wait while another writer has the token; remove one that has expired. Whether there was one."""
        if self.is_mine:
            return False
        give_up_at = self._environment.monotonic() + 2 * LONGEST_COURTESY_S
        waited_for, until = None, give_up_at
        try:
            while (held := self._held()) is not None and (now := self._environment.monotonic()) < give_up_at:
                if held != waited_for:  # a new token has its own timeout
                    waited_for, until = held, now + max(LONGEST_COURTESY_TURNS * turn_s, _asked_for(held))
                elif now >= until:
                    self._objects.delete([TOKEN_PATH])
                    return True
                self._environment.sleep(max(turn_s, SHORTEST_LOOK_S))
        except StoreError:
            return True
        return waited_for is not None

    def _held(self) -> bytes | None:
        """The content of the token, if there is one."""
        try:
            return self._objects.get(TOKEN_PATH)
        except NotFoundError:
            return None

    def pass_on(self) -> None:
        """Release the token, however the commit ended."""
        if self.is_mine:
            self.is_mine = False
            with contextlib.suppress(StoreError):
                self._objects.delete([TOKEN_PATH])


def _asked_for(held: bytes) -> float:
    """How long the holder asks the others to yield, in seconds, bounded."""
    try:
        return _seconds(decode_document(held, TOKEN_PATH).content.get("needs_s"))
    except CorruptionError:
        return 0.0


def _seconds(noted: object) -> float:
    is_number = isinstance(noted, int | float) and not isinstance(noted, bool) and 0 <= noted < LONGEST_COURTESY_S
    return float(noted) if is_number else LONGEST_COURTESY_S if noted is not None else 0.0  # pyright: ignore[reportArgumentType]


# ------------------------------------------------------------------------------ reservations

RESERVED_S = 1.0
"""Expiry of a reservation, in seconds; writers continue as soon as it is used."""
LOOK_S = 10.0
"""Interval between checks for reservations on an object store, in seconds, where a check is a request…"""
BUSY_LOOK_S = 0.5
"""… and the interval for a minute after one was found."""
BUSY_FOR_S = 60.0
RESERVED_PAUSE_S = 0.005
"""Polling interval while waiting for a reservation, in seconds."""


class Reservations:
    """The reservations of one lake, as used by one process: a fair queue for clients that build manifests themselves.

    Such a client must list, read, rebase, stage and send again, while a conroi writer needs milliseconds. Without a
    reservation it starves beside one busy writer. Its refusal creates a small file, named by the time. Other writers of
    the same tables wait until the oldest reservation is used or expires. The reservation of a crashed client is removed
    by the next writer that waited for it.
    """

    def __init__(self, objects: Objects, environment: Environment) -> None:
        self._objects = objects
        self._environment = environment
        self._mine: dict[frozenset[str], str] = {}
        self._looked_at = environment.monotonic()
        self._found_at = float("-inf")

    def reserve(self, tables: Collection[str]) -> None:
        """A client of ours was refused: reserve the next version for it; it keeps an existing reservation."""
        wanted = frozenset(tables)
        try:
            mine = self._mine.get(wanted)
            if mine is None or self._objects.head(mine) is None:
                name = f"{self._environment.now_ns():020d}-{self._environment.new_uuid().hex}"
                mine = f"{RESERVED_DIR}/{name}"
                self._objects.put(mine, json.dumps({"tables": sorted(wanted)}).encode())
                self._mine[wanted] = mine
        except StoreError:
            pass

    def used(self, tables: Collection[str]) -> None:
        """A client of ours was not refused: release its reservation."""
        mine = self._mine.pop(frozenset(tables), None)
        if mine is not None:
            with contextlib.suppress(StoreError):
                self._objects.delete([mine])

    def let_pass(self, tables: Collection[str], longest_s: float = RESERVED_S) -> None:
        """Wait for the oldest reservation of these tables, unless it is ours; remove one that has expired.

        Looking costs nothing on local disk; elsewhere it is a request, sent once in a while.
        """
        now = self._environment.monotonic()
        every_s = BUSY_LOOK_S if now - self._found_at < BUSY_FOR_S else LOOK_S
        if not tables or (now - self._looked_at < every_s and not self._objects.is_local):
            return
        self._looked_at = now
        if self._objects.is_local and not os.path.isdir(self._objects.pylance_uri(RESERVED_DIR)):
            return  # no client was ever refused
        try:
            oldest = self._oldest(tables)
            if oldest is None or oldest in self._mine.values():
                return
            self._found_at = self._environment.monotonic()
            until = self._environment.monotonic() + longest_s
            while self._objects.head(oldest) is not None:
                if self._environment.monotonic() >= until:
                    if longest_s >= RESERVED_S:
                        self._objects.delete([oldest])
                    return
                self._environment.sleep(RESERVED_PAUSE_S if self._objects.is_local else 10 * RESERVED_PAUSE_S)
        except StoreError:
            pass

    def _oldest(self, tables: Collection[str]) -> str | None:
        wanted = set(tables)
        for path in sorted(self._objects.list_names(RESERVED_DIR)):
            try:
                content = decode_document(self._objects.get(path), path)
                if wanted & {each for each in content.listed("tables") if isinstance(each, str)}:
                    return path
            except (NotFoundError, CorruptionError):
                continue  # used since it was listed, or not written whole
        return None
