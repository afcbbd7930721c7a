"""Deterministic environments: one seed gives the same times, ids and random draws; lakes with instruments."""

from __future__ import annotations

import os
import random
import threading
import uuid
from collections.abc import Callable, Mapping

from conroi.catalog.opening import open_catalog
from conroi.catalog.sql_tables import WrapStore, unwrapped_store
from conroi.environment import SYSTEM, Environment
from conroi.lake import Lake
from conroi.storage.objects import Objects

_START_NS = 1_700_000_000_000_000_000


class SeededEnvironment:
    """Virtual clock that advances only by sleep(); random numbers and ids come from the seed.

    >>> world = SeededEnvironment(1)
    >>> world.sleep(2.5)
    >>> world.monotonic(), world.new_uuid() == SeededEnvironment(1).new_uuid()
    (2.5, True)
    """

    def __init__(self, seed: int, *, start_ns: int = _START_NS) -> None:
        self.seed = seed
        self._chance = random.Random(seed)  # noqa: S311  # to be repeatable is the point
        self._start_ns = start_ns
        self._passed_ns = 0
        self._lock = threading.Lock()
        self.sleeps: list[float] = []

    def __repr__(self) -> str:
        return f"SeededEnvironment({self.seed})"

    def now_ns(self) -> int:
        return self._start_ns + self._passed_ns

    def monotonic(self) -> float:
        return self._passed_ns / 1e9

    def sleep(self, seconds: float) -> None:
        """Advance the clock, and return at once."""
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        with self._lock:
            self._passed_ns += round(seconds * 1e9)
            self.sleeps.append(seconds)

    def uniform(self, low: float, high: float) -> float:
        with self._lock:
            return self._chance.uniform(low, high)

    def random_u64(self) -> int:
        with self._lock:
            return self._chance.getrandbits(64)

    def new_uuid(self) -> uuid.UUID:
        with self._lock:
            return uuid.UUID(int=self._chance.getrandbits(128), version=4)


def connect_through(
    uri: str | os.PathLike[str],
    wrap: Callable[[Objects], Objects],
    *,
    store: str | None = None,
    wrap_store: WrapStore = unwrapped_store,
    storage_options: Mapping[str, str] | None = None,
    environment: Environment = SYSTEM,
) -> Lake:
    """As conroi.connect(); `wrap` is called with the files of `__manifest`, of each table, and of the lake itself.

    pylance writes and reads data files by itself, past it. `wrap_store` is called with the tables of the database at
    `store`, if the lake has its history there.

    >>> from conroi.testing import SlowObjects
    >>> lake = connect_through("memory://far-away", lambda objects: SlowObjects(objects, 0.001))
    >>> lake.tables()
    []
    """
    catalog, manifest = open_catalog(
        uri,
        store=store,
        storage_options=storage_options,
        durable=False,
        environment=environment,
        wrap=wrap,
        wrap_store=wrap_store,
    )
    return Lake(catalog, manifest)
