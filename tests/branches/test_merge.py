"""`lake.merge(branch)`: fast-forward where nothing moved, else row by row; all tables in one commit, or none."""

from __future__ import annotations

from typing import Any, cast

import lance
import pyarrow as pa
import pytest

import conroi
from conroi.branches.results import Choice, Prefer
from tests.branches.conftest import numbers, texts, upsert
from tests.support.arrow import column_values


def kinds(result: conroi.LakeMerge) -> dict[str, str]:
    return {table.table: table.kind for table in result.tables}


# ---------------------------------------------------------------------------- fast-forward


@pytest.mark.contract("B3")
def test_where_the_target_has_not_moved_it_becomes_what_the_branch_is(lake: conroi.Lake, dev: conroi.Lake) -> None:
    upsert(dev, {2: 21, 4: 40})
    dev["orders"].delete("id = 1")
    dev["log"].append([{"text": "c"}])

    result = lake.merge("dev", message="the work")

    assert kinds(result) == {"orders": "fast-forward", "log": "fast-forward"}
    assert numbers(lake) == {2: 21, 3: 30, 4: 40}
    assert texts(lake) == ["a", "b", "c"]
    newest = lake.history(1)[0]
    assert (newest.message, newest.version, newest.tables) == ("the work", 3, {"orders": 2, "log": 2})
    assert result.version == 3


@pytest.mark.contract("B3")
def test_what_was_merged_needs_the_branch_no_more(lake: conroi.Lake, dev: conroi.Lake) -> None:
    import shutil

    dev["orders"].create_index("id")
    upsert(dev, {2: 21, 4: 40})
    dev["orders"].delete("id = 1")
    dev.create_table("fresh", [{"id": 1, "n": 1}], key="id")
    folders = [dev["orders"].uri, dev["fresh"].uri]
    lake.merge("dev")
    lake.branches.delete("dev")
    for folder in folders:
        shutil.rmtree(folder)
    again = conroi.connect(lake.uri)

    assert numbers(again) == {2: 21, 3: 30, 4: 40}
    assert again["orders"].to_arrow(filter="id = 4")["n"].to_pylist() == [40]
    assert numbers(again, "fresh") == {1: 1}
    head = again["orders"].pinned.manifest.head
    assert not head.base_paths
    assert not head.branch
    assert not head.reader_feature_flags & 16
    theirs = lance.dataset(again["orders"].uri)
    assert sorted(column_values(theirs.to_table()["id"])) == [2, 3, 4]
    assert theirs.to_table(filter="id = 4")["n"].to_pylist() == [40]
    theirs.delete("id = 2")  # and others go on with it
    again["orders"].append([{"id": 9, "n": 90}])
    assert numbers(again) == {3: 30, 4: 40, 9: 90}


def test_a_schema_change_comes_along(lake: conroi.Lake, dev: conroi.Lake) -> None:
    dev["orders"].add_columns({"double": "n * 2"})
    dev["orders"].rename_columns({"n": "amount"})
    lake.merge("dev")
    assert lake["orders"].to_arrow().to_pylist() == [{"id": i, "amount": 10 * i, "double": 20 * i} for i in (1, 2, 3)]


def test_tables_that_were_made_dropped_and_renamed_come_along(lake: conroi.Lake, dev: conroi.Lake) -> None:
    dev.create_table("parts.small", [{"id": 1, "n": 1}], key="id")
    dev.drop_table("log")
    dev.rename_table("orders", "sales")
    dev.create_namespace("empty")
    upsert(dev, {1: 11}, "sales")

    result = lake.merge("dev")

    assert kinds(result) == {"orders": "fast-forward", "parts.small": "created", "log": "dropped"}
    assert lake.tables() == ["parts.small", "sales"]
    assert lake.namespaces() == ["empty", "parts"]
    assert numbers(lake, "sales") == {1: 11, 2: 20, 3: 30}
    upsert(lake, {2: 2}, "parts.small")
    upsert(dev, {3: 3}, "parts.small")
    lake.merge("dev")
    assert numbers(lake, "parts.small") == {1: 1, 2: 2, 3: 3}


