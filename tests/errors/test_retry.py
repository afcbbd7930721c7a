"""conroi.retry: again after a RetryableConflict, and after nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import conroi
from conroi import errors
from conroi.retry_policy import DEFAULT_RETRIES
from conroi.testing import SeededEnvironment
from tests.support.arrow import column_values
from tests.support.instruments import interrupted

pytestmark = pytest.mark.contract("T12", "T4")

OTHERS = sorted(
    (
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type)
        and issubclass(kind, errors.ConroiError)
        and not issubclass(kind, errors.RetryableConflict)
    ),
    key=lambda kind: kind.__name__,
)


class Failing:
    """Fails so many times, then succeeds."""

    def __init__(self, error: Exception, times: int) -> None:
        self.error, self.times, self.calls = error, times, 0

    def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.times:
            raise self.error
        return "done"


def world() -> SeededEnvironment:
    return SeededEnvironment(1)


def test_a_function_is_called_until_it_succeeds() -> None:
    work = Failing(conroi.RetryableConflict("again"), 3)
    assert conroi.retry(environment=world())(lambda: work())() == "done"
    assert work.calls == 4


def test_and_not_more_often_than_allowed() -> None:
    for retries in (0, 1, 5):
        work = Failing(conroi.RetryableConflict("again"), 99)
        with pytest.raises(conroi.RetryableConflict):
            conroi.retry(retries=retries, environment=world())(lambda work=work: work())()
        assert work.calls == retries + 1


def test_ten_times_by_default() -> None:
    work = Failing(conroi.RetryableConflict("again"), 99)
    with pytest.raises(conroi.RetryableConflict):
        conroi.retry(environment=world())(lambda: work())()
    assert work.calls == DEFAULT_RETRIES + 1 == 11


@pytest.mark.parametrize("kind", OTHERS)
def test_no_other_error_is_tried_again(kind: type[errors.ConroiError]) -> None:
    needed: dict[str, Any] = {"expected": 1, "actual": 2} if kind is errors.ExpectedVersionMismatch else {}
    work = Failing(kind("no", **needed), 99)
    with pytest.raises(kind):
        conroi.retry(lambda: work())()
    assert work.calls == 1


@pytest.mark.parametrize("error", [ValueError("x"), OSError("x"), KeyError("x")])
def test_nor_is_an_error_of_other_code(error: Exception) -> None:
    work = Failing(error, 99)
    with pytest.raises(type(error)):
        conroi.retry(lambda: work())()
    assert work.calls == 1


def test_pauses_grow_and_are_taken_in_the_environment() -> None:
    clock = world()
    work = Failing(conroi.RetryableConflict("again"), 10)

    @conroi.retry(environment=clock)
    def slow() -> str:
        clock.sleep(0.1)
        return work()

    assert slow() == "done"
    pauses = [pause for pause in clock.sleeps if pause != 0.1]
    assert max(pauses) > 0.1


def test_it_looks_like_the_function_it_wraps() -> None:
    @conroi.retry(retries=2)
    def add(a: int, *, b: int) -> int:
        """Add."""
        return a + b

    assert (add.__name__, add.__doc__, add(1, b=2)) == ("add", "Add.", 3)


@pytest.mark.parametrize("retries", [-1, 1.5, True, "3", None])
def test_the_number_of_retries_is_checked(retries: object) -> None:
    with pytest.raises(conroi.InvalidInputError) as caught:
        conroi.retry(retries=retries)  # type: ignore[call-overload]
    assert caught.value.hint


def test_a_read_and_a_write_that_belong_together(uri: str) -> None:
    """The function reads, computes, and writes only without a concurrent write; repeated, it sees the new value."""
    table = conroi.create_table(uri, [{"id": 1, "n": 1}])
    meddling = iter([lambda: table.update({"n": "100"}, where="id = 1", mode="rows"), lambda: None])
    read: list[int] = []

    @conroi.retry
    def double() -> conroi.Table:
        mine = interrupted(conroi.open_table(uri), next(meddling))
        read.append(column_values(mine.to_arrow()["n"])[0])
        return mine.update({"n": str(2 * read[-1])}, where="id = 1", mode="rows", retries=0)

    assert double().to_arrow()["n"].to_pylist() == [200]
    assert read == [1, 100]


FAST: dict[str, Callable[[conroi.Table], object]] = {
    "update": lambda table: table.update({"n": "0"}, where="id = 1", mode="rows", retries=0),
    "append": lambda table: table.append([{"id": 5, "n": 0}], retries=0),
    "merge": lambda table: table.merge([{"id": 1, "n": 0}], on="id").when_matched_update_all().execute(retries=0),
}


@pytest.mark.parametrize("verb", FAST)
def test_retries_0_fails_at_once(verb: str, table: conroi.Table) -> None:
    others = 0

    def meddle() -> None:
        nonlocal others
        others += 1
        table.update({"n": "n + 1"}, where="id = 1", mode="rows")
        table.merge([{"id": 5, "n": others}], on="id").when_matched_update_all().when_not_matched_insert_all().execute()

    writer = interrupted(table, meddle, times=99)
    with pytest.raises(conroi.RetryableConflict):
        FAST[verb](writer)
    assert others == 1
