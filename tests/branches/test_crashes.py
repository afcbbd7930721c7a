"""Making, writing and merging a branch with a process that dies at any request: nothing is half done."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import conroi
from conroi.testing import Fault, FaultyObjects, connect_through
from tests.branches.conftest import numbers, texts, upsert

EVERY = pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.soak)])


class _Died(BaseException):
    """What kills a process: nothing of ours catches it."""


class _Clock:
    """Kills at the n-th request of all."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, _: object) -> None:
        self.left -= 1
        if self.left == 0:
            raise _Died


def _dies(template: Path, uri: str, work: Callable[[conroi.Lake], object], at: int, *, after: bool) -> bool:
    """Do the work on a copy of the lake with a process that dies at that request; whether it died."""
    shutil.rmtree(uri, ignore_errors=True)
    shutil.copytree(template, uri)
    clock = _Clock(10**9)
    fault = Fault(before=None if after else clock, after=clock if after else None, times=None)
    lake = connect_through(uri, lambda objects: FaultyObjects(objects, [fault]))
    clock.left = at
    try:
        work(lake)
    except _Died:
        return True
    return False


def _sweep(
    template: Path,
    folder: Path,
    work: Callable[[conroi.Lake], object],
    check: Callable[[conroi.Lake], object],
    every: int = 1,
) -> int:
    """Die at each request in turn (or at every so manieth), before and after it; how many there are."""
    for at in range(1, 500, every):
        died = [_dies(template, f"{folder}/{after}", work, at, after=after) for after in (False, True)]
        for after in (False, True):
            check(conroi.connect(f"{folder}/{after}"))
        if not any(died):
            return at - 1
    raise AssertionError("it never ends")


@pytest.fixture
def template(tmp_path: Path) -> Path:
    lake = conroi.connect(tmp_path / "template")
    with lake.begin("two tables") as tx:
        tx.create_table("orders", [{"id": i, "n": 10 * i} for i in (1, 2, 3)], key="id")
        tx.create_table("log", [{"text": "a"}, {"text": "b"}])
    return tmp_path / "template"


@pytest.mark.contract("B1", "B5")
def test_a_branch_is_made_or_not(template: Path, tmp_path: Path) -> None:
    def check(lake: conroi.Lake) -> None:
        if "dev" not in lake.branches:
            lake.branches.create("dev")
        upsert(lake.branch("dev"), {1: 11})
        assert numbers(lake.branch("dev")) == {1: 11, 2: 20, 3: 30}
        assert numbers(lake) == {1: 10, 2: 20, 3: 30}

    assert _sweep(template, tmp_path, lambda lake: lake.branches.create("dev"), check) >= 5


@EVERY
@pytest.mark.contract("B2", "P1")
def test_a_first_write_of_two_tables_is_there_or_not(template: Path, tmp_path: Path, every: int) -> None:
    conroi.connect(template).branches.create("dev")

    def work(lake: conroi.Lake) -> None:
        with lake.begin(branch="dev") as tx:
            tx["orders"].delete("id = 1")
            tx["log"].append([{"text": "c"}])

    def check(lake: conroi.Lake) -> None:
        dev = lake.branch("dev")
        is_there = 1 not in numbers(dev)
        assert texts(dev) == (["a", "b", "c"] if is_there else ["a", "b"])
        upsert(dev, {4: 40})
        assert sorted(numbers(dev)) == ([2, 3, 4] if is_there else [1, 2, 3, 4])
        assert numbers(lake) == {1: 10, 2: 20, 3: 30}

    assert _sweep(template, tmp_path, work, check, every) >= 10


@EVERY
@pytest.mark.contract("B3", "P1")
def test_a_merge_is_there_or_not_and_can_be_done_again(template: Path, tmp_path: Path, every: int) -> None:
    lake = conroi.connect(template)
    lake.branches.create("dev")
    dev = lake.branch("dev")
    upsert(dev, {1: 11, 4: 40})
    dev["log"].append([{"text": "c"}])
    dev.create_table("fresh", [{"id": 1, "n": 1}], key="id")
    upsert(lake, {2: 22})

    def check(lake: conroi.Lake) -> None:
        before = ({1: 10, 2: 22, 3: 30}, ["a", "b"], ["log", "orders"])
        after = ({1: 11, 2: 22, 3: 30, 4: 40}, ["a", "b", "c"], ["fresh", "log", "orders"])
        assert (numbers(lake), texts(lake), lake.tables()) in (before, after)
        lake.merge("dev")
        assert (numbers(lake), texts(lake), lake.tables()) == after
        assert numbers(lake, "fresh") == {1: 1}

    assert _sweep(template, tmp_path, lambda lake: lake.merge("dev"), check, every) >= 15


@pytest.mark.contract("B5")
def test_a_branch_that_is_being_deleted_is_deleted_or_not(template: Path, tmp_path: Path) -> None:
    lake = conroi.connect(template)
    lake.branches.create("dev")
    upsert(lake.branch("dev"), {1: 11})

    def check(lake: conroi.Lake) -> None:
        if "dev" in lake.branches:
            lake.branches.delete("dev")
        lake.branches.create("dev")
        assert numbers(lake.branch("dev")) == {1: 10, 2: 20, 3: 30}

    assert _sweep(template, tmp_path, lambda lake: lake.branches.delete("dev"), check) >= 5


@pytest.mark.contract("B5")
def test_a_branch_that_is_being_renamed_keeps_its_rows(template: Path, tmp_path: Path) -> None:
    lake = conroi.connect(template)
    lake.branches.create("dev")
    upsert(lake.branch("dev"), {1: 11})

    def check(lake: conroi.Lake) -> None:
        names = {branch.name for branch in lake.branches} - {"main"}
        assert names in ({"dev"}, {"next"}, {"dev", "next"})
        for name in names:
            assert numbers(lake.branch(name))[1] == 11

    assert _sweep(template, tmp_path, lambda lake: lake.branches.rename("dev", "next"), check) >= 3
