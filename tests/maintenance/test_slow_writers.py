"""Writers that take longer than files may be old: they are protected, or told; never given a version without its files.

All ages are those of `SHORT`; files are made older instead of waiting, and a writer's own clock is moved on.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import pytest

import conroi
from conroi.format.naming import ManifestNaming
from conroi.maintenance import lake_collection
from conroi.snapshots.snapshot import Snapshot, TableStorage
from conroi.storage import open_objects
from conroi.table import Table
from conroi.testing import FaultyObjects, Gate, SeededEnvironment, call_before, connect_through
from conroi.versions.folder import FolderVersions
from conroi.versions.retention import Forgetting
from tests.maintenance.conftest import numbers
from tests.support.aging import files_below, make_older
from tests.support.lakes import faulty

pytestmark = pytest.mark.contract("M2", "M3")


class World(SeededEnvironment):
    """Its clock moves when the test says so."""


@pytest.fixture
def world() -> World:
    return World(7)


def test_a_quick_writer_asks_for_nothing_more(table: conroi.Table) -> None:
    """Counted: the requests of an append are what they were before there was a collector."""
    from conroi.testing import CountingObjects

    counting = CountingObjects(open_objects(table.uri))
    files = TableStorage(counting, FolderVersions(counting), SeededEnvironment(1))
    there = Table(files, files.head())
    there = there.append([{"n": 6}])
    with counting.measure() as measured:
        there.append([{"n": 7}])
    assert measured.requests("list_names") == measured.requests("list") == 0, measured
    assert measured.requests("put_if_absent") == 1


@pytest.mark.parametrize(
    "look",
    [
        lambda tx: tx["t"].to_arrow(),
        lambda tx: tx["t"].update({"n": "n + 1"}, "n = 6"),
        lambda tx: tx["t"].scan.reader().read_all(),
    ],
)
def test_a_transaction_that_reads_what_was_collected_of_it_is_told(
    lake: conroi.Lake, world: World, look: Callable[[conroi.Transaction], object]
) -> None:
    """Found by a simulation (lone_table, seed 10057370): the missing file was taken for damage of the table."""
    slow = conroi.connect(lake.uri, environment=world)
    tx = slow.begin()
    tx["t"].append([{"n": 6}])
    make_older(lake.uri, hours=48)
    world.sleep(48 * 3600)
    assert lake.gc(dry_run=False).by_kind["data"][0] == 1
    with pytest.raises(conroi.RetryableConflict, match="may have been collected"):
        look(tx)


def test_a_transaction_whose_files_were_collected_is_told(lake: conroi.Lake, world: World) -> None:
    slow = conroi.connect(lake.uri, environment=world)
    tx = slow.begin()
    tx["t"].append([{"n": 6}])
    make_older(lake.uri, hours=48)
    world.sleep(48 * 3600)
    assert lake.gc(dry_run=False).by_kind["data"][0] == 1
    with pytest.raises(conroi.RetryableConflict, match="may have been collected"):
        tx.commit()
    assert numbers(conroi.connect(lake.uri)["t"]) == [1, 2, 3, 4, 5]
    assert slow["t"].append([{"n": 6}]).count_rows() == 6


def test_control_one_that_does_not_look_publishes_a_version_without_its_file(
    lake: conroi.Lake, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["conroi.commit.pending"], "refuse_collected_files", lambda *_, **__: None)
    slow = conroi.connect(lake.uri, environment=world)
    tx = slow.begin()
    tx["t"].append([{"n": 6}])
    make_older(lake.uri, hours=48)
    world.sleep(48 * 3600)
    lake.gc(dry_run=False)
    tx.commit()
    with pytest.raises(conroi.ConroiError):
        conroi.connect(lake.uri)["t"].to_arrow()


def test_a_file_of_others_that_is_missing_is_no_conflict(lake: conroi.Lake) -> None:
    with lake.begin() as tx:
        tx["t"].append([{"n": 6}])
        for file in (Path(lake["t"].uri) / "data").iterdir():
            if lance.dataset(lake["t"].uri).get_fragments()[0].metadata.files[0].path == file.name:
                file.unlink()
        with pytest.raises(conroi.CorruptionError):
            tx["t"].to_arrow()
        tx.rollback()


def test_a_slow_transaction_without_a_collection_commits(lake: conroi.Lake, world: World) -> None:
    slow = conroi.connect(lake.uri, environment=world)
    tx = slow.begin()
    tx["t"].append([{"n": 6}])
    make_older(lake.uri, hours=48)
    world.sleep(48 * 3600)
    tx.commit()
    lake.gc(dry_run=False)
    assert numbers(lake["t"]) == [1, 2, 3, 4, 5, 6]


def test_young_files_of_a_slow_transaction_are_spared(lake: conroi.Lake, world: World) -> None:
    """It began two days ago, but what it wrote it wrote just now."""
    slow = conroi.connect(lake.uri, environment=world)
    tx = slow.begin()
    make_older(lake.uri, hours=48)
    world.sleep(48 * 3600)
    tx["t"].append([{"n": 6}])
    lake.gc(dry_run=False)
    tx.commit()
    assert numbers(lake["t"]) == [1, 2, 3, 4, 5, 6]


# ------------------------------------------------------------------ one that stands right before its put


@pytest.fixture
def standing() -> Iterator[Callable[[Callable[[], object]], tuple[Gate, Callable[[], object]]]]:
    """Start work that will stand at a gate; then what waits for its end and gives its answer, or its error."""
    threads: list[threading.Thread] = []

    def start(work: Callable[[], object], gate: Gate) -> Callable[[], object]:
        answers: list[object] = []

        def run() -> None:
            try:
                answers.append(work())
            except Exception as error:  # noqa: BLE001  (the test looks at it)
                answers.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        threads.append(thread)
        gate.wait_for_arrival()

        def end() -> object:
            gate.open()
            thread.join(60)
            return answers[0]

        return end

    yield start  # type: ignore[misc]
    for thread in threads:
        thread.join(1)


def table_behind(uri: str, gate: Gate, world: World) -> Table:
    faults = [call_before(gate, "put_if_absent", "_versions/*")]
    objects = FaultyObjects(open_objects(uri), faults)
    files = TableStorage(objects, FolderVersions(objects, environment=world), world)
    return Table(files, files.head())


def test_what_is_about_to_be_committed_is_not_collected(table: conroi.Table, world: World, standing: Any) -> None:
    """Its file is older than a day, but its transaction says that it is needed."""
    gate = Gate()
    end = standing(lambda: table_behind(table.uri, gate, world).append([{"n": 6}]), gate)
    make_older(Path(table.uri) / "data", hours=48)
    assert table.gc(dry_run=False).by_kind.get("data") is None
    end()
    assert numbers(conroi.open_table(table.uri)) == [1, 2, 3, 4, 5, 6]


def stalled_for_two_days(table: conroi.Table, world: World, standing: Any) -> object:
    gate = Gate()
    end = standing(lambda: table_behind(table.uri, gate, world).append([{"n": 6}]), gate)
    make_older(table.uri, hours=48)
    world.sleep(48 * 3600)
    assert table.gc(dry_run=False).by_kind["data"][0] == 1
    return end()


def test_a_writer_that_stood_still_for_longer_than_files_may_be_old_is_told(
    table: conroi.Table, world: World, standing: Any
) -> None:
    """Its version was still free; so gc() took it, and the writer had to look."""
    answer = stalled_for_two_days(table, world, standing)
    assert isinstance(answer, conroi.RetryableConflict), answer
    fresh = conroi.open_table(table.uri)
    assert (fresh.version, numbers(fresh)) == (6, [1, 2, 3, 4, 5])
    assert "gc" in str(fresh.history()[0].message)
    assert lance.dataset(table.uri).count_rows() == 5


def test_work_that_can_be_done_again_is_done_again(table: conroi.Table, world: World, standing: Any) -> None:
    gate = Gate()
    end = standing(lambda: table_behind(table.uri, gate, world).update({"n": "n * 10"}, mode="rows"), gate)
    make_older(table.uri, hours=48)
    world.sleep(48 * 3600)
    assert table.gc(dry_run=False).by_kind["data"][0] == 1
    assert isinstance(end(), Table)
    assert numbers(conroi.open_table(table.uri)) == [10, 20, 30, 40, 50]


def test_control_without_the_fence_it_commits_a_version_without_its_file(
    table: conroi.Table, world: World, standing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conroi.maintenance.collection._fence", lambda *_: None)
    stalled_for_two_days(table, world, standing)
    with pytest.raises(conroi.ConroiError):
        conroi.open_table(table.uri).to_arrow()


def test_a_publisher_that_stood_still_so_long_publishes_nothing_broken(
    lake: conroi.Lake, world: World, standing: Any
) -> None:
    gate = Gate()

    def wrap(objects: Any) -> Any:
        faults = [call_before(gate, "put_if_absent", "_versions/*")]
        return FaultyObjects(objects, faults) if objects.root.endswith("__manifest") else objects

    slow = connect_through(lake.uri, wrap, environment=world)
    end = standing(lambda: slow["t"].append([{"n": 6}]), gate)
    make_older(lake.uri, hours=48)
    world.sleep(48 * 3600)
    assert {"data", "staged"} <= lake.gc(dry_run=False).by_kind.keys()
    assert isinstance(end(), conroi.ConflictError)
    assert numbers(conroi.connect(lake.uri)["t"]) == [1, 2, 3, 4, 5]


@pytest.mark.contract("M2", "B1")
def test_a_publisher_to_a_branch_that_stood_still_so_long_publishes_nothing_broken(
    lake: conroi.Lake, world: World, standing: Any
) -> None:
    """Found by a simulation (old_branches, seed 30003351): the fence was committed to the main branch only."""
    answer = _stalled_on_a_branch(lake, world, standing)
    assert isinstance(answer, conroi.ConflictError), answer
    assert numbers(conroi.connect(lake.uri, branch="dev")["t"]) == [1, 2, 3, 4, 5]
    assert numbers(conroi.connect(lake.uri)["t"]) == [1, 2, 3, 4, 5]


def test_control_without_a_fence_on_the_branch_its_version_has_no_files(
    lake: conroi.Lake, world: World, standing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conroi.maintenance.lake_collection._fence_branches", lambda *_: None)
    _stalled_on_a_branch(lake, world, standing)
    with pytest.raises(conroi.ConroiError):
        conroi.connect(lake.uri, branch="dev")["t"].to_arrow()


def test_branches_with_a_young_version_get_no_fence(lake: conroi.Lake) -> None:
    lake.branches.create("dev")
    lake.branches.create("old")
    before = {name: conroi.connect(lake.uri, branch=name).version for name in ("dev", "old")}
    _leave_garbage(lake)
    make_older(lake.uri, hours=48)
    conroi.connect(lake.uri, branch="dev")["t"].append([{"n": 7}])
    assert lake.gc(dry_run=False).by_kind["data"][0] >= 1
    after = {name: conroi.connect(lake.uri, branch=name).version for name in ("dev", "old")}
    assert (after["dev"] - before["dev"], after["old"] - before["old"]) == (1, 1)


def test_a_collection_beside_a_branch_that_is_being_deleted_goes_on(
    lake: conroi.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.branches.create("dev")
    _leave_garbage(lake)
    make_older(lake.uri, hours=48)
    publish = lake_collection.fence_branch

    def deleted_first(*args: Any) -> None:
        conroi.connect(lake.uri).branches.delete("dev")
        publish(*args)

    monkeypatch.setattr(lake_collection, "fence_branch", deleted_first)
    assert lake.gc(dry_run=False).by_kind["data"][0] >= 1


def _leave_garbage(lake: conroi.Lake) -> None:
    """Rows that were written and never committed."""
    tx = lake.begin()
    tx["t"].append([{"n": 6}])


def _stalled_on_a_branch(lake: conroi.Lake, world: World, standing: Any) -> object:
    """What an append on a branch says that stood still for two days before its put, beside a collection."""
    lake.branches.create("dev")
    gate = Gate()

    def wrap(objects: Any) -> Any:
        faults = [call_before(gate, "put_if_absent", "_versions/*")]
        return FaultyObjects(objects, faults) if "__manifest/tree" in objects.root else objects

    slow = connect_through(lake.uri, wrap, environment=world).branch("dev")
    end = standing(lambda: slow["t"].append([{"n": 6}]), gate)
    make_older(lake.uri, hours=48)
    world.sleep(48 * 3600)
    assert "data" in lake.gc(dry_run=False).by_kind
    return end()


# ------------------------------------------------------------------ old versions that come back


def test_a_version_that_is_being_restored_stays(table: conroi.Table, world: World, standing: Any) -> None:
    gate = Gate()
    end = standing(lambda: table_behind(table.uri, gate, world).restore(2), gate)
    make_older(table.uri, hours=48)
    assert table.expire("1d", keep=1, dry_run=False).kept == (2, 5)
    end()
    assert table.gc(dry_run=False).by_kind.get("data") is None
    assert numbers(conroi.open_table(table.uri)) == [1, 2]


def test_a_version_that_was_collected_before_it_could_be_restored_does_not_come_back(table: conroi.Table) -> None:
    old = table.at(2)
    with table.begin() as tx:
        tx.restore(2)
        make_older(table.uri, hours=48)
        table.expire("1d", keep=1, dry_run=False)
        with pytest.raises(conroi.RetryableConflict, match="collected"):
            tx.commit()
    assert old.version == 2
    assert numbers(conroi.open_table(table.uri)) == [1, 2, 3, 4, 5]


def test_the_same_in_a_lake_among_other_changes(lake: conroi.Lake) -> None:
    tx = lake.begin()
    tx["t"].restore(2)
    tx["t"].append([{"n": 100}])
    make_older(lake.uri, hours=48)
    lake.expire("1d", keep=1, dry_run=False)
    with pytest.raises(conroi.RetryableConflict, match="collected"):
        tx.commit()
    assert numbers(conroi.connect(lake.uri)["t"]) == [1, 2, 3, 4, 5]


def test_a_tag_on_a_version_that_is_going_is_refused(table: conroi.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector has looked for tags already, and has not deleted the manifest yet."""
    from conroi.maintenance import expiry

    deleted = expiry.delete_in_batches
    refused: list[Exception] = []

    def tag_first(objects: Any, paths: Any) -> None:
        with pytest.raises(conroi.NotFoundError, match="just collected") as raised:
            table.tags.create("late", 2)
        refused.append(raised.value)
        deleted(objects, paths)

    monkeypatch.setattr(expiry, "delete_in_batches", tag_first)
    make_older(table.uri, hours=48)
    assert table.expire("1d", keep=1, dry_run=False).kept == (5,)
    assert len(refused) == 1
    assert list(table.tags) == []