def test_stable_row_ids_and_their_versions_stay_sound(lake: conroi.Lake) -> None:
    lake.create_table("rows", [{"id": i, "n": i} for i in range(4)], key="id", stable_row_ids=True)
    lake.branches.create("dev")
    dev = lake.branch("dev")
    for n in (10, 11, 12):
        upsert(dev, {n: n, 1: n}, "rows")
    lake.merge("dev")
    upsert(lake, {20: 20}, "rows")
    found = (
        lance.dataset(lake["rows"].uri)
        .scanner(columns=["id", "_row_created_at_version", "_row_last_updated_at_version"], with_row_id=True)
        .to_table()
    )
    assert len(set(found["_rowid"].to_pylist())) == found.num_rows == 8
    assert max(column_values(found["_row_last_updated_at_version"])) <= lake["rows"].version


# ---------------------------------------------------------------------------- both moved


@pytest.mark.contract("B3")
def test_rows_that_only_one_side_changed_all_count(lake: conroi.Lake, dev: conroi.Lake) -> None:
    upsert(dev, {1: 11, 4: 40})
    dev["orders"].delete("id = 2")
    upsert(lake, {3: 31, 5: 50})
    lake["log"].append([{"text": "main"}])
    dev["log"].append([{"text": "dev"}])
    dev["log"].delete("text = 'a'")

    result = lake.merge("dev")

    assert kinds(result) == {"orders": "merged", "log": "merged"}
    (orders,) = [table for table in result.tables if table.table == "orders"]
    assert (orders.inserted, orders.updated, orders.deleted) == (1, 1, 1)
    assert numbers(lake) == {1: 11, 3: 31, 4: 40, 5: 50}
    assert texts(lake) == ["b", "dev", "main"]


def test_what_both_did_alike_is_no_conflict(lake: conroi.Lake, dev: conroi.Lake) -> None:
    for each in (lake, dev):
        upsert(each, {1: 11, 4: 40})
        each["orders"].delete("id = 2")
    upsert(dev, {5: 50})
    lake.merge("dev")
    assert numbers(lake) == {1: 11, 3: 30, 4: 40, 5: 50}


@pytest.mark.parametrize(
    ("prefer", "expected"),
    [
        ("source", {1: 11, 2: 22, 4: 40, 6: 60}),
        ("target", {1: 12, 3: 33, 4: 44, 6: 60}),
        (lambda conflict: "source" if conflict.key["id"] < 3 else "target", {1: 11, 2: 22, 3: 33, 4: 44, 6: 60}),
    ],
)
@pytest.mark.contract("B3")
def test_conflicts_are_listed_by_table_and_key_and_a_side_can_be_chosen(
    lake: conroi.Lake, dev: conroi.Lake, prefer: Prefer, expected: dict[int, int]
) -> None:
    upsert(dev, {1: 11, 2: 22, 4: 40, 6: 60})
    dev["orders"].delete("id = 3")
    upsert(lake, {1: 12, 3: 33, 4: 44})
    lake["orders"].delete("id = 2")
    version = lake.version

    with pytest.raises(conroi.MergeConflict) as caught:
        lake.merge("dev")

    assert sorted((c.table, c.kind, dict(c.key or {})["id"]) for c in caught.value.conflicts) == [
        ("orders", "row", 1),
        ("orders", "row", 2),
        ("orders", "row", 3),
        ("orders", "row", 4),
    ]
    by_key = {dict(c.key or {})["id"]: c for c in caught.value.conflicts}
    assert (by_key[1].base, by_key[1].source, by_key[1].target) == (
        {"id": 1, "n": 10},
        {"id": 1, "n": 11},
        {"id": 1, "n": 12},
    )
    assert (by_key[2].source, by_key[2].target) == ({"id": 2, "n": 22}, None)
    assert (by_key[3].source, by_key[3].target) == (None, {"id": 3, "n": 33})
    assert by_key[4].base is None
    assert caught.value.hint
    assert "orders [id=1]" in str(caught.value)
    assert lake.version == version, "nothing was merged"

    result = lake.merge("dev", prefer=prefer)

    assert numbers(lake) == expected
    assert result.tables[0].conflicts == 4
    assert not lake.merge("dev").has_changes


