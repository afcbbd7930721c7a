"""The stores of files that one suite of tests runs over; the conftest of a folder imports the fixture."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from conroi.storage import open_objects
from conroi.storage.objects import Objects

__all__ = ["STORES", "new_objects", "objects"]

STORES = ("local", "durable", "memory", "moto", "seaweedfs", "azurite", "gcs")


def new_objects(store: str, request: pytest.FixtureRequest) -> Objects:
    """An empty place in one of the stores."""
    if store in ("local", "durable"):
        folder: Path = request.getfixturevalue("tmp_path")
        return open_objects(folder / uuid.uuid4().hex, durable=store == "durable")
    if store == "memory":
        return open_objects(f"memory://{uuid.uuid4().hex}")
    server = request.getfixturevalue(store)
    return open_objects(server.new_uri(), server.options)


@pytest.fixture(params=STORES)
def objects(request: pytest.FixtureRequest) -> Objects:
    """An empty table root, in each store in turn."""
    return new_objects(request.param, request)
