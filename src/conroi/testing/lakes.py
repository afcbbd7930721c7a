"""Instrumented lake: every request passes through an instrument."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from conroi.catalog.opening import open_catalog
from conroi.environment import SYSTEM, Environment
from conroi.lake import Lake
from conroi.stores.lake_tables import WrapStore, unwrapped_store
from conroi.stores.objects import Objects


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
