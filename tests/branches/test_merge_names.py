"""Tables that come, go and change their names on branches: all of them are decided together, by identity."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import lance
import pytest

import conroi
from tests.support.arrow import column_values

Prefer = Literal["source", "target"]


def lake_of(**tables: Sequence[int]) -> tuple[conroi.Lake, conroi.Lake]:
    """A lake with tables of these ids, each with the key id, and a branch of it."""
    lake = conroi.connect(f"memory://{uuid.uuid4().hex}")
    for name, ids in tables.items():
        lake.create_table(name, [{"id": i} for i in ids], key="id")
    lake.branches.create("dev")
    return lake, lake.branch("dev")


def ids(lake: conroi.Lake) -> dict[str, list[int]]:
    """All tables with their ids, read through this handle and through a new one."""
    found = {name: sorted(column_values(lake[name].to_arrow()["id"])) for name in lake.tables()}
    again = conroi.connect(lake.uri, branch=lake.branch_name)
    assert {name: sorted(column_values(again[name].to_arrow()["id"])) for name in again.tables()} == found
    return found


def add(lake: conroi.Lake, name: str, number: int) -> None:
    lake[name].append([{"id": number}])


def conflicts(target: conroi.Lake, source: str) -> list[tuple[str, str]]:
    """What a merge is refused for; a dry run lists the same."""
    version = target.version
    dry = target.merge(source, dry_run=True)
    with pytest.raises(conroi.MergeConflict) as caught:
        target.merge(source)
    assert target.version == version
    assert caught.value.conflicts == dry.conflicts
    return sorted((each.table, each.kind) for each in dry.conflicts)


# ---------------------------------------------------------------------------- one side only


@pytest.mark.contract("B6")
def test_a_table_that_main_changed_and_renamed_is_one_table_on_a_branch_that_never_wrote_it() -> None:
    """I2."""
    lake, dev = lake_of(t=[1])
    add(lake, "t", 2)
    lake.rename_table("t", "u")
    dev.merge("main")
    assert ids(dev) == {"u": [1, 2]}
    add(dev, "u", 5)
    lake.merge("dev")
    assert ids(lake) == {"u": [1, 2, 5]}


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.contract("B6")
def test_a_rename_with_a_change_comes_to_a_branch_that_wrote_the_table_too(is_written: bool) -> None:
    lake, dev = lake_of(t=[1])
    if is_written:
        add(dev, "t", 7)
    add(lake, "t", 2)
    lake.rename_table("t", "u")
    dev.merge("main")
    assert ids(dev) == {"u": [1, 2, 7] if is_written else [1, 2]}
    assert not dev.merge("main").has_changes


@pytest.mark.parametrize("prefer", [None, "source", "target"])
@pytest.mark.contract("B6")
def test_dropped_and_made_again_under_its_name(prefer: Prefer | None) -> None:
    """I5: the target changed nothing, so there is no conflict, whatever is preferred."""
    lake, dev = lake_of(t=[1])
    dev.drop_table("t")
    dev.create_table("t", [{"id": 9}], key="id")
    assert not lake.merge("dev", dry_run=True).conflicts
    lake.merge("dev", prefer=prefer)
    assert ids(lake) == {"t": [9]}


@pytest.mark.parametrize("prefer", [None, "source", "target"])
@pytest.mark.contract("B6")
def test_a_table_renamed_to_the_name_of_one_that_was_dropped(prefer: Prefer | None) -> None:
    """I5."""
    lake, dev = lake_of(t=[1], b=[2])
    dev.drop_table("b")
    dev.rename_table("t", "b")
    add(dev, "b", 3)
    lake.merge("dev", prefer=prefer)
    assert ids(lake) == {"b": [1, 3]}


@pytest.mark.parametrize("into", ["main", "dev"])
@pytest.mark.parametrize("is_changed", [False, True])
@pytest.mark.contract("B6")
def test_two_tables_that_swapped_names(into: str, is_changed: bool) -> None:
    """I5, in both directions: on main tables get new versions, on a branch that never wrote them new rows."""
    lake, dev = lake_of(a=[1], b=[2])
    source, target = (dev, lake) if into == "main" else (lake, dev)
    for name, new in (("a", "x"), ("b", "a"), ("x", "b")):
        source.rename_table(name, new)
    if is_changed:
        add(source, "a", 3)
        add(source, "b", 4)
    target.merge(source)
    assert ids(target) == ({"a": [2, 3], "b": [1, 4]} if is_changed else {"a": [2], "b": [1]})
    assert not target.merge(source).has_changes


def test_names_that_go_round_while_one_is_dropped_and_one_is_new() -> None:
    lake, dev = lake_of(a=[1], b=[2], c=[3])
    add(lake, "b", 20)
    dev.drop_table("c")
    dev.rename_table("b", "c")
    dev.rename_table("a", "b")
    dev.create_table("a", [{"id": 9}], key="id")
    lake.merge("dev")
    assert ids(lake) == {"a": [9], "b": [1], "c": [2, 20]}


# ---------------------------------------------------------------------------- both sides


@pytest.mark.parametrize(("prefer", "expected"), [("source", {"t": [9]}), ("target", {"t": [1, 2]})])
def test_made_again_on_the_source_and_changed_on_the_target(prefer: Prefer, expected: dict[str, list[int]]) -> None:
    lake, dev = lake_of(t=[1])
    dev.drop_table("t")
    dev.create_table("t", [{"id": 9}], key="id")
    add(lake, "t", 2)
    assert ("t", "dropped") in conflicts(lake, "dev")
    lake.merge("dev", prefer=prefer)
    assert ids(lake) == expected
    assert not lake.merge("dev").has_changes


@pytest.mark.parametrize(("prefer", "expected"), [("source", {}), ("target", {"u": [1]})])
@pytest.mark.contract("B6")
def test_renamed_on_the_target_and_dropped_on_the_source_is_a_conflict(
    prefer: Prefer, expected: dict[str, list[int]]
) -> None:
    """I17."""
    lake, dev = lake_of(t=[1])
    dev.drop_table("t")
    lake.rename_table("t", "u")
    assert conflicts(lake, "dev") == [("u", "dropped")]
    lake.merge("dev", prefer=prefer)
    assert ids(lake) == expected


@pytest.mark.parametrize(("prefer", "expected"), [("source", {"u": [1]}), ("target", {})])
def test_renamed_on_the_source_and_dropped_on_the_target_is_a_conflict(
    prefer: Prefer, expected: dict[str, list[int]]
) -> None:
    lake, dev = lake_of(t=[1])
    lake.drop_table("t")
    dev.rename_table("t", "u")
    assert conflicts(lake, "dev") == [("u", "dropped")]
    lake.merge("dev", prefer=prefer)
    assert ids(lake) == expected


@pytest.mark.parametrize("key", ["id", None])
@pytest.mark.parametrize("prefer", [None, "source", "target"])
def test_a_table_that_was_only_compacted_or_indexed_is_no_conflict_when_the_other_side_dropped_it(
    key: str | None, prefer: Prefer | None
) -> None:
    lake = conroi.connect(f"memory://{uuid.uuid4().hex}")
    for name in ("t", "u", "v"):
        lake.create_table(name, [{"id": 1}], key=key).append([{"id": 2}])
    lake.branches.create("dev")
    dev = lake.branch("dev")
    lake["t"].compact()
    lake["u"].create_index("id")
    dev["v"].compact()
    dev.drop_table("t")
    dev.drop_table("u")
    lake.drop_table("v")
    lake.merge("dev", prefer=prefer)
    assert ids(lake) == {}


@pytest.mark.contract("B6")
def test_a_table_that_was_restored_keeps_its_identity() -> None:
    """I13: settled once, the conflict does not come again."""
    lake, dev = lake_of(t=[1])
    add(dev, "t", 2)
    lake.drop_table("t")
    lake.merge("dev", prefer="source")
    assert ids(lake) == {"t": [1, 2]}
    add(dev, "t", 3)
    add(lake, "t", 4)
    lake.merge("dev")
    assert ids(lake) == {"t": [1, 2, 3, 4]}
    dev.merge("main")
    assert ids(dev) == {"t": [1, 2, 3, 4]}


@pytest.mark.parametrize("is_settled_on_main", [False, True])
@pytest.mark.contract("B6")
def test_a_table_that_a_branch_wrote_and_dropped_can_be_brought_back(is_settled_on_main: bool) -> None:
    """I8: not into the folder that has versions of its former life."""
    lake, dev = lake_of(t=[1])
    add(dev, "t", 2)
    before = dev.version
    dev.drop_table("t")
    add(lake, "t", 3)
    if is_settled_on_main:
        lake.merge("dev", prefer="target")
        add(lake, "t", 4)
        dev.merge("main", prefer="source")
    else:
        dev.merge("main", prefer="source")
    assert ids(dev) == {"t": [1, 3, 4] if is_settled_on_main else [1, 3]}
    assert sorted(column_values(dev.at(version=before)["t"].to_arrow()["id"])) == [1, 2]
    add(dev, "t", 5)
    lake.merge("dev")
    assert ids(lake)["t"] == ids(dev)["t"]


@pytest.mark.parametrize(("prefer", "expected"), [("source", {"x": [1]}), ("target", {"x": [2]})])
def test_both_gave_one_name_to_different_tables(prefer: Prefer, expected: dict[str, list[int]]) -> None:
    """Each side dropped the other table's competitor: tables that collide are one group."""
    lake, dev = lake_of(a=[1], b=[2])
    dev.rename_table("a", "x")
    lake.rename_table("b", "x")
    assert conflicts(lake, "dev") == [("x", "name")]
    other = {"source": {"b": [2]}, "target": {"a": [1]}}[prefer]
    lake.merge("dev", prefer=prefer)
    assert ids(lake) == expected | other
    assert not lake.merge("dev").has_changes


