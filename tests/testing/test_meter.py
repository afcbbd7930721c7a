"""The meter of a lake: what all its tables ask for together, and how much of it one after the other."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conroi.errors import StoreUnavailable
from conroi.storage import open_objects
from conroi.storage.objects import Objects
from conroi.testing import (
    FaultyObjects,
    Measurement,
    Meter,
    NthRequest,
    Request,
    SlowObjects,
    call_before,
    connect_through,
    fail,
)


@pytest.mark.parametrize(
    ("spans", "serial"),
    [
        ([], 0),
        ([(0, 1)], 1),
        ([(0, 1), (1, 2), (2, 3)], 3),
        ([(0, 1), (0.5, 1.5), (0.9, 1.8)], 1),
        ([(0, 10), (1, 2), (3, 4), (5, 6)], 3),
        ([(3, 4), (0, 1), (0, 2), (2, 3)], 3),
    ],
    ids=["none", "one", "a chain", "at once", "a long one beside a chain", "in any order"],
)
def test_of_requests_that_overlap_one_counts(spans: list[tuple[float, float]], serial: int) -> None:
    measurement = Measurement()
    for span in spans:
        measurement.add(Request("get", "x"), 0, span)
    assert (measurement.serial, measurement.requests()) == (serial, len(spans))


def test_requests_of_several_tables_are_one_measurement(tmp_path: Path) -> None:
    meter = Meter()
    tables: list[Objects] = [
        meter.counting(SlowObjects(open_objects(tmp_path / name), 0.02)) for name in ("a", "b", "c")
    ]
    with meter.measure() as one_by_one:
        for table in tables:
            table.put("x", b"1")
    barrier = threading.Barrier(3)

    def put(table: Objects) -> None:
        barrier.wait()
        table.put("y", b"1")

    with meter.measure() as at_once, ThreadPoolExecutor(3) as pool:
        list(pool.map(put, tables))
    assert (one_by_one.requests("put"), one_by_one.serial) == (3, 3)
    assert (at_once.requests("put"), at_once.serial) == (3, 1)
    assert meter.ever.requests() == 6


def test_the_nth_request_of_all_together_meets_the_fault(tmp_path: Path) -> None:
    plan = NthRequest(3, fail("put"))
    a, b = (FaultyObjects(open_objects(tmp_path / name), plan) for name in "ab")
    a.put("x", b"1")
    b.put("x", b"1")
    assert a.get("x") == b"1"  # not a put, so it does not count
    with pytest.raises(StoreUnavailable):
        a.put("y", b"1")
    b.put("y", b"1")
    assert (a.head("y"), b.get("y")) == (None, b"1")


def test_all_files_of_a_lake_pass_through_the_instrument(tmp_path: Path) -> None:
    asked: set[str] = set()

    def wrap(objects: Objects) -> Objects:
        note = call_before(lambda _: asked.add(objects.root.rpartition("/")[2]), times=None)
        return FaultyObjects(objects, [note])

    lake = connect_through(tmp_path / "lake", wrap)
    lake.create_table("t", [{"n": 1}])
    assert {"__manifest", "t.lance"} <= asked