@pytest.mark.contract("B3")
def test_one_conflict_and_no_table_is_merged(lake: conroi.Lake, dev: conroi.Lake) -> None:
    upsert(dev, {1: 11})
    upsert(lake, {1: 12})
    dev["log"].append([{"text": "dev"}])
    dev.create_table("fresh", [{"id": 1}])
    with pytest.raises(conroi.MergeConflict):
        lake.merge("dev")
    assert texts(lake) == ["a", "b"]
    assert lake.tables() == ["log", "orders"]


@pytest.mark.parametrize("prefer", [None, "source", "target"])
def test_a_dry_run_says_what_would_happen_and_does_nothing(
    lake: conroi.Lake, dev: conroi.Lake, prefer: Choice | None
) -> None:
    upsert(dev, {1: 11, 4: 40})
    upsert(lake, {1: 12})
    dev["log"].append([{"text": "dev"}])
    version = lake.version

    result = lake.merge("dev", dry_run=True, prefer=prefer)

    assert result.is_dry_run
    assert kinds(result) == {"orders": "merged", "log": "fast-forward"}
    assert [dict(c.key or {}) for c in result.conflicts] == ([{"id": 1}] if prefer is None else [])
    assert (lake.version, texts(lake), numbers(lake)) == (version, ["a", "b"], {1: 12, 2: 20, 3: 30})
    assert "would merge dev@" in str(result)
    assert result.to_dict()["is_dry_run"] is True


# ---------------------------------------------------------------------------- without a key


def test_rows_without_a_key_that_both_changed_are_a_conflict_of_the_table(lake: conroi.Lake, dev: conroi.Lake) -> None:
    dev["log"].update({"text": "'dev'"}, where="text = 'a'")
    lake["log"].update({"text": "'main'"}, where="text = 'a'")
    with pytest.raises(conroi.MergeConflict) as caught:
        lake.merge("dev")
    (conflict,) = caught.value.conflicts
    assert (conflict.table, conflict.kind, conflict.key) == ("log", "rows", None)

    lake.branches.create("again", from_="dev")
    lake.branches.create("copy")
    lake.merge("again", into="copy", prefer="target")
    assert texts(lake.branch("copy")) == ["b", "main"]
    lake.merge("dev", prefer="source")
    assert texts(lake) == ["b", "dev"]


def test_rows_without_a_key_that_both_deleted_are_gone(lake: conroi.Lake, dev: conroi.Lake) -> None:
    dev["log"].delete("text = 'a'")
    lake["log"].delete("text = 'a'")
    lake.merge("dev")
    assert texts(lake) == ["b"]


def test_updates_of_different_rows_without_a_key_both_count(lake: conroi.Lake, dev: conroi.Lake) -> None:
    dev["log"].update({"text": "'dev'"}, where="text = 'a'")
    lake["log"].update({"text": "'main'"}, where="text = 'b'")
    lake.merge("dev")
    assert texts(lake) == ["dev", "main"]
    dev["log"].append([{"text": "more"}])
    lake.merge("dev")
    assert texts(lake) == ["dev", "main", "more"]


def test_appends_without_a_key_survive_a_compaction_of_the_target(lake: conroi.Lake, dev: conroi.Lake) -> None:
    lake["log"].append([{"text": "c"}])
    lake["log"].compact()
    dev["log"].append([{"text": "dev"}])
    lake.merge("dev")
    assert texts(lake) == ["a", "b", "c", "dev"]


# ---------------------------------------------------------------------------- columns and settings


def test_columns_of_one_side_and_rows_of_the_other(lake: conroi.Lake, dev: conroi.Lake) -> None:
    dev["orders"].add_columns({"double": "n * 2"})
    upsert(dev, {2: 22})
    upsert(lake, {3: 33, 5: 50})
    dev["log"].rename_columns({"text": "words"})
    lake["log"].append([{"text": "main"}])

    lake.merge("dev")

    rows = {row["id"]: (row["n"], row["double"]) for row in lake["orders"].to_arrow().to_pylist()}
    assert rows == {1: (10, 20), 2: (22, 40), 3: (33, 60), 5: (50, None)}
    assert sorted(column_values(lake["log"].to_arrow()["words"])) == ["a", "b", "main"]