@pytest.mark.parametrize(
    ("prefer", "expected"), [("source", {"b": [1], "c": [2]}), ("target", {"a": [1], "b": [9], "d": [2]})]
)
@pytest.mark.contract("B6")
def test_tables_that_are_linked_by_names_are_settled_as_one(prefer: Prefer, expected: dict[str, list[int]]) -> None:
    """a -> b collides with the target's new b; b is linked by the name that it had to give away."""
    lake, dev = lake_of(a=[1], b=[2])
    dev.rename_table("b", "c")
    dev.rename_table("a", "b")
    lake.rename_table("b", "d")
    lake.create_table("b", [{"id": 9}], key="id")
    assert conflicts(lake, "dev") == [("b", "name"), ("d", "name")]
    lake.merge("dev", prefer=prefer)
    assert ids(lake) == expected
    assert not lake.merge("dev").has_changes


@pytest.mark.parametrize(("prefer", "names"), [("source", ["a"]), ("target", ["a.b"])])
def test_a_table_that_has_the_name_of_a_namespace_on_the_other_side(prefer: Prefer, names: list[str]) -> None:
    lake, dev = lake_of(t=[1])
    dev.create_table("a", [{"id": 1}], key="id")
    lake.create_table("a.b", [{"id": 2}], key="id")
    assert [kind for _, kind in conflicts(lake, "dev")] == ["created"]
    lake.merge("dev", prefer=prefer)
    assert lake.tables() == [*names, "t"]


