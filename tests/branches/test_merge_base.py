"""What two branches had in common last, also where merges crossed each other and where branches were deleted."""

from __future__ import annotations

from typing import Any

import pytest

import conroi
from conroi.branches.results import Choice
from tests.branches.conftest import numbers, upsert
from tests.support.arrow import column_values


@pytest.fixture
def crossed(lake: conroi.Lake) -> dict[str, conroi.Lake]:
    """p and q, made from main, and a and b, into each of which both are merged: two newest common states."""
    for name in ("p", "q", "a", "b"):
        lake.branches.create(name)
    return {name: lake.branch(name) for name in ("p", "q", "a", "b")}


def cross(lake: conroi.Lake, prefer: Any = None) -> None:
    for source, target in (("p", "a"), ("q", "b"), ("q", "a"), ("p", "b")):
        lake.merge(source, into=target, prefer=prefer)


@pytest.mark.contract("B9")
def test_of_tables_that_one_of_the_common_states_changed_that_version_is_the_base(
    lake: conroi.Lake, crossed: dict[str, conroi.Lake]
) -> None:
    upsert(crossed["p"], {1: 11})
    crossed["q"]["log"].append([{"text": "q"}])
    cross(lake)
    upsert(crossed["a"], {1: 10})  # changed back: from an older base it would look unchanged
    upsert(crossed["b"], {2: 22})
    result = lake.merge("b", into="a")
    assert numbers(crossed["a"]) == {1: 10, 2: 22, 3: 30}
    assert sorted(column_values(crossed["a"]["log"].to_arrow()["text"])) == ["a", "b", "q"]
    assert sorted(part.partition("@")[0] for part in result.base.split(", ")) == ["p", "q"]


@pytest.mark.parametrize(("prefer", "value"), [("source", 2), ("target", 1)])
@pytest.mark.contract("B9")
def test_a_table_that_each_of_them_changed_is_a_conflict_of_its_history(
    lake: conroi.Lake, crossed: dict[str, conroi.Lake], prefer: Choice, value: int
) -> None:
    upsert(crossed["p"], {1: 11})
    upsert(crossed["q"], {2: 22})
    cross(lake)
    assert not lake.merge("b", into="a", dry_run=True).conflicts, "both have the same rows"
    upsert(crossed["a"], {3: 1})
    upsert(crossed["b"], {3: 2})
    with pytest.raises(conroi.MergeConflict) as caught:
        lake.merge("b", into="a")
    assert [(each.table, each.kind) for each in caught.value.conflicts] == [("orders", "history")]
    lake.merge("b", into="a", prefer=prefer)
    assert numbers(crossed["a"]) == {1: 11, 2: 22, 3: value}
    assert not lake.merge("b", into="a").has_changes


@pytest.mark.contract("B9")
def test_names_and_presence_where_merges_crossed(lake: conroi.Lake, crossed: dict[str, conroi.Lake]) -> None:
    crossed["p"].rename_table("orders", "sales")
    crossed["q"].drop_table("log")
    crossed["p"].create_table("fresh", [{"id": 1}], key="id")
    cross(lake)
    for each in ("a", "b"):
        assert crossed[each].tables() == ["fresh", "sales"]
    crossed["a"].rename_table("sales", "orders")  # back to the old name
    crossed["a"].drop_table("fresh")
    crossed["b"].create_table("more", [{"id": 1}])
    lake.merge("b", into="a")
    assert crossed["a"].tables() == ["more", "orders"]


@pytest.mark.contract("B9")
def test_what_was_settled_does_not_come_again(lake: conroi.Lake, dev: conroi.Lake) -> None:
    upsert(dev, {1: 11})
    upsert(lake, {1: 12})
    lake.merge("dev", prefer="target")
    upsert(dev, {2: 22})
    lake.merge("dev")
    assert numbers(lake) == {1: 12, 2: 22, 3: 30}
    assert not lake.merge("dev").has_changes


@pytest.mark.contract("B9")
def test_a_branch_that_was_deleted_is_still_the_base_and_it_is_known_where_it_began(
    lake: conroi.Lake, dev: conroi.Lake
) -> None:
    """I4: main and n both have dev, which knows main; without that main would look like a second base."""
    upsert(lake, {1: 1})
    dev.merge("main")
    upsert(dev, {1: 11})
    lake.branches.create("n")
    lake.merge("dev", into="n")
    lake.merge("dev")
    lake.branches.delete("dev")
    upsert(lake, {1: 1})
    upsert(lake.branch("n"), {3: 33})
    result = lake.merge("n")
    assert numbers(lake) == {1: 1, 2: 20, 3: 33}
    assert result.base.startswith("dev")


def test_a_past_state_of_a_branch_from_before_it_began_is_one_of_its_parent(
    lake: conroi.Lake, dev: conroi.Lake
) -> None:
    upsert(dev, {1: 11})
    lake.branches.create("other")
    upsert(lake, {2: 22})
    past = lake.version
    upsert(lake, {2: 2})
    lake.branches.create("late")
    result = lake.merge(lake.branch("late").at(version=past), into="other")
    assert numbers(lake.branch("other")) == {1: 10, 2: 22, 3: 30}
    assert result.source_version == past
    lake.merge("late", into="other")
    assert numbers(lake.branch("other")) == {1: 10, 2: 2, 3: 30}


