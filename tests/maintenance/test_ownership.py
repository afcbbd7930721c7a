"""Folders that are not the lake's are never collected: deregistered, copied in, or made by another program."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import conroi
from conroi.namespace import ConroiNamespace
from conroi.storage import local_folders, open_objects
from conroi.storage.local_folders import settable_times
from conroi.testing import FaultyObjects, Request, Script, call_before, connect_through
from conroi.versions.retention import other_ages
from tests.maintenance.conftest import numbers
from tests.support.aging import files_below, make_older

pytestmark = pytest.mark.contract("M6")
OLD = 24 * 30


def collect(lake: conroi.Lake) -> conroi.Collected:
    """Everything that may go has gone, whatever it takes."""
    for _ in range(2):
        make_older(lake.uri, hours=OLD)
        lake.expire("7d", keep=1, dry_run=False)
        make_older(lake.uri, hours=OLD)
        lake.gc(dry_run=False)
    return lake.gc(dry_run=False)


def go_on(lake: conroi.Lake) -> None:
    """So that no kept version of the lake has what was there before."""
    lake.create_table("other", [{"n": 0}])
    lake["other"].append([{"n": 1}])


def deregister(lake: conroi.Lake) -> None:
    lake.deregister("t")


def deregister_by_namespace(lake: conroi.Lake) -> None:
    from lance_namespace import DeregisterTableRequest

    ConroiNamespace(root=lake.uri).deregister_table(DeregisterTableRequest(id=["t"]))


@pytest.mark.parametrize("how", [deregister, deregister_by_namespace])
def test_a_deregistered_table_is_left_alone(lake: conroi.Lake, how: Callable[[conroi.Lake], None]) -> None:
    """A2: its data were deleted by the next expire() and gc()."""
    lake["t"].delete("n = 3")
    folder = Path(lake["t"].uri)
    how(lake)
    before = files_below(folder)
    go_on(lake)
    report = collect(lake)
    assert files_below(folder) == before
    assert report.skipped == {"t.lance": "it was deregistered"}
    assert lance.dataset(str(folder)).count_rows() == 4
    assert [lance.dataset(str(folder), version=v).count_rows() for v in (1, 2, 3, 4, 5)] == [1, 2, 3, 4, 5]


def test_a_deregistered_table_is_left_alone_while_old_versions_of_the_lake_list_it(lake: conroi.Lake) -> None:
    lake.tags.create("kept")
    lake["t"].overwrite([{"n": 9}])
    folder = Path(lake["t"].uri)
    lake.deregister("t")
    (folder / "data" / "0101.lance").write_bytes(b"its owner is writing this")
    before = files_below(folder)
    go_on(lake)
    report = collect(lake)
    assert files_below(folder) == before
    assert report.skipped == {"t.lance": "it was deregistered"}
    assert numbers(lake.at(tag="kept")["t"]) == [1, 2, 3, 4, 5]
    assert lake.expire("7d", keep=1).skipped == {"t.lance": "it was deregistered"}


def test_a_table_that_is_registered_again_is_maintained_again(lake: conroi.Lake) -> None:
    lake.register("again", lake.deregister("t"))
    lake["again"].compact()
    assert collect(lake).skipped == {}
    assert len(list((Path(lake["again"].uri) / "data").iterdir())) == 1
    lake.drop_table("again")
    go_on(lake)
    assert collect(lake).skipped == {"t.lance": "it was deregistered"}
    assert lance.dataset(str(Path(lake.uri) / "t.lance")).count_rows() == 5


def test_a_table_of_another_program_that_goes_on_writing_it(lake: conroi.Lake) -> None:
    folder = str(Path(lake.uri) / "own.lance")
    lance.write_dataset(pa.table({"n": [1]}), folder)
    lake.register("own", "own.lance")
    lake["own"].append([{"n": 2}])
    lake.deregister("own")
    lance.write_dataset(pa.table({"n": [3]}), folder, mode="append")
    go_on(lake)
    collect(lake)
    assert lance.dataset(folder).count_rows() == 3
    assert lance.dataset(folder, version=1).count_rows() == 1


def test_a_registered_table_that_is_dropped_is_left_alone(lake: conroi.Lake) -> None:
    """Another program made the folder: only who made it may delete it."""
    folder = str(Path(lake.uri) / "own.lance")
    lance.write_dataset(pa.table({"n": [1]}), folder)
    lake.register("own", "own.lance")
    lake["own"].append([{"n": 2}])
    lake.drop_table("own")
    go_on(lake)
    report = collect(lake)
    assert lance.dataset(folder).count_rows() == 2
    assert "does not carry the mark" in report.skipped["own.lance"]


def test_a_dropped_table_that_is_written_by_its_path_is_left_alone(lake: conroi.Lake) -> None:
    lake.create_table("gone", [{"n": 0}])
    folder = lake["gone"].uri
    lake.drop_table("gone")
    lance.write_dataset(pa.table({"n": [1]}), folder, mode="append")
    go_on(lake)
    report = collect(lake)
    assert lance.dataset(folder).count_rows() == 2
    assert report.skipped == {"gone.lance": "it has version 2, which the lake never had"}


def test_a_dropped_table_whose_folder_another_table_took_is_left_alone(lake: conroi.Lake) -> None:
    lake.create_table("gone", [{"n": 0}])
    folder = lake["gone"].uri
    lake.drop_table("gone")
    shutil.rmtree(folder)
    lance.write_dataset(pa.table({"n": [1, 2]}), folder)
    go_on(lake)
    collect(lake)
    assert lance.dataset(folder).count_rows() == 2


def test_a_dropped_table_with_a_branch_of_pylance_is_left_alone(lake: conroi.Lake) -> None:
    lake.create_table("gone", [{"n": 0}])
    folder = lake["gone"].uri
    lance.dataset(folder).create_branch("mine")
    lake.drop_table("gone")
    go_on(lake)
    report = collect(lake)
    assert "branch mine" in report.skipped["gone.lance"]
    assert lance.dataset(folder).checkout_version(("mine", None)).count_rows() == 1


def test_a_copy_under_way_is_left_alone(lake: conroi.Lake, tmp_path: Path) -> None:
    """D2: files with old times and no manifest yet were taken for a killed creation."""
    source = lance.write_dataset(pa.table({"n": [1]}), str(tmp_path / "source")).uri
    copied = Path(lake.uri) / "copied.lance"
    shutil.copytree(Path(source) / "data", copied / "data")
    make_older(lake.uri, hours=OLD)
    report = lake.gc(dry_run=False)
    assert len(files_below(copied)) == 1
    assert "does not carry the mark" in report.skipped["copied.lance"]


def test_a_table_of_another_lake_that_is_copied_in_is_left_alone(lake: conroi.Lake, tmp_path: Path) -> None:
    other = conroi.connect(str(tmp_path / "other"))
    other.create_table("theirs", [{"n": 1}])
    for name in ("theirs.lance", "renamed.lance"):
        shutil.copytree(other["theirs"].uri, Path(lake.uri) / name)
    report = collect(lake)
    assert report.skipped.keys() == {"theirs.lance", "renamed.lance"}
    assert [lance.dataset(str(Path(lake.uri) / name)).count_rows() for name in report.skipped] == [1, 1]


def test_what_a_killed_creation_left_still_goes(lake: conroi.Lake) -> None:
    tx = lake.begin()
    tx.create_table("new", [{"n": 1}])
    folder = Path(lake.uri) / "new.lance"
    tx.rollback()
    make_older(lake.uri, hours=OLD)
    (folder / "data" / "0101.lance").write_bytes(b"young")
    lake.gc(dry_run=False)
    assert len(files_below(folder)) == 2, "the youngest file of a folder decides for all of it"
    report = collect(lake)
    assert files_below(folder) == set()
    assert report.skipped == {}
    assert report.files == 0


def test_a_branch_keeps_the_folder_of_a_table_that_main_dropped(lake: conroi.Lake) -> None:
    lake.branches.create("dev")
    lake.branch("dev")["t"].append([{"n": 6}])
    lake.drop_table("t")
    go_on(lake)
    collect(lake)
    on_branch = conroi.connect(lake.uri).branch("dev")
    assert numbers(on_branch["t"]) == [1, 2, 3, 4, 5, 6]
    assert numbers(on_branch["t"].at(5)) == [1, 2, 3, 4, 5]


def test_a_table_made_on_a_branch_goes_with_it(lake: conroi.Lake) -> None:
    lake.branches.create("dev")
    table = lake.branch("dev").create_table("new", [{"n": 1}])
    lake.branches.delete("dev")
    collect(lake)
    assert files_below(table.uri) == set()


def test_a_refused_deregistration_releases_nothing(lake: conroi.Lake) -> None:
    def write(_: Request) -> None:
        conroi.connect(lake.uri)["t"].append([{"n": 6}])

    plan = Script([call_before(write, "put", "_conroi/released/*")])
    raced = connect_through(lake.uri, lambda objects: FaultyObjects(objects, plan))
    with pytest.raises(conroi.ExpectedVersionMismatch):
        raced.deregister("t")
    assert not list((Path(lake.uri) / "__manifest" / "_conroi").glob("released/*"))
    lake["t"].compact()
    assert collect(lake).skipped == {}
    assert len(list((Path(lake["t"].uri) / "data").iterdir())) == 1


def test_a_lake_with_its_history_in_a_store(tmp_path: Path) -> None:
    lake = conroi.connect(str(tmp_path / "lake"), store=f"sqlite:///{tmp_path}/lake.db")
    lake.create_table("t", [{"n": 1}])
    lake.create_table("gone", [{"n": 1}])
    gone, folder = Path(lake["gone"].uri), lake.deregister("t")
    lake.drop_table("gone")
    go_on(lake)
    with other_ages(0.0, 0.0):
        lake.expire("0s", keep=1, dry_run=False)
        make_older(lake.uri, hours=OLD)
        report = lake.gc(dry_run=False)
    assert report.skipped == {"t.lance": "it was deregistered"}
    assert lance.dataset(str(Path(lake.uri) / folder)).count_rows() == 1
    assert files_below(gone) == set()


def test_age_is_the_change_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D2: `cp -a` and `rsync -a` give a file that arrived a moment ago the time of the original."""
    file = tmp_path / "t" / "data" / "x.lance"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"1")
    written_at = file.stat().st_mtime_ns
    os.utime(file, (1.0, 1.0))
    monkeypatch.setattr(local_folders, "_has_settable_times", False)
    info = open_objects(str(tmp_path / "t")).head("data/x.lance")
    assert info is not None
    assert info.modified_ns >= written_at
    with settable_times():
        info = open_objects(str(tmp_path / "t")).head("data/x.lance")
        assert info is not None
        assert info.modified_ns == 1_000_000_000