def test_what_a_group_does_not_link_is_merged_beside_it() -> None:
    lake, dev = lake_of(a=[1], b=[2], c=[3])
    lake.create_table("new", [{"id": 7}], key="id")
    dev.create_table("new", [{"id": 8}], key="id")
    dev.rename_table("a", "d")
    add(dev, "b", 20)
    assert conflicts(lake, "dev") == [("new", "created")]
    lake.merge("dev", prefer="target")
    assert ids(lake) == {"b": [2, 20], "c": [3], "d": [1], "new": [7]}


@pytest.mark.contract("B12")
def test_a_table_that_was_made_on_a_branch_is_read_by_pylance_there_after_it_was_merged(tmp_path: Any) -> None:
    lake = conroi.connect(str(tmp_path / "lake"))
    lake.create_table("t", [{"id": 1}])
    lake.branches.create("dev")
    dev = lake.branch("dev")
    dev.create_table("new", [{"id": 7}], key="id")
    lake.merge("dev")
    add(dev, "new", 8)
    folder = dev["new"].uri
    root = folder.split("/tree/")[0]
    assert lance.dataset(folder).to_table()["id"].to_pylist() == [7, 8]
    assert not (Path(root) / "_versions").exists(), "else it would be a branch of that table, which it does not say"
    assert lance.dataset(lake["new"].uri).to_table()["id"].to_pylist() == [7]
    lake.merge("dev")
    assert ids(lake)["new"] == [7, 8]


