"""Collection wherever versions are kept: in the folder, in records of an external store, in the database of a lake."""

from __future__ import annotations

import time
from pathlib import Path

import lance
import pytest

import conroi
from conroi.storage import open_objects
from conroi.testing import CountingObjects
from conroi.versions import open_records
from tests.catalog.conftest import Connect
from tests.maintenance.conftest import numbers
from tests.support.aging import files_below, make_older
from tests.support.cloud_servers import BucketServer

pytestmark = pytest.mark.contract("M2")


def filled(uri: str, store: str | None = None, **options: object) -> conroi.Table:
    table = conroi.create_table(uri, [{"n": 1}], store=store, **options)  # type: ignore[arg-type]
    for number in range(2, 6):
        table = table.append([{"n": number}])
    return table.compact()


def test_a_table_under_an_external_store(store: str, tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    table = filled(uri, store)
    make_older(uri, hours=24 * 30)
    assert table.expire(keep=2, dry_run=False).kept == (5, 6)
    records = open_records(store, None)
    assert [record.version for record in records.all(records.key_of(open_objects(uri)))] == [5, 6]
    table.gc(dry_run=False)
    fresh = conroi.open_table(uri, store=store)
    assert (fresh.version, numbers(fresh), numbers(fresh.at(5))) == (7, [1, 2, 3, 4, 5], [1, 2, 3, 4, 5])
    assert fresh.append([{"n": 6}]).version == 8
    assert lance.dataset(uri).count_rows() == 6, "without the store, too"


def test_a_record_whose_manifest_is_gone_goes_the_next_time(store: str, tmp_path: Path) -> None:
    """As after a kill between the manifests and the records."""
    uri = str(tmp_path / "t.lance")
    table = filled(uri, store)
    make_older(uri, hours=24 * 30)
    for manifest in sorted((Path(uri) / "_versions").glob("*.manifest"))[-2:]:
        manifest.unlink()
    table.expire(keep=4, dry_run=False)
    records = open_records(store, None)
    assert [record.version for record in records.all(records.key_of(open_objects(uri)))] == [3, 4, 5, 6]


def test_a_lake_wherever_its_history_is(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = connect()
    lake.create_table("t", [{"n": 1}])
    lake.create_table("gone", [{"n": 1}])
    folder = Path(lake["gone"].uri)
    for number in range(2, 6):
        lake["t"].append([{"n": number}])
    lake["t"].compact()
    lake.drop_table("gone")
    lake["t"].append([{"n": 6}])
    make_older(lake.uri, hours=24 * 30)
    if lake.catalog.manifest is None:  # a database has its own times
        later = lake.catalog.environment.now_ns() + 30 * 86_400 * 1_000_000_000
        monkeypatch.setattr("conroi.catalog.sql_store.SqlStore.now_ns", lambda *_: later)
    newest = lake.version
    report = lake.expire(keep=2, dry_run=False)
    assert report.kept == (newest - 1, newest)
    assert report.tables == {"t": (1, 2, 3, 4, 5)}
    lake.gc(dry_run=False)
    fresh = connect()
    assert numbers(fresh["t"]) == [1, 2, 3, 4, 5, 6]
    assert numbers(fresh.at(version=newest - 1)["t"]) == [1, 2, 3, 4, 5]
    for version in (1, newest - 2):
        with pytest.raises(conroi.NotFoundError):
            fresh.at(version=version)
    assert len(list((Path(fresh["t"].uri) / "data").iterdir())) == 2
    assert files_below(folder) == set()
    assert fresh["t"].append([{"n": 7}]).count_rows() == 7
    assert [commit.version for commit in fresh.history()][-2:] == [newest, newest - 1]


def test_on_an_object_store(bucket_of_the_day: BucketServer, hurried: None) -> None:
    """Nothing is too young here, and no commit may skip its check because it was quick."""
    uri, options = bucket_of_the_day.new_uri("t.lance"), bucket_of_the_day.options
    table = filled(uri, storage_options=options)
    until = time.monotonic() + 60
    removed: set[int] = set()
    gone = 0
    while gone < 5:  # its files have times of a second's precision
        assert time.monotonic() < until
        removed |= set(table.expire("0s", keep=1, dry_run=False).removed)
        gone += table.gc(min_age="0s", dry_run=False).by_kind.get("data", (0, 0))[0]
    assert removed >= {1, 2, 3, 4, 5}
    fresh = conroi.open_table(uri, storage_options=options)
    assert numbers(fresh) == [1, 2, 3, 4, 5]
    assert fresh.append([{"n": 6}]).count_rows() == 6
    assert lance.dataset(uri, storage_options=options).count_rows() == 6


def test_the_requests_of_a_collection_follow_what_there_is(table: conroi.Table) -> None:
    """Listings, one read for each manifest, and deletions by the thousand."""
    from conroi.environment import SYSTEM
    from conroi.snapshots.snapshot import TableStorage
    from conroi.table import Table
    from conroi.versions.folder import FolderVersions

    table = table.compact()
    make_older(table.uri, hours=24 * 30)
    counting = CountingObjects(open_objects(table.uri))
    files = TableStorage(counting, FolderVersions(counting), SYSTEM)
    there = Table(files, files.head())
    with counting.measure() as expiring:
        assert len(there.expire(keep=1, dry_run=False).removed) == 5
    assert expiring.requests("get", "manifest") == 0, "the listing says how old they are"
    assert expiring.requests("delete", "manifest") == 1
    with counting.measure() as collecting:
        collected = there.gc(dry_run=False)
    assert collected.by_kind["data"][0] == 5
    assert collecting.requests("delete", "data") <= 1
