"""The baton: how a writer that keeps losing asks the others to let it through.

It is a small file in the table's folder, so writers on other hosts see it. Who finds one waits until it is gone, but
only so long: one that stays is taken away by the next who has waited for it. Nothing depends on it but patience: the
put under a condition still decides who wins, and a writer that knows no batons (pylance) just goes on.
"""

from __future__ import annotations

import contextlib

from conroi.environment import Environment
from conroi.errors import StoreError
from conroi.format.naming import TRANSACTIONS_DIR
from conroi.stores.objects import NameTaken, Objects

BATON_PATH = f"{TRANSACTIONS_DIR}/.conroi-baton"
LOSSES_BEFORE_ASKING = 3
LONGEST_COURTESY_TURNS = 40
"""A baton is respected for as long as so many turns take."""


class Baton:
    """The baton of one table, as one commit deals with it."""

    def __init__(self, objects: Objects, environment: Environment, writer: str) -> None:
        self._objects = objects
        self._environment = environment
        self._writer = writer
        self._is_mine = False

    def ask(self, lost_attempts: int) -> None:
        """Take the baton after a few losses, if nobody has it."""
        if self._is_mine or lost_attempts < LOSSES_BEFORE_ASKING:
            return
        try:
            self._objects.put_if_absent(BATON_PATH, self._writer.encode())
            self._is_mine = True
        except (NameTaken, StoreError):
            pass

    def give_way(self, turn_s: float) -> None:
        """Wait while somebody else has it; take away one that stays."""
        if self._is_mine:
            return
        until = self._environment.monotonic() + LONGEST_COURTESY_TURNS * turn_s
        try:
            while self._objects.head(BATON_PATH) is not None:
                if self._environment.monotonic() >= until:
                    self._objects.delete([BATON_PATH])
                    return
                self._environment.sleep(turn_s)
        except StoreError:
            pass

    def pass_on(self) -> None:
        """Give it back, however the commit ended."""
        if self._is_mine:
            self._is_mine = False
            with contextlib.suppress(StoreError):
                self._objects.delete([BATON_PATH])

    @property
    def is_mine(self) -> bool:
        return self._is_mine