# ---------------------------------------------------------------------------- namespaces


@pytest.mark.contract("B7")
def test_namespaces_are_made_and_dropped_and_one_that_is_not_empty_is_left_out() -> None:
    """I16."""
    lake, dev = lake_of(t=[1])
    for name in ("gone", "kept"):
        lake.create_namespace(name)
    dev.merge("main")
    dev.drop_namespace("gone")
    dev.drop_namespace("kept")
    dev.create_namespace("fresh")
    lake.create_table("kept.t", [{"id": 1}], key="id")

    result = lake.merge("dev")

    assert lake.namespaces() == ["fresh", "kept"]
    assert result.left_out == ("dropping namespace kept, which is not empty",)
    assert "left out: dropping namespace kept" in str(result)
    assert result.to_dict()["left_out"] == list(result.left_out)


@pytest.mark.contract("B7")
def test_tags_and_indices_that_do_not_come_along_are_listed() -> None:
    lake, dev = lake_of(t=[1])
    add(dev, "t", 2)
    dev["t"].create_index("id", name="by_id")
    dev.tags.create("audited")
    add(lake, "t", 3)
    result = lake.merge("dev")
    assert result.left_out == ("index by_id of table t", f"tag audited of dev@{dev.version}")


def test_what_both_did_alike_is_remembered_as_merged() -> None:
    """Else the next merge would undo what the target did since."""
    lake, dev = lake_of(t=[1])
    for each in (lake, dev):
        each["t"].append([{"id": 2}])
    lake.merge("dev")
    lake["t"].delete("id = 2")
    lake.merge("dev")
    assert ids(lake) == {"t": [1]}


def test_two_merges_at_once_both_are_remembered(tmp_path: Any) -> None:
    """The note of what was merged is one row: the second merge must not write over that of the first."""
    from tests.support.paused_commits import paused_before_publication, while_paused

    lake = conroi.connect(str(tmp_path / "lake"))
    for name in ("a", "b"):
        lake.create_table(name, [{"id": 1}], key="id")
    for name in ("first", "one", "two"):
        lake.branches.create(name)
    lake.branch("first").create_table("c", [{"id": 1}])
    lake.merge("first")  # there is a note already
    lake.branch("one")["a"].append([{"id": 2}])
    lake.branch("two")["b"].append([{"id": 2}])
    writer, gate = paused_before_publication(lake.uri)
    while_paused(gate, lambda: writer.merge("one"), lambda: lake.merge("two")).result()
    lake["a"].delete("id = 2")
    lake["b"].delete("id = 2")
    for name in ("one", "two"):
        lake.merge(name)
    assert ids(lake) == {"a": [1], "b": [1], "c": [1]}
