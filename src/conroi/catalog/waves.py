"""Doing several small writes at once, where each takes a request; one after the other, where that is faster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from typing import TypeVar

from conroi.catalog.heads import Task

T = TypeVar("T")


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=64, thread_name_prefix="conroi-wave")


@cache
def _background() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=8, thread_name_prefix="conroi-later")


def together(tasks: Sequence[Task], *, is_local: bool) -> None:
    """Do all tasks; the first error is raised when all have ended."""
    if is_local or len(tasks) < 2:
        for task in tasks:
            task()
        return
    futures = [_pool().submit(task) for task in tasks]
    wait(futures)
    for future in futures:
        future.result()


def aside(task: Callable[[], T]) -> Future[T]:
    """Do it while the caller does other things; it mints no ids and reads no clock, so races can be replayed."""
    return _pool().submit(task)


def later(task: Task) -> Future[object]:
    """Do it off the path of the caller; a process that ends waits for it."""
    return _background().submit(task)
