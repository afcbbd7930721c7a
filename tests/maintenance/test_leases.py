"""Leases keep versions from being collected while they last."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import conroi
from conroi.storage.local_folders import settable_times
from conroi.storage.objects import Objects
from conroi.testing import FaultyObjects, Request, Script, SeededEnvironment, call_after, call_before, connect_through
from conroi.versions.retention import other_ages
from tests.maintenance.conftest import numbers
from tests.support.aging import make_older

pytestmark = pytest.mark.contract("M9")
STORES = ("folder", "sqlite")


@pytest.fixture(autouse=True)
def hurry() -> Iterator[None]:
    with other_ages(0.0, 0.0), settable_times():
        yield


def lake_at(path: Path, store: str) -> conroi.Lake:
    return conroi.connect(str(path / "lake"), store=f"sqlite:///{path}/lake.db" if store == "sqlite" else None)


def make(path: Path, store: str) -> conroi.Lake:
    lake = lake_at(path, store)
    lake.create_table("t", [{"n": 1}])
    lake["t"].append([{"n": 2}])
    return lake


def supersede(lake: conroi.Lake) -> None:
    lake["t"].overwrite([{"n": 8}])
    lake["t"].append([{"n": 9}])


def collect(lake: conroi.Lake) -> conroi.Expired:
    expired = lake.expire("0s", keep=1, dry_run=False)
    lake.gc(min_age="0s", dry_run=False)
    return expired


@pytest.mark.parametrize("store", STORES)
def test_a_leased_version_of_a_lake_stays(tmp_path: Path, store: str) -> None:
    lake = make(tmp_path, store)
    held = lake.at(lake.version, keep="1h")
    other = lake_at(tmp_path, store)
    supersede(other)
    other.drop_table("t")
    collect(other)
    assert numbers(held["t"]) == [1, 2]
    assert numbers(lake_at(tmp_path, store).at(held.version)["t"]) == [1, 2]
    (info,) = other.leases()
    assert (info.version, 3590 < info.seconds_left <= 3600) == (held.version, True)
    assert held.lease is not None
    held.lease.release()
    assert other.leases() == []
    other.create_table("u", [{"n": 0}])
    collect(other)
    with pytest.raises(conroi.VersionExpired):
        lake_at(tmp_path, store).at(held.version)


@pytest.mark.parametrize("store", STORES)
def test_a_transaction_with_a_lease_is_not_disturbed(tmp_path: Path, store: str) -> None:
    lake = make(tmp_path, store)
    with lake.begin(keep="1h") as tx:
        other = lake_at(tmp_path, store)
        other["t"].append([{"n": 3}])
        collect(other)
        assert sorted(tx["t"].to_arrow()["n"].to_pylist(), key=str) == [1, 2]
        tx["t"].append([{"n": 4}])
        assert len(other.leases()) == 1
    assert other.leases() == [], "it ends with the transaction"
    assert numbers(lake_at(tmp_path, store)["t"]) == [1, 2, 3, 4]


def test_a_lease_ends_with_a_transaction_that_fails(tmp_path: Path) -> None:
    lake = make(tmp_path, "folder")
    with pytest.raises(ZeroDivisionError), lake.begin(keep="1h"):
        raise ZeroDivisionError
    tx = lake.begin(keep="1h", expect={"t": 2})
    lake["t"].append([{"n": 3}])
    with pytest.raises(conroi.ExpectedVersionMismatch):
        tx.commit()
    assert lake.leases() == []


def test_a_leased_version_of_a_table_stays(tmp_path: Path) -> None:
    table = conroi.create_table(str(tmp_path / "t"), [{"n": 1}]).append([{"n": 2}])
    lease = table.at(1, keep="1h").lease
    assert lease is not None
    with lease, table.begin(keep="1h") as tx:
        for _ in range(2):
            table = table.overwrite([{"n": 8}])
        assert table.expire("0s", keep=1, dry_run=False).kept == (1, 2, 4)
        table.gc(min_age="0s", dry_run=False)
        assert numbers(conroi.open_table(table.uri).at(1)) == [1]
        assert numbers(tx) == [1, 2]
        assert [info.version for info in table.leases()] == [1, 2]
        tx.rollback()
    assert table.expire("0s", keep=1, dry_run=False).kept == (5,), "gc made version 5, as a fence"


def test_a_leased_version_of_a_table_of_a_lake_stays(tmp_path: Path) -> None:
    lake = make(tmp_path, "folder")
    held = lake["t"].at(1, keep="1h")
    supersede(lake)
    collect(lake)
    assert numbers(held) == [1]
    assert lake["t"].versions() == [1, 4]


@pytest.mark.parametrize("store", STORES)
def test_the_lease_of_a_crashed_holder_ends_by_itself(tmp_path: Path, store: str) -> None:
    lake = make(tmp_path, store)
    version = lake.version
    lake.at(version, keep="1h")
    supersede(lake)
    make_older(lake.uri, hours=0.9, pattern="_conroi/leases/*")
    assert version not in collect(lake).removed
    make_older(lake.uri, hours=0.2, pattern="_conroi/leases/*")
    assert version in collect(lake).removed
    assert lake.leases() == []
    make_older(lake.uri, hours=2, pattern="_conroi/leases/*")
    lake.gc(min_age="0s", dry_run=False)
    assert not list(Path(lake.uri).rglob("_conroi/leases/*"))


def test_a_lease_can_be_renewed(tmp_path: Path) -> None:
    clock = SeededEnvironment(1, start_ns=1_700_000_000_000_000_000)
    make(tmp_path, "folder")
    lake = conroi.connect(str(tmp_path / "lake"), environment=clock)
    lease = lake.at(lake.version, keep="1h").lease
    assert lease is not None
    clock.sleep(3000)
    make_older(lake.uri, hours=3000 / 3600, pattern="_conroi/leases/*")
    assert 590 < lease.seconds_left <= 600
    lease.renew()
    assert lease.seconds_left > 3590
    assert len(lake.leases()) == 1
    clock.sleep(4000)
    make_older(lake.uri, hours=2, pattern="_conroi/leases/*")
    assert not lease.is_live
    assert lake.leases() == []
    lease.renew()
    assert len(lake.leases()) == 1
    lease.release()
    supersede(lake)
    collect(lake)
    with pytest.raises(conroi.VersionExpired):
        lease.renew()
    assert lake.leases() == []


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_lease_beside_a_collector(tmp_path: Path, store: str, moment: str) -> None:
    """Taken right before or right after the collector notes which versions go: one of the two sees the other."""
    lake = make(tmp_path, store)
    version = lake.version
    supersede(lake)
    taken: list[conroi.LakeSnapshot | conroi.VersionExpired] = []

    def take(_: Request) -> None:
        try:
            taken.append(lake_at(tmp_path, store).at(version, keep="1h"))
        except conroi.VersionExpired as error:
            taken.append(error)

    hook = call_before if moment == "before" else call_after
    plan = Script([hook(take, "put", "_conroi/forgotten/*")])

    def wrap(objects: Objects) -> Objects:
        return FaultyObjects(objects, plan) if not objects.root.endswith("t.lance") else objects

    address = f"sqlite:///{tmp_path}/lake.db" if store == "sqlite" else None
    collector = connect_through(lake.uri, wrap, store=address)
    expired = collect(collector)
    (held,) = taken
    if isinstance(held, conroi.VersionExpired):
        assert version in expired.removed
        assert lake.leases() == []
    else:
        assert version not in expired.removed
        assert numbers(lake_at(tmp_path, store).at(version)["t"]) == [1, 2]


def test_what_is_no_time_is_refused(tmp_path: Path) -> None:
    lake = make(tmp_path, "folder")
    for keep in ("0s", "500d", "soon"):
        with pytest.raises(conroi.InvalidInputError, match="keep="):
            lake.at(lake.version, keep=keep)
        with pytest.raises(conroi.InvalidInputError, match="keep="):
            lake["t"].at(1, keep=keep)
    assert lake.leases() == []
