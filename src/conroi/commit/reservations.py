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
from conroi.format.json import decode_document
from conroi.storage.objects import Objects

RESERVED_DIR = "_conroi/reserved"
RESERVED_S = 1.0
"""Expiry of a reservation, in seconds; writers continue as soon as it is used."""
LOOK_S = 10.0
"""Interval between checks for reservations on an object store, in seconds, where a check is a request…"""
BUSY_LOOK_S = 0.5
"""… and the interval for a minute after one was found."""
BUSY_FOR_S = 60.0
PAUSE_S = 0.005
"""Polling interval while waiting for a reservation, in seconds."""


class Reservations:
    """The reservations of one lake, as used by one process."""

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
