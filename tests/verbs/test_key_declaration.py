"""A key that is declared later is checked first, stays, and is never used silently."""

from __future__ import annotations

from collections.abc import Callable

import lance
import pyarrow as pa
import pytest

import conroi
from conroi import DuplicateKeyError, ExpectedVersionMismatch, InvalidInputError
from tests.support.instruments import interrupted
from tests.support.refusals import refused
from tests.verbs.keyed_tables import KEY_TYPES, MARK, counts, keyed, numbers, pylance_upsert, rows, upsert, written_by

pytestmark = pytest.mark.contract("K5")


def unmarked(*keys: object, n: int = 0) -> pa.Table:
    return rows(pa.int64(), *keys, n=n, is_marked=False)


def key_of(root: str) -> list[str]:
    """As pylance reads it."""
    mark = next(iter(MARK)).encode()
    return [field.name for field in lance.dataset(root).schema if mark in (field.metadata or {})]


# ------------------------------------------------------------------------------ declaring


@pytest.mark.parametrize("name", KEY_TYPES)
def test_a_key_of_any_type_can_be_declared_later(name: str, root: str) -> None:
    kind = KEY_TYPES[name]
    table = conroi.create_table(root, rows(kind.type, kind.there, kind.new, is_marked=False))
    declared = table.declare_key("id")
    assert (declared.version, key_of(root), declared.schema.field("id").nullable) == (2, ["id"], False)
    with pytest.raises(DuplicateKeyError):
        declared.append(rows(kind.type, kind.new))


def test_from_then_on_pylance_heeds_it_too(root: str) -> None:
    conroi.create_table(root, unmarked(1)).declare_key("id")
    ann, bob = lance.dataset(root), lance.dataset(root)
    pylance_upsert(ann, numbers(5, n=1))
    with pytest.raises(OSError, match="concurrent writers"):
        pylance_upsert(bob, numbers(5, n=2))


def test_keys_that_are_there_twice_are_named_and_nothing_is_declared(root: str) -> None:
    table = conroi.create_table(root, unmarked(1, 2, 3, 2)).append(unmarked(3))
    with refused(table, DuplicateKeyError, "2", "3") as caught:
        table.declare_key("id")
    assert isinstance(caught.value, DuplicateKeyError)
    assert sorted(key["id"] for key in caught.value.keys) == [2, 3]  # type: ignore[type-var]
    assert key_of(root) == []


def test_deleted_rows_do_not_count(root: str) -> None:
    table = conroi.create_table(root, unmarked(1, 2)).append(unmarked(2, n=1)).delete("n = 1")
    table.declare_key("id")
    assert key_of(root) == ["id"]


def test_nulls_are_refused(root: str) -> None:
    table = conroi.create_table(root, unmarked(1, None))
    with refused(table, InvalidInputError, "1 null"):
        table.declare_key("id")
    assert table.delete("id is null").declare_key("id").version == 3


def test_of_a_composite_key_only_the_whole_must_differ(root: str) -> None:
    data = pa.table({"a": [1, 1, 2], "b": ["x", "y", "x"]})
    table = conroi.create_table(root, data)
    with refused(table, DuplicateKeyError):
        table.declare_key("a")
    declared = table.declare_key(["b", "a"])
    assert sorted(key_of(root)) == ["a", "b"]
    with refused(declared, DuplicateKeyError, "('x', 1)"):
        declared.append(data.slice(0, 1))
    assert declared.append([{"a": 2, "b": "y"}]).count_rows() == 4


@pytest.mark.parametrize("key", [[], ["id", "id"], ["nothing"], "n"])
def test_what_is_no_key_is_refused(key: str | list[str], root: str) -> None:
    table = conroi.create_table(root, pa.table({"id": [1, 2], "n": [[1], [2]]}))
    with refused(table, conroi.NotFoundError if key == ["nothing"] else InvalidInputError):
        table.declare_key(key)


# ------------------------------------------------------------ declaring while others write


@pytest.mark.parametrize("theirs", [1, 5])
def test_rows_that_come_between_the_check_and_the_declaration_stop_it(theirs: int, root: str) -> None:
    table = conroi.create_table(root, unmarked(1))
    with pytest.raises(ExpectedVersionMismatch):
        interrupted(table, lambda: lance.write_dataset(unmarked(theirs), root, mode="append")).declare_key("id")
    assert key_of(root) == []


