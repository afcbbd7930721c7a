"""Key check against concurrent commits: another writer inserts a key right before we do, and one row of it remains."""

from __future__ import annotations

from collections.abc import Callable

import lance
import pyarrow as pa
import pytest

import conroi
from conroi import DuplicateKeyError, RetryableConflict
from tests.support.instruments import interrupted
from tests.verbs.concurrent_inserts import OTHERS
from tests.verbs.keyed_tables import (
    KEY_TYPES,
    MOMENTS,
    counts,
    insert,
    keyed,
    numbers,
    pylance_upsert,
    rows,
    upsert,
    written_by,
)

pytestmark = pytest.mark.contract("K3")

Mine = Callable[[conroi.Table], object]
REFUSED: dict[str, Mine] = {
    "append": lambda table: table.append(numbers(5, n=2)),
    "change of a key": lambda table: table.update({"id": "5", "n": "2"}, where="id = 1"),
    "overwrite of rows": lambda table: table.overwrite(
        numbers(5, n=2), where="id in (1, 5) and n != 1", if_moved="win"
    ),
    "merge that changes a key": lambda table: (
        table.merge(numbers(1), on="id").when_matched_update({"id": "5", "n": "2"}).execute()
    ),
    "merge on another column": lambda table: (
        table.merge(numbers(5, n=2), on="n").when_not_matched_insert_all().execute()
    ),
}


# ------------------------------------------------------------------------- every kind of writer


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_an_upsert_is_done_again_and_updates(other: str, moment: str, root: str, executions: list[int]) -> None:
    table = keyed(root)
    done = upsert(interrupted(table, lambda: OTHERS[other](root), **MOMENTS[moment]), numbers(5, n=2))
    assert written_by(root, 5) == [2]
    assert counts(done) == (0, 1, 0), "its key was there when it was done again"
    assert len(set(executions)) >= 2


@pytest.mark.parametrize("other", OTHERS)
def test_an_insert_only_merge_then_inserts_nothing(other: str, root: str) -> None:
    table = keyed(root)
    done = insert(interrupted(table, lambda: OTHERS[other](root)), numbers(5, n=2))
    assert (counts(done), written_by(root, 5)) == ((0, 0, 0), [1])


@pytest.mark.parametrize("mine", REFUSED)
@pytest.mark.parametrize("other", ["pylance appends", "conroi inserts", "pylance appends, conroi compacts"])
def test_what_cannot_become_an_update_is_refused_and_says_why(other: str, mine: str, root: str) -> None:
    table = keyed(root)
    with pytest.raises(DuplicateKeyError) as caught:
        REFUSED[mine](interrupted(table, lambda: OTHERS[other](root)))
    assert caught.value.keys == ({"id": 5},)
    assert caught.value.hint
    assert (written_by(root, 5), written_by(root, 1)) == ([1], [0])


@pytest.mark.parametrize("other", OTHERS)
def test_control_without_the_comparison_the_key_is_there_twice(
    other: str, root: str, no_guard: Callable[[], None]
) -> None:
    table = keyed(root)

    def concurrent_commit(_: object = None) -> None:
        OTHERS[other](root)
        no_guard()  # only now: the other one may be a conroi writer too

    upsert(interrupted(table, concurrent_commit), numbers(5, n=2))
    assert written_by(root, 5) == [1, 2]


@pytest.mark.parametrize("mine", REFUSED)
def test_control_without_the_comparison_every_verb_would_do_it(
    mine: str, root: str, no_guard: Callable[[], None]
) -> None:
    no_guard()
    REFUSED[mine](interrupted(keyed(root), lambda: OTHERS["pylance appends"](root)))
    assert written_by(root, 5) == [1, 2]


# -------------------------------------------------------------------- whatever the key's type


