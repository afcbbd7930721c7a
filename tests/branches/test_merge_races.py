"""A merge beside concurrent publications: repeated after a conflict, all or nothing, no lost rows."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

import conroi
from conroi.storage.objects import Objects
from conroi.testing import FaultyObjects, Request, call_before, connect_through
from conroi.versions.retention import other_ages
from tests.branches.conftest import numbers, texts, upsert
from tests.support.paused_commits import paused_before_publication, while_paused
from tests.support.together import Meet, together


@pytest.mark.contract("B3", "P3")
@pytest.mark.parametrize("is_forward", [True, False])
def test_a_target_that_moves_under_the_merge_is_looked_at_again(
    lake: conroi.Lake, dev: conroi.Lake, is_forward: bool
) -> None:
    upsert(dev, {1: 11, 4: 40})
    dev["log"].append([{"text": "dev"}])
    if not is_forward:
        upsert(lake, {2: 22})
    writer, gate = paused_before_publication(lake.uri)

    outcome = while_paused(gate, lambda: writer.merge("dev"), lambda: upsert(lake, {3: 33}))

    outcome.result()
    assert numbers(lake) == {1: 11, 2: 20 if is_forward else 22, 3: 33, 4: 40}
    assert texts(lake) == ["a", "b", "dev"]


@pytest.mark.contract("B3")
def test_a_conflict_that_arises_under_the_merge_is_found(lake: conroi.Lake, dev: conroi.Lake) -> None:
    upsert(dev, {1: 11})
    dev["log"].append([{"text": "dev"}])
    writer, gate = paused_before_publication(lake.uri)

    outcome = while_paused(gate, lambda: writer.merge("dev"), lambda: upsert(lake, {1: 12}))

    with pytest.raises(conroi.MergeConflict) as caught:
        outcome.result()
    assert [dict(c.key or {}) for c in caught.value.conflicts] == [{"id": 1}]
    assert (numbers(lake)[1], texts(lake)) == (12, ["a", "b"])


def test_a_merge_of_what_was_merged_concurrently_has_nothing_to_do(lake: conroi.Lake, dev: conroi.Lake) -> None:
    upsert(dev, {1: 11})
    writer, gate = paused_before_publication(lake.uri)
    outcome = while_paused(gate, lambda: writer.merge("dev"), lambda: lake.merge("dev"))
    result = outcome.result()
    assert isinstance(result, conroi.LakeMerge)
    assert not result.has_changes
    assert lake.version == 3


def test_what_is_published_on_the_branch_under_the_merge_waits_for_the_next(
    lake: conroi.Lake, dev: conroi.Lake
) -> None:
    upsert(dev, {1: 11})
    writer, gate = paused_before_publication(lake.uri)
    while_paused(gate, lambda: writer.merge("dev"), lambda: upsert(dev, {2: 22})).result()
    assert numbers(lake) == {1: 11, 2: 20, 3: 30}
    lake.merge("dev")
    assert numbers(lake) == {1: 11, 2: 22, 3: 30}


def _work_and_merge(job: tuple[str, int], meet: Meet) -> list[int]:
    """Half of them work on a branch and merge it, half on main; the ids that each brought in."""
    uri, number = job
    lake = conroi.connect(uri)
    made = [100 * number + n for n in range(2)]
    meet()
    if number % 2:
        for key in made:
            lake.run(lambda tx, key=key: tx["orders"].append([{"id": key, "n": key}]), retries=100)
        return made
    name = f"b{number}"
    lake.branches.create(name)
    branch = lake.branch(name)
    for key in made:
        branch["orders"].append([{"id": key, "n": key}])
        branch["log"].append([{"text": f"{key}"}])
    lake.merge(name)
    return made


@pytest.mark.contract("B3", "P1")
def test_eight_processes_that_merge_and_write_lose_nothing(tmp_path: Path) -> None:
    lake = conroi.connect(tmp_path / "lake")
    with lake.begin() as tx:
        tx.create_table("orders", [{"id": 1, "n": 1}], key="id")
        tx.create_table("log", [{"text": "1"}])

    made = together(_work_and_merge, [(lake.uri, number) for number in range(1, 9)])

    assert sorted(numbers(lake)) == sorted([1, *(key for each in made for key in each)])
    assert len(numbers(lake)) == lake["orders"].count_rows(), "no key is there twice"
    assert sorted(map(int, texts(lake))) == sorted([1, *(key for n in range(1, 8, 2) for key in made[n])])
    for version in range(3, lake.version + 1):  # a merge is there as a whole or not at all
        then = lake.at(version=version)
        assert {int(text) for text in texts(then)} == {key for key in numbers(then) if key == 1 or key // 100 % 2 == 0}


@pytest.mark.contract("M8")
def test_a_version_that_is_collected_while_a_merge_is_worked_out_is_looked_up_again(tmp_path: Path) -> None:
    """The merge begins again on what the target has now."""
    plain = conroi.connect(tmp_path / "lake")
    plain.create_table("t", [{"id": 1, "v": 1}], key="id")
    plain.branches.create("dev")
    plain.branch("dev")["t"].append([{"id": 2, "v": 2}])
    plain["t"].append([{"id": 3, "v": 3}])
    hits: list[Request] = []

    def collect(request: Request) -> None:
        hits.append(request)
        plain["t"].append([{"id": 4, "v": 4}])
        with other_ages(0, 0):
            plain.expire(timedelta(0), keep=1, dry_run=False)

    def wrap(objects: Objects) -> Objects:
        faults = [call_before(collect, "get*", "_versions/*.manifest")]
        return FaultyObjects(objects, faults) if objects.root.endswith("t.lance") else objects

    lake = connect_through(tmp_path / "lake", wrap)
    lake.merge("dev")
    assert hits, "nothing was collected"
    assert sorted(row["id"] for row in plain["t"].to_arrow().to_pylist()) == [1, 2, 3, 4]
