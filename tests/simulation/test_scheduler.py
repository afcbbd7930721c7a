"""Scheduler of simulations: virtual time, locks, queues, crashes, and runs that never end."""

from __future__ import annotations

import random
from contextvars import ContextVar

import pytest

from conroi.storage.parallel import ProcessLock, ThreadQueue, aside, in_parallel, together
from conroi.testing.simulation import carriers
from conroi.testing.simulation.scheduler import Client, Scheduler, Stuck

pytestmark = pytest.mark.contract("H5")


@pytest.fixture(params=["greenlets", "threads"], autouse=True)
def carried_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "threads":
        monkeypatch.setattr(carriers, "greenlet", None)


def client(name: str) -> Client:
    return Client(name, random.Random(name))


def order_of(seed: int) -> list[str]:
    """Three clients that pause at random, in the order in which they go on."""
    scheduler, seen = Scheduler(seed), list[str]()

    def work(name: str) -> None:
        for _ in range(5):
            scheduler.pause(0.0)
            seen.append(name)

    for name in "abc":
        scheduler.spawn(client(name), lambda name=name: work(name))
    scheduler.run()
    return seen


def test_the_seed_decides_who_goes_on() -> None:
    assert order_of(1) == order_of(1)
    assert len({tuple(order_of(seed)) for seed in range(20)}) > 15


def test_time_passes_without_waiting() -> None:
    scheduler, seen = Scheduler(1), list[tuple[str, float]]()

    def work(name: str, seconds: float) -> None:
        scheduler.pause(seconds)
        seen.append((name, scheduler.now))

    scheduler.spawn(client("late"), lambda: work("late", 3600.0))
    scheduler.spawn(client("early"), lambda: work("early", 1.0))
    scheduler.run()
    assert seen == [("early", 1.0), ("late", 3600.0)]


def test_a_lock_is_held_across_requests() -> None:
    scheduler, lock, inside = Scheduler(3), ProcessLock(), list[str]()
    most = 0

    def work(name: str) -> None:
        nonlocal most
        for _ in range(5):
            with lock:
                inside.append(name)
                most = max(most, len(inside))
                scheduler.pause(1.0)
                inside.remove(name)
            scheduler.pause(0.1)

    both = client("both")
    for name in "abc":
        scheduler.spawn(both, lambda name=name: work(name))
    scheduler.run()
    assert most == 1
    assert scheduler.now >= 15.0


def test_a_lock_is_re_entrant_for_its_owner_alone() -> None:
    scheduler, lock, seen = Scheduler(3), ProcessLock(), list[str]()

    def work(name: str) -> None:
        with lock:
            scheduler.pause(1.0)
            with lock:
                seen.append(name)
                scheduler.pause(1.0)
            scheduler.pause(1.0)
            seen.append(name)

    both = client("both")
    for name in "ab":
        scheduler.spawn(both, lambda name=name: work(name))
    scheduler.run()
    assert seen in (["a", "a", "b", "b"], ["b", "b", "a", "a"])


def test_a_lock_is_given_up_after_its_time() -> None:
    scheduler, lock, got = Scheduler(1), ProcessLock(), list[tuple[bool, float]]()

    def hold() -> None:
        with lock:
            scheduler.pause(10.0)

    def ask() -> None:
        scheduler.pause(1.0)
        got.append((lock.acquire(timeout=2.0), scheduler.now))

    scheduler.spawn(client("holder"), hold)
    scheduler.spawn(client("asker"), ask)
    scheduler.run()
    assert got == [(False, 3.0)]


def test_a_queue_serves_one_after_the_other() -> None:
    scheduler, queue, seen = Scheduler(2), ThreadQueue(100.0), list[str]()

    def work(name: str) -> None:
        with queue.turn():
            seen.append(name)
            scheduler.pause(1.0)
            seen.append(name)

    for name in "abcd":
        scheduler.spawn(client(name), lambda name=name: work(name))
    scheduler.run()
    assert seen[::2] == seen[1::2]


