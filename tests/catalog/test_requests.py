"""What a transaction asks of an object store: how many requests, and how many of them one after the other."""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import conroi
from conroi.catalog.store import Task
from conroi.storage.objects import Objects
from conroi.testing import Measurement, Meter, SlowObjects, connect_through
from tests.support.instruments import CloudLike
from tests.support.lakes import lake_with, settle
from tests.support.proxy import proxy_to
from tests.support.servers import S3Server

LATENCY_S = 0.05
LONG_S = 0.3
"""Where time is measured: long beside all that a busy machine adds."""
TABLES = ("a", "b", "c")


class Far:
    """A lake that is 50 ms away, with a meter."""

    def __init__(self, server: S3Server, latency_s: float = LATENCY_S) -> None:
        self.meter = Meter()
        self.latency_s = 0.0
        self._server = server
        self.uri = server.new_uri("lake")
        self.lake = self.connect()
        with self.lake.begin() as tx:
            for name in TABLES:
                tx.create_table(name, [{"n": 0}])
        self.settle()
        self.latency_s = latency_s

    def connect(self) -> conroi.Lake:
        return connect_through(self.uri, self._wrap, storage_options=self._server.options)

    def _wrap(self, objects: Objects) -> Objects:
        return self.meter.counting(SlowObjects(objects, lambda _: self.latency_s))

    def settle(self, lake: conroi.Lake | None = None) -> None:
        """Until all that is published is final."""
        settle(lake or self.lake)


@pytest.fixture
def far(seaweedfs: S3Server) -> Iterator[Far]:
    far = Far(seaweedfs)
    yield far
    far.settle()


def stage(tx: conroi.Transaction, number: int) -> None:
    for name in TABLES:
        tx[name].append([{"n": number}])
    for handle in tx._tables.handles.values():  # pyright: ignore[reportPrivateUsage]
        handle._complete()  # pyright: ignore[reportPrivateUsage]  # the files that are under way


def timed_commit(far: Far, tx: conroi.Transaction) -> tuple[Measurement, float]:
    with far.meter.measure() as measured:
        started = time.monotonic()
        tx.commit()
        took_s = time.monotonic() - started
    return measured, took_s


COMMIT = {
    ("head", "manifest"): 3,  # is the next final name of each table free?
    ("put", "staged"): 3,
    ("put", "transaction"): 3 + 1,
    ("put", "data"): 1,  # the rows of __manifest
    ("put_if_absent", "manifest"): 1,  # the publication
}
FINALIZE = {("put_if_absent", "manifest"): 3, ("delete", "staged"): 3}


@pytest.mark.contract("W5")
def test_a_publication_of_three_tables_is_two_serial_round_trips(far: Far) -> None:
    waves: list[int] = []
    for number in (1, 2, 3):
        with far.meter.measure() as began:
            tx = far.lake.begin()
        assert (began.requests(), began.serial) == (1, 1), began
        with far.meter.measure() as staged:
            stage(tx, number)
        assert staged.requests() == 0, f"the tables are known: {staged}"
        waves.append(timed_commit(far, tx)[0].serial)
        far.settle()
    assert min(waves) == 2, f"{waves}; on a busy machine one may look like more"
    assert {name: len(far.connect()[name].to_arrow()) for name in TABLES} == dict.fromkeys(TABLES, 4)


@pytest.mark.contract("W5")
def test_what_a_transaction_asks_for(far: Far) -> None:
    tx = far.lake.begin()
    stage(tx, 1)
    with far.meter.measure() as measured:
        tx.commit()
        far.settle()
    expected = {key: COMMIT.get(key, 0) + FINALIZE.get(key, 0) for key in COMMIT | FINALIZE}
    assert measured.by_verb_and_kind() == expected
    with far.meter.measure() as read:
        far.lake["a"].to_arrow()
    assert read.by_verb_and_kind() == {("get", "manifest"): 1}, "is there a newer version of the lake?"


def test_a_client_that_has_seen_nothing_opens_each_table_with_one_request(far: Far) -> None:
    with far.meter.measure() as connecting:
        lake = far.connect()
    assert connecting.serial <= 4, connecting
    with far.meter.measure() as opening:
        for name in TABLES:
            assert lake[name].version == 1
    asked = opening.by_verb_and_kind()
    assert asked == {("get", "manifest"): 2 * len(TABLES)}, "the lake's next version, and the table's"


def test_losing_the_race_for_the_next_number_costs_one_look_and_no_new_manifests(far: Far) -> None:
    other = far.connect()
    tx = far.lake.begin()
    stage(tx, 1)
    far.latency_s = 0
    other.create_table("d", [{"n": 0}])
    far.settle(other)
    far.latency_s = LATENCY_S
    measured, _ = timed_commit(far, tx)
    far.settle()
    assert tx.result.attempts == 2
    assert measured.requests("put", "staged") == len(TABLES), "the tables' own manifests stay"
    assert (
        measured.requests("put_if_absent", "manifest") == 2
    )  # tests/simulation/test_serial_requests.py: how many wait


