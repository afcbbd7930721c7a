"""Merges and doctor beside the remains of branches that were deleted."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import conroi
from conroi.maintenance.expiry import listed_versions
from conroi.maintenance.reachability import lines_of, rows_of
from conroi.storage.local_folders import settable_times
from conroi.storage.objects import Objects
from conroi.testing import CountingObjects, Meter, WrappedObjects, connect_through
from tests.support.aging import files_below, make_older
from tests.support.sampling import sampled

pytestmark = pytest.mark.contract("M7")


@pytest.fixture(autouse=True)
def settable() -> Iterator[None]:
    with settable_times():
        yield


class Killed(BaseException):
    """The collector dies."""


class OneByOne(WrappedObjects):
    """Deletes the files of one request in an order of its own, and dies before its n-th one on the branch."""

    def __init__(self, inner: Objects, left: list[int]) -> None:
        super().__init__(inner)
        self._left = left

    def delete(self, paths: Sequence[str]) -> None:
        for path in reversed(paths):
            if "/__manifest/tree/" in self.root:
                self._left[0] -= 1
                if self._left[0] <= 0:
                    raise Killed
            self.inner.delete([path])


def lake_with_branch(uri: Path) -> conroi.Lake:
    """`dev` is merged and deleted; its files are of two ages."""
    lake = conroi.connect(str(uri))
    lake.create_table("t", [{"id": 1}], key="id")
    lake.branches.create("dev")
    with lake.branch("dev").begin() as tx:
        for number in range(70):  # more rows than the small fragment of __manifest takes
            tx.create_table(f"t{number}", [{"id": number}])
    make_older(uri, hours=72)
    lake.branch("dev")["t"].append([{"id": 2}])
    lake.merge("dev")
    lake.branches.delete("dev")
    return lake


def merge_another(lake: conroi.Lake, name: str) -> None:
    lake.branches.create(name)
    lake.branch(name)["t"].append([{"id": len(name)}])
    conroi.connect(lake.uri).merge(name)


def errors(lake: conroi.Lake) -> set[str]:
    return {each.kind for each in lake.doctor().findings if each.severity == "error"}


def test_merges_go_on_after_gc(tmp_path: Path) -> None:
    """F7: data files of the deleted branch went before the manifests that need them."""
    lake = lake_with_branch(tmp_path / "lake")
    lake.gc(min_age="1d", dry_run=False)
    assert errors(lake) == set()
    merge_another(lake, "next")
    assert set(conroi.connect(lake.uri)["t"].to_arrow()["id"].to_pylist()) == {1, 2, 4}


def test_a_deleted_branch_goes_as_a_whole(tmp_path: Path) -> None:
    lake = lake_with_branch(tmp_path / "lake")
    (branch,) = (tmp_path / "lake" / "__manifest" / "tree").iterdir()
    before = files_below(branch)
    lake.gc(min_age="1d", dry_run=False)
    assert files_below(branch) == before, "its youngest file is young"
    make_older(tmp_path / "lake", hours=72)
    lake.gc(min_age="1d", dry_run=False)
    assert files_below(branch) == set()
    merge_another(lake, "next")


@pytest.mark.parametrize("nth", sampled("killed collectors", [(1,), (2,), (3,), (5,), (8,)], least=2, covers=False))
def test_a_killed_collector_breaks_no_merge(tmp_path: Path, nth: int) -> None:
    """F7: killed at its n-th deletion in the remains of a branch, one file at a time."""
    lake = lake_with_branch(tmp_path / "lake")
    make_older(tmp_path / "lake", hours=72)
    (branch,) = (tmp_path / "lake" / "__manifest" / "tree").iterdir()
    left = [nth]
    with pytest.raises(Killed):
        connect_through(lake.uri, lambda objects: OneByOne(objects, left)).gc(min_age="1d", dry_run=False)
    assert errors(lake) == set()
    merge_another(lake, "next")
    make_older(tmp_path / "lake", hours=72)
    lake.gc(min_age="1d", dry_run=False)
    assert files_below(branch) == set(), "the next collector finishes it"


def branch_of_a_branch(uri: Path) -> conroi.Lake:
    """`n` was made from `dev`, which was merged into main and deleted; main has set the row back since."""
    lake = conroi.connect(str(uri))
    lake.create_table("t", [{"id": 1, "v": 1}, {"id": 2, "v": 1}], key="id")
    lake.branches.create("dev")
    lake.branch("dev")["t"].update({"v": "2"}, where="id = 1")
    lake.branches.create("n", from_="dev")
    lake.merge("dev")
    lake.branches.delete("dev")
    lake["t"].update({"v": "1"})
    return lake


def collect(lake: conroi.Lake, uri: Path) -> None:
    make_older(uri, hours=72)
    lake.expire("1d", keep=1, dry_run=False)
    lake.gc(min_age="1d", dry_run=False)


def values(lake: conroi.Lake) -> dict[int, int]:
    return {row["id"]: row["v"] for row in conroi.connect(lake.uri)["t"].to_arrow().to_pylist()}


def remains(uri: Path) -> set[str]:
    """The branches of the list, and of the table, that have versions."""
    folders = [*(uri / "__manifest/tree").glob("*"), *(uri / "t.lance/tree").glob("*")]
    left = [folder for folder in folders if any(".manifest" in str(file) for file in files_below(folder))]
    return {folder.name.rpartition("-")[0] for folder in left}


@pytest.mark.contract("B14")
def test_the_merge_base_on_a_deleted_branch_is_kept(tmp_path: Path) -> None:
    """I4: with an older base, the merge undid what main had set back."""
    lake = branch_of_a_branch(tmp_path / "lake")
    collect(lake, tmp_path / "lake")
    lake.branch("n")["t"].update({"v": "7"}, where="id = 2")

    conroi.connect(lake.uri).merge("n")

    assert values(lake) == {1: 1, 2: 7}
    assert errors(lake) == set()


@pytest.mark.contract("B14")
def test_the_base_is_kept_if_the_deleted_branch_went_on_after_its_merge(tmp_path: Path) -> None:
    """The two sides know different versions of it: the older one is the base, and no living branch has a copy."""
    lake = conroi.connect(str(tmp_path / "lake"))
    lake.create_table("t", [{"id": 1, "v": 1}, {"id": 2, "v": 1}], key="id")
    lake.branches.create("dev")
    lake.branch("dev")["t"].update({"v": "2"}, where="id = 1")
    lake.merge("dev")
    lake.branch("dev")["t"].update({"v": "3"}, where="id = 2")
    lake.branches.create("n", from_="dev")
    lake.branches.delete("dev")
    lake["t"].update({"v": "1"}, where="id = 1")
    collect(lake, tmp_path / "lake")

    conroi.connect(lake.uri).merge("n")

    assert values(lake) == {1: 1, 2: 3}


@pytest.mark.contract("B14")
def test_the_base_goes_when_no_merge_can_need_it(tmp_path: Path) -> None:
    lake = branch_of_a_branch(tmp_path / "lake")
    collect(lake, tmp_path / "lake")
    assert remains(tmp_path / "lake") == {"dev", "n"}
    lake.branches.delete("n")
    collect(lake, tmp_path / "lake")
    assert remains(tmp_path / "lake") == set()


@pytest.mark.contract("B14")
def test_a_branch_that_began_after_the_merge_keeps_nothing_of_the_deleted_one(tmp_path: Path) -> None:
    """Both know it only through main, so a version of main is the base."""
    lake = conroi.connect(str(tmp_path / "lake"))
    lake.create_table("t", [{"id": 1, "v": 1}, {"id": 2, "v": 1}], key="id")
    lake.branches.create("feature")
    lake.branch("feature")["t"].update({"v": "2"}, where="id = 1")
    lake.merge("feature")
    lake.branches.delete("feature")
    lake.branches.create("dev")
    lake.branch("dev")["t"].update({"v": "3"}, where="id = 2")
    collect(lake, tmp_path / "lake")

    assert remains(tmp_path / "lake") == {"dev"}
    conroi.connect(lake.uri).merge("dev")
    assert values(lake) == {1: 2, 2: 3}


def test_a_lost_base_is_refused(tmp_path: Path) -> None:
    """I4: of a lake that was collected by a release which did not keep it."""
    lake = branch_of_a_branch(tmp_path / "lake")
    lake.branch("n")["t"].append([{"id": 9, "v": 9}])  # else all of it is in main already
    for folder in (tmp_path / "lake/__manifest/tree").glob("dev-*"):
        shutil.rmtree(folder / "_versions")
    with pytest.raises(conroi.NotFoundError, match="of branch dev"):
        conroi.connect(lake.uri).merge("n")
    assert values(lake) == {1: 1, 2: 1}


@pytest.mark.contract("B14")
def test_looking_for_bases_costs_nothing_where_no_branch_was_deleted(tmp_path: Path) -> None:
    """Counted: no list of a branch is read twice, and the folders of branches are not listed."""
    lake = conroi.connect(str(tmp_path / "lake"))
    lake.create_table("t", [{"id": 1, "v": 1}], key="id")
    for name in ("a", "b", "c"):
        lake.branches.create(name)
        lake.branch(name)["t"].append([{"id": ord(name), "v": 1}])
        lake.merge(name)
    meter = Meter()
    counted = connect_through(lake.uri, lambda objects: CountingObjects(objects, meter))
    with meter.measure() as measured:
        lines = lines_of(counted.catalog)
        assert [line.name.rpartition("-")[0] for line in lines] == ["a", "b", "c"]
        rows = [line.rows for line in lines]
    assert all(rows)
    with meter.measure() as plain:
        for line in lines:
            assert list(rows_of(line.files, listed_versions(line.files.objects)))
    extra = measured.requests() - plain.requests()
    assert extra <= 1 + 3 * 3, "the names of the branches"