LATE: dict[str, Callable[[conroi.Table], object]] = {
    "append": lambda table: table.append(unmarked(1, n=2)),
    "merge on another column": lambda table: (
        table.merge(unmarked(1, n=2), on="n").when_not_matched_insert_all().execute()
    ),
    "update": lambda table: table.update({"id": "1"}, where="id = 2", mode="rows"),
    "update of the column": lambda table: table.update({"id": "1"}, where="id = 2", mode="columns"),
    "replaced column": lambda table: table.replace_column_data({"id": "1"}),
    "overwrite of rows": lambda table: table.overwrite(unmarked(1, n=2), where="id != 1 or n = 2", if_moved="win"),
    "overwrite": lambda table: table.overwrite(unmarked(1, 1, n=2), if_moved="win"),
}


@pytest.mark.parametrize("late", LATE)
def test_a_change_made_before_the_declaration_and_committed_after_it_is_held_to_it(late: str, root: str) -> None:
    table = conroi.create_table(root, unmarked(1, 2))
    with pytest.raises(InvalidInputError) as caught:
        LATE[late](interrupted(table, lambda: table.declare_key("id")))
    assert caught.value.hint
    assert (key_of(root), table.latest().to_arrow()["id"].to_pylist()) == (["id"], [1, 2])


@pytest.mark.parametrize("late", LATE)
def test_control_without_a_declaration_each_of_these_doubles_a_key(late: str, root: str) -> None:
    LATE[late](conroi.create_table(root, unmarked(1, 2)))
    ids = conroi.open_table(root).to_arrow()["id"].to_pylist()
    assert len(set(ids)) < len(ids)


# -------------------------------------------------------------------------- without the mark


@pytest.mark.parametrize("other", ["conroi upserts", "conroi appends", "pylance appends", "pylance merges"])
def test_a_merge_on_columns_that_are_not_declared_is_exact_all_the_same(other: str, root: str) -> None:
    table = conroi.create_table(root, unmarked(1))
    others: dict[str, Callable[[], object]] = {
        "conroi upserts": lambda: upsert(table, unmarked(5, n=1)),
        "conroi appends": lambda: table.append(unmarked(5, n=1)),
        "pylance appends": lambda: lance.write_dataset(unmarked(5, n=1), root, mode="append"),
        "pylance merges": lambda: pylance_upsert(lance.dataset(root), unmarked(5, n=1)),
    }
    done = upsert(interrupted(table, others[other]), unmarked(5, n=2))
    assert (counts(done), written_by(root, 5)) == ((0, 1, 0), [2])


def test_control_without_the_comparison_it_would_not_be(root: str, no_guard: Callable[[], None]) -> None:
    table = conroi.create_table(root, unmarked(1))
    no_guard()
    upsert(interrupted(table, lambda: upsert(table, unmarked(5, n=1))), unmarked(5, n=2))
    assert written_by(root, 5) == [1, 2]


def test_null_keys_never_meet(root: str) -> None:
    table = conroi.create_table(root, unmarked(1))
    done = upsert(interrupted(table, lambda: table.append(unmarked(None, n=1))), unmarked(None, None, n=2), retries=0)
    assert (counts(done), written_by(root, None)) == ((2, 0, 0), [1, 2, 2])


# ------------------------------------------------------------------------------- it stays