@pytest.mark.contract("W5")
def test_the_server_is_asked_for_no_more_than_we_count(seaweedfs: S3Server) -> None:
    """Seen on the wire, pylance's own requests included."""
    with proxy_to(int(seaweedfs.endpoint.rpartition(":")[2])) as proxy:
        far = Far(replace(seaweedfs, endpoint=f"http://127.0.0.1:{proxy.port}"), latency_s=0)
        for number in (1, 2):
            with proxy.counting() as to_begin:
                tx = far.lake.begin()
            with proxy.counting() as to_stage:
                stage(tx, number)
            with proxy.counting() as to_commit:
                tx.commit()
                far.settle()
        assert to_begin == [1]
        assert to_stage == [len(TABLES)], "one data file each"
        assert to_commit == [sum(COMMIT.values()) + sum(FINALIZE.values())]


@pytest.mark.contract("W5")
def test_on_a_slow_line_a_publication_takes_two_round_trips(seaweedfs: S3Server) -> None:
    """The latency is on the wire, where nothing that is asked can avoid it."""
    with proxy_to(int(seaweedfs.endpoint.rpartition(":")[2])) as proxy:
        far = Far(replace(seaweedfs, endpoint=f"http://127.0.0.1:{proxy.port}"), latency_s=0)
        took: list[tuple[float, float]] = []
        to_begin = to_commit = math.inf
        for number in range(15):  # a busy machine only adds to the time
            proxy.latency_s = 0
            far.settle()
            proxy.latency_s = LONG_S
            started = time.monotonic()
            tx = far.lake.begin()
            began = time.monotonic()
            stage(tx, number)
            took.append((began - started, timed_commit(far, tx)[1]))
            to_begin, to_commit = min(each[0] for each in took), min(each[1] for each in took)
            if to_begin < 2 * LONG_S and to_commit < 3 * LONG_S:
                break
        proxy.latency_s = 0
        far.settle()
    assert LONG_S <= to_begin < 2 * LONG_S, f"{to_begin / LONG_S:.1f} round trips"
    assert 2 * LONG_S <= to_commit < 3 * LONG_S, f"{to_commit / LONG_S:.1f} round trips"


def counted(lake: conroi.Lake, meter: Meter) -> list[dict[tuple[str, str], int]]:
    """What a client asks for that has just come: to connect, to begin, to write, to read."""
    with meter.measure() as beginning:
        tx = lake.begin()
    with meter.measure() as writing:
        stage(tx, 1)
        tx.commit()
        settle(lake)
    with meter.measure() as reading:
        for name in TABLES:
            lake[name].to_arrow()
    return [each.by_verb_and_kind() for each in (beginning, writing, reading)]


def publish_often(lake: conroi.Lake, times: int) -> None:
    for number in range(times):
        with lake.begin() as tx:
            tx[TABLES[number % 3]].append([{"n": number}])


def costs_at(folder: Path, versions: int, *, is_cloud: bool) -> list[dict[tuple[str, str], int]]:
    lake = lake_with(folder, *TABLES)
    publish_often(lake, versions)
    meter = Meter()
    with meter.measure() as connecting:
        fresh = connect_through(lake.uri, lambda objects: meter.counting(CloudLike(objects) if is_cloud else objects))
    return [connecting.by_verb_and_kind(), *counted(fresh, meter)]


@pytest.mark.contract("W5", "M5")
@pytest.mark.parametrize("is_cloud", [False, True], ids=["local", "cloud"])
def test_costs_are_flat_in_history(is_cloud: bool, tmp_path: Path) -> None:
    few = costs_at(tmp_path / "few", 9, is_cloud=is_cloud)
    many = costs_at(tmp_path / "many", 150, is_cloud=is_cloud)
    assert many == few


@pytest.mark.soak
@pytest.mark.contract("W5", "M5")
@pytest.mark.parametrize("is_cloud", [False, True], ids=["local", "cloud"])
def test_costs_are_flat_in_a_long_history(is_cloud: bool, tmp_path: Path) -> None:
    assert costs_at(tmp_path / "many", 9_999, is_cloud=is_cloud) == costs_at(tmp_path / "few", 9, is_cloud=is_cloud)


def test_control_what_is_done_one_after_the_other_is_counted_so(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    def one_by_one(tasks: Sequence[Task], **_: object) -> None:
        for task in tasks:
            task()

    monkeypatch.setattr(importlib.import_module("conroi.commit.loop"), "together", one_by_one)
    tx = far.lake.begin()
    stage(tx, 1)
    measured, took_s = timed_commit(far, tx)
    assert measured.serial >= sum(COMMIT.values())
    assert took_s >= sum(COMMIT.values()) * LATENCY_S