@pytest.mark.contract("B9")
def test_a_merge_that_brings_nothing_is_remembered_if_others_may_begin_at_what_it_passed(lake: conroi.Lake) -> None:
    """Made and dropped on main in between: a branch of that time meets a target that knows of the drop."""
    lake.branches.create("early")
    lake.create_table("t", [{"id": 1}], key="id")
    between = lake.version
    lake.drop_table("t")
    early = lake.branch("early")
    early.merge("main")
    version = early.version
    early.merge("main")
    assert early.version == version
    lake.branches.create("late", from_=between)
    lake.branch("late")["t"].append([{"id": 2}])
    with pytest.raises(conroi.MergeConflict) as caught:
        early.merge("late")
    assert [(each.table, each.kind) for each in caught.value.conflicts] == [("t", "dropped")]


@pytest.mark.contract("B9")
def test_a_branch_of_a_branch_that_did_nothing_is_in_the_target_already(lake: conroi.Lake, dev: conroi.Lake) -> None:
    upsert(dev, {1: 11})
    lake.merge("dev")
    lake.branches.create("fix")
    lake.branches.create("cross", from_="fix")
    upsert(lake, {2: 22})
    for source, target in (("cross", "main"), ("fix", "main"), ("cross", "fix")):
        version = lake.branch(target).version
        assert not lake.merge(source, into=target).has_changes
        assert lake.branch(target).version == version


def test_versions_that_maintenance_made_are_nothing_to_remember(lake: conroi.Lake, dev: conroi.Lake) -> None:
    for _ in range(2):
        lake.create_namespace("n")
        lake.drop_namespace("n")
    version = dev.version
    assert not dev.merge("main").has_changes
    assert dev.version == version + 1, "a branch may begin where the namespace was"
    lake.expire(older_than="1s", keep=1, dry_run=False)
    before = dev.version
    assert not dev.merge("main").has_changes
    assert dev.version == before


@pytest.mark.contract("B9")
def test_a_name_without_a_base_is_a_conflict_of_the_name_alone(
    lake: conroi.Lake, crossed: dict[str, conroi.Lake]
) -> None:
    """The content of one side was taken whole, and the deletion was lost."""
    crossed["p"].rename_table("orders", "sales")
    crossed["q"].rename_table("orders", "deals")
    cross(lake, prefer="target")
    assert (crossed["a"].tables(), crossed["b"].tables()) == (["log", "sales"], ["deals", "log"])
    crossed["b"]["deals"].delete("id = 1")
    conflicts = lake.merge("b", into="a", dry_run=True).conflicts
    assert [(each.table, each.kind) for each in conflicts] == [("sales", "name")]
    lake.merge("b", into="a", prefer="target")
    assert numbers(crossed["a"], "sales") == {2: 20, 3: 30}


@pytest.mark.contract("B9")
def test_of_three_common_states_the_one_to_which_the_others_are_older_is_the_base(
    lake: conroi.Lake, crossed: dict[str, conroi.Lake]
) -> None:
    """All were compared with the base of all three, to which two of them had changed the table."""
    p, q, a, b = (crossed[name] for name in ("p", "q", "a", "b"))
    upsert(p, {1: 11})
    lake.merge("p", into="q")
    upsert(q, {2: 22})  # newer than p's
    p.create_namespace("notes")  # so that p has a state that q does not
    lake.create_namespace("more")  # and main has one that neither has
    for source in ("main", "p", "q"):
        lake.merge(source, into="a")
    for source in ("q", "main", "p"):
        lake.merge(source, into="b")
    upsert(a, {3: 33})
    upsert(b, {4: 44})

    lake.merge("b", into="a")

    assert numbers(a) == {1: 11, 2: 22, 3: 33, 4: 44}


@pytest.mark.contract("B9")
def test_a_merge_that_brings_nothing_is_remembered_if_a_third_branch_has_what_it_passed(
    lake: conroi.Lake, crossed: dict[str, conroi.Lake]
) -> None:
    """a and p hold the same rows, merged crosswise. b took those of p, which a must know to have them in common."""
    p, q, a, b = (crossed[name] for name in ("p", "q", "a", "b"))
    upsert(p, {1: 11})
    upsert(q, {2: 22})
    lake.merge("q", into="a")
    lake.merge("p", into="a")
    lake.merge("q", into="p")
    lake.merge("p", into="b")
    before = a.version

    lake.merge("p", into="a")

    assert a.version == before + 1
    upsert(a, {3: 33})
    upsert(b, {4: 44})
    lake.merge("b", into="a")
    assert numbers(a) == {1: 11, 2: 22, 3: 33, 4: 44}


@pytest.mark.contract("B9")
def test_two_branches_that_merge_each_other_come_to_rest(lake: conroi.Lake, crossed: dict[str, conroi.Lake]) -> None:
    upsert(crossed["p"], {1: 11})
    upsert(crossed["q"], {2: 22})

    def merge_both() -> tuple[int, int]:
        lake.merge("p", into="q")
        lake.merge("q", into="p")
        return crossed["p"].version, crossed["q"].version

    merge_both()
    after = merge_both()
    assert merge_both() == merge_both() == after
