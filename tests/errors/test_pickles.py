"""Errors that are raised in one process and caught in another, as pools of workers do it."""

from __future__ import annotations

import copy
import inspect
import multiprocessing
import pickle
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

import conroi
from conroi import errors
from conroi.branches.results import Conflict
from conroi.conflicts.reason import Reason
from tests.support.instruments import interrupted

pytestmark = pytest.mark.contract("T12")

KINDS = sorted(
    (kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ConroiError)),
    key=lambda kind: kind.__name__,
)
VALUES: dict[str, Any] = {
    "table": "t",
    "version": 7,
    "hint": "Look again.",
    "base_version": 5,
    "reason": Reason("keys/same", "Update", "Append", names=("5",)),
    "expected": 5,
    "actual": 7,
    "is_retryable": True,
    "attempts": 21,
    "holder": "host 7, process 12",
    "held_since": datetime(2026, 11, 16, tzinfo=UTC),
    "transaction_uuid": "abc",
    "collected_at": datetime(2026, 11, 16, tzinfo=UTC),
    "keys": ({"id": 5},),
    "conflicts": (Conflict("orders", "row", "changed on both branches", {"id": 5}),),
}


def full(kind: type[errors.ConroiError]) -> errors.ConroiError:
    """An error of this type with everything that it can carry."""
    wanted = [name for name in inspect.signature(kind).parameters if name != "message"]
    return kind("What happened.", **{name: VALUES[name] for name in wanted})


def facts(error: BaseException) -> dict[str, object]:
    assert isinstance(error, errors.ConroiError)
    return {**vars(error), "text": str(error), "args": error.args, "type": type(error)}


def copies(error: errors.ConroiError) -> Iterator[errors.ConroiError]:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        yield pickle.loads(pickle.dumps(error, protocol))
    yield copy.copy(error)
    yield copy.deepcopy(error)


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_keeps_its_type_and_all_it_knows(kind: type[errors.ConroiError]) -> None:
    error = full(kind)
    for again in copies(error):
        assert facts(again) == facts(error)


@pytest.mark.parametrize("kind", KINDS)
def test_also_one_that_knows_little(kind: type[errors.ConroiError]) -> None:
    needed: dict[str, Any] = {"expected": 1, "actual": 2} if kind is errors.ExpectedVersionMismatch else {}
    error = kind("What happened.", **needed)
    for again in copies(error):
        assert facts(again) == facts(error)


def test_notes_come_along() -> None:
    error = errors.NotFoundError("What happened.")
    error.add_note("while loading")
    assert pickle.loads(pickle.dumps(error)).__notes__ == ["while loading"]


def real_conflict() -> errors.ConflictError:
    """One with a winner, whose transaction and operation are messages of protobuf."""
    table = conroi.create_table("memory://between-processes", [{"id": 1, "n": 1}], key="id")
    writer = interrupted(
        table, lambda: table.merge([{"id": 5, "n": 2}], on="id").when_not_matched_insert_all().execute(message="first")
    )
    with pytest.raises(errors.RetryableConflict) as caught:
        writer.merge([{"id": 5, "n": 3}], on="id").when_not_matched_insert_all().execute(retries=0)
    return caught.value


def test_a_real_conflict_keeps_its_winner() -> None:
    error = real_conflict()
    for again in copies(error):
        assert isinstance(again, errors.ConflictError)
        assert error.reason is not None
        assert again.reason is not None
        assert again.reason == error.reason
        assert again.reason.winner is not None
        assert again.reason.winner == error.reason.winner
        assert again.reason.explain() == error.reason.explain()


def fails(number: int) -> None:
    """Work of a pool's worker."""
    table = conroi.create_table(f"memory://worker-{number}", [{"id": 1, "n": 1}], key="id").append([{"id": 2, "n": 2}])
    if number == 0:
        table.delete("id = 1", expect=1)
    elif number == 1:
        table.append([{"id": 1, "n": 1}])
    else:
        raise real_conflict()


def test_a_pool_of_workers_hands_them_over() -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        caught = [pool.submit(fails, number).exception() for number in range(3)]
    moved, doubled, conflict = caught
    assert isinstance(moved, errors.ExpectedVersionMismatch)
    assert (moved.expected, moved.actual) == (1, 2)
    assert moved.reason is not None
    assert isinstance(doubled, errors.DuplicateKeyError)
    assert doubled.keys == ({"id": 1},)
    assert isinstance(conflict, errors.RetryableConflict)
    assert conflict.reason is not None
    assert conflict.reason.winner is not None
    assert conflict.reason.winner.message == "first"


def test_control_without_our_own_way_one_of_them_does_not_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(errors.ConroiError, "__reduce__")
    with pytest.raises(TypeError):
        pickle.loads(pickle.dumps(full(errors.ExpectedVersionMismatch)))