def test_the_other_way_round(lake: conroi.Lake, dev: conroi.Lake) -> None:
    lake["orders"].add_columns({"double": "n * 2"})
    lake["orders"].rename_columns({"n": "amount"})
    upsert(dev, {3: 33, 5: 50})
    dev["orders"].delete("id = 1")

    lake.merge("dev")

    rows = {row["id"]: (row["amount"], row["double"]) for row in lake["orders"].to_arrow().to_pylist()}
    assert rows == {2: (20, 40), 3: (33, 60), 5: (50, None)}


def test_columns_that_both_changed_are_a_conflict(lake: conroi.Lake, dev: conroi.Lake) -> None:
    dev["orders"].add_columns({"x": "n * 2"})
    lake["orders"].add_columns({"y": "n * 3"})
    with pytest.raises(conroi.MergeConflict) as caught:
        lake.merge("dev")
    assert [(c.table, c.kind) for c in caught.value.conflicts] == [("orders", "schema")]
    lake.merge("dev", prefer="source")
    assert lake["orders"].schema.names == ["id", "n", "x"]


def test_settings_are_merged_one_by_one(lake: conroi.Lake, dev: conroi.Lake) -> None:
    dev["orders"].set_config({"owner": "ada", "both": "dev"})
    upsert(dev, {4: 40})
    lake["orders"].set_config({"team": "blue", "both": "main"})
    with pytest.raises(conroi.MergeConflict) as caught:
        lake.merge("dev")
    assert [c.kind for c in caught.value.conflicts] == ["setting"]
    lake.merge("dev", prefer="target")
    assert lake["orders"].config == {"owner": "ada", "team": "blue", "both": "main"}
    assert sorted(numbers(lake)) == [1, 2, 3, 4]


# ---------------------------------------------------------------------------- tables come and go


@pytest.mark.parametrize(("prefer", "is_there"), [("source", False), ("target", True)])
def test_dropped_on_the_branch_and_changed_on_the_target(
    lake: conroi.Lake, dev: conroi.Lake, prefer: Choice, is_there: bool
) -> None:
    dev.drop_table("orders")
    upsert(lake, {1: 11})
    with pytest.raises(conroi.MergeConflict) as caught:
        lake.merge("dev")
    assert [(c.table, c.kind) for c in caught.value.conflicts] == [("orders", "dropped")]
    lake.merge("dev", prefer=prefer)
    assert ("orders" in lake) is is_there
    assert not lake.merge("dev").has_changes


@pytest.mark.parametrize(("prefer", "is_there"), [("source", True), ("target", False)])
def test_changed_on_the_branch_and_dropped_on_the_target(
    lake: conroi.Lake, dev: conroi.Lake, prefer: Choice, is_there: bool
) -> None:
    upsert(dev, {1: 11})
    lake.drop_table("orders")
    with pytest.raises(conroi.MergeConflict):
        lake.merge("dev")
    lake.merge("dev", prefer=prefer)
    assert ("orders" in lake) is is_there
    if is_there:
        assert numbers(lake) == {1: 11, 2: 20, 3: 30}
        upsert(lake, {9: 9})


@pytest.mark.parametrize(("prefer", "value"), [("source", 2), ("target", 1)])
def test_both_made_a_table_of_one_name(lake: conroi.Lake, dev: conroi.Lake, prefer: Choice, value: int) -> None:
    lake.create_table("same", [{"id": 1, "n": 1}], key="id")
    dev.create_table("same", [{"id": 1, "n": 2}], key="id")
    with pytest.raises(conroi.MergeConflict) as caught:
        lake.merge("dev")
    assert [(c.table, c.kind) for c in caught.value.conflicts] == [("same", "created")]
    lake.merge("dev", prefer=prefer)
    assert numbers(lake, "same") == {1: value}


