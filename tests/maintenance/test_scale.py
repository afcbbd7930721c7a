"""Many tables and many versions: what a lake asks of the storage stays the same."""

from __future__ import annotations

from pathlib import Path

import pytest

import conroi
from conroi.catalog.participant import PublishRequest
from conroi.catalog.publication import Publishing
from conroi.catalog.rows import TABLE, Row
from conroi.catalog.state import CommitMetadata
from conroi.storage.objects import Objects
from conroi.testing import Measurement, Meter, connect_through
from tests.support.aging import make_older
from tests.support.instruments import CloudLike

pytestmark = pytest.mark.contract("M5")

Counts = dict[tuple[str, str], int]


def lake_of(folder: Path, *, tables: int, versions: int) -> conroi.Lake:
    """One table with rows, so many more that are only listed, and so many versions of the lake."""
    lake = conroi.connect(str(folder))
    lake.create_table("t", [{"n": 1}])
    rows: dict[str, Row | None] = {
        f"listed_{number:05d}": Row(f"listed_{number:05d}", TABLE, f"listed_{number:05d}.lance")
        for number in range(tables)
    }
    Publishing(lake.catalog, PublishRequest(lake.catalog.state(), rows=rows, notes=CommitMetadata("many tables"))).run()
    while lake.version < versions:
        Publishing(lake.catalog, PublishRequest(lake.catalog.known_state(), notes=CommitMetadata("nothing new"))).run()
    return lake


def measured(uri: str, *, is_cloud: bool) -> tuple[dict[str, Counts], int]:
    """What a newcomer asks for, and how many bytes its commit writes."""
    meter = Meter()

    def wrap(objects: Objects) -> Objects:
        return meter.counting(CloudLike(objects) if is_cloud else objects)

    phases: dict[str, Measurement] = {}
    with meter.measure() as phases["connect"]:
        lake = connect_through(uri, wrap)
    with meter.measure() as phases["list"]:
        assert "t" in lake.tables()
    with meter.measure() as phases["open"]:
        table = lake["t"]
    with meter.measure() as phases["begin"]:
        tx = lake.begin()
    with meter.measure() as phases["commit"]:
        tx["t"].append([{"n": 2}])
        tx.commit()
        for future in list(lake.catalog.finalizing.values()):
            future.result()
    conroi.connect(uri)["t"].append([{"n": 3}])
    with meter.measure() as phases["refresh"]:
        assert lake["t"].version == table.version + 2
    written = phases["commit"].bytes_written
    return {name: measurement.by_verb_and_kind() for name, measurement in phases.items()}, written


def assert_flat(tmp_path: Path, *, tables: int, versions: int, is_cloud: bool) -> dict[str, Counts]:
    few, bytes_few = measured(lake_of(tmp_path / "few", tables=10, versions=10).uri, is_cloud=is_cloud)
    many, bytes_many = measured(lake_of(tmp_path / "many", tables=tables, versions=versions).uri, is_cloud=is_cloud)
    commit_few, commit_many = few.pop("commit"), many.pop("commit")
    assert many == few
    # A row of a full fragment is deleted there: one small file more.
    commit_many = {key: count for key, count in commit_many.items() if key[1] != "deletion"}
    assert commit_many == {key: count for key, count in commit_few.items() if key[1] != "deletion"}
    assert bytes_many < bytes_few + 64 * 1024
    return many


@pytest.mark.parametrize("is_cloud", [False, True], ids=["local", "far away"])
def test_requests_are_the_same_at_300_tables_and_300_versions(is_cloud: bool, tmp_path: Path) -> None:
    counts = assert_flat(tmp_path, tables=300, versions=300, is_cloud=is_cloud)
    assert sum(counts["begin"].values()) == 1, "is there a newer version?"
    assert sum(counts["list"].values()) == 1
    assert sum(counts["open"].values()) <= 2


@pytest.mark.soak
@pytest.mark.parametrize("is_cloud", [False, True], ids=["local", "far away"])
def test_requests_are_the_same_at_ten_thousand_of_both(is_cloud: bool, tmp_path: Path) -> None:
    print(assert_flat(tmp_path, tables=10_000, versions=10_000, is_cloud=is_cloud))


def test_requests_are_the_same_after_a_collection(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "a", tables=10, versions=40)
    before, _ = measured(lake.uri, is_cloud=True)
    make_older(lake.uri, hours=24 * 30)
    lake.expire(keep=1, dry_run=False)
    lake.gc(dry_run=False)
    after, _ = measured(lake.uri, is_cloud=True)
    assert after == before


def test_control_the_meter_sees_what_grows(tmp_path: Path) -> None:
    def asked(versions: int) -> int:
        meter = Meter()
        lake = connect_through(lake_of(tmp_path / str(versions), tables=2, versions=versions).uri, meter.counting)
        with meter.measure() as looking:
            lake.history()
        return looking.requests()

    assert asked(30) > asked(10)
