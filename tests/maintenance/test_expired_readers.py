"""A reader or transaction whose version was collected gets one typed error, and a transaction may be run again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import conroi
from conroi.commit.change import Plan
from conroi.data.table_version import TableVersion
from conroi.storage.objects import Objects
from conroi.testing import FaultyObjects, Request, call_before, connect_through, fail
from conroi.verbs import update
from conroi.versions.retention import other_ages
from tests.support.arrow import column_values
from tests.support.instruments import CloudLike

pytestmark = pytest.mark.contract("M8")

Read = Callable[[Any], object]
READS: dict[str, Read] = {
    "to_arrow": lambda table: table.to_arrow(),
    "filter": lambda table: table.to_arrow(filter="id = 1"),
    "batches": lambda table: list(table.to_batches(["v"], batch_size=1)),
    "count": lambda table: table.count_rows("id > 1"),
    "pandas": lambda table: table.to_pandas(filter="id = 1"),
}
CHANGES: dict[str, Read] = {
    "update": lambda table: table.update({"v": "'z'"}, "id = 2"),
    "delete": lambda table: table.delete("v = 'b'"),
    "merge": lambda table: (
        table.merge([{"id": 2, "v": "m"}], on="id").when_matched_update_all().when_not_matched_insert_all().execute()
    ),
}
STORES = ("folder", "sqlite")


@pytest.fixture(autouse=True)
def hurry() -> Iterator[None]:
    """The clock does not matter here."""
    with other_ages(0.0, 0.0):
        yield


def rows(first: int) -> list[dict[str, object]]:
    return [{"id": first + number, "v": "abcdef"[number]} for number in range(6)]


def lake_at(path: Path, store: str) -> conroi.Lake:
    return conroi.connect(str(path / "lake"), store=f"sqlite:///{path}/lake.db" if store == "sqlite" else None)


def fill(table: conroi.Table, *, indexed: bool) -> None:
    if indexed:
        table.create_index("id")
    table.delete("id = 6")


def supersede(table: conroi.Table) -> None:
    """What the version so far needs, no later one does: data, deletions, and the manifest itself."""
    table.overwrite([{"id": 1, "v": "new"}, {"id": 2, "v": "new"}])
    table.append([{"id": 3, "v": "new"}])


def collect(of: conroi.Lake | conroi.Table, *, files: bool) -> None:
    of.expire("0s", keep=1, dry_run=False)
    if files:
        of.gc(min_age="0s", dry_run=False)


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("files", [False, True])
@pytest.mark.parametrize("name", READS)
def test_a_reader_of_a_table(tmp_path: Path, name: str, files: bool, indexed: bool) -> None:
    """F10: InvalidInputError, "check column names", where the table has an index or its deletion file was gone."""
    fill(conroi.create_table(str(tmp_path / "t"), rows(1)), indexed=indexed)
    held = conroi.open_table(str(tmp_path / "t"))
    supersede(conroi.open_table(held.uri))
    collect(conroi.open_table(held.uri), files=files)
    check_reader(held, READS[name], must_fail=files or (indexed and name == "filter"))


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("files", [False, True])
@pytest.mark.parametrize("name", READS)
def test_a_reader_of_a_lake(tmp_path: Path, name: str, files: bool, store: str) -> None:
    lake = lake_at(tmp_path, store)
    lake.create_table("t", rows(1), key="id")
    fill(lake["t"], indexed=True)
    held, later = lake["t"], lake.at(lake.version)
    other = lake_at(tmp_path, store)
    supersede(other["t"])
    collect(other, files=files)
    check_reader(held, READS[name], must_fail=files)
    fresh = lake_at(tmp_path, store)
    with pytest.raises(conroi.VersionExpired) as raised:
        fresh.at(later.version)
    assert raised.value.version == later.version


def failure(held: conroi.Table, read: Read) -> conroi.ConroiError | None:
    try:
        read(held)
    except conroi.ConroiError as error:
        return error
    return None


def check_reader(held: conroi.Table, read: Read, *, must_fail: bool) -> None:
    error = failure(held, read)
    if error is None:
        assert not must_fail
        return
    assert isinstance(error, conroi.VersionExpired)
    assert isinstance(error, conroi.NotFoundError)
    assert not isinstance(error, conroi.ConflictError)
    assert error.version == held.version
    assert error.collected_at is not None
    assert "keep=" in str(error.hint)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", [*READS, *CHANGES])
def test_a_transaction_is_told_to_begin_again(tmp_path: Path, name: str, store: str) -> None:
    lake = lake_at(tmp_path, store)
    lake.create_table("t", rows(1), key="id")
    fill(lake["t"], indexed=True)
    tx = lake.begin()
    other = lake_at(tmp_path, store)
    supersede(other["t"])
    collect(other, files=True)
    with pytest.raises(conroi.RetryableConflict) as raised, tx:
        {**READS, **CHANGES}[name](tx["t"])
    assert isinstance(raised.value, conroi.BaseVersionExpired)
    assert isinstance(raised.value, conroi.VersionExpired)
    assert raised.value.base_version == 3
    assert raised.value.collected_at is not None


@pytest.mark.parametrize("store", STORES)
def test_run_begins_again(tmp_path: Path, store: str) -> None:
    """F10: lake.run gave up."""
    lake = lake_at(tmp_path, store)
    lake.create_table("t", rows(1), key="id")
    fill(lake["t"], indexed=True)
    bases: list[int] = []

    def work(tx: conroi.Transaction) -> int:
        bases.append(tx.base_version)
        if len(bases) == 1:
            other = lake_at(tmp_path, store)
            supersede(other["t"])
            collect(other, files=True)
        tx["t"].update({"v": "'run'"}, "id = 1")
        return tx["t"].count_rows("v = 'run'")

    assert lake.run(work) == 1
    assert len(bases) == 2
    assert sorted(lake["t"].to_arrow()["v"].to_pylist(), key=str) == ["new", "new", "run"]


def test_a_verb_whose_version_is_collected_is_done_again(tmp_path: Path) -> None:
    """A slow verb: its base is collected between the look at the head and the read."""
    fill(conroi.create_table(str(tmp_path / "t"), rows(1), key="id"), indexed=True)
    table = conroi.open_table(str(tmp_path / "t"))
    done: list[int] = []

    def verb(at: TableVersion) -> Plan | None:
        done.append(at.version)
        if len(done) == 1:
            other = conroi.open_table(table.uri)
            supersede(other)
            collect(other, files=True)
        return update(at, {"v": "'slow'"}, "id = 1", mode="rows")

    table._do(verb, {})  # pyright: ignore[reportPrivateUsage]
    assert len(done) == 2
    assert sorted(conroi.open_table(table.uri).to_arrow()["v"].to_pylist(), key=str) == ["new", "new", "slow"]


def test_a_missing_file_of_a_version_that_is_there_is_damage(tmp_path: Path) -> None:
    fill(conroi.create_table(str(tmp_path / "t"), rows(1)), indexed=False)
    for file in (tmp_path / "t" / "_deletions").iterdir():
        file.unlink()
    for read in READS.values():
        with pytest.raises(conroi.CorruptionError, match="missing"):
            read(conroi.open_table(str(tmp_path / "t")))


# ------------------------------------------------------------------------------ between a look and an opening

NEWEST: dict[str, Callable[[conroi.Lake, conroi.Table], object]] = {
    "lake[name]": lambda lake, _: lake["t"].count_rows(),
    "lake.table": lambda lake, _: lake.table("t").count_rows(),
    "latest": lambda _, table: table.latest().count_rows(),
    "a transaction": lambda lake, _: lake.run(lambda tx: tx["t"].count_rows()),
    "an append": lambda lake, table: (table.append([{"id": 9, "v": "x"}]), lake["t"].count_rows())[1] - 1,
}


@pytest.mark.parametrize("how", NEWEST)
@pytest.mark.parametrize("store", STORES)
def test_a_version_that_is_collected_between_the_look_and_the_opening_is_looked_up_again(
    how: str, store: str, tmp_path: Path
) -> None:
    """The lake itself is not an old version: a reader that asks for the newest gets the newest."""
    plain = lake_at(tmp_path, store)
    plain.create_table("t", rows(0))
    hits: list[Request] = []

    def collect(request: Request) -> None:
        """Just before the manifest of the version that the lake had is read, it goes."""
        hits.append(request)
        supersede(plain["t"])
        plain.expire(timedelta(0), keep=1, dry_run=False)
        plain.gc(min_age=timedelta(0), dry_run=False)

    def wrap(objects: Objects) -> Objects:
        faults = [call_before(collect, "get*", "_versions/*", skip=armed[0])]
        return FaultyObjects(objects, faults) if objects.root.endswith("t.lance") else objects

    armed = [0]
    address = f"sqlite:///{tmp_path}/lake.db" if store == "sqlite" else None
    if how in ("latest", "an append"):
        armed = [1]  # the first is the opening of the handle
    lake = connect_through(str(tmp_path / "lake"), wrap, store=address)
    table = lake["t"] if armed[0] else plain["t"]
    if armed[0]:
        plain["t"].append([{"id": 8, "v": "x"}])
    assert NEWEST[how](lake, table) == 3, "id 1, 2 and 3"
    assert hits, "nothing was collected"


def test_a_version_that_is_collected_before_a_publisher_makes_it_final_is_no_failure(tmp_path: Path) -> None:
    """Far away: the publisher of the next version finishes the one before, which others have finished and collected."""
    plain = lake_at(tmp_path, "folder")
    plain.create_table("t", rows(0))
    hits: list[Request] = []

    def collect(request: Request) -> None:
        hits.append(request)
        supersede(plain["t"])
        plain.expire(timedelta(0), keep=1, dry_run=False)

    def dying(objects: Objects) -> Objects:
        return FaultyObjects(CloudLike(objects), [fail("*_if_absent", "_versions/*.manifest", times=None)])

    def stalled(objects: Objects) -> Objects:
        faults = [call_before(collect, "get*", "_versions/*.manifest-*", skip=1)]
        return FaultyObjects(CloudLike(objects), faults) if objects.root.endswith("t.lance") else CloudLike(objects)

    def first(objects: Objects) -> Objects:
        return dying(objects) if objects.root.endswith("t.lance") else CloudLike(objects)

    connect_through(tmp_path / "lake", first)["t"].append([{"id": 8, "v": "x"}])  # published, never made final
    lake = connect_through(tmp_path / "lake", stalled)
    table = lake["t"]
    assert (table.count_rows(), hits) == (7, [])
    table.append([{"id": 9, "v": "x"}])
    assert hits, "nothing was collected"
    assert sorted(column_values(lake["t"].to_arrow()["id"])) == [1, 2, 3, 9]