@pytest.mark.parametrize("name", KEY_TYPES)
def test_keys_of_every_type_are_compared(name: str, root: str, executions: list[int]) -> None:
    kind = KEY_TYPES[name]
    table = keyed(root, kind)
    theirs, mine = rows(kind.type, kind.new, n=1), rows(kind.type, kind.new, n=2)
    done = upsert(interrupted(table, lambda: lance.write_dataset(theirs, root, mode="append")), mine)
    assert (counts(done), executions) == ((0, 1, 0), [1, 2])
    assert (done.table.count_rows(), written_by(root, kind.there)) == (2, [0])
    assert done.table.to_arrow()["n"].to_pylist() == [0, 2]


@pytest.mark.parametrize("name", KEY_TYPES)
def test_control_of_every_type_there_can_be_two(name: str, root: str, no_guard: Callable[[], None]) -> None:
    kind = KEY_TYPES[name]
    theirs, mine = rows(kind.type, kind.new, n=1), rows(kind.type, kind.new, n=2)
    no_guard()
    done = upsert(interrupted(keyed(root, kind), lambda: lance.write_dataset(theirs, root, mode="append")), mine)
    assert done.table.to_arrow()["n"].to_pylist() == [0, 1, 2]


@pytest.mark.parametrize(("theirs", "mine"), [(0.0, -0.0), (float("nan"), -float("nan"))])
def test_zeros_of_both_signs_are_one_key_and_so_are_all_nans(theirs: float, mine: float, root: str) -> None:
    table = conroi.create_table(root, rows(pa.float64(), 1.5), key="id")
    concurrent = rows(pa.float64(), theirs, n=1)
    done = upsert(
        interrupted(table, lambda: lance.write_dataset(concurrent, root, mode="append")), rows(pa.float64(), mine, n=2)
    )
    assert (counts(done), done.table.count_rows()) == ((0, 1, 0), 2)


def test_with_an_index_on_the_key_the_same_holds(root: str) -> None:
    table = keyed(root).create_index("id", "BTREE")
    done = upsert(interrupted(table, lambda: OTHERS["pylance appends"](root)), numbers(5, n=2))
    assert (counts(done), written_by(root, 5)) == ((0, 1, 0), [2])


# ------------------------------------------------------------------------- composite keys

COMPOSITE = pa.schema([("a", pa.int64()), ("b", pa.string()), ("n", pa.int64())])


def pair(a: int, b: str, n: int) -> pa.Table:
    return pa.table({"a": [a], "b": [b], "n": [n]}, schema=COMPOSITE)


@pytest.mark.parametrize("key", [["a", "b"], ["b", "a"]], ids=str)
@pytest.mark.parametrize("my_on", [["a", "b"], ["b", "a"]], ids=str)
@pytest.mark.parametrize("their_on", [["a", "b"], ["b", "a"]], ids=str)
def test_composite_keys_are_compared_in_any_order(
    key: list[str], my_on: list[str], their_on: list[str], root: str
) -> None:
    table = conroi.create_table(root, pair(1, "x", 0), key=key)
    theirs = pair(1, "y", 1).cast(table.schema)

    def concurrent_commit() -> None:
        pylance_upsert(lance.dataset(root), theirs, their_on)

    merge = interrupted(table, concurrent_commit).merge(pair(1, "y", 2), on=my_on)
    done = merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert counts(done) == (0, 1, 0)
    assert sorted(done.table.to_arrow().to_pylist(), key=lambda row: row["n"]) == [
        {"a": 1, "b": "x", "n": 0},
        {"a": 1, "b": "y", "n": 2},
    ]


def test_half_of_a_composite_key_in_common_is_nothing_in_common(root: str, executions: list[int]) -> None:
    table = conroi.create_table(root, pair(1, "x", 0), key=["a", "b"])
    merge = interrupted(table, lambda: table.append(pair(1, "y", 1))).merge(pair(2, "y", 2), on=["b", "a"])
    done = merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert (counts(done), executions) == ((1, 0, 0), [1])


# ------------------------------------------------------------------------- what is said


