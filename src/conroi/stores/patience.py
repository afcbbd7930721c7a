"""Timeouts for calls of a client library that has none itself."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Generator

_LOOK_EVERY_S = 0.2


class Patience:
    """Watchdog for calls that take too long; one thread watches all of them, and sleeps while there are none.

    A timer for each request would cost a thread for each, which is more than a request to a near database.
    """

    def __init__(self) -> None:
        self._watched: dict[object, tuple[float, Callable[[], None]]] = {}
        self._has_work = threading.Event()
        self._starting = threading.Lock()
        self._locks_of = os.getpid()
        self._owner = 0

    @contextlib.contextmanager
    def at_most(self, seconds: float, give_up: Callable[[], None]) -> Generator[None]:
        """`give_up` is called, from another thread and slightly late, if the block is not left in time."""
        self._start()
        key = object()
        self._watched[key] = (time.monotonic() + seconds, give_up)
        self._has_work.set()
        try:
            yield
        finally:
            self._watched.pop(key, None)

    def _start(self) -> None:
        if self._owner == os.getpid():  # a thread does not survive a fork, and a lock may be held by one
            return
        if self._locks_of != os.getpid():
            self._starting, self._has_work, self._locks_of = threading.Lock(), threading.Event(), os.getpid()
        with self._starting:
            if self._owner != os.getpid():
                self._watched.clear()
                threading.Thread(target=self._watch, name="conroi-patience", daemon=True).start()
                self._owner = os.getpid()

    def _watch(self) -> None:
        while True:
            self._has_work.wait()
            time.sleep(_LOOK_EVERY_S)
            now = time.monotonic()
            for key, (deadline, give_up) in list(self._watched.items()):
                if now > deadline and self._watched.pop(key, None) is not None:
                    give_up()
            if not self._watched:
                self._has_work.clear()
                if self._watched:  # another call was added in between
                    self._has_work.set()


PATIENCE = Patience()