CHANGES: dict[str, Callable[[conroi.Table], object]] = {
    "another key": lambda table: table.declare_key("n"),
    "a longer key": lambda table: table.declare_key(["id", "n"]),
    "dropped": lambda table: table.drop_columns(["id"]),
    "another type": lambda table: table.alter_columns({"id": {"type": pa.int32()}}),
    "nullable": lambda table: table.alter_columns({"id": {"nullable": True}}),
    "replaced": lambda table: table.replace_column_data({"id": "1"}),
    "updated in place": lambda table: table.update({"id": "1"}, mode="columns"),
    "mark taken away": lambda table: table.set_metadata(fields={"id": dict.fromkeys(MARK)}),
    "mark set elsewhere": lambda table: table.set_metadata(fields={"n": MARK}),
    "overwritten without it": lambda table: table.overwrite(pa.table({"n": [1]})),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_declared_key_cannot_be_changed(change: str, root: str) -> None:
    table = keyed(root)
    with refused(table, InvalidInputError):
        CHANGES[change](table)
    assert key_of(root) == ["id"]


def test_declaring_it_again_does_nothing(root: str) -> None:
    assert keyed(root).declare_key(["id"]).version == 1


@pytest.mark.parametrize(
    "data",
    [
        pa.table({"id": [7, 8], "n": [1, 2]}),
        pa.table({"n": [1, 2], "id": [7, 8]}),
        pa.table({"id": [7, 8], "other": ["a", "b"]}),
        pa.table({"id": [7, 8], "n": ["another", "type"]}),
    ],
    ids=["same columns", "another order", "other columns", "other types"],
)
def test_an_overwrite_keeps_it(data: pa.Table, root: str) -> None:
    table = keyed(root).overwrite(data)
    assert key_of(root) == ["id"]
    with refused(table, DuplicateKeyError, "7"):
        table.append(data)
    doubled = pa.concat_tables([data, data])
    with refused(table, DuplicateKeyError, "7"):
        table.overwrite(doubled)


def test_an_overwrite_that_wins_takes_over_a_concurrently_declared_key(root: str) -> None:
    table = conroi.create_table(root, unmarked(1))
    interrupted(table, lambda: table.declare_key("id")).overwrite(unmarked(7, 8), if_moved="win")
    assert (key_of(root), lance.dataset(root).to_table()["id"].to_pylist()) == (["id"], [7, 8])


@pytest.mark.parametrize("change", ["compact", "rename", "restore", "clone"])
def test_a_declared_key_survives_every_change_of_the_table(change: str, root: str) -> None:
    table = keyed(root).append(numbers(2)).delete("id = 1")
    if change == "compact":
        table = table.compact()
    elif change == "rename":
        table = table.rename_columns({"id": "key"})
    elif change == "restore":
        table = table.restore(2)
    else:
        root += "-clone"
        table = table.clone(root)
    name = "key" if change == "rename" else "id"
    assert key_of(root) == [name]
    with pytest.raises(DuplicateKeyError) as caught:
        table.append([{name: 2, "n": 0}])
    assert caught.value.keys == ({name: 2},)


def test_a_restore_to_before_the_declaration_is_a_table_without_it(root: str) -> None:
    table = conroi.create_table(root, unmarked(1)).declare_key("id").restore(1)
    assert key_of(root) == []
    assert table.append(unmarked(1)).count_rows() == 2


# --------------------------------------------------------------- a key inside a struct (pylance)

NESTED = pa.schema(
    [
        pa.field("at", pa.struct([pa.field("id", pa.int64(), nullable=False, metadata=MARK)]), nullable=False),
        pa.field("n", pa.int64()),
    ]
)


def nested(*keys: int) -> pa.Table:
    return pa.table({"at": [{"id": key} for key in keys], "n": [0] * len(keys)}, schema=NESTED)


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.append(nested(2)),
        lambda table: table.overwrite(nested(2, 2)),
        lambda table: table.overwrite(nested(2, 2), where="n = 0"),
        lambda table: table.update({"at": "named_struct('id', 2)"}, where="at.id = 1"),
        lambda table: table.update({"at": "named_struct('id', 2)"}, mode="columns"),
        lambda table: table.replace_column_data({"at": "named_struct('id', 2)"}),
        lambda table: table.overwrite(pa.table({"n": [1]})),
        lambda table: table.drop_columns(["at"]),
    ],
    ids=["append", "overwrite", "overwrite of rows", "update", "update in place", "replace", "without it", "drop"],
)
def test_a_key_inside_a_struct_is_kept_too(change: Callable[[conroi.Table], object], root: str) -> None:
    lance.write_dataset(nested(1, 2), root)
    table = conroi.open_table(root)
    with pytest.raises(InvalidInputError) as caught:
        change(table)
    assert caught.value.hint
    assert conroi.open_table(root).to_arrow()["at"].to_pylist() == [{"id": 1}, {"id": 2}]


def test_rows_with_other_keys_inside_a_struct_are_taken(root: str) -> None:
    lance.write_dataset(nested(1), root)
    table = conroi.open_table(root)
    after = interrupted(table, lambda: table.append(nested(2))).append(nested(3))
    assert after.update({"at": "named_struct('id', 9)"}, where="at.id = 1").to_arrow()["at"].to_pylist() == [
        {"id": 2},
        {"id": 3},
        {"id": 9},
    ]


def test_and_compared_at_the_commit(root: str) -> None:
    lance.write_dataset(nested(1), root)
    table = conroi.open_table(root)
    with pytest.raises(DuplicateKeyError) as caught:
        interrupted(table, lambda: lance.write_dataset(nested(2), root, mode="append")).append(nested(2))
    assert caught.value.keys == ({"at.id": 2},)