def test_a_queue_does_not_wait_for_ever() -> None:
    scheduler, queue, seen = Scheduler(2), ThreadQueue(5.0), list[tuple[str, float]]()

    def work(name: str, first_s: float) -> None:
        scheduler.pause(first_s)
        with queue.turn():
            seen.append((name, scheduler.now))
            scheduler.pause(100.0)

    scheduler.spawn(client("slow"), lambda: work("slow", 0.0))
    scheduler.spawn(client("next"), lambda: work("next", 1.0))
    scheduler.run()
    assert seen == [("slow", 0.0), ("next", 6.0)]


def test_parallel_tasks_overlap() -> None:
    scheduler, found = Scheduler(1), list[object]()

    def work() -> None:
        together([lambda: scheduler.pause(3.0)] * 4, is_local=False)
        found.append(scheduler.now)
        found.append(list(in_parallel(lambda item: item * 2, [1, 2, 3], 2)))
        found.append(aside(lambda: "done").result())

    scheduler.spawn(client("a"), work)
    scheduler.run()
    assert found == [3.0, [2, 4, 6], "done"]


def test_a_crashed_client_does_nothing_more() -> None:
    scheduler, seen, victim = Scheduler(1), list[str](), client("victim")

    def work() -> None:
        try:
            scheduler.pause(2.0)
            seen.append("went on")
        finally:
            seen.append("cleaned up in Python only")

    scheduler.spawn(victim, work)
    scheduler.spawn(victim, work)
    scheduler.at(1.0, lambda: scheduler.crash(victim))
    scheduler.run()
    assert seen == ["cleaned up in Python only"] * 2


def test_code_that_cleans_up_after_a_crash_waits_for_nothing() -> None:
    scheduler, seen, victim = Scheduler(1), list[str](), client("victim")

    def work() -> None:
        try:
            scheduler.pause(2.0)
        finally:
            together([lambda: seen.append("a task ran")] * 2, is_local=False)
            seen.append("went on")

    scheduler.spawn(victim, work)
    scheduler.at(1.0, lambda: scheduler.crash(victim))
    scheduler.run()
    assert seen == []


def test_a_paused_client_stands_still_with_all_threads() -> None:
    scheduler, seen, paused = Scheduler(1), list[float](), client("paused")

    def work() -> None:
        scheduler.pause(2.0)
        seen.append(scheduler.now)

    def pause() -> None:
        paused.paused_until = 50.0

    scheduler.spawn(paused, work)
    scheduler.spawn(paused, work)
    scheduler.at(1.0, pause)
    scheduler.run()
    assert seen == [50.0, 50.0]


def test_a_deadlock_is_a_finding() -> None:
    scheduler, one, two = Scheduler(1), ProcessLock(), ProcessLock()

    def work(first: ProcessLock, second: ProcessLock) -> None:
        with first:
            scheduler.pause(1.0)
            with second:
                pass

    scheduler.spawn(client("a"), lambda: work(one, two))
    scheduler.spawn(client("b"), lambda: work(two, one))
    with pytest.raises(Stuck, match="deadlock"):
        scheduler.run()


def test_a_run_without_end_is_a_finding() -> None:
    scheduler = Scheduler(1, most_steps=100)

    def work() -> None:
        while True:
            scheduler.pause(1.0)

    scheduler.spawn(client("a"), work)
    with pytest.raises(Stuck, match="not at its end"):
        scheduler.run()


def test_an_error_of_a_thread_ends_the_run() -> None:
    scheduler = Scheduler(1)

    def fail() -> None:
        raise ValueError("no")

    scheduler.spawn(client("a"), fail)
    scheduler.spawn(client("b"), lambda: scheduler.pause(1.0))
    with pytest.raises(ValueError, match="no"):
        scheduler.run()


def test_context_variables_belong_to_one_thread() -> None:
    scheduler, variable, seen = Scheduler(1), ContextVar[str]("variable"), list[tuple[str, str]]()

    def work(name: str) -> None:
        assert variable.get("unset") == "unset"
        variable.set(name)
        scheduler.pause(1.0)
        seen.append((name, variable.get()))

    for name in "abc":
        scheduler.spawn(client(name), lambda name=name: work(name))
    scheduler.run()
    assert sorted(seen) == [("a", "a"), ("b", "b"), ("c", "c")]
