"""Preconditions of a publication, one by one: which state of the lake satisfies them, and what the error says."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from conroi.catalog.preconditions import Expectation, ListingExpectation
from conroi.catalog.rows import NAMESPACE, TABLE, Row
from conroi.catalog.state import LakeState
from conroi.errors import ExpectedVersionMismatch
from conroi.snapshots.pin import Pin


def table(version: int, incarnation: str = "one", folder: str = "t.lance") -> Row:
    row = Row("s$t", TABLE, folder, f'{{"conroi.incarnation":"{incarnation}"}}')
    return row.pinned_at(Pin(version, f"_versions/{version}.manifest", f"tx-{version}"))


def version_of(row: Row) -> int:
    return 0 if row.pin is None else row.pin.version


def check(
    expected: Expectation, row: Row | None, between: Sequence[str] = ("Append",)
) -> ExpectedVersionMismatch | None:
    """The error, if the lake has this row."""
    asked: list[tuple[int, int]] = []
    found: list[ExpectedVersionMismatch] = []

    def operations(_row: Row, older: int, newer: int) -> Sequence[str]:
        asked.append((older, newer))
        return between

    state = LakeState(9, 1, {} if row is None else {"s$t": row})
    try:
        expected.check(state, version_of, operations)
    except ExpectedVersionMismatch as error:
        found.append(error)
    assert asked in ([], [(expected.version, version_of(row) if row else 0)])
    assert [(error.table, error.expected) for error in found] in ([], [("s.t", expected.version)])
    return found[0] if found else None


def test_a_table_must_be_at_the_version() -> None:
    assert check(Expectation("s$t", 5), table(5)) is None
    assert check(Expectation("s$t", 5, "one", seen=table(4)), table(5)) is None
    for actual in (4, 6):
        error = check(Expectation("s$t", 5), table(actual))
        assert error is not None
        assert error.actual == actual
        assert error.message == f"Table 's.t' was expected at version 5, but it is at version {actual}."


def test_a_table_that_must_not_exist() -> None:
    assert check(Expectation("s$t", 0), None) is None
    assert check(Expectation("s$t", 0), Row("s$t", NAMESPACE)) is None
    assert check(Expectation("s$t", 0), Row("s$t", TABLE, "t.lance")) is None, (
        "one that is only declared has no version"
    )
    error = check(Expectation("s$t", 0), table(3))
    assert error is not None
    assert error.message == "Table 's.t' was expected not to be there, but it is, at version 3."


def test_a_table_that_is_gone() -> None:
    error = check(Expectation("s$t", 5), None)
    assert error is not None
    assert error.actual == 0
    assert error.message == "Table 's.t' was expected at version 5, but the lake has no such table."


@pytest.mark.parametrize(
    ("expected", "row"),
    [
        (Expectation("s$t", 5, "one"), table(5, "two")),
        (Expectation("s$t", 5, seen=table(4, folder="other.lance")), table(5)),
        (Expectation("s$t", 5, "one", is_presence=True), table(5, "two")),
        (Expectation("s$t", 5, "one", allows_maintenance=True), table(6, "two")),
    ],
    ids=["another table", "another folder", "presence", "maintenance"],
)
def test_the_same_version_of_another_table_is_none(expected: Expectation, row: Row) -> None:
    error = check(expected, row, ["Rewrite"])
    assert error is not None
    assert "was dropped and created again, or replaced by a merge" in error.message


def test_a_table_that_only_has_to_exist_may_have_any_version_and_folder() -> None:
    present = Expectation("s$t", 5, "one", is_presence=True, seen=table(5, folder="other.lance"))
    assert check(present, table(9)) is None
    assert check(present, None) is not None


@pytest.mark.parametrize(
    ("between", "actual", "holds"),
    [
        (["Rewrite", "CreateIndex", "ReserveFragments"], 8, True),
        (["Rewrite", "Append"], 7, False),
        (["Unknown"], 6, False),
        (["Rewrite"], 4, False),
    ],
)
def test_maintenance_may_count_as_no_change(between: list[str], actual: int, holds: bool) -> None:
    assert (check(Expectation("s$t", 5, allows_maintenance=True), table(actual), between) is None) is holds
    assert check(Expectation("s$t", 5), table(actual), between) is not None


def test_maintenance_does_not_make_a_table_that_must_not_exist() -> None:
    assert check(Expectation("s$t", 0, allows_maintenance=True), table(1), ["Rewrite"]) is not None


@pytest.mark.parametrize("is_explicit", [True, False])
def test_only_what_the_isolation_level_requires_is_retried(is_explicit: bool) -> None:
    error = check(Expectation("s$t", 5, is_explicit=is_explicit), table(6))
    assert error is not None
    assert error.is_retryable is not is_explicit
    assert ("lake.run(function)" in str(error.hint)) is not is_explicit


@pytest.mark.parametrize(
    ("now", "message", "expected", "actual"),
    [
        ({"a", "b", "s$c"}, "Table 's.c' was made", 0, 1),
        ({"a"}, "Table 'b' was dropped", 1, 0),
    ],
)
def test_the_list_of_tables_must_be_the_one_that_was_read(
    now: set[str], message: str, expected: int, actual: int
) -> None:
    def lake(names: set[str]) -> LakeState:
        rows = {name: Row(name, TABLE, f"{name}.lance") for name in names}
        return LakeState(9, 1, {**rows, "space": Row("space", NAMESPACE)})

    listed = ListingExpectation(frozenset({"a", "b"}))
    listed.check(lake({"a", "b"}))
    with pytest.raises(ExpectedVersionMismatch, match=message) as caught:
        listed.check(lake(now))
    assert (caught.value.expected, caught.value.actual, caught.value.is_retryable) == (expected, actual, True)
