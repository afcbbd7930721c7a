"""Group commit: publications of the threads of one process become one version of the lake, each a commit of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import lance
import pytest

import conroi
from conroi.catalog.state import decode_members
from conroi.format.on_disk import MEMBERS_PROPERTY
from conroi.testing import Fault, Gate, Request, call_after, call_before, lose_answer
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

    def starts(self, work: Callable[[conroi.Transaction], object], message: str = "", **options: object) -> Future[int]:
        """A transaction in a thread of its own, which is in the queue when this returns; its result is its version."""

        def transact() -> int:
            with self.lake.begin(message, **options) as tx:  # pyright: ignore[reportArgumentType]
                work(tx)
            assert tx.result.version is not None
            return tx.result.version

        future = self._pool.submit(transact)
        self._count += 1
        queue = self.lake._catalog.publishers._queue  # pyright: ignore[reportPrivateUsage]
        until = time.monotonic() + WAIT_S
        while len(queue) < self._count and not future.done() and time.monotonic() < until:
            time.sleep(0.001)
            queue = self.lake._catalog.publishers._queue  # pyright: ignore[reportPrivateUsage]
        return future

    def go(self) -> None:
        """Let the first publication, and so the group, go on."""
        self._gate.open()


@contextmanager
def crowd(lake: conroi.Lake, *faults: Fault, is_cloud: bool = False) -> Generator[Crowd]:
    gate = Gate(WAIT_S)
    held = call_before(gate, "put_if_absent", "_versions/*")
    slow = faulty(lake.uri, [held, *faults], only="__manifest", is_cloud=is_cloud)
    slow["first"].count_rows()
    with ThreadPoolExecutor(16) as pool:
        first = pool.submit(lambda: slow["first"].append([{"n": 1}]))
        gate.wait_for_arrival()
        try:
            yield Crowd(slow, pool, gate)
        finally:
            gate.open()
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


def test_updates_of_one_row_by_many_threads_wait_for_each_other(tmp_path: Path) -> None:
    """Publications that cannot share a version take turns, so none runs out of its retries."""
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", [{"id": 1, "n": 0}], key="id")
    with ThreadPoolExecutor(8) as pool:
        for each in [pool.submit(lambda: lake["t"].update({"n": "n + 1"}, "id = 1")) for _ in range(24)]:
            each.result(WAIT_S)
    assert lake["t"].to_arrow().to_pylist() == [{"id": 1, "n": 24}]


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
