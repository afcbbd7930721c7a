"""Fair queue for clients that build manifests themselves: the next version is reserved for a client that was refused.

Such a client must list, read, rebase, stage and send again, while a conroi writer needs milliseconds. Without a
reservation it starves beside one busy writer. Its refusal creates a small file, named by the time. Other writers of the
same tables wait until the oldest reservation is used or expires. Advisory only: the conditional put still decides which
commit wins. The reservation of a crashed client is removed by the next writer that waited for it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection

from conroi.environment import Environment
from conroi.errors import CorruptionError, NotFoundError, StoreError
from conroi.format.documents import decode_document
from conroi.stores.objects import Objects

RESERVED_DIR = "_conroi/reserved"
RESERVED_S = 1.0
"""For so long conroi writers wait for a client that was refused; once it has come they go on at once."""
LOOK_S = 10.0
"""On an object store, where a look is a request, a writer looks for reservations so often…"""
BUSY_LOOK_S = 0.5
"""… and so often for a minute after it found one."""
BUSY_FOR_S = 60.0
PAUSE_S = 0.005
"""Between two looks whether a reservation was used."""


class Reservations:
    """The reservations of one lake, as one process deals with them."""

    def __init__(self, objects: Objects, environment: Environment) -> None:
        self._objects = objects
        self._environment = environment
        self._mine: dict[frozenset[str], str] = {}
        self._looked_at = environment.monotonic()
        self._found_at = float("-inf")

    def is_due(self) -> bool:
        """Whether it is time to look: always on local disk, where it costs nothing."""
        now = self._environment.monotonic()
        every_s = BUSY_LOOK_S if now - self._found_at < BUSY_FOR_S else LOOK_S
        if self._objects.is_local or now - self._looked_at >= every_s:
            self._looked_at = now
            return True
        return False

    def reserve(self, tables: Collection[str]) -> None:
        """A client of ours was refused: it is the next of those that wait; it keeps the place that it has."""
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
        """A client of ours was not refused."""
        mine = self._mine.pop(frozenset(tables), None)
        if mine is not None:
            with contextlib.suppress(StoreError):
                self._objects.delete([mine])

    def let_pass(self, tables: Collection[str], longest_s: float = RESERVED_S) -> None:
        """Wait for the oldest reservation of these tables, unless it is ours; take one away that is not used."""
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
                self._environment.sleep(PAUSE_S if self._objects.is_local else 10 * PAUSE_S)
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
