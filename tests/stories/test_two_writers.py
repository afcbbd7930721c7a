"""Two writers meet at one table: they fit together, or the second does its work again, or it must not.

In each story Ann and Bob have opened the table at the same version. Bob is in the middle of his work, his files written
and nothing committed, when Ann commits. `interrupted` stops Bob at that very moment, so nothing here depends on luck.
"""

from __future__ import annotations

import pytest

import conroi
from tests.support.instruments import interrupted


@pytest.fixture
def table(uri: str) -> conroi.Table:
    """Six orders in one fragment (one file of rows)."""
    return conroi.create_table(uri, [{"id": number, "amount": 10 * number} for number in range(1, 7)])


def amounts(table: conroi.Table) -> dict[int, int]:
    return {row["id"]: row["amount"] for row in table.to_arrow().to_pylist()}


# ---------------------------------------------------------------------------- they fit together


@pytest.mark.contract("T7", "W3")
def test_two_deletes_of_different_rows_both_land(table: conroi.Table) -> None:
    ann = table
    bob = interrupted(table, lambda: ann.delete("id = 1"))

    after = bob.delete("id = 6")

    # Both rows are gone, each by a version of its own. There was nothing to retry.
    assert sorted(amounts(after)) == [2, 3, 4, 5]
    assert [(commit.version, commit.operation) for commit in after.history()] == [
        (3, "Delete"),
        (2, "Delete"),
        (1, "Overwrite"),
    ]

    # How: a delete does not touch the file of rows. It writes down beside it which rows are gone. Bob's list was made
    # before Ann's was there, so the commit wrote a new one for him that has her row as well.
    (fragment,) = after._pinned.manifest.fragments
    assert fragment.deletion_file.num_deleted_rows == 2
    assert fragment.deletion_file.read_version == 2
    assert fragment.physical_rows == 6


@pytest.mark.contract("T7")
def test_also_an_update_and_a_delete_of_different_rows_fit_together(table: conroi.Table) -> None:
    ann = table
    bob = interrupted(table, lambda: ann.delete("id = 1"))

    after = bob.update({"amount": "0"}, where="id = 6", mode="rows")

    assert amounts(after) == {2: 20, 3: 30, 4: 40, 5: 50, 6: 0}


@pytest.mark.contract("T7")
def test_two_deletes_of_the_same_row_are_one_delete(table: conroi.Table) -> None:
    ann = table
    bob = interrupted(table, lambda: ann.delete("id = 1"))

    after = bob.delete("id = 1 OR id = 2")  # the row they share makes Bob look again; then only his own is left to do

    assert sorted(amounts(after)) == [3, 4, 5, 6]
    assert after.version == 3


# ------------------------------------------------------------------- the work must be done again


@pytest.mark.contract("T8")
def test_an_update_beside_a_compaction_is_told_to_try_again(table: conroi.Table) -> None:
    table = table.append([{"id": 7, "amount": 70}])  # two fragments, so that there is something to compact
    ann = table
    bob = interrupted(table, lambda: ann.compact())

    # Ann has moved all rows into a new file. Bob's "row 3 of the first file" means nothing any more.
    with pytest.raises(conroi.RetryableConflict) as caught:
        bob.update({"amount": "0"}, where="id = 3", mode="rows", retries=0)

    conflict = caught.value
    assert (conflict.base_version, conflict.version) == (2, 3)
    assert conflict.reason is not None
    assert (conflict.reason.mine, conflict.reason.theirs) == ("Update", "Rewrite")
    assert conflict.hint, "and it says what to do"
    assert amounts(table.latest())[3] == 30, "nothing of Bob's is there"


@pytest.mark.contract("T8")
def test_and_done_again_it_succeeds(table: conroi.Table) -> None:
    table = table.append([{"id": 7, "amount": 70}])
    ann = table
    bob = interrupted(table, lambda: ann.compact())

    # Without retries=0 this happens unseen: the verb looks for the rows again in the new file.
    after = bob.update({"amount": "0"}, where="id = 3", mode="rows")

    assert amounts(after) == {1: 10, 2: 20, 3: 0, 4: 40, 5: 50, 6: 60, 7: 70}
    assert [commit.operation for commit in after.history(2)] == ["Update", "Rewrite"]


@pytest.mark.contract("T8")
def test_an_update_of_a_row_that_was_just_updated_sees_the_new_value(table: conroi.Table) -> None:
    ann = table
    bob = interrupted(table, lambda: ann.update({"amount": "amount + 1"}, where="id = 3"))

    after = bob.update({"amount": "amount * 100"}, where="id = 3")

    assert amounts(after)[3] == 3100, "Ann's 31, times a hundred: her update is not lost"


# --------------------------------------------------------------------------------- it must not be


@pytest.mark.contract("T9")
def test_a_delete_beside_a_restore_is_refused_and_not_retried(table: conroi.Table) -> None:
    table = table.append([{"id": 7, "amount": 70}])
    restores = 0

    def ann_restores() -> None:
        nonlocal restores
        restores += 1
        table.restore(1)

    bob = interrupted(table, ann_restores, times=99)

    # Ann took the table back to version 1. Bob decided what to delete while looking at another table, so to speak:
    # whether he still wants it is for him to say, not for a retry loop.
    with pytest.raises(conroi.IncompatibleConflict) as caught:
        bob.delete("amount >= 60")

    conflict = caught.value
    assert restores == 1, "there was no retry"
    assert conflict.reason is not None
    assert (conflict.reason.mine, conflict.reason.theirs) == ("Delete", "Restore")
    assert "restore" in str(conflict).lower()
    assert conflict.hint
    assert sorted(amounts(table.latest())) == [1, 2, 3, 4, 5, 6], "the restored table is untouched"


@pytest.mark.contract("T9")
def test_an_append_beside_a_concurrent_overwrite_is_refused_too(table: conroi.Table) -> None:
    ann = table
    bob = interrupted(table, lambda: ann.overwrite([{"id": 100, "amount": 1}]))

    with pytest.raises(conroi.IncompatibleConflict):
        bob.append([{"id": 7, "amount": 70}])

    assert amounts(table.latest()) == {100: 1}


# ------------------------------------------------------------------------------------ saying no


@pytest.mark.contract("W3")
def test_who_wants_no_company_says_so(table: conroi.Table) -> None:
    ann = table
    bob = interrupted(table, lambda: ann.append([{"id": 7, "amount": 70}]))

    with pytest.raises(conroi.ExpectedVersionMismatch) as caught:
        bob.delete("id = 1", strict=True)

    assert (caught.value.expected, caught.value.actual) == (1, 2)
    assert sorted(amounts(table.latest())) == [1, 2, 3, 4, 5, 6, 7], "Ann's row is there, and Bob's too"
