"""Rows of `__manifest`: what their metadata says, and when one row continues the history of another."""

from __future__ import annotations

import json

import pytest

from conroi.catalog.rows import (
    NAMESPACE,
    TABLE,
    Lineage,
    Row,
    is_own,
    new_lock_id,
    new_table_row,
    seen_on,
    table_of,
)
from conroi.errors import CorruptionError
from conroi.snapshots.pin import Pin
from conroi.testing import SeededEnvironment

BRANCH, OTHER = "dev-0123abcd", "old-89abcdef"
ON_BRANCH, ON_OTHER = f"t.lance/tree/{BRANCH}", f"t.lance/tree/{OTHER}"


def pin(version: int) -> Pin:
    return Pin(version, f"_versions/{2**64 - 1 - version:020d}.manifest", f"tx-{version}")


def row(location: str = "t.lance", lineage: Lineage = (), version: int = 5) -> Row:
    """A table with a lock and an id, on a branch if it has a lineage."""
    made = Row("t", TABLE, location, '{"conroi.incarnation":"one","conroi.lock":"7"}').moved(location, lineage)
    return made.pinned_at(pin(version)).with_lock(7)


# ---------------------------------------------------------------------------------------- metadata


def test_a_row_keeps_what_its_metadata_says_when_it_gets_another_version() -> None:
    made = Row("t", TABLE, "t.lance", '{"x":"1","conroi.lock":"9"}').pinned_at(pin(5), "u")
    again = Row.from_json("u", made.to_json())
    assert again == made
    assert (again.object_id, again.pin, again.lock, again.notes["x"]) == ("u", pin(5), 9, "1")
    assert again.incarnation == "folder t.lance", "it is identified as before"
    assert again.pinned_at(pin(6)).incarnation == "folder t.lance"
    assert json.loads(again.metadata or "") == {
        "x": "1",
        "conroi.lock": "9",
        "conroi.version": "5",
        "conroi.manifest": pin(5).manifest,
        "conroi.transaction": "tx-5",
        "conroi.incarnation": "folder t.lance",
    }


def test_a_row_without_metadata_says_nothing() -> None:
    for bare in (Row("t", TABLE, "t.lance"), Row("t", TABLE, "t.lance", ""), Row("t", TABLE, "t.lance", "{}")):
        assert (bare.notes, bare.pin, bare.lock, bare.lineage, bare.repaired_in) == ({}, None, None, (), 0)
    assert Row("s", NAMESPACE).is_table is False


def test_notes_are_added_and_read_back() -> None:
    noted = row().repaired_at(9).with_insert("a note").renamed("u")
    assert (noted.object_id, noted.repaired_in, noted.insert, noted.lock) == ("u", 9, "a note", 7)
    assert (row().insert, row().repaired_in) == (None, 0)


@pytest.mark.parametrize(
    "metadata",
    [
        "{",
        "[]",
        '{"conroi.lock":7}',
        '{"conroi.lock":"x"}',
        '{"conroi.lock":"123456789012345678901"}',
        '{"conroi.version":"5"}',
        '{"conroi.version":"x","conroi.manifest":"m","conroi.transaction":"t"}',
        '{"conroi.lineage":"x"}',
        '{"conroi.lineage":"[[1]]"}',
    ],
)
def test_damaged_metadata_is_told_when_it_is_needed(metadata: str) -> None:
    damaged = Row("t", TABLE, "t.lance", metadata)
    with pytest.raises(CorruptionError, match="'t' in __manifest"):
        _ = damaged.pin, damaged.lock, damaged.lineage


@pytest.mark.parametrize("text", ["12345678901234567890", "-1234567890123456789"])
def test_a_number_of_up_to_twenty_signs_is_read(text: str) -> None:
    assert Row("t", TABLE, "t.lance", json.dumps({"conroi.lock": text})).lock == int(text)


@pytest.mark.parametrize("fields", [None, [], ["table"], [1, None, None, None], ["table", "t.lance", {}, None]])
def test_a_damaged_record_of_a_row_is_refused(fields: object) -> None:
    with pytest.raises(CorruptionError, match="'t'"):
        Row.from_json("t", fields)