def test_a_tag_that_is_moved_to_a_version_that_is_going_stays_where_it_was(
    lake: conroi.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by a simulation (tags, seed 10000654): the move was refused, and the tag was deleted."""
    from conroi.maintenance import expiry

    deleted, refused = expiry.delete_in_batches, list[Exception]()
    lake.tags.create("released", 4)

    def move_first(objects: Any, paths: Any) -> None:
        if not refused:
            with pytest.raises(conroi.NotFoundError, match="just collected") as raised:
                lake.tags.move("released", 2, expect=4)
            refused.append(raised.value)
        deleted(objects, paths)

    monkeypatch.setattr(expiry, "delete_in_batches", move_first)
    make_older(lake.uri, hours=48)
    assert lake.expire("1d", keep=1, dry_run=False).kept == (4, 6)
    assert len(refused) == 1
    there = conroi.connect(lake.uri)
    assert there.tags.get("released").version == 4
    assert numbers(there.at(tag="released")["t"]) == [1, 2, 3]
    assert there.tags.move("released", 6, expect=4).version == 6


def test_what_others_made_of_a_tag_since_is_not_undone(lake: conroi.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tag on a version that is going is refused after another writer has moved it."""
    from conroi.maintenance import expiry
    from conroi.snapshots import tags

    deleted, looked, refused = expiry.delete_in_batches, tags.retention_of, list[Exception]()
    other = conroi.connect(lake.uri)

    def tag_first(objects: Any, paths: Any) -> None:
        if not refused:
            with pytest.raises(conroi.NotFoundError, match="just collected") as raised:
                lake.tags.create("late", 2)
            refused.append(raised.value)
        deleted(objects, paths)

    def move_between(objects: Any, version: int) -> Any:
        monkeypatch.setattr(tags, "retention_of", looked)
        other.tags.move("late", 6)
        return looked(objects, version)

    monkeypatch.setattr(expiry, "delete_in_batches", tag_first)
    monkeypatch.setattr(tags, "retention_of", move_between)
    make_older(lake.uri, hours=48)
    assert lake.expire("1d", keep=1, dry_run=False).kept == (6,)
    assert len(refused) == 1
    assert conroi.connect(lake.uri).tags.get("late").version == 6


def test_a_tag_that_comes_in_time_holds_its_version(lake: conroi.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the collector chose what goes, and before it says so: the version stays, with what it pins."""
    from conroi.versions import retention

    said = retention.Forgetting.__init__

    def tag_first(self: Any, objects: Any, *rest: Any) -> None:
        if objects.root.endswith("__manifest"):
            lake.tags.create("in-time", 3)
        said(self, objects, *rest)

    monkeypatch.setattr(retention.Forgetting, "__init__", tag_first)
    make_older(lake.uri, hours=48)
    assert lake.expire("1d", keep=1, dry_run=False).kept == (3, 6)
    assert numbers(conroi.connect(lake.uri).at(tag="in-time")["t"]) == [1, 2]
    assert files_below(lake.uri)


@pytest.mark.contract("M3")
def test_a_version_that_was_put_under_a_number_of_a_dead_collector_is_none(lake: conroi.Lake) -> None:
    """Found by a simulation (ownership, seed 40007321): the collector died between deleting and noting that it had."""
    at_the_time = lake.at(4)["t"].to_arrow()
    manifest = Path(lake.uri, "__manifest", ManifestNaming.V2.path(3))
    collected = manifest.read_bytes()
    objects = open_objects(f"{lake.uri}/__manifest")
    Forgetting(objects, [3, 4], "7a9c0f3e-0000-4000-8000-000000000000")  # and then it dies: 3 is deleted, 4 is not
    manifest.unlink()
    with pytest.raises(conroi.VersionExpired):
        lake.at(3)
    time.sleep(0.02)
    manifest.write_bytes(collected)  # what a writer does that had been paused before its put
    with pytest.raises(conroi.VersionExpired):
        lake.at(3)
    assert lake.at(4)["t"].to_arrow() == at_the_time, "one that is only announced can still be read"


@pytest.mark.contract("M3")
def test_a_version_left_over_without_its_files_is_expired_and_not_damaged(table: conroi.Table) -> None:
    """Found by a simulation (lone_table, seed 40073797)."""
    old = table.at(2)
    objects = open_objects(table.uri)
    manifest = Path(table.uri, ManifestNaming.V2.path(2))
    collected = manifest.read_bytes()
    Forgetting(objects, [2], "7a9c0f3e-0000-4000-8000-000000000000")
    manifest.unlink()
    time.sleep(0.02)
    manifest.write_bytes(collected)
    for file in Path(table.uri, "data").iterdir():
        file.unlink()
    with pytest.raises(conroi.VersionExpired):
        old.to_arrow()


@pytest.mark.contract("M2", "W1")
def test_a_look_that_failed_does_not_count_as_one(
    lake: conroi.Lake, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by a simulation (registers, seed 50000570): a transaction began with a state that was hours old.

    The version after the known one is collected, which only a look at the newest version tells.
    """
    slow = faulty(lake.uri, [], is_cloud=True, environment=world)
    known = slow.version
    for number in (6, 7, 8):
        lake["t"].append([{"n": number}])
    world.sleep(5 * 3600)
    make_older(lake.uri, hours=5)
    lake.expire("1h", keep=1, dry_run=False)
    lake["t"].append([{"n": 9}])
    assert known + 1 not in {commit.version for commit in lake.history()}, "it is collected"

    def no_answer(_: TableStorage) -> Snapshot:
        raise conroi.StoreUnavailable("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(TableStorage, "head", no_answer)
        with pytest.raises(conroi.StoreUnavailable):
            slow.begin()
    assert numbers(slow["t"])[-4:] == [6, 7, 8, 9]