@pytest.mark.parametrize(("prefer", "name"), [("source", "sales"), ("target", "trade")])
def test_both_renamed_a_table(lake: conroi.Lake, dev: conroi.Lake, prefer: Choice, name: str) -> None:
    dev.rename_table("orders", "sales")
    lake.rename_table("orders", "trade")
    upsert(dev, {1: 11}, "sales")
    with pytest.raises(conroi.MergeConflict) as caught:
        lake.merge("dev")
    assert [c.kind for c in caught.value.conflicts] == ["name"]
    lake.merge("dev", prefer=prefer)
    assert numbers(lake, name) == {1: 11, 2: 20, 3: 30}


# ---------------------------------------------------------------------------- again and again


@pytest.mark.contract("B3")
def test_merging_twice_is_merging_once_and_a_later_merge_goes_on_from_there(
    lake: conroi.Lake, dev: conroi.Lake
) -> None:
    upsert(dev, {1: 11})
    lake.merge("dev")
    version = lake.version
    assert not lake.merge("dev").has_changes
    assert lake.version == version

    upsert(lake, {1: 12})  # main goes on with the row that came from the branch
    upsert(dev, {4: 40})
    result = lake.merge("dev")  # the branch did not touch it since: no conflict

    assert numbers(lake) == {1: 12, 2: 20, 3: 30, 4: 40}
    assert kinds(result) == {"orders": "merged"}
    assert result.base.startswith("dev@")


def test_a_branch_that_is_merged_again_and_again_fast_forwards(lake: conroi.Lake, dev: conroi.Lake) -> None:
    for n in range(4, 8):
        upsert(dev, {n: n})
        assert kinds(lake.merge("dev")) == {"orders": "fast-forward"}
    assert sorted(numbers(lake)) == [1, 2, 3, 4, 5, 6, 7]


def test_a_branch_is_kept_up_to_date_with_main_and_merged_back(lake: conroi.Lake, dev: conroi.Lake) -> None:
    upsert(lake, {1: 11})
    assert kinds(dev.merge("main")) == {"orders": "fast-forward"}
    upsert(dev, {2: 22})
    upsert(lake, {3: 33})
    assert kinds(dev.merge("main")) == {"orders": "merged"}
    assert numbers(dev) == {1: 11, 2: 22, 3: 33}
    lake.create_table("fresh", [{"id": 1, "n": 1}], key="id")
    dev.merge("main")
    upsert(dev, {2: 2}, "fresh")
    assert numbers(lake, "fresh") == {1: 1}

    lake.merge("dev")

    assert numbers(lake) == numbers(dev) == {1: 11, 2: 22, 3: 33}
    assert numbers(lake, "fresh") == {1: 1, 2: 2}
    assert not lake.diff("main", "dev")
    assert not dev.merge("main").has_changes


def test_branches_are_merged_into_each_other(lake: conroi.Lake, dev: conroi.Lake) -> None:
    lake.branches.create("other")
    other = lake.branch("other")
    upsert(dev, {1: 11})
    upsert(other, {2: 22})
    dev.create_table("fresh", [{"id": 1, "n": 1}], key="id")

    lake.merge("dev", into="other")
    assert numbers(other) == {1: 11, 2: 22, 3: 30}
    lake.branches.delete("dev")
    lake.merge("other")

    assert numbers(lake) == {1: 11, 2: 22, 3: 30}
    assert numbers(lake, "fresh") == {1: 1}


def test_a_tag_of_a_branch_can_be_merged(lake: conroi.Lake, dev: conroi.Lake) -> None:
    upsert(dev, {1: 11})
    dev.tags.create("audited")
    upsert(dev, {2: 22})
    lake.merge("audited")
    assert numbers(lake) == {1: 11, 2: 20, 3: 30}
    lake.merge("dev")
    assert numbers(lake) == {1: 11, 2: 22, 3: 30}


