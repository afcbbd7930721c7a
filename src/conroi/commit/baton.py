"""Priority token against starvation: a writer that keeps losing races creates one, and the other writers yield.

The token is a small file in the table's folder, so writers on other hosts see it. A writer that finds a token waits
until it is released. The wait is bounded: a token that stays longer is removed by the next writer that waited for it.
Advisory only: the conditional put still decides which commit wins, and a writer without support for tokens (pylance)
ignores it.
"""

from __future__ import annotations

import contextlib
import json

from conroi.environment import Environment
from conroi.errors import CorruptionError, NotFoundError, StoreError
from conroi.format.documents import decode_document
from conroi.format.naming import TRANSACTIONS_DIR
from conroi.stores.objects import NameTaken, Objects

BATON_PATH = f"{TRANSACTIONS_DIR}/.conroi-baton"
LOSSES_BEFORE_ASKING = 3
LOSSES_BEFORE_WAITING = 4
"""Number of lost races after which a writer waits for a token that another writer holds."""
SHORTEST_LOOK_S = 0.001
LONGEST_COURTESY_TURNS = 40
"""Expiry of a token, in median commit times, unless its holder asks for more to repeat its work."""
LONGEST_COURTESY_S = 5.0


class Baton:
    """The priority token of one table, as used by one commit."""

    def __init__(self, objects: Objects, environment: Environment, writer: str) -> None:
        self._objects = objects
        self._environment = environment
        self._writer = writer
        self._is_mine = False
        self._needs_s = 0.0

    def ask(self, losses: int, needs_s: float = 0.0, turn_s: float = SHORTEST_LOOK_S) -> None:
        """Create the token after several lost races, if it is free. `needs_s`: how long the other writers should yield.

        A holder that loses again renews it, for longer: other writers may have removed it. A writer that repeatedly
        finds the token taken, because it is slower than other writers that ask, yields to its holder first.
        """
        if losses < LOSSES_BEFORE_ASKING:
            return
        if self._is_mine:
            self._needs_s = needs_s = max(needs_s, 2 * self._needs_s)
        if not self._take(needs_s) and not self._is_mine and losses >= LOSSES_BEFORE_WAITING:
            self.give_way(turn_s)
            self._take(needs_s)

    def _take(self, needs_s: float) -> bool:
        content = json.dumps({"writer": self._writer, "needs_s": needs_s, "id": self._environment.new_uuid().hex})
        try:
            self._objects.put_if_absent(BATON_PATH, content.encode())
        except (NameTaken, StoreError):
            return False
        self._is_mine, self._needs_s = True, needs_s
        return True

    def is_held(self) -> bool:
        """Whether another writer holds the token. One request."""
        try:
            return not self._is_mine and self._objects.head(BATON_PATH) is not None
        except StoreError:
            return False

    def give_way(self, turn_s: float) -> None:
        """Wait while another writer has the token; remove one that has expired."""
        if self._is_mine:
            return
        give_up_at = self._environment.monotonic() + 2 * LONGEST_COURTESY_S
        waited_for, until = None, give_up_at
        try:
            while (held := self._held()) is not None and (now := self._environment.monotonic()) < give_up_at:
                if held != waited_for:  # a new token has its own timeout
                    waited_for, until = held, now + max(LONGEST_COURTESY_TURNS * turn_s, _asked_for(held))
                elif now >= until:
                    self._objects.delete([BATON_PATH])
                    return
                self._environment.sleep(max(turn_s, SHORTEST_LOOK_S))
        except StoreError:
            pass

    def _held(self) -> bytes | None:
        """The content of the token, if there is one."""
        try:
            return self._objects.get(BATON_PATH)
        except NotFoundError:
            return None

    def pass_on(self) -> None:
        """Release the token, however the commit ended."""
        if self._is_mine:
            self._is_mine = False
            with contextlib.suppress(StoreError):
                self._objects.delete([BATON_PATH])

    @property
    def is_mine(self) -> bool:
        return self._is_mine


def _asked_for(held: bytes) -> float:
    """How long the holder asks the others to yield, in seconds, bounded."""
    try:
        return _seconds(decode_document(held, BATON_PATH).content.get("needs_s"))
    except CorruptionError:
        return 0.0


def _seconds(noted: object) -> float:
    is_number = isinstance(noted, int | float) and not isinstance(noted, bool) and 0 <= noted < LONGEST_COURTESY_S
    return float(noted) if is_number else LONGEST_COURTESY_S if noted is not None else 0.0  # pyright: ignore[reportArgumentType]