def test_fail_fast_names_the_key_and_the_concurrent_commit(root: str) -> None:
    table = keyed(root)

    def concurrent_commit() -> None:
        table.append(numbers(5, n=1), message="the first five")
        table.append(numbers(6, n=1), message="no five")

    with pytest.raises(RetryableConflict) as caught:
        upsert(interrupted(table, concurrent_commit), numbers(5, n=2), retries=0)
    error, reason = caught.value, caught.value.reason
    assert (error.base_version, error.version) == (1, 3)
    assert reason is not None
    assert (reason.rule, reason.mine, reason.theirs, reason.names) == ("keys/same", "Update", "Append", ("5",))
    assert reason.winner is not None
    assert (reason.winner.version, reason.winner.message) == (2, "the first five"), "and not the one after it"
    assert "the first five" in str(error)
    assert written_by(root, 5) == [1]


def test_who_brought_it_is_found_behind_a_compaction(root: str) -> None:
    table = keyed(root)

    def concurrent_commit() -> None:
        table.append(numbers(5, n=1), message="the first five")
        table.compact()

    with pytest.raises(RetryableConflict) as caught:
        interrupted(table, concurrent_commit).append(numbers(5, n=2), retries=0)
    reason = caught.value.reason
    assert reason is not None
    assert (reason.mine, reason.theirs) == ("Append", "Append")


# ------------------------------------------------------------ what is looked at, and how often


def test_a_key_that_came_and_went_is_no_conflict(root: str, executions: list[int]) -> None:
    table = keyed(root)
    done = upsert(interrupted(table, lambda: table.append(numbers(5, n=1)).delete("id = 5")), numbers(5, n=2))
    assert (counts(done), executions, written_by(root, 5)) == ((1, 0, 0), [1], [2])


def test_a_concurrently_deleted_key_is_inserted(root: str) -> None:
    table = keyed(root)
    done = upsert(interrupted(table, lambda: table.delete("id = 1")), numbers(1, n=2))
    assert (counts(done), written_by(root, 1)) == ((1, 0, 0), [2])


def test_the_columns_are_known_by_their_ids_when_names_are_swapped(root: str, executions: list[int]) -> None:
    """A concurrent commit swapped the names `id` and `n`: the key is still the same column."""
    table = keyed(root)

    def concurrent_commit() -> None:
        swapped = table.rename_columns({"id": "was id"}).rename_columns({"n": "id"}).rename_columns({"was id": "n"})
        swapped.append([{"n": 6, "id": 5}])

    done = interrupted(table, concurrent_commit).append(numbers(5, n=2))
    assert done.to_arrow().to_pylist() == [{"n": 1, "id": 0}, {"n": 6, "id": 5}, {"n": 5, "id": 2}]


def test_a_dropped_column_that_was_matched_on_is_said(root: str) -> None:
    table = conroi.create_table(root, rows(pa.int64(), 1, is_marked=False))
    writer = interrupted(table, lambda: table.drop_columns(["id"]).append([{"n": 5}]))
    with pytest.raises(conroi.NotFoundError, match="no column 'id'"):
        insert(writer, rows(pa.int64(), 5, n=2, is_marked=False))


BY_INDEX: dict[str, Callable[[conroi.Table, int], object]] = {
    "append": lambda table, key: table.append(numbers(9, key)),
    "update": lambda table, key: table.update({"id": str(key)}, where="id = 2"),
    "overwrite of rows": lambda table, key: table.overwrite(numbers(key, n=77), where="id = 2 or n = 77"),
}


@pytest.mark.parametrize("key", [1, 3, 4])
@pytest.mark.parametrize("verb", BY_INDEX)
def test_through_an_index_keys_in_old_and_new_fragments_are_found(verb: str, key: int, root: str) -> None:
    table = keyed(root).append(numbers(2, 3)).create_index("id", "BTREE").append(numbers(4))
    with pytest.raises(DuplicateKeyError) as caught:
        BY_INDEX[verb](table, key)
    assert caught.value.keys == ({"id": key},)
    assert table.append(numbers(9)).count_rows() == 5
