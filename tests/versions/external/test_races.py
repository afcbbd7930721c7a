"""Eight processes write one table through a store: one winner for each version, no row lost or doubled."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import conroi
from conroi.environment import SYSTEM
from conroi.snapshots.snapshot import TableStorage
from conroi.storage import open_objects
from conroi.storage.objects import Objects
from conroi.table import Table
from conroi.testing import Fault, FaultyObjects, WrappedObjects, call_before
from conroi.versions import open_records
from conroi.versions.external import ExternalVersions
from conroi.versions.folder import FolderVersions, VersionStore
from tests.support.databases import sqlite_address
from tests.support.external_tables import rows, rows_by_pylance
from tests.support.servers import S3Server
from tests.support.writers import Job, assert_exact, assert_one_creator_each, new_table, run_job

pytestmark = pytest.mark.contract("X5", "T1")


@pytest.fixture(params=["sqlite", "postgres"])
def fast_store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return sqlite_address(tmp_path)
    return request.getfixturevalue("postgres").new_address()


def race(job: Job) -> None:
    new_table(job)
    assert_exact(job, run_job(job))
    records = open_records(job.store)
    found = records.all(records.key_of(open_objects(job.uri, job.options)))
    assert [record.version for record in found] == list(range(1, job.processes * job.commits + 2))
    assert all(record.path.endswith(".manifest") for record in found), "every version was completed"


def test_eight_processes_append_to_one_table(fast_store: str, tmp_path: Path) -> None:
    race(Job(str(tmp_path / "t.lance"), commits=5, store=fast_store))


def test_eight_processes_create_one_table(fast_store: str, tmp_path: Path) -> None:
    job = Job(str(tmp_path / "t.lance"), commits=3, is_creating=True, store=fast_store)
    assert_one_creator_each(job, run_job(job))


class IgnoresConditions(WrappedObjects):
    """Storage that answers "created" when it has overwritten, as some servers do."""

    def put_if_absent(self, path: str, data: bytes) -> None:
        self.inner.put(path, data)


def append_by_threads(
    uri: str, versions: Callable[[Objects], VersionStore], *, threads: int, commits: int
) -> list[int]:
    """Each thread is a writer of its own; the rows that were acknowledged."""

    def work(number: int) -> list[int]:
        objects = IgnoresConditions(open_objects(uri))
        files = TableStorage(objects, versions(objects), SYSTEM)
        table, done = Table(files, files.head()), []
        for commit in range(commits):
            table = table.append([{"row": number * 100 + commit}], retries=1000)
            done.append(number * 100 + commit)
        return done

    with ThreadPoolExecutor(threads) as pool:
        return sorted(row for rows in pool.map(work, range(threads)) for row in rows)


def test_a_store_makes_storage_safe_that_ignores_conditions(fast_store: str, tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    conroi.create_table(uri, [{"row": -1}], store=fast_store)
    records = open_records(fast_store)
    done = append_by_threads(uri, lambda objects: ExternalVersions(objects, records), threads=8, commits=3)
    assert rows(conroi.open_table(uri, store=fast_store)) == [-1, *done]
    assert rows_by_pylance(uri) == (25, [-1, *done])


@pytest.mark.parametrize("is_under_a_store", [True, False])
def test_two_writers_that_meet_on_such_storage_both_land_only_under_a_store(
    is_under_a_store: bool, tmp_path: Path
) -> None:
    """The control is the same meeting without the store: the second overwrites the first."""
    uri, store = str(tmp_path / "t.lance"), sqlite_address(tmp_path) if is_under_a_store else None
    conroi.create_table(uri, [{"row": 1}], store=store)

    def writer(*faults: Fault) -> Table:
        objects = FaultyObjects(IgnoresConditions(open_objects(uri)), faults)
        records = None if store is None else open_records(store)
        versions = FolderVersions(objects) if records is None else ExternalVersions(objects, records)
        files = TableStorage(objects, versions, SYSTEM)
        return Table(files, files.head())

    meeting = call_before(lambda _: writer().append([{"row": 2}]), "put*", "_versions/*.manifest*")
    writer(meeting).append([{"row": 3}])
    assert rows(conroi.open_table(uri, store=store)) == ([1, 2, 3] if is_under_a_store else [1, 3])


@pytest.mark.soak
def test_eight_processes_append_many_times(fast_store: str, tmp_path: Path) -> None:
    race(Job(str(tmp_path / "t.lance"), commits=200, store=fast_store))


@pytest.mark.soak
def test_eight_processes_append_on_an_s3_server(fast_store: str, seaweedfs: S3Server) -> None:
    race(Job(seaweedfs.new_uri(), commits=10, options=seaweedfs.options, store=fast_store))
