"""A pylance writer that started before our commit and commits after it.

Where pylance looks at its filter it is stopped, for every type of key. Where it does not, what it slips in is named as
soon as we come across it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lance
import pyarrow as pa
import pytest

import conroi
from conroi import DuplicateKeyError
from conroi.data.table_version import TableVersion
from conroi.format import lance_pb2 as pb
from conroi.format.fields import fields_by_path
from conroi.format.keyfilter import bloom_filter
from conroi.merge import verb
from conroi.merge.verb import FEW_INSERTS, RowChange
from tests.verbs.keyed_tables import (
    KEY_TYPES,
    NOT_IN_FILTER,
    insert,
    keyed,
    numbers,
    pylance_upsert,
    rows,
    upsert,
    written_by,
)

pytestmark = pytest.mark.contract("K3")


def filter_as_pylance_writes_it(pinned: TableVersion, change: RowChange) -> pb.KeyExistenceFilter:
    """Of types that pylance skips, an empty one."""
    return bloom_filter([fields_by_path(pinned.manifest.fields)["id"].id], [change.inserted_rows(["id"])["id"]])


# ------------------------------------------------------------------------------ is stopped


@pytest.mark.parametrize("name", KEY_TYPES)
def test_a_pylance_merge_of_a_key_that_we_inserted_is_refused(name: str, root: str) -> None:
    kind = KEY_TYPES[name]
    table, late = keyed(root, kind), lance.dataset(root)
    upsert(table, rows(kind.type, kind.new, n=1))
    with pytest.raises(OSError, match="concurrent writers"):
        pylance_upsert(late, rows(kind.type, kind.new, n=2))
    assert lance.dataset(root).to_table()["n"].to_pylist() == [0, 1]


@pytest.mark.parametrize("name", KEY_TYPES)
def test_tried_again_by_pylance_it_updates(name: str, root: str) -> None:
    kind = KEY_TYPES[name]
    table, late = keyed(root, kind), lance.dataset(root)
    upsert(table, rows(kind.type, kind.new, n=1))
    merge = late.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(rows(kind.type, kind.new, n=2))
    assert lance.dataset(root).to_table()["n"].to_pylist() == [0, 2]


@pytest.mark.parametrize("name", NOT_IN_FILTER)
def test_control_with_the_filter_that_pylance_itself_writes_it_slips_in(
    name: str, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = KEY_TYPES[name]
    table, late = keyed(root, kind), lance.dataset(root)
    monkeypatch.setattr(verb, "key_filter", filter_as_pylance_writes_it)
    upsert(table, rows(kind.type, kind.new, n=1))
    pylance_upsert(late, rows(kind.type, kind.new, n=2))
    assert lance.dataset(root).to_table()["n"].to_pylist() == [0, 1, 2]


def test_more_keys_than_the_filter_can_hold_stop_it_too(root: str) -> None:
    table, late = keyed(root), lance.dataset(root)
    many = range(100, 101 + FEW_INSERTS)
    upsert(table, numbers(*many, n=1))
    with pytest.raises(OSError, match="concurrent writers"):
        pylance_upsert(late, numbers(100, n=2))
    assert written_by(root, 100) == [1]


STOPPED: dict[str, Callable[[conroi.Table], object]] = {
    "append": lambda table: table.append(numbers(5, n=1)),
    "change of a key": lambda table: table.update({"id": "5", "n": "1"}, where="id = 1"),
    "overwrite of rows": lambda table: table.overwrite(numbers(5, n=1), where="id in (1, 5)"),
    "merge that changes a key": lambda table: (
        table.merge(numbers(1), on="id").when_matched_update({"id": "5", "n": "1"}).execute()
    ),
    "merge on another column": lambda table: (
        table.merge(numbers(5, n=1), on="n").when_not_matched_insert_all().execute()
    ),
}


@pytest.mark.parametrize("mine", STOPPED)
def test_whatever_verb_of_ours_brought_the_key_in(mine: str, root: str) -> None:
    table, late = keyed(root), lance.dataset(root)
    STOPPED[mine](table)
    with pytest.raises(OSError, match="concurrent writers"):
        pylance_upsert(late, numbers(5, n=2))
    assert written_by(root, 5) == [1]


def test_a_pylance_merge_of_other_keys_is_not_stopped(root: str) -> None:
    table, late = keyed(root), lance.dataset(root)
    upsert(table, numbers(5, 6, 7, n=1))
    done = pylance_upsert(late, numbers(8, 9, n=2))
    assert done["num_inserted_rows"] == 2
    assert [written_by(root, key) for key in range(5, 10)] == [[1], [1], [1], [2], [2]]


def test_the_index_switched_off_brings_pylances_check_back(root: str) -> None:
    table = keyed(root).create_index("id", "BTREE")
    late = lance.dataset(root)
    upsert(table, numbers(5, n=1))
    with pytest.raises(OSError, match="concurrent writers"):
        pylance_upsert(late, numbers(5, n=2), use_index=False)
    assert written_by(root, 5) == [1]


# ------------------------------------------------------- is not stopped, and then named by us


def slipped_in(root: str, slip: Callable[[lance.LanceDataset], Any], *, is_indexed: bool = False) -> conroi.Table:
    """A table in which pylance added the key 5 a second time."""
    table = keyed(root)
    if is_indexed:
        table.create_index("id", "BTREE")
    late = lance.dataset(root)
    upsert(table, numbers(5, n=1))
    slip(late)
    assert written_by(root, 5) == [1, 2], "pylance does not look where it should"
    return table


SLIPS: dict[str, tuple[Callable[[lance.LanceDataset], Any], bool]] = {
    "append": (lambda late: lance.write_dataset(numbers(5, n=2), late, mode="append"), False),
    "merge through an index": (lambda late: pylance_upsert(late, numbers(5, n=2)), True),
    "update of a key": (lambda late: late.update({"id": "5", "n": "2"}, where="id = 1"), False),
}


NEXT: dict[str, Callable[[conroi.Table, pa.Table], object]] = {
    "upsert": upsert,
    "insert": insert,
    "delete": lambda table, new: table.merge(new, on="id").when_matched_delete().execute(),
    "append": lambda table, new: table.append(new),
}


@pytest.mark.parametrize("slip", SLIPS)
@pytest.mark.parametrize("verb", NEXT)
def test_what_pylance_slipped_in_is_named_by_our_next_merge(verb: str, slip: str, root: str) -> None:
    how, is_indexed = SLIPS[slip]
    table = slipped_in(root, how, is_indexed=is_indexed)
    with pytest.raises(DuplicateKeyError) as caught:
        NEXT[verb](table, numbers(5, 99, n=3))
    assert caught.value.keys == ({"id": 5},)
    assert caught.value.hint
    assert written_by(root, 5) == [1, 2], "we neither hide it nor choose for the user"
    assert written_by(root, 99) == []


@pytest.mark.parametrize("slip", SLIPS)
def test_after_a_repair_by_a_delete_everything_works_again(slip: str, root: str) -> None:
    how, is_indexed = SLIPS[slip]
    table = slipped_in(root, how, is_indexed=is_indexed).delete("id = 5 and n = 2")
    upsert(table, numbers(5, n=3))
    assert written_by(root, 5) == [3]


def test_a_composite_key_in_another_order_is_not_checked_by_pylance_but_named_by_us(root: str) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("n", pa.int64())])
    table = conroi.create_table(root, schema, key=["a", "b"])
    late = lance.dataset(root)
    new = pa.table({"a": [1], "b": [2], "n": [3]})
    table.merge(new, on=["a", "b"]).when_not_matched_insert_all().execute()
    pylance_upsert(late, new.cast(table.schema), ["b", "a"])
    assert lance.dataset(root).count_rows() == 2
    with pytest.raises(DuplicateKeyError) as caught:
        table.merge(new, on=["b", "a"]).when_matched_update_all().execute()
    assert caught.value.keys == ({"b": 2, "a": 1},)


def test_between_our_work_and_our_commit_it_is_named_as_well(root: str) -> None:
    """Two slipped in since our base, so that the work is done again and meets both."""
    from tests.support.instruments import interrupted

    table = keyed(root)

    def twice() -> None:
        for n in (1, 2):
            lance.write_dataset(numbers(5, n=n), root, mode="append")

    with pytest.raises(DuplicateKeyError) as caught:
        upsert(interrupted(table, twice), numbers(5, n=3))
    assert caught.value.keys == ({"id": 5},)
    assert written_by(root, 5) == [1, 2]
