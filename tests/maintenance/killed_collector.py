"""A collector that is killed at its n-th request."""

from __future__ import annotations

import signal
from collections.abc import Callable

from conroi.storage.local_folders import settable_times
from conroi.storage.objects import Objects
from conroi.testing import Fault, FaultyObjects, Meter, NthRequest, connect_through, die
from conroi.versions.retention import other_ages
from tests.support.processes import fork_context


def collect(uri: str, wrap: Callable[[Objects], Objects]) -> None:
    """What an operator does."""
    lake = connect_through(uri, wrap)
    lake.expire("7d", keep=2, dry_run=False)
    lake.gc(dry_run=False)


def collect_and_die(uri: str, request: int) -> None:
    plan = NthRequest(request, Fault(before=die))
    with settable_times():
        collect(uri, lambda objects: FaultyObjects(objects, plan))


def kill_at(uri: str, request: int) -> bool:
    """Whether the collector got so far that it died."""
    process = fork_context().Process(target=collect_and_die, args=(uri, request))
    process.start()
    process.join(60)
    return process.exitcode == -signal.SIGKILL


def count_requests(uri: str) -> int:
    meter = Meter()
    with other_ages(60.0, 3600.0):
        collect(uri, meter.counting)
    return meter.ever.requests()
