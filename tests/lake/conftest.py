"""Small lakes to work on."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

import conroi
from conroi.testing import FaultyObjects, Gate, call_before, connect_through

PUBLICATION = "put_if_absent"
"""How a version of `__manifest` becomes real; no table of a lake does it so on a local disk."""


@pytest.fixture
def uri() -> str:
    """A place in memory that nobody used before."""
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def lake(uri: str) -> conroi.Lake:
    """Two tables: `orders` with the key id and three rows, `rates` with two."""
    lake = conroi.connect(uri)
    with lake.begin("two tables") as tx:
        tx.create_table("orders", [{"id": i, "n": 10 * i} for i in (1, 2, 3)], key="id")
        tx.create_table("rates", [{"name": "a", "rate": 1}, {"name": "b", "rate": 2}])
    return lake


@pytest.fixture
def other(lake: conroi.Lake) -> conroi.Lake:
    """The same lake, as another process would see it."""
    return conroi.connect(lake.uri)


def paused_before_publication(uri: str) -> tuple[conroi.Lake, Gate]:
    """A lake whose next publication waits at the gate: all is checked and staged, and the put is about to be sent."""
    gate = Gate()
    fault = call_before(gate, PUBLICATION, "_versions/*.manifest")
    return connect_through(uri, lambda objects: FaultyObjects(objects, [fault])), gate


def while_paused(gate: Gate, commit: Callable[[], object], meanwhile: Callable[[], object]) -> Future[object]:
    """Start the commit, do something else while it waits at the gate, let it go on; what became of it."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(commit)
        gate.wait_for_arrival()
        meanwhile()
        gate.open()
    return future
