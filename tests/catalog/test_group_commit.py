"""Group commit: publications of the threads of one process become one version of the lake, each a commit of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import lance
import pyarrow as pa
import pytest

import conroi
from conroi.catalog.state import decode_members
from conroi.format.on_disk import MEMBERS_PROPERTY
from conroi.storage.local_folders import settable_times
from conroi.storage.objects import Objects
from conroi.storage.parallel import LeaderQueue
from conroi.testing import (
    Fault,
    FaultyObjects,
    Gate,
    Request,
    SeededEnvironment,
    call_after,
    call_before,
    lose_answer,
)
from tests.support.aging import make_older
from tests.support.cloud_servers import BucketServer
from tests.support.lakes import append_by_path, faulty, lake_with, path_of, rows, rows_by_path

pytestmark = pytest.mark.contract("P14")
WAIT_S = 30.0


@pytest.fixture
def lake(tmp_path: Path) -> conroi.Lake:
    return lake_with(tmp_path / "lake", "a", "b", "c", "first")


class Crowd:
    """One connection whose first publication stands still at its put, so that the others form a group behind it."""

    def __init__(self, lake: conroi.Lake, pool: ThreadPoolExecutor, gate: Gate) -> None:
        self.lake = lake
        self._pool = pool
        self._gate = gate
        self._count = 0
        self.may_fail = False

    def starts(self, work: Callable[[conroi.Transaction], object], message: str = "", **options: object) -> Future[int]:
        """A transaction in a thread of its own, which is in the queue when this returns; its result is its version."""

        def transact() -> int:
            with self.lake.begin(message, **options) as tx:  # pyright: ignore[reportArgumentType]
                work(tx)
            assert tx.result.version is not None
            return tx.result.version

        return cast("Future[int]", self.submit(transact))

    def submit(self, work: Callable[[], object]) -> Future[object]:
        """Something that joins the queue, in a thread of its own; it is there when this returns."""
        future = self._pool.submit(work)
        self._count += 1
        queue = self.lake._catalog.publishers  # pyright: ignore[reportPrivateUsage]
        until = time.monotonic() + WAIT_S
        while len(queue._queue) < self._count and not future.done() and time.monotonic() < until:  # pyright: ignore[reportPrivateUsage]
            time.sleep(0.001)
        return future

    def go(self, *, fails: bool = False) -> None:
        """Let the first publication, and so the group, go on; `fails`: it may be refused itself."""
        self.may_fail = fails
        self._gate.open()


@contextmanager
def crowd(lake: conroi.Lake, *faults: Fault, is_cloud: bool = False, **options: Any) -> Generator[Crowd]:
    gate = Gate(WAIT_S)
    held = call_before(gate, "put_if_absent", "_versions/*")
    slow = faulty(lake.uri, [held, *faults], only="__manifest", is_cloud=is_cloud, **options)
    slow["first"].count_rows()
    with ThreadPoolExecutor(16) as pool:
        first = pool.submit(lambda: slow["first"].append([{"n": 1}]))
        gate.wait_for_arrival()
        threads = Crowd(slow, pool, gate)
        try:
            yield threads
        finally:
            gate.open()
        if threads.may_fail:
            first.exception(WAIT_S)
        else:
            first.result(WAIT_S)


def append(table: str, *numbers: int) -> Callable[[conroi.Transaction], object]:
    return lambda tx: tx[table].append([{"n": number} for number in numbers])


def messages(lake: conroi.Lake, version: int) -> list[str | None]:
    """Those of the commits of a version, newest first."""
    return [commit.message for commit in lake.history() if commit.version == version]


@pytest.mark.parametrize("is_cloud", [False, True])
def test_publications_of_different_tables_share_a_version(lake: conroi.Lake, is_cloud: bool) -> None:
    with crowd(lake, is_cloud=is_cloud) as threads:
        found = [threads.starts(append(name, 7), f"to {name}") for name in "abc"]
        threads.go()
        versions = {each.result(WAIT_S) for each in found}
    assert versions == {lake.version}
    assert messages(lake, lake.version) == ["to c", "to b", "to a"], (
        "each is a commit of its own, in the order of the queue"
    )
    for commit, name in zip(lake.history(3), "cba", strict=True):
        assert commit.tables == {name: 2}
    assert all(rows(lake[name]) == [0, 7] for name in "abc")


def test_appends_to_one_table_are_one_append_with_the_rows_of_each_in_one_run(tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", "first")
    lake.create_table("t", [{"n": 0}], stable_row_ids=True)
    with crowd(lake) as threads:
        found = [threads.starts(append("t", 10 * number, 10 * number + 1), f"w{number}") for number in range(1, 5)]
        threads.go()
        assert {each.result(WAIT_S) for each in found} == {lake.version}
    assert lake["t"].version == 2, "one new version of the table"
    table = lake["t"].scan.reader(with_row_id=True).read_all().sort_by("_rowid")
    assert table["n"].to_pylist() == [0, 10, 11, 20, 21, 30, 31, 40, 41]
    assert messages(lake, lake.version) == ["w4", "w3", "w2", "w1"]
    assert lake["t"].history()[0].message == "4 commits: w1; w2; w3; w4"
    assert lance.dataset(path_of(lake, "t")).count_rows() == 9, "pylance reads it"
    assert lake.doctor().findings == ()


def test_a_publication_that_reads_what_an_earlier_member_changes_is_refused_by_its_own_check(lake: conroi.Lake) -> None:
    def reads_a(tx: conroi.Transaction) -> None:
        tx["a"].to_arrow()
        tx["b"].append([{"n": 8}])

    with crowd(lake) as threads:
        writes = threads.starts(append("a", 7), "writes a")
        reads = threads.starts(reads_a, "reads a", isolation="serializable")
        other = threads.starts(append("c", 9), "other")
        threads.go()
        assert writes.result(WAIT_S) == other.result(WAIT_S)
        with pytest.raises(conroi.ExpectedVersionMismatch):
            reads.result(WAIT_S)
    assert rows(lake["b"]) == [0]
    assert rows(lake["a"]) == [0, 7]


def test_one_idempotency_key_in_two_threads_is_one_commit(lake: conroi.Lake) -> None:
    with crowd(lake) as threads:
        found = [threads.starts(append("a", 7), f"try {number}", idempotency_key="job") for number in range(2)]
        threads.go()
        assert len({each.result(WAIT_S) for each in found}) == 1, "the second is told the version of the first"
    assert rows(lake["a"]) == [0, 7]
    with lake.begin(idempotency_key="job") as tx:
        assert tx.is_done, "it is found again, also as one of several"


def test_a_name_that_two_threads_create_is_refused_to_one_of_them(lake: conroi.Lake) -> None:
    with crowd(lake) as threads:
        found = [threads.starts(lambda tx: tx.create_table("new", [{"n": 1}])) for _ in range(2)]
        other = threads.starts(append("a", 7))
        threads.go()
        outcomes = [each.exception(WAIT_S) for each in found]
        other.result(WAIT_S)
    assert [type(each) for each in outcomes if each is not None] == [conroi.AlreadyExistsError]
    assert (rows(lake["new"]), rows(lake["a"])) == ([1], [0, 7])


def test_a_lost_response_is_a_success_for_all_members(lake: conroi.Lake) -> None:
    lost = lose_answer("put_if_absent", "_versions/*")
    with crowd(lake, lost) as threads:
        found = [threads.starts(append(name, 7), f"to {name}") for name in "abc"]
        threads.go()
        versions = {each.result(WAIT_S) for each in found}
    assert versions == {lake.version}
    assert all(rows(lake[name]) == [0, 7] for name in "abc")


def test_an_unknown_outcome_is_told_to_each_member_with_its_own_id(lake: conroi.Lake) -> None:
    is_down = threading.Event()

    def down(request: Request) -> None:
        if is_down.is_set():
            raise conroi.StoreUnavailable(f"no answer to {request.verb}")

    def goes_down(request: Request) -> None:
        is_down.set()
        down(request)

    faults = [
        call_after(goes_down, "put_if_absent", "_versions/*"),
        call_before(down, "*", "*", times=None),
    ]
    with crowd(lake, *faults) as threads:
        found = [threads.starts(append(name, 7)) for name in "ab"]
        threads.go()
        outcomes = [each.exception(WAIT_S) for each in found]
    assert all(isinstance(each, conroi.CommitStateUnknown) for each in outcomes), outcomes
    assert len({each.transaction_uuid for each in outcomes if isinstance(each, conroi.CommitStateUnknown)}) == 2
    assert all(rows(lake[name]) == [0, 7] for name in "ab"), "it had landed, once"


def test_a_group_that_loses_the_race_to_another_client_loses_nothing(lake: conroi.Lake) -> None:
    with crowd(lake) as threads:
        found = [threads.starts(append(name, 7), f"to {name}") for name in "abc"]
        lake["a"].append([{"n": 5}])  # another client: the first publication and then the group are behind
        threads.go()
        for each in found:
            each.result(WAIT_S)
    assert [rows(lake[name]) for name in "abc"] == [[0, 5, 7], [0, 7], [0, 7]]
    assert rows(lake["first"]) == [0, 1]
    assert len([commit for commit in lake.history() if (commit.message or "").startswith("to ")]) == 3


def test_a_table_that_was_written_by_path_is_adopted_by_the_next_member(lake: conroi.Lake) -> None:
    with crowd(lake) as threads:
        found = [threads.starts(append("a", number)) for number in (7, 8)]
        append_by_path(path_of(lake, "a"), 5)
        threads.go()
        for each in found:
            each.result(WAIT_S)
    assert rows(lake["a"]) == rows_by_path(path_of(lake, "a")) == [0, 5, 7, 8]


def test_deletes_from_one_table_by_many_threads_wait_for_each_other(tmp_path: Path) -> None:
    """Publications that cannot share a version take turns, so none runs out of its retries."""
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", [{"id": number} for number in range(25)], key="id")

    def delete(number: int) -> None:
        with lake.begin() as tx:
            tx["t"].delete(f"id = {number}")

    with ThreadPoolExecutor(8) as pool:
        for each in [pool.submit(delete, number) for number in range(24)]:
            each.result(WAIT_S)
    assert lake["t"].to_arrow().to_pylist() == [{"id": 24}]


def test_each_thread_compacts_a_table_that_it_alone_filled(tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", "first", "t")
    lake["t"].set_config({"conroi.auto_compact": "4"})
    with crowd(lake) as threads:
        found = [threads.starts(append("t", number)) for number in range(1, 7)]
        threads.go()
        for each in found:
            each.result(WAIT_S)
    assert rows(lake["t"]) == list(range(7))
    compactions = [commit for commit in lake["t"].history() if commit.operation == "Rewrite"]
    assert len(compactions) == 1, "one of the threads that share the version does it"


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"members": 7}',
        '{"members": [7]}',
        '{"members": [{"id": "x", "properties": {}, "rows": [1]}]}',
        '{"members": [{"id": "x", "properties": {"a": 1}, "rows": []}]}',
        '{"members": [{"id": "x", "properties": {}, "rows": ["elsewhere"]}]}',
        '{"members": [{"properties": {}, "rows": []}]}',
    ],
)
def test_a_damaged_list_of_members_is_a_typed_error(text: str) -> None:
    with pytest.raises(conroi.CorruptionError):
        decode_members({MEMBERS_PROPERTY: text}, {"here": None})


def test_a_version_without_members_is_one_commit() -> None:
    assert decode_members({}, {}) is None


# ------------------------------------------------------------------------------ found by a review


def test_an_error_of_one_member_stays_with_it(lake: conroi.Lake) -> None:
    with crowd(lake) as threads:
        before, after = (threads.starts(append(name, 7)) for name in "ab")
        inside = threads.starts(lambda tx: tx.create_table("x.y", [{"n": 1}]))
        last = threads.starts(append("c", 7))
        lake.create_table("x", [{"n": 1}])  # so that nothing can be inside it
        threads.go()
        with pytest.raises(conroi.AlreadyExistsError):
            inside.result(WAIT_S)
        for each in (before, after, last):
            each.result(WAIT_S)
    assert all(rows(lake[name]) == [0, 7] for name in "abc")


def test_a_final_name_that_is_taken_while_a_member_waits_is_not_published_over(lake: conroi.Lake) -> None:
    for name in "bc":
        lake[name].append([{"n": 1}, {"n": 2}])
    with crowd(lake) as threads:
        found = [threads.starts(lambda tx, name=name: tx[name].delete("n = 1")) for name in "bc"]
        append_by_path(path_of(lake, "b"), 5)
        threads.go()
        for each in found:
            each.result(WAIT_S)
    assert rows(lake["b"]) == rows_by_path(path_of(lake, "b")) == [0, 2, 5]
    lake["b"].append([{"n": 6}])
    assert lake.doctor().findings == ()


def test_members_whose_files_were_collected_while_they_waited_are_not_published(lake: conroi.Lake) -> None:
    world = SeededEnvironment(3)
    for name in "bc":
        lake[name].append([{"n": 1}, {"n": 2}])
    with settable_times(), crowd(lake, environment=world) as threads:
        found = [threads.starts(lambda tx, name=name: tx[name].delete("n = 1"), timeout=1e9) for name in "bc"]
        make_older(lake.uri, hours=48)
        world.sleep(48 * 3600)
        assert "staged" in lake.gc(dry_run=False).by_kind
        assert threads.lake.version == lake.version, "the process knows the version that gc made"
        threads.go(fails=True)
        outcomes = [each.exception(WAIT_S) for each in found]
    assert all(isinstance(each, conroi.ConflictError) for each in outcomes), outcomes
    assert [rows(lake[name]) for name in "bc"] == [[0, 1, 2], [0, 1, 2]]


def test_a_storage_error_of_one_table_stays_with_its_members(lake: conroi.Lake) -> None:
    def denied(request: Request) -> None:
        raise conroi.StoreError(f"access denied to {request.path}")

    def wrap(objects: Objects) -> Objects:
        return FaultyObjects(objects, [call_before(denied, "put*", "*", times=None)])

    with crowd(lake) as threads:
        good = [threads.starts(append(name, 7)) for name in "ac"]
        bad_tx = threads.lake.begin()
        bad_tx["b"].append([{"n": 7}])
        files = bad_tx._tables.handles["b"].files  # pyright: ignore[reportPrivateUsage]
        bad_tx._tables.handles["b"].files = replace(files, objects=wrap(files.objects))  # pyright: ignore[reportPrivateUsage]
        bad = threads.submit(bad_tx.commit)
        threads.go()
        for each in good:
            each.result(WAIT_S)
        assert isinstance(bad.exception(WAIT_S), conroi.StoreError)
    assert [rows(lake[name]) for name in "abc"] == [[0, 7], [0], [0, 7]]


def test_a_version_does_not_get_more_rows_than_its_commit_can_record(
    lake: conroi.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("group_commit", "state"):
        monkeypatch.setattr(f"conroi.catalog.{module}.MOST_RECORDS", 4)

    def three(tx: conroi.Transaction, first: int) -> None:
        for number in range(first, first + 3):
            tx.create_table(f"t{number}", [{"n": 1}])

    with crowd(lake) as threads:
        found = [threads.starts(lambda tx, first=first: three(tx, first), f"from {first}") for first in (0, 10, 20)]
        threads.go()
        assert len({each.result(WAIT_S) for each in found}) == 3, "a version each"
    assert [commit.message for commit in lake.history(3)] == ["from 20", "from 10", "from 0"]


def test_a_statement_after_an_empty_append_reads_what_it_writes(bucket_of_the_day: BucketServer) -> None:
    lake = conroi.connect(bucket_of_the_day.new_uri("lake"), storage_options=bucket_of_the_day.options)
    lake.create_table("t", [{"n": 0}])
    with lake.begin() as tx:
        tx["t"].append(pa.table({"n": pa.array([], pa.int64())}))
        tx["t"].overwrite([{"n": 1}], where="n = 1")
    assert rows(lake["t"]) == [0, 1]


def test_a_thread_that_is_interrupted_while_it_leads_blocks_nobody() -> None:
    queue, answered = LeaderQueue[str](), list[str]()

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        queue.join("first", interrupted)

    def lead(items: Sequence[str]) -> None:
        answered.extend(items)
        queue.done(items)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(queue.join, "second", lead).result(WAIT_S)
    assert answered == ["second"]
    assert queue.try_alone()


def test_a_leader_whose_thread_has_ended_is_none() -> None:
    queue = LeaderQueue[str]()
    thread = threading.Thread(target=queue.try_alone)  # and it ends without `end`
    thread.start()
    thread.join()
    assert queue.try_alone()
