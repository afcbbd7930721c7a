"""Tags of a lake name a version on whatever branch; of many who make or move one, one succeeds."""

from __future__ import annotations

import gc
import weakref
from datetime import timedelta
from pathlib import Path

import lance
import pytest

import conroi
from conroi.branches.branches import Branches
from conroi.snapshots.branch_names import Branch
from conroi.snapshots.tags import Tags
from conroi.versions.retention import other_ages
from tests.branches.conftest import numbers
from tests.support.together import Meet, together


@pytest.mark.contract("B4")
def test_a_tag_pins_a_version_for_readers(lake: conroi.Lake, dev: conroi.Lake) -> None:
    dev["orders"].append([{"id": 4, "n": 40}])
    lake.tags.create("q3")
    dev.tags.create("candidate")
    dev["orders"].delete("id = 1")
    lake["orders"].delete("id = 1")

    for anywhere in (lake, dev, conroi.connect(lake.uri)):
        assert [tag.name for tag in anywhere.tags] == ["candidate", "q3"]
        assert sorted(numbers(anywhere.at(tag="q3"))) == [1, 2, 3]
        assert sorted(numbers(anywhere.at(tag="candidate"))) == [1, 2, 3, 4]
    assert lake.at(tag="candidate").branch_name == "dev"
    theirs = lance.dataset(f"{lake.uri}/__manifest").tags.list()
    assert {name: (tag["branch"], tag["version"]) for name, tag in theirs.items()} == {
        "q3": (None, 2),
        "candidate": (lake.branches.get("dev").lance_name, 3),
    }


def test_a_tag_moves_and_goes(lake: conroi.Lake) -> None:
    lake.tags.create("now", version=1)
    assert lake.tags.move("now").version == 2
    assert lake.tags.move("now", 1, expect=2).version == 1
    with pytest.raises(conroi.ExpectedVersionMismatch):
        lake.tags.move("now", 2, expect=2)
    lake.tags.delete("now")
    with pytest.raises(conroi.NotFoundError):
        lake.tags.get("now")
    assert lake.tags.create("now").version == 2
    assert lance.dataset(f"{lake.uri}/__manifest").tags.list()["now"]["version"] == 2


def test_a_connection_that_used_tags_is_forgotten(tmp_path: Path) -> None:
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", [{"n": 1}])
    lake.tags.create("first")
    lake.expire("1d", dry_run=False)
    kept = weakref.ref(lake._catalog)
    del lake
    gc.collect()
    assert kept() is None


def test_a_move_that_did_not_get_to_change_the_file_is_a_move(lake: conroi.Lake) -> None:
    tags = lake.tags
    tags.create("now", version=1)
    body = tags._body(2, created=None)
    assert tags._claim("now", tags._there("now"), body)  # and there the moving process died

    assert lake.tags.get("now").version == 2
    assert [tag.version for tag in lake.tags] == [2]
    assert lake.tags.move("now", 1).version == 1
    assert tags._claim("now", tags._there("now"), b"")  # one that died while it deleted
    assert list(lake.tags) == []
    assert lake.tags.create("now").version == 2


def test_pylance_moves_a_tag_of_ours_and_we_see_it(tmp_path: Path) -> None:
    table = conroi.create_table(tmp_path / "t.lance", [{"id": 1}])
    table = table.append([{"id": 2}])
    table.tags.create("x", 1)
    table.tags.move("x", 2)
    lance.dataset(tmp_path / "t.lance").tags.update("x", 1)
    assert table.tags.get("x").version == 1
    table.tags.move("x", 2)
    assert lance.dataset(tmp_path / "t.lance").tags.list()["x"]["version"] == 2


