"""A commit of a lake that waits right before its put, so that a test can let another writer commit first."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import conroi
from conroi.testing import FaultyObjects, Gate, call_before, connect_through

PUBLICATION = "put_if_absent"
"""The request that creates a version of `__manifest`; tables of a lake on a local disk do not use it."""


def paused_before_publication(uri: str) -> tuple[conroi.Lake, Gate]:
    """A lake whose next publication waits at the gate: all is checked and staged, and the put is about to be sent."""
    gate = Gate()
    fault = call_before(gate, PUBLICATION, "_versions/*.manifest")
    return connect_through(uri, lambda objects: FaultyObjects(objects, [fault])), gate


def while_paused(gate: Gate, commit: Callable[[], object], concurrently: Callable[[], object]) -> Future[object]:
    """Start the commit, run `concurrently` while it waits at the gate, open the gate; the outcome of the commit."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(commit)
        gate.wait_for_arrival()
        concurrently()
        gate.open()
    return future