def test_a_record_of_a_row_is_the_row() -> None:
    based = Row("t", TABLE, "t.lance", None, ("a", "b"))
    assert Row.from_json("t", json.loads(json.dumps(based.to_json()))) == based


def test_a_new_table_has_a_lock_of_63_bits() -> None:
    class Largest(SeededEnvironment):
        def random_u64(self) -> int:
            return 2**64 - 1

    assert new_lock_id(Largest(1)) == 2**63 - 1
    made = new_table_row("t", "t.lance", Largest(1))
    assert (made.object_id, made.is_table, made.location, made.lock) == ("t", True, "t.lance", 2**63 - 1)


def test_a_table_without_a_folder_is_damaged() -> None:
    with pytest.raises(CorruptionError, match=r"'s\.t' without a folder"):
        _ = Row("s$t", TABLE).folder


# ----------------------------------------------------------------------------------------- branches


def test_a_table_in_another_folder_keeps_its_notes_but_not_its_lock() -> None:
    moved = row(version=5).moved(ON_BRANCH, (("t.lance", 5),))
    assert moved.line == (ON_BRANCH, (("t.lance", 5),))
    assert (moved.lock, moved.incarnation, moved.pin) == (None, "one", pin(5))
    assert Row.from_json("t", moved.to_json()).lineage == (("t.lance", 5),)
    assert moved.moved("u.lance", ()).line == ("u.lance", ())


def test_the_folder_of_a_branch_is_below_that_of_its_table() -> None:
    assert table_of(ON_BRANCH) == table_of("t.lance") == "t.lance"
    assert table_of("t.lance/tree/other") == "t.lance/tree/other", "no branch of a lake: it has no id"
    assert [is_own(BRANCH, each) for each in (row(ON_BRANCH), row(ON_OTHER), row(), Row("s", NAMESPACE))] == [
        True,
        False,
        False,
        False,
    ]


def test_a_branch_sees_a_table_in_a_folder_of_its_own_with_its_older_versions_where_they_are() -> None:
    seen = seen_on(BRANCH, row(version=5))
    assert (seen.location, seen.lineage, seen.is_inherited) == (ON_BRANCH, (("t.lance", 5),), True)
    again = seen_on(OTHER, seen)
    assert (again.location, again.lineage) == (ON_OTHER, (("t.lance", 5),)), "it was not written on that branch"
    written = seen.pinned_at(pin(6))
    assert written.is_inherited is False
    assert seen_on(OTHER, written).lineage == ((ON_BRANCH, 6), ("t.lance", 5))
    assert seen_on(BRANCH, written) is written
    for other in (Row("s", NAMESPACE), Row("t", TABLE, "t.lance"), Row("t", TABLE, None)):
        assert seen_on(BRANCH, other) is other


def inherited(bound: int, *older: tuple[str, int], folder: str = "t.lance") -> Row:
    """A table that was never written on its branch."""
    return row(ON_BRANCH, ((folder, bound), *older), version=bound)


@pytest.mark.parametrize(
    ("now", "earlier", "continues"),
    [
        (row(version=9), row(version=5), True),
        (row("u.lance"), row("t.lance"), False),
        (inherited(5).pinned_at(pin(8)), inherited(5), True),  # the first version on the branch
        (inherited(6), inherited(5), True),  # a merge brought newer versions of the folder it is inherited from
        (inherited(5), inherited(6), False),
        (inherited(6), inherited(5).pinned_at(pin(8)), False),  # it was written on the branch
        (inherited(6, folder=ON_OTHER), inherited(5), False),
        (inherited(6, ("x", 2)), inherited(5, ("x", 2)), True),
        (inherited(6, ("x", 2)), inherited(5, ("x", 3)), False),
        (inherited(6, ("x", 2)), inherited(5), False),
        (row(ON_BRANCH), inherited(5), False),
        (inherited(5), row(ON_BRANCH), False),
    ],
    ids=str,
)
def test_a_row_continues_a_history_of_the_same_folder_and_the_same_older_versions(
    now: Row, earlier: Row, continues: bool
) -> None:
    assert now.continues(earlier) is continues
