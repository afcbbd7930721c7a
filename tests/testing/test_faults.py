"""Faults come when and where they are planned, and do what they say to the storage."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from conroi.errors import StoreUnavailable
from conroi.storage import open_objects
from conroi.storage.objects import ObjectExists, Objects
from conroi.testing import ChanceFaults, Fault, FaultyObjects, Gate, Request, call_after, call_before, fail, lose_answer


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    return open_objects(tmp_path / "t")


def test_a_failed_request_does_nothing(objects: Objects) -> None:
    faulty = FaultyObjects(objects, [fail("put_if_absent")])
    with pytest.raises(StoreUnavailable):
        faulty.put_if_absent("a", b"x")
    assert objects.head("a") is None
    faulty.put_if_absent("a", b"x")  # only once
    assert [(hit.verb, hit.path) for hit in faulty.hits] == [("put_if_absent", "a")]


@pytest.mark.contract("T11")
def test_a_lost_answer_hides_what_was_done(objects: Objects) -> None:
    faulty = FaultyObjects(objects, [lose_answer("put_if_absent")])
    with pytest.raises(StoreUnavailable):
        faulty.put_if_absent("a", b"x")
    assert objects.get("a") == b"x"
    with pytest.raises(ObjectExists):
        faulty.put_if_absent("a", b"x")


def test_also_the_answer_that_a_name_is_taken_can_get_lost(objects: Objects) -> None:
    objects.put("a", b"theirs")
    with pytest.raises(StoreUnavailable):
        FaultyObjects(objects, [lose_answer()]).put_if_absent("a", b"mine")
    assert objects.get("a") == b"theirs"


def test_a_fault_hits_only_what_it_is_for(objects: Objects) -> None:
    faulty = FaultyObjects(objects, [fail("put*", "_versions/*", skip=1, times=2)])
    faulty.put("data/1", b"")
    faulty.put("_versions/1", b"")
    for path in ("_versions/2", "_versions/3"):
        with pytest.raises(StoreUnavailable):
            faulty.put_if_absent(path, b"")
    faulty.put_if_absent("_versions/4", b"")
    assert faulty.get("_versions/1") == b""
    assert sorted(objects.list_names("")) == ["_versions/1", "_versions/4", "data/1"]


def test_a_listing_can_fail(objects: Objects) -> None:
    with pytest.raises(StoreUnavailable):
        list(FaultyObjects(objects, [fail("list")]).list("v"))


@pytest.mark.parametrize(("when", "seen"), [(call_before, None), (call_after, b"x")])
def test_a_hook_runs_before_or_after_the_storage_has_done_it(
    objects: Objects, when: Callable[..., Fault], seen: bytes | None
) -> None:
    found: list[bytes | None] = []

    def look(request: Request) -> None:
        found.append(objects.get(request.path) if objects.head(request.path) else None)

    FaultyObjects(objects, [when(look, "put")]).put("a", b"x")
    assert found == [seen]


def test_a_gate_holds_a_writer_while_another_goes_past(objects: Objects) -> None:
    gate, order = Gate(), list[str]()

    def slow() -> None:
        FaultyObjects(objects, [call_before(gate, "put_if_absent")]).copy("b", "c")
        order.append("no gate at copy")
        try:
            FaultyObjects(objects, [call_before(gate, "put_if_absent")]).put_if_absent("a", b"slow")
        except ObjectExists:
            order.append("slow was late")

    objects.put("b", b"")
    writer = threading.Thread(target=slow)
    writer.start()
    gate.wait_for_arrival()
    objects.put_if_absent("a", b"fast")
    order.append("fast was first")
    gate.open()
    writer.join(30)
    assert order == ["no gate at copy", "fast was first", "slow was late"]


def test_a_gate_without_arrival_or_opening_does_not_hang_the_tests(objects: Objects) -> None:
    gate = Gate(timeout_s=0.01)
    with pytest.raises(TimeoutError, match="arrived"):
        gate.wait_for_arrival()
    with pytest.raises(TimeoutError, match="opened"):
        FaultyObjects(objects, [call_before(gate)]).put("a", b"")


def outcomes(objects: Objects, seed: int) -> list[str]:
    faulty = FaultyObjects(objects, ChanceFaults(seed, fail_share=0.2, lose_share=0.2, verb="put"))
    seen: list[str] = []
    for number in range(200):
        path = f"{seed}/{number}"
        try:
            faulty.put(path, b"x")
            seen.append("done")
        except StoreUnavailable:
            seen.append("done, answer lost" if objects.head(path) else "failed")
        objects.delete([path])
    assert faulty.head("never") is None, "other verbs are left alone"
    return seen


def test_chance_is_the_same_for_the_same_seed(objects: Objects) -> None:
    first = outcomes(objects, 7)
    assert first == outcomes(objects, 7)
    assert first != outcomes(objects, 8)
    for kind in ("failed", "done, answer lost"):
        assert 20 <= first.count(kind) <= 60, "a fifth of 200, more or less"
