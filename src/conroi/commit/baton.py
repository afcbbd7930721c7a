"""The baton: how a writer that keeps losing asks the others to let it through.

It is a small file in the table's folder, so writers on other hosts see it. Who finds one waits until it is gone, but
only so long: one that stays is taken away by the next who has waited for it. Nothing depends on it but patience: the
put under a condition still decides who wins, and a writer that knows no batons (pylance) just goes on.
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
LONGEST_COURTESY_TURNS = 40
"""A baton is respected for as long as so many turns take, or as its holder says it needs to do its work again."""
LONGEST_COURTESY_S = 5.0


class Baton:
    """The baton of one table, as one commit deals with it."""

    def __init__(self, objects: Objects, environment: Environment, writer: str) -> None:
        self._objects = objects
        self._environment = environment
        self._writer = writer
        self._is_mine = False

    def ask(self, losses: int, needs_s: float = 0.0) -> None:
        """Take the baton after a few losses, if nobody has it. `needs_s`: how long the others should be patient."""
        if self._is_mine or losses < LOSSES_BEFORE_ASKING:
            return
        try:
            self._objects.put_if_absent(BATON_PATH, json.dumps({"writer": self._writer, "needs_s": needs_s}).encode())
            self._is_mine = True
        except (NameTaken, StoreError):
            pass

    def give_way(self, turn_s: float) -> None:
        """Wait while somebody else has it; take away one that stays."""
        if self._is_mine:
            return
        started = self._environment.monotonic()
        try:
            patience_s = LONGEST_COURTESY_TURNS * turn_s
            is_known = False
            while self._objects.head(BATON_PATH) is not None:
                if not is_known:
                    patience_s, is_known = max(patience_s, self._asked_for()), True
                if self._environment.monotonic() >= started + patience_s:
                    self._objects.delete([BATON_PATH])
                    return
                self._environment.sleep(turn_s)
        except StoreError:
            pass

    def _asked_for(self) -> float:
        """How long its holder says it needs, within reason."""
        try:
            return _seconds(decode_document(self._objects.get(BATON_PATH), BATON_PATH).content.get("needs_s"))
        except (NotFoundError, CorruptionError):
            return 0.0

    def pass_on(self) -> None:
        """Give it back, however the commit ended."""
        if self._is_mine:
            self._is_mine = False
            with contextlib.suppress(StoreError):
                self._objects.delete([BATON_PATH])

    @property
    def is_mine(self) -> bool:
        return self._is_mine


def _seconds(noted: object) -> float:
    is_number = isinstance(noted, int | float) and not isinstance(noted, bool) and 0 <= noted < LONGEST_COURTESY_S
    return float(noted) if is_number else LONGEST_COURTESY_S if noted is not None else 0.0  # pyright: ignore[reportArgumentType]
