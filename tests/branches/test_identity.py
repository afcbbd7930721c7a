"""A branch that is deleted and made again under its name is another one, also for a paused writer."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest

import conroi
from conroi.format.on_disk import DELETED_SETTING
from conroi.snapshots.branch_names import Cell, Cells, Value
from conroi.storage import open_objects
from tests.branches.conftest import numbers
from tests.support.paused_commits import paused_before_publication, while_paused
from tests.support.together import Meet, together


@pytest.mark.contract("B5")
def test_a_writer_of_a_deleted_branch_is_told_so_and_touches_nothing_of_the_new_one(
    lake: conroi.Lake, dev: conroi.Lake
) -> None:
    stalled = dev.begin("stalled")
    stalled["orders"].append([{"id": 99, "n": 99}])
    handle = dev["orders"]
    lake.branches.delete("dev")
    lake.branches.create("dev")

    with pytest.raises(conroi.NotFoundError, match="was deleted"):
        stalled.commit()
    with pytest.raises(conroi.NotFoundError, match="was deleted"):
        handle.append([{"id": 98, "n": 98}])
    with pytest.raises(conroi.NotFoundError, match="was deleted"):
        dev.tables()

    remade = lake.branch("dev")
    assert remade.catalog.identity.id != dev.catalog.identity.id
    assert sorted(numbers(remade)) == [1, 2, 3]
    remade["orders"].append([{"id": 4, "n": 40}])
    assert sorted(numbers(remade)) == [1, 2, 3, 4]


@pytest.mark.contract("B5")
def test_also_one_that_was_about_to_put_its_version(lake: conroi.Lake) -> None:
    lake.branches.create("dev")

    def remake() -> None:
        lake.branches.delete("dev")
        lake.branches.create("dev")

    writer, gate = paused_before_publication(lake.uri)
    branch = writer.branch("dev")
    tx = branch.begin("stalled")
    tx["orders"].append([{"id": 99, "n": 99}])
    outcome = while_paused(gate, tx.commit, remake)

    with pytest.raises(conroi.NotFoundError, match="was deleted"):
        outcome.result()
    assert sorted(numbers(lake.branch("dev"))) == [1, 2, 3]


@pytest.mark.contract("B5")
def test_the_tables_of_a_new_branch_are_not_in_the_folders_of_the_old_one(lake: conroi.Lake, dev: conroi.Lake) -> None:
    dev["orders"].append([{"id": 4, "n": 40}])
    old = dev["orders"].uri
    assert lance.dataset(f"{lake.uri}/orders.lance").branches.list()
    lake.branches.delete("dev")
    assert not lance.dataset(f"{lake.uri}/orders.lance").branches.list(), "pylance does not list it any more"
    lake.branches.create("dev")
    lake.branch("dev")["orders"].delete("id = 1")

    assert lake.branch("dev")["orders"].uri != old
    assert sorted(numbers(lake.branch("dev"))) == [2, 3]


def test_a_deletion_that_was_interrupted_can_be_finished(lake: conroi.Lake, dev: conroi.Lake) -> None:
    from conroi.table import Table

    assert dev._manifest is not None
    Table(dev._manifest, dev._manifest.head()).set_config(
        {DELETED_SETTING: "now"}
    )  # and there the deleting process died

    with pytest.raises(conroi.NotFoundError, match="was deleted"):
        lake.branch("dev")
    lake.branches.delete("dev")
    assert [branch.name for branch in lake.branches] == ["main"]
    lake.branches.create("dev")
    assert sorted(numbers(lake.branch("dev"))) == [1, 2, 3]


# ---------------------------------------------------------------------------- eight at once


def _create(job: tuple[str, int], meet: Meet) -> list[str]:
    uri, rounds = job
    lake = conroi.connect(uri)
    won: list[str] = []
    for n in range(rounds):
        meet()
        try:
            won.append(lake.branches.create(f"b{n}").id)
        except conroi.AlreadyExistsError:
            won.append("")
    return won


@pytest.mark.contract("B5", "B1")
def test_of_eight_processes_that_make_one_name_one_succeeds(tmp_path: Path) -> None:
    rounds = 6
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("orders", [{"id": 1, "n": 1}], key="id")

    won = together(_create, [(lake.uri, rounds)] * 8)

    for n in range(rounds):
        ids = [each[n] for each in won if each[n]]
        assert ids == [lake.branches.get(f"b{n}").id]
        lake.branch(f"b{n}")["orders"].append([{"id": 2, "n": n}])
    assert len(list(lake.branches)) == rounds + 1


class _CarelessCells(Cells):
    """A name that is looked at and then written, with no condition: what must go wrong, goes wrong here."""

    def swap(self, cell: Cell, value: Value | None) -> bool:
        import json

        self._objects.put(self._path(cell.name, cell.number + 1), json.dumps(value).encode())
        return True


def _swap(job: tuple[str, bool, int], meet: Meet) -> int:
    uri, is_careless, rounds = job
    cells = (_CarelessCells if is_careless else Cells)(open_objects(uri), "cells")
    won = 0
    for n in range(rounds):
        cell = cells.read(f"c{n}")
        meet()
        won += cells.swap(cell, {"by": uri})
        meet()
    return won


@pytest.mark.parametrize("is_careless", [False, True])
def test_a_name_moves_by_compare_and_swap_and_without_it_many_think_they_won(tmp_path: Path, is_careless: bool) -> None:
    rounds = 10
    won = sum(together(_swap, [(str(tmp_path), is_careless, rounds)] * 4))
    assert (won == rounds) is not is_careless


def test_a_name_that_was_given_up_never_takes_a_swap_from_before(tmp_path: Path) -> None:
    cells = Cells(open_objects(tmp_path), "cells")
    old = cells.read("x")
    assert cells.swap(old, {"n": 1})
    first = cells.read("x")
    assert cells.swap(first, None)
    assert cells.swap(cells.read("x"), {"n": 2})

    assert not cells.swap(old, {"n": 3})
    assert not cells.swap(first, {"n": 3})
    assert cells.read("x").value == {"n": 2}
