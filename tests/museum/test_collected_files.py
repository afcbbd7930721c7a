"""Clean-up beside readers and writers: what is in use stays, and what is not is found."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import conroi
from conroi.storage.local_folders import settable_times
from conroi.testing import SeededEnvironment
from conroi.versions.retention import other_ages
from tests.museum.peers import column, commit, deltalake, outcome, written
from tests.support.aging import files_below, make_older
from tests.support.arrow import column_values
from tests.support.lakes import rows

pytestmark = pytest.mark.contract("H7")


@pytest.fixture(autouse=True)
def settable() -> Iterator[None]:
    """Files can be made older instead of waiting."""
    with settable_times():
        yield


def data_files(folder: str | Path) -> set[str]:
    return {path for path in files_below(folder) if "data/" in path}


@pytest.mark.contract("M9")
def test_a_long_reader_keeps_its_version(tmp_path: Path) -> None:
    """lance#6607: nothing tells the clean-up that a version is being read."""
    uri = str(tmp_path / "pylance")
    lance.write_dataset(pa.table({"n": [1]}), uri)
    reader = lance.dataset(uri, version=1)
    lance.write_dataset(pa.table({"n": [2]}), uri, mode="overwrite")
    lance.dataset(uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    assert outcome(reader.to_table) == "ArrowInvalid", "Not found"

    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", [{"n": 1}])
    held = lake.at(lake.version, keep="1h")
    other = conroi.connect(lake.uri)
    other["t"].overwrite([{"n": 2}])
    with other_ages(0.0, 0.0):
        other.expire("0s", keep=1, dry_run=False)
        other.gc(min_age="0s", dry_run=False)
    assert (rows(held["t"]), rows(other["t"])) == ([1], [2])


class World(SeededEnvironment):
    """Its clock moves when the test says so."""


@pytest.mark.contract("M3")
def test_a_slow_writer_whose_files_were_collected_is_refused(tmp_path: Path) -> None:
    """The other side of lance#6607: a version is committed whose file the clean-up had taken for a leftover."""
    uri = str(tmp_path / "pylance")
    lance.write_dataset(pa.table({"n": [1]}), uri)
    fragment = written(uri, pa.table({"n": [2]}))
    make_older(uri, hours=24 * 30)
    lance.write_dataset(pa.table({"n": [3]}), uri, mode="append")
    lance.dataset(uri).cleanup_old_versions(older_than=timedelta(days=14))
    assert outcome(lambda: commit(uri, lance.LanceOperation.Append([fragment]), read_version=2)) == "committed"
    assert outcome(lambda: lance.dataset(uri).to_table()) == "ArrowInvalid", "Not found: the table is unreadable"

    lake, world = conroi.connect(tmp_path / "lake"), World(7)
    lake.create_table("t", [{"n": 1}])
    tx = conroi.connect(lake.uri, environment=world).begin()
    tx["t"].append([{"n": 2}])
    make_older(lake.uri, hours=24 * 30)
    world.sleep(24 * 30 * 3600)
    assert lake.gc(dry_run=False).by_kind["data"][0] == 1
    assert outcome(tx.commit) == "RetryableConflict"
    assert rows(lake["t"]) == [1]


@pytest.mark.contract("M2")
def test_a_tag_on_an_old_version_strands_no_file_of_newer_ones(tmp_path: Path) -> None:
    """lance#8705: files of deleted versions that are younger than a tagged one were never found again. Fixed."""
    uri = str(tmp_path / "pylance")
    for number in range(4):
        lance.write_dataset(pa.table({"n": [number]}), uri, mode="overwrite")
        if number == 0:
            lance.dataset(uri).tags.create("keep", 1)
        make_older(uri, hours=1, pattern="*.lance")
        time.sleep(0.01)
    lance.dataset(uri).cleanup_old_versions(older_than=timedelta(0), error_if_tagged_old_versions=False)
    assert len(os.listdir(f"{uri}/data")) == 2, "of the tagged and of the newest version"

    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", [{"n": 0}])
    lake.tags.create("keep", version=lake.version)
    for number in range(1, 4):
        lake["t"].overwrite([{"n": number}])
    make_older(lake.uri, hours=24 * 30)
    with other_ages(0.0, 0.0):
        lake.expire("0s", keep=1, dry_run=False)
        lake.gc(min_age="0s", dry_run=False)
    table = Path(str(lake["t"].uri))
    assert len(os.listdir(table / "data")) == 2
    assert (rows(lake.at(tag="keep")["t"]), rows(lake["t"])) == ([0], [3])


@pytest.mark.contract("T8", "T11")
def test_a_refused_update_deletes_no_file_that_is_in_use(tmp_path: Path) -> None:
    """trino#29361: after a conflict the source files of its deletion vectors are deleted as its own. It cannot run
    here; deltalake, on the same format, leaves the winner's files alone."""
    delta, uri = deltalake(), str(tmp_path / "delta")
    delta.write_deltalake(uri, pa.table({"n": [1, 2]}))
    one, two = delta.DeltaTable(uri), delta.DeltaTable(uri)
    one.update(predicate="n = 1", updates={"n": "10"})
    assert outcome(lambda: two.update(predicate="n = 1", updates={"n": "20"})) == "CommitFailedError"
    assert sorted(column_values(delta.DeltaTable(uri).to_pyarrow_table()["n"])) == [2, 10]

    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", [{"n": 1}, {"n": 2}])
    ann, bob = (conroi.connect(lake.uri).begin() for _ in range(2))
    ann["t"].update({"n": "10"}, where="n = 1")
    bob["t"].update({"n": "20"}, where="n = 1")
    ann.commit()
    before = files_below(lake.uri)
    assert outcome(bob.commit) == "RetryableConflict"
    assert before <= files_below(lake.uri)
    assert rows(lake["t"]) == column(str(lake["t"].uri), "n") == [2, 10]
    assert not conroi.connect(lake.uri).doctor(deep=True).findings