def test_what_is_asked_wrongly(lake: conroi.Lake, dev: conroi.Lake) -> None:
    with pytest.raises(conroi.InvalidInputError, match="itself"):
        lake.merge("main")
    with pytest.raises(conroi.InvalidInputError, match="only be read"):
        cast("Any", lake.at(version=1)).merge("dev")
    with pytest.raises(conroi.InvalidInputError, match="prefer"):
        lake.merge("dev", prefer="mine")  # pyright: ignore[reportArgumentType]
    with pytest.raises(conroi.NotFoundError):
        lake.merge("nope")
    upsert(dev, {1: 11})
    upsert(lake, {1: 12})
    with pytest.raises(conroi.InvalidInputError, match="returned"):
        lake.merge("dev", prefer=lambda _: "dev")  # pyright: ignore[reportArgumentType, reportReturnType]


def test_a_key_of_several_columns_and_other_types(lake: conroi.Lake) -> None:
    import datetime

    day = [datetime.date(2026, 1, n) for n in range(1, 4)]
    schema = pa.schema(
        [
            pa.field("d", pa.date32(), nullable=False),
            pa.field("k", pa.string(), nullable=False),
            pa.field("n", pa.float32()),
        ]
    )
    rows = [{"d": d, "k": k, "n": 1.0} for d in day for k in "xy"]
    lake.create_table("days", pa.Table.from_pylist(rows, schema=schema), key=["d", "k"])
    lake.branches.create("dev")
    dev = lake.branch("dev")
    dev["days"].update({"n": "2"}, where="k = 'x'")
    lake["days"].update({"n": "3"}, where="k = 'y'")
    lake["days"].update({"n": "4"}, where="k = 'x' AND d = date '2026-01-02'")
    with pytest.raises(conroi.MergeConflict) as caught:
        lake.merge("dev")
    assert [c.key for c in caught.value.conflicts] == [{"d": day[1], "k": "x"}]
    lake.merge("dev", prefer="target")
    found = {(row["d"].day, row["k"]): row["n"] for row in lake["days"].to_arrow().to_pylist()}
    assert found == {(1, "x"): 2, (2, "x"): 4, (3, "x"): 2, (1, "y"): 3, (2, "y"): 3, (3, "y"): 3}


def test_rows_without_a_key_that_were_merged_before_can_be_changed_and_merged_again(
    lake: conroi.Lake, dev: conroi.Lake
) -> None:
    dev["log"].append([{"text": "dev"}])
    lake["log"].append([{"text": "main"}])
    lake.merge("dev")
    dev["log"].update({"text": "'better'"}, where="text = 'dev'")
    lake["log"].delete("text = 'a'")

    lake.merge("dev")

    assert texts(lake) == ["b", "better", "main"]
    dev.merge("main")
    assert texts(dev) == ["b", "better", "main"]


def test_a_merge_of_nothing_publishes_nothing(lake: conroi.Lake, dev: conroi.Lake) -> None:
    upsert(lake, {1: 11})
    dev.merge("main")
    version = lake.version
    assert not lake.merge("dev").has_changes
    assert not lake.merge("dev").has_changes
    assert lake.version == version


@pytest.mark.contract("B16")
def test_a_row_that_the_base_has_in_another_place_is_updated(lake: conroi.Lake, dev: conroi.Lake) -> None:
    """The update was counted and left out: the row was looked for only where the base has it."""
    dev["orders"].append([{"id": 4, "n": 40}])
    lake["orders"].update({"n": "20"}, "id = 2", mode="rows")  # the same value, in another file
    dev.merge("main")
    lake["orders"].update({"n": "21"}, "id = 2", mode="rows")

    result = dev.merge("main")

    assert [(each.inserted, each.updated, each.deleted) for each in result.tables] == [(0, 1, 0)]
    assert numbers(dev) == {1: 10, 2: 21, 3: 30, 4: 40}


@pytest.mark.contract("B16")
def test_a_row_that_the_base_has_in_another_place_is_deleted(lake: conroi.Lake, dev: conroi.Lake) -> None:
    dev["orders"].append([{"id": 4, "n": 40}])
    lake["orders"].update({"n": "20"}, "id = 2", mode="rows")
    dev.merge("main")
    lake["orders"].delete("id = 2")
    dev.merge("main")

    assert numbers(dev) == {1: 10, 3: 30, 4: 40}