def test_a_tag_of_a_deleted_branch_says_so(
    lake: conroi.Lake, dev: conroi.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a lake whose branch was deleted by a release that did not look at tags."""
    dev.tags.create("candidate")
    monkeypatch.setattr(Branches, "_tags_on", lambda *_: [])
    lake.branches.delete("dev")
    with pytest.raises(conroi.NotFoundError, match="a branch that was deleted"):
        lake.at(tag="candidate")


# ---------------------------------------------------------------------------- eight at once


class _CarelessTags(Tags):
    """Looks, and then writes: what must go wrong, goes wrong here."""

    def _claim(self, name: str, before: bytes, after: bytes) -> bool:
        return True


def _move(job: tuple[str, bool, int], meet: Meet) -> int:
    uri, is_careless, rounds = job
    lake = conroi.connect(uri)
    assert lake._manifest is not None
    tags = (_CarelessTags if is_careless else Tags)(lake._manifest, lake.version)
    moved = 0
    for n in range(rounds):
        before = tags._there(f"t{n}")
        body = tags._body(2, created=None)
        meet()
        moved += tags._claim(f"t{n}", before, body)
    return moved


@pytest.mark.contract("B4")
@pytest.mark.parametrize("is_careless", [False, True])
def test_of_concurrent_moves_of_a_tag_from_one_version_one_succeeds(tmp_path: Path, is_careless: bool) -> None:
    rounds = 10
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("orders", [{"id": 1}], key="id")
    for n in range(rounds):
        lake.tags.create(f"t{n}", version=1)

    moved = sum(together(_move, [(lake.uri, is_careless, rounds)] * 4))

    assert (moved == rounds) is not is_careless


def _create(job: tuple[str, int], meet: Meet) -> int:
    uri, rounds = job
    lake = conroi.connect(uri)
    won = 0
    for n in range(rounds):
        meet()
        try:
            lake.tags.create(f"t{n}")
            won += 1
        except conroi.AlreadyExistsError:
            pass
    return won


@pytest.mark.contract("B4")
def test_of_eight_processes_that_create_one_tag_one_succeeds(tmp_path: Path) -> None:
    rounds = 10
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("orders", [{"id": 1}], key="id")

    won = together(_create, [(lake.uri, rounds)] * 8)

    assert sum(won) == rounds
    assert len(list(lake.tags)) == rounds


# ------------------------------------------------------------------------------ branches that are deleted


@pytest.mark.contract("B15")
def test_a_branch_whose_versions_are_tagged_is_not_deleted(lake: conroi.Lake, dev: conroi.Lake) -> None:
    """I18: the tags named nothing afterwards."""
    dev["orders"].append([{"id": 4, "n": 40}])
    dev.tags.create("candidate")
    dev.tags.create("first", version=3)
    lake.tags.create("q3")

    with pytest.raises(conroi.InvalidInputError, match="candidate, first") as refused:
        lake.branches.delete("dev")

    assert "tags='drop'" in str(refused.value.hint)
    assert "dev" in lake.branches
    dev["orders"].append([{"id": 5, "n": 50}])
    assert sorted(numbers(lake.at(tag="candidate"))) == [1, 2, 3, 4]
    lake.tags.delete("candidate")
    lake.tags.move("first", lake.version)
    lake.branches.delete("dev")
    assert [tag.name for tag in lake.tags] == ["first", "q3"]
    assert sorted(numbers(lake.at(tag="first"))) == [1, 2, 3]


@pytest.mark.contract("B15")
def test_tags_are_deleted_with_a_branch_if_that_is_asked_for(lake: conroi.Lake, dev: conroi.Lake) -> None:
    dev["orders"].append([{"id": 4, "n": 40}])
    dev.tags.create("candidate")
    lake.tags.create("q3")

    with pytest.raises(conroi.InvalidInputError):
        lake.branches.delete("dev", tags="delete")  # type: ignore[arg-type]
    lake.branches.delete("dev", tags="drop")

    assert [tag.name for tag in lake.tags] == ["q3"]
    assert "dev" not in lake.branches
    assert lake.doctor().is_healthy


@pytest.mark.contract("B15")
def test_a_tag_that_is_made_while_the_branch_is_deleted_is_not_left_without_a_version(
    lake: conroi.Lake, dev: conroi.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made between the look at the tags and the deletion: the deletion is undone. Made after it: the tag is refused."""
    dev["orders"].append([{"id": 4, "n": 40}])
    tags, looked = dev.tags, Branches._refuse_tagged

    def look_and_be_late(branches: Branches, branch: Branch) -> None:
        looked(branches, branch)
        if "late" not in {tag.name for tag in tags}:
            tags.create("late")

    monkeypatch.setattr(Branches, "_refuse_tagged", look_and_be_late)
    with pytest.raises(conroi.InvalidInputError, match="late"):
        lake.branches.delete("dev")
    monkeypatch.undo()

    again = conroi.connect(lake.uri, branch="dev")
    again["orders"].append([{"id": 5, "n": 50}])
    assert sorted(numbers(again.at(tag="late"))) == [1, 2, 3, 4]
    lake.branches.delete("dev", tags="drop")
    with pytest.raises(conroi.NotFoundError, match="deleted"):
        tags.create("too-late")
    assert list(lake.tags) == []


@pytest.mark.contract("B4", "B15")
def test_a_tag_on_a_branch_keeps_a_version_from_before_the_branch(tmp_path: Path) -> None:
    """Of the lake and of a table: the collector of the main branch knows nothing of the tags of another one."""
    with other_ages(0, 0):
        lake = conroi.connect(tmp_path / "lake")
        lake.create_table("t", [{"n": 1}])  # version 2 of the lake
        lake["t"].append([{"n": 2}])
        lake["t"].append([{"n": 3}])
        lake.branches.create("dev")
        dev = lake.branch("dev")
        dev.tags.create("old", version=2)
        dev["t"].tags.create("second", version=2)
        lake["t"].overwrite([{"n": 4}])

        lake.expire(timedelta(0), keep=1, dry_run=False)
        lake.gc(min_age=timedelta(0), dry_run=False)

        for opened in (dev, conroi.connect(lake.uri, branch="dev")):
            assert opened.at(tag="old")["t"].to_arrow()["n"].to_pylist() == [1]
            assert opened["t"].at(tag="second").to_arrow()["n"].to_pylist() == [1, 2]
            assert opened["t"].to_arrow()["n"].to_pylist() == [1, 2, 3]
        assert lake.doctor(deep=True).is_healthy


@pytest.mark.contract("M9")
def test_a_lease_on_a_branch_keeps_a_version_from_before_the_branch(tmp_path: Path) -> None:
    with other_ages(0, 0):
        lake = conroi.connect(tmp_path / "lake")
        lake.create_table("t", [{"n": 1}])
        lake["t"].append([{"n": 2}])
        lake["t"].append([{"n": 3}])
        lake.branches.create("dev")
        dev = lake.branch("dev")
        past, table = dev.at(2, keep="1h"), dev["t"].at(2, keep="1h")
        lake["t"].overwrite([{"n": 4}])

        lake.expire(timedelta(0), keep=1, dry_run=False)
        lake.gc(min_age=timedelta(0), dry_run=False)

        assert past["t"].to_arrow()["n"].to_pylist() == [1]
        assert table.to_arrow()["n"].to_pylist() == [1, 2]
