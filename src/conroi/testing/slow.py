"""Storage latency: a wrapper that delays every request."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from conroi.environment import SYSTEM, Environment
from conroi.stores.objects import Objects
from conroi.testing.wrapping import Request, WrappedObjects

T = TypeVar("T")


class SlowObjects(WrappedObjects):
    """Waits `latency_s` before each request, or as long as `latency_s(request)` says."""

    def __init__(
        self, inner: Objects, latency_s: float | Callable[[Request], float], *, environment: Environment = SYSTEM
    ) -> None:
        super().__init__(inner)
        self._latency_s = latency_s
        self._environment = environment

    def around(self, request: Request, call: Callable[[], T]) -> T:
        latency_s = self._latency_s
        self._environment.sleep(latency_s(request) if callable(latency_s) else latency_s)
        return call()
