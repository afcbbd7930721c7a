"""Doctor looks while others write: what is under way is not damage, and damage is still found."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import conroi
from conroi.doctor import Diagnosis, examine_lake
from conroi.doctor.lake_rows import PinChecks
from conroi.storage.objects import ObjectInfo, Objects
from conroi.testing import connect_through
from conroi.testing.instruments import WrappedObjects
from tests.doctor import damage
from tests.doctor.damage import LIST, ORDERS, kinds

pytestmark = pytest.mark.contract("M4")

WRITERS = 4
COMMITS = 12


def write(uri: str, writer: int, failures: list[BaseException]) -> None:
    """Every kind of change, to shared tables and to one of its own."""
    try:
        lake = conroi.connect(uri)
        for number in range(COMMITS):
            key = 10_000 * (writer + 1) + number

            def work(tx: conroi.Transaction, key: int = key, number: int = number) -> None:
                tx["orders"].append([{"id": key, "text": "x"}])
                tx["sales.customers"].append([{"name": f"{writer} {number}"}])

            lake.run(work, retries=100)
            if number % 4 == 1:
                lake["orders"].delete(f"id = {key}", retries=100)
            if number % 4 == 2:
                lake.create_table(f"own_{writer}_{number}", [{"n": 1}])
            if number % 4 == 3:
                lake.drop_table(f"own_{writer}_{number - 1}")
    except BaseException as error:
        failures.append(error)
        raise


def beside_writers(lake: Path, also: Callable[[], object] = lambda: None) -> list[Diagnosis]:
    """What doctor said, over and over, while four writers were at it."""
    failures: list[BaseException] = []
    threads = [threading.Thread(target=write, args=(str(lake), number, failures)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    also()
    said: list[Diagnosis] = []
    while any(thread.is_alive() for thread in threads):
        said.append(conroi.connect(str(lake)).doctor())
    for thread in threads:
        thread.join()
    assert not failures
    return said


def test_beside_four_writers_nothing_is_found(lake: Path) -> None:
    said = beside_writers(lake)
    assert said
    assert [str(each) for each in said if kinds(each, "error") | kinds(each, "warning")] == []
    assert damage.examine(lake, deep=True).is_healthy


def test_beside_four_writers_damage_is_still_found(lake: Path) -> None:
    old = damage.manifests(lake / ORDERS)[2]
    said = beside_writers(lake, lambda: damage.flip(old, 60))
    assert all(kinds(each, "error") == {"manifest-unreadable"} for each in said)


# ----------------------------------------------------------------- a listing that is not one moment


class TornListing(WrappedObjects):
    """Lists the lake, lets others commit, and lists it again: some folders are from before, the others from after."""

    def __init__(self, inner: Objects, is_from_before: Callable[[str], bool], commit: Callable[[], object]) -> None:
        super().__init__(inner)
        self._is_from_before = is_from_before
        self._commit = commit

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        before = list(super().list(prefix, after=after))
        self._commit()
        yield from (info for info in before if self._is_from_before(info.path))
        yield from (info for info in super().list(prefix, after=after) if not self._is_from_before(info.path))


def commit_some(lake: Path) -> None:
    other = conroi.connect(str(lake))
    for number in range(3):
        other["orders"].append([{"id": 1000 + number, "text": "x"}])
    other["orders"].delete("id = 1001")
    other.create_table("late", [{"n": 1}])
    other.drop_table("sales.customers")


def is_in_list(path: str) -> bool:
    return path.startswith(LIST)


def is_in_tables(path: str) -> bool:
    return not path.startswith(LIST)


def is_manifest(path: str) -> bool:
    return "_versions" in path


def is_content(path: str) -> bool:
    return "_versions" not in path


@pytest.mark.parametrize("is_from_before", [is_in_list, is_in_tables, is_manifest, is_content])
def test_what_was_committed_while_the_lake_was_listed_is_not_missing(
    is_from_before: Callable[[str], bool], lake: Path
) -> None:
    def wrap(objects: Objects) -> Objects:
        is_root = objects.root == str(lake)
        return TornListing(objects, is_from_before, lambda: commit_some(lake)) if is_root else objects

    diagnosis = connect_through(str(lake), wrap).doctor()
    assert diagnosis.findings == (), str(diagnosis)


def test_control_the_same_files_are_missing_if_they_are_not_looked_for_again(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrap(objects: Objects) -> Objects:
        is_root = objects.root == str(lake)
        return TornListing(objects, is_in_tables, lambda: commit_some(lake)) if is_root else objects

    def is_missing(*_: object) -> bool:
        return True

    monkeypatch.setattr(PinChecks, "_is_missing", is_missing)
    assert "missing-pin" in kinds(connect_through(str(lake), wrap).doctor())


def test_control_newer_versions_are_foreign_if_the_lake_is_not_asked_again(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrap(objects: Objects) -> Objects:
        is_root = objects.root == str(lake)
        return TornListing(objects, is_in_list, lambda: commit_some(lake)) if is_root else objects

    def has_moved_on(*_: object) -> bool:
        return False

    monkeypatch.setattr(PinChecks, "_has_moved_on", has_moved_on)
    assert "foreign-commit" in kinds(connect_through(str(lake), wrap).doctor())


# ------------------------------------------------------------------------------------ what is young


def test_what_is_young_may_belong_to_a_running_writer(lake: Path) -> None:
    staged = damage.unfinish(lake, "orders")
    staged.touch()
    (lake / ORDERS / "_versions" / ".tmp_conroi_1_2_3").write_bytes(b"half")
    (lake / ORDERS / "data" / "new.lance").write_bytes(b"half")
    (lake / "new.lance" / "data").mkdir(parents=True)
    (lake / "new.lance" / "data" / "x.lance").write_bytes(b"half")
    now = conroi.connect(str(lake))
    assert now.doctor().findings == ()
    found = {"unfinished-publication", "temporary-file", "orphan-files", "folder-left-alone"}
    assert kinds(damage.examine(lake)) == found, "and later it is not"


def test_an_insert_under_way_is_not_called_unfinished(lake: Path) -> None:
    table = conroi.connect(str(lake))
    table["orders"].append([{"id": 999, "text": "x"}])
    damage.publish_row(lake, damage.row_of(lake, "orders").with_insert('["an insert",190,200,false]'))
    assert table.doctor().findings == ()
    assert kinds(damage.examine(lake)) == {"incomplete-insert"}


def test_versions_that_a_concurrent_collector_removed_are_not_missing(lake: Path) -> None:
    """Old versions are deleted, as by a collector, after the lake was listed."""

    def collect() -> None:
        for version, path in damage.manifests(lake / LIST).items():
            if version < 5:
                path.unlink()
        (lake / LIST / "_refs" / "tags" / "start.json").unlink()
        damage.manifests(lake / ORDERS)[1].unlink()

    def wrap(objects: Objects) -> Objects:
        return TornListing(objects, lambda _: True, collect) if objects.root == str(lake) else objects

    lake_ = connect_through(str(lake), wrap)
    diagnosis = examine_lake(lake_.catalog, lake_.catalog.manifest)
    assert kinds(diagnosis, "error") == set(), str(diagnosis)


def test_a_version_of_the_list_that_went_while_it_was_read_is_not_held_against_newer_ones(lake: Path) -> None:
    """Its manifest was still there, its rows are not: the history begins after it."""
    found = damage.manifests(lake / LIST)
    for version in (1, 2, 3):
        found[version].unlink()
    (lake / LIST / "_refs" / "tags" / "start.json").unlink()
    damage.edit_fragments(found[4], lambda fragments: setattr(fragments[0].files[0], "path", "gone.lance"))
    assert kinds(damage.examine(lake), "error") == {"missing-data-file"}
