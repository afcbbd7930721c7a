"""How long and how often a publication is tried again when other writers are faster."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

import conroi
from conroi.environment import SystemEnvironment
from conroi.storage.parallel import ThreadQueue
from conroi.testing import call_before, connect_through
from tests.support.cloud_servers import BucketServer
from tests.support.lakes import faulty, lake_with, rows
from tests.support.servers import S3Server

pytestmark = pytest.mark.contract("P13")

PUT = ("put_if_absent", "_versions/*.manifest")


class Clock(SystemEnvironment):
    """Goes forward when told, and by what is slept."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def rival_of(lake: conroi.Lake) -> conroi.Lake:
    """A concurrent writer in virtual time: it waits for its turn without a pause."""
    return connect_through(lake.uri, lambda objects: objects, environment=Clock())


def rivalled(lake: conroi.Lake, table: str, times: int, **options: Any) -> conroi.Lake:
    """The lake of a writer that loses so many races in a row to one that publishes to this table."""
    rival = rival_of(lake)
    hook = call_before(lambda _: rival[table].append([{"n": 7}]), *PUT, times=times)
    return faulty(lake.uri, [hook], only="__manifest", **cast("dict[str, Any]", {"environment": Clock(), **options}))


def append(tx: Any) -> None:
    tx["a"].append([{"n": 1}])


def test_the_retries_of_run_reach_the_publication(tmp_path: Path) -> None:
    """G4: it gave up after 6 lost races, whatever its number."""
    lake = lake_with(tmp_path / "lake", "a")
    rivalled(lake, "a", 12).run(append, retries=200)
    assert rows(conroi.connect(lake.uri)["a"]) == [0, 1, *[7] * 12]


def test_run_gives_up_when_its_number_is_used_up_and_says_so(tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", "a")
    with pytest.raises(conroi.TooMuchContention) as caught:
        rivalled(lake, "a", 50).run(append, retries=8)
    assert caught.value.attempts == 9
    assert caught.value.conflicts == 9
    assert "attempts" in str(caught.value)
    assert rows(conroi.connect(lake.uri)["a"]).count(1) == 0


def test_a_publication_that_ran_out_of_time_is_done_again_in_a_new_transaction(tmp_path: Path) -> None:
    """Only the number of the lake was lost, to another table, until the default patience was over."""
    lake = lake_with(tmp_path / "lake", "a", "b")
    clock = Clock()
    rival = rival_of(lake)

    def concurrent_commit(_request: object) -> None:
        clock.seconds += 10
        rival["b"].append([{"n": 7}])

    writer = faulty(lake.uri, [call_before(concurrent_commit, *PUT, times=7)], only="__manifest", environment=clock)
    begun: list[Any] = []
    writer.run(lambda tx: (begun.append(tx), append(tx)))
    assert len(begun) == 3
    assert rows(conroi.connect(lake.uri)["a"]) == [0, 1]


@pytest.mark.parametrize("how", ["begin", "run"])
def test_a_deadline_bounds_the_attempts_and_nothing_else_does(tmp_path: Path, how: str) -> None:
    lake = lake_with(tmp_path / "lake", "a")
    clock = Clock()
    rival = rival_of(lake)

    def concurrent_commit(_request: object) -> None:
        clock.seconds += 10
        rival["a"].append([{"n": 7}])

    def publish(timeout: float) -> None:
        hook = call_before(concurrent_commit, *PUT, times=20)
        writer = faulty(lake.uri, [hook], only="__manifest", environment=clock)
        if how == "run":
            writer.run(append, timeout=timeout)
        else:
            with writer.begin(timeout=timeout) as tx:
                append(tx)

    with pytest.raises(conroi.TooMuchContention, match="lost to other writers") as caught:
        publish(150.0)
    assert "timeout" in (caught.value.hint or "")
    assert 1 not in rows(conroi.connect(lake.uri)["a"])
    publish(1000.0)
    assert rows(conroi.connect(lake.uri)["a"]).count(1) == 1


@pytest.mark.parametrize("timeout", [-1, float("inf"), float("nan"), "1", True])
def test_a_timeout_that_is_none_is_refused(tmp_path: Path, timeout: Any) -> None:
    lake = lake_with(tmp_path / "lake", "a")
    for call in (lambda: lake.begin(timeout=timeout), lambda: lake.run(append, timeout=timeout)):
        with pytest.raises(conroi.InvalidInputError, match="number"):
            call()


def test_run_does_not_do_again_what_would_be_wrong_again(tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", "a")
    calls: list[int] = []

    def work(tx: Any) -> None:
        calls.append(1)
        tx.expect("a", 99)
        append(tx)

    with pytest.raises(conroi.ExpectedVersionMismatch):
        lake.run(work, retries=200)
    assert len(calls) == 1


# ------------------------------------------------------------------------------ threads of one process


def test_threads_have_their_turns_in_the_order_in_which_they_came() -> None:
    """F15: they raced each other as soon as they had waited for longer than one turn may take."""
    queue, order, at_once, most = ThreadQueue(600.0), list[int](), 0, 0
    lock = threading.Lock()

    def work(number: int) -> None:
        nonlocal at_once, most
        with queue.turn(), queue.turn():
            with lock:
                at_once += 1
                most = max(most, at_once)
                order.append(number)
            time.sleep(0.1)
            with lock:
                at_once -= 1

    threads: list[threading.Thread] = []
    with queue.turn():
        for number in range(12):
            threads.append(threading.Thread(target=work, args=(number,)))
            threads[-1].start()
            while len(queue._turns) <= number + 1:  # pyright: ignore[reportPrivateUsage]
                time.sleep(0.0001)
        queue._longest_s = 1.0  # pyright: ignore[reportPrivateUsage]  # less than all turns, much more than one
    for thread in threads:
        thread.join()
    assert order == list(range(12))
    assert most == 1


def test_a_thread_that_is_stuck_holds_up_the_next_one_for_a_while_only() -> None:
    queue, gone = ThreadQueue(0.05), threading.Event()

    def stuck() -> None:
        with queue.turn():
            gone.wait(30)

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(stuck)
        while not queue._turns:  # pyright: ignore[reportPrivateUsage]
            time.sleep(0.001)
        with queue.turn():
            assert not future.done()
        gone.set()
    with queue.turn():
        assert len(queue._turns) == 1  # pyright: ignore[reportPrivateUsage]


def test_threads_that_change_other_things_do_not_wait_for_each_other() -> None:
    queue, both = ThreadQueue(600.0), threading.Barrier(2)

    def work(name: str) -> None:
        with queue.turn(lambda: ({name}, set())):
            both.wait(30)  # raises unless both are here at once

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, ["a", "b"]))


def test_threads_that_share_a_thing_wait_for_one_that_has_it_alone() -> None:
    queue, both, order = ThreadQueue(600.0), threading.Barrier(2), list[str]()

    def share() -> None:
        with queue.turn(lambda: (set(), {"a"})):
            both.wait(30)
            order.append("shared")

    def alone() -> None:
        with queue.turn(lambda: ({"a"}, set())):
            order.append("alone")

    with ThreadPoolExecutor(4) as pool:
        with queue.turn(lambda: ({"a"}, set())):
            sharing = [pool.submit(share) for _ in range(2)]
            while len(queue._turns) < 3:  # pyright: ignore[reportPrivateUsage]
                time.sleep(0.0001)
            last = pool.submit(alone)
            while len(queue._turns) < 4:  # pyright: ignore[reportPrivateUsage]
                time.sleep(0.0001)
            assert not order
        for future in [*sharing, last]:
            future.result(30)
    assert order == ["shared", "shared", "alone"]


def contend(bucket: BucketServer, clients: int, timeout: float) -> None:
    """So many clients, each in a thread, add one row to one table of a lake on an object store."""
    uri = bucket.new_uri("lake")
    made = conroi.connect(uri, storage_options=bucket.options)
    made.create_table("a", [{"n": -1}])
    lakes = [conroi.connect(uri, storage_options=bucket.options) for _ in range(clients)]
    start = threading.Barrier(clients)

    def work(number: int) -> None:
        start.wait()
        lakes[number].run(lambda tx: tx["a"].append([{"n": number}]), timeout=timeout)

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(work, range(clients)))
    assert rows(conroi.connect(uri, storage_options=bucket.options)["a"]) == [-1, *range(clients)]


def test_many_writers_of_an_object_store_all_commit_within_their_deadline(bucket_of_the_day: BucketServer) -> None:
    contend(bucket_of_the_day, 16, 120.0)


@pytest.mark.soak
def test_200_writers_of_an_object_store_all_commit_within_their_deadline(seaweedfs: S3Server) -> None:
    contend(seaweedfs, 200, 600.0)
