"""Which files go, and which stay."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, cast

import lance
import pyarrow as pa
import pytest

import conroi
from conroi.testing import SeededEnvironment
from tests.maintenance.conftest import numbers
from tests.support.aging import files_below, make_older, size_of

pytestmark = pytest.mark.contract("M2")
OLD = 24 * 30


def only_newest(table: conroi.Table) -> None:
    make_older(table.uri, hours=OLD)
    table.expire(keep=1, dry_run=False)


def test_by_default_nothing_is_deleted(table: conroi.Table) -> None:
    table.compact()
    only_newest(table)
    before = files_below(table.uri)
    report = table.gc()
    assert report.is_dry_run
    assert report.by_kind["data"][0] == 5
    assert files_below(table.uri) == before


def test_what_only_forgotten_versions_had_goes(table: conroi.Table) -> None:
    table.compact()
    only_newest(table)
    before, size = files_below(table.uri), size_of(table.uri)
    report = table.gc(dry_run=False)
    gone = before - files_below(table.uri)
    assert {path.partition("/")[0] for path in gone} == {"data", "_transactions"}
    assert report.by_kind["data"][0] == len([path for path in gone if path.startswith("data/")]) == 5
    assert report.bytes > 0
    assert size_of(table.uri) < size
    assert numbers(table.latest()) == [1, 2, 3, 4, 5]
    assert lance.dataset(table.uri).count_rows() == 5


def test_it_can_be_done_again(table: conroi.Table) -> None:
    table.compact()
    only_newest(table)
    assert table.gc(dry_run=False).files > 0
    assert table.gc(dry_run=False).files == 0


def test_young_files_stay_whatever_they_belong_to(table: conroi.Table) -> None:
    (Path(table.uri) / "data" / "0101.lance").write_bytes(b"a writer is at work here")
    (Path(table.uri) / "_versions" / "18446744073709551609.manifest-0b3ae1f5-6a6a-4cf6-b32b-31bb3f5e2f6a").touch()
    assert table.gc(min_age="1h", dry_run=False).files == 0


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("data/010101.lance", "data"),
        ("data/010101/1.blob", "data"),
        ("_deletions/0-1-2.arrow", "deletion"),
        ("_transactions/1-0b3ae1f5-6a6a-4cf6-b32b-31bb3f5e2f6a.txn", "transaction"),
        ("_indices/0b3ae1f5-6a6a-4cf6-b32b-31bb3f5e2f6a/page_data.lance", "index"),
        ("_versions/18446744073709551609.manifest-0b3ae1f5-6a6a-4cf6-b32b-31bb3f5e2f6a", "staged"),
        ("_versions/.tmp_conroi_x", "temporary"),
        ("data/.tmp_conroi_x", "temporary"),
        ("_transactions/.conroi-baton", "temporary"),
    ],
)
def test_what_dead_writers_left_goes(table: conroi.Table, path: str, kind: str) -> None:
    left = Path(table.uri) / path
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_bytes(b"x" * 10)
    make_older(table.uri, hours=OLD)
    assert table.gc(dry_run=False).by_kind == {kind: (1, 10)}
    assert not left.exists()


@pytest.mark.parametrize("path", ["notes.txt", "data/readme.md", "_mem_wal/x", "_fri/1/stable.lance", "_versions/note"])
def test_what_is_of_no_known_kind_stays(table: conroi.Table, path: str) -> None:
    other = Path(table.uri) / path
    other.parent.mkdir(parents=True, exist_ok=True)
    other.write_bytes(b"mine")
    make_older(table.uri, hours=OLD)
    table.gc(dry_run=False)
    assert other.exists()


def test_everything_a_version_needs_stays(tmp_path: Path) -> None:
    """Indices, deletion vectors, several columns' files, and values that are kept beside their file."""
    uri = str(tmp_path / "t")
    blobs = lance.blob_array([b"x" * 100_000, b"y" * 100_000])
    data = pa.table({"n": [1, 2], "b": blobs}, schema=pa.schema([pa.field("n", pa.int64()), lance.blob_field("b")]))
    lance.write_dataset(data, uri, data_storage_version="2.2")
    table = conroi.open_table(uri).add_columns({"m": "n * 2"}).create_index("n", "BTREE")
    for number in range(3, 12):
        lance.write_dataset(data.slice(0, 1).append_column("m", pa.array([number])), uri, mode="append")
    table = conroi.open_table(uri).delete("m = 5")
    before = files_below(uri)
    make_older(uri, hours=OLD)
    assert table.gc(dry_run=False).by_kind.keys() <= {"transaction"}
    assert {path for path in before - files_below(uri) if not path.startswith("_transactions/")} == set()
    assert cast("Any", lance.dataset(uri).take_blobs("b", indices=[0])[0]).read() == b"x" * 100_000


def test_the_files_of_a_branch_of_pylance_stay(table: conroi.Table) -> None:
    branch = lance.dataset(table.uri, version=5).create_branch("dev")
    lance.write_dataset(pa.table({"n": [100]}), branch.uri, mode="append")
    table.overwrite([{"n": 0}])
    only_newest(table)
    table.gc(dry_run=False)
    assert lance.dataset(table.uri).checkout_version(("dev", None)).count_rows() == 6
    assert table.latest().count_rows() == 1


def test_the_clock_of_the_collector_does_not_matter(table: conroi.Table) -> None:
    """It compares the times of files with that of one that it has just written."""
    (Path(table.uri) / "data" / "0101.lance").write_bytes(b"a writer is at work here")
    ahead = SeededEnvironment(1, start_ns=4_000_000_000_000_000_000)
    there = conroi.open_table(table.uri, environment=ahead)
    assert there.expire(keep=1, dry_run=False).removed == ()
    assert there.gc(dry_run=False).files == 0


def test_a_short_age_is_refused(table: conroi.Table, lake: conroi.Lake) -> None:
    for verb in (table.gc, lake.gc):
        with pytest.raises(conroi.InvalidInputError, match="too short") as raised:
            verb(min_age="10m")
        assert "1h" in str(raised.value.hint)


def test_it_is_logged_before_it_is_done(table: conroi.Table, caplog: pytest.LogCaptureFixture) -> None:
    table.compact()
    make_older(table.uri, hours=OLD)
    with caplog.at_level(logging.INFO, "conroi"):
        removed = table.expire(keep=1, dry_run=False).removed
        gone = table.gc(dry_run=False).files
    assert len([line for line in caplog.messages if line.startswith("expiring version")]) == len(removed)
    assert len([line for line in caplog.messages if line.startswith("deleting")]) == gone


def test_a_table_that_needs_more_than_we_know_is_left_alone(lake: conroi.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.create_table("strange", [{"n": 0}])
    lake["strange"].overwrite([{"n": 1}])
    strange = lake["strange"].uri

    from conroi.maintenance import reachability

    real = reachability._problem
    ids = {file.path for fragment in lance.dataset(strange).get_fragments() for file in fragment.data_files()}

    def odd(manifest: Any) -> str | None:
        mine = {file.path for fragment in manifest.fragments for file in fragment.files}
        return "it has an unknown flag" if mine & ids else real(manifest)

    monkeypatch.setattr(reachability, "_problem", odd)
    before = files_below(strange)
    make_older(lake.uri, hours=OLD)
    lake.expire(keep=1, dry_run=False)
    report = lake.gc(dry_run=False)
    assert report.skipped == {"strange": "it has an unknown flag"}
    assert {path for path in before - files_below(strange) if not path.startswith("_versions")} == set()


def test_a_damaged_manifest_stops_it(table: conroi.Table) -> None:
    """It is unknown which files it needs, and a repaired one would need them."""
    oldest = sorted((Path(table.uri) / "_versions").glob("*.manifest"))[-1]
    oldest.write_bytes(oldest.read_bytes()[:-30])
    (Path(table.uri) / "data" / "0101.lance").write_bytes(b"left behind")
    make_older(table.uri, hours=OLD)
    before = files_below(table.uri)
    with pytest.raises(conroi.CorruptionError, match="nothing was deleted"):
        table.gc(dry_run=False)
    assert files_below(table.uri) == before


# ------------------------------------------------------------------------------ lakes


def collected(lake: conroi.Lake) -> dict[str, tuple[int, int]]:
    make_older(lake.uri, hours=OLD)
    lake.expire(keep=1, dry_run=False)
    make_older(lake.uri, hours=OLD)
    return lake.gc(dry_run=False).by_table


def test_a_lake_is_collected_with_its_own_table(lake: conroi.Lake) -> None:
    lake["t"].compact()
    by_table = collected(lake)
    assert {"t", "__manifest"} <= by_table.keys()
    fresh = conroi.connect(lake.uri)
    assert numbers(fresh["t"]) == [1, 2, 3, 4, 5]
    assert len(list((Path(lake["t"].uri) / "data").iterdir())) == 1


def test_the_folder_of_a_dropped_table_goes_when_no_version_has_it(lake: conroi.Lake) -> None:
    lake.create_table("gone", [{"n": 0}])
    folder = Path(lake["gone"].uri)
    lake.drop_table("gone")
    make_older(lake.uri, hours=OLD)
    lake.gc(dry_run=False)
    assert numbers(lake.at(version=7)["gone"]) == [0], "an older version of the lake has it"
    collected(lake)
    assert files_below(folder) == set()
    assert lake.create_table("gone", [{"n": 7}]).uri != str(folder), "who stood still cannot touch the new one"


def test_a_folder_that_never_was_in_the_lake_stays(lake: conroi.Lake) -> None:
    own = str(Path(lake.uri) / "own.lance")
    lance.write_dataset(pa.table({"n": [1]}), own)
    collected(lake)
    assert lance.dataset(own).count_rows() == 1


def test_what_a_killed_creation_left_goes(lake: conroi.Lake) -> None:
    tx = lake.begin()
    tx.create_table("new", [{"n": 1}])
    folder = Path(lake.uri) / "new.lance"
    assert files_below(folder)
    tx.rollback()
    collected(lake)
    assert files_below(folder) == set()


def test_keys_go_with_the_versions_that_had_them(lake: conroi.Lake) -> None:
    for number in range(3):
        with lake.begin(idempotency_key=f"batch {number}") as tx:
            tx["t"].append([{"n": 10 + number}])
    keys = Path(lake.uri) / "__manifest" / "_conroi" / "keys"
    assert len([file for file in keys.rglob("*") if file.is_file()]) == 3
    collected(lake)
    assert len([file for file in keys.rglob("*") if file.is_file()]) == 1
    with lake.begin(idempotency_key="batch 2") as tx:
        assert tx.is_done


def test_a_branch_that_was_deleted_goes_and_others_stay(lake: conroi.Lake) -> None:
    for name in ("kept", "ended"):
        lake.branches.create(name)
        lake.branch(name)["t"].append([{"n": 100}])
    folders = {path.name for path in (Path(lake["t"].uri) / "tree").iterdir()}
    lake.branches.delete("ended")
    collected(lake)
    left = {path.name for path in (Path(lake["t"].uri) / "tree").iterdir() if files_below(path)}
    assert (len(folders), len(left)) == (2, 1)
    assert numbers(conroi.connect(lake.uri).branch("kept")["t"]) == [1, 2, 3, 4, 5, 100]


def test_a_clone_in_the_lake_keeps_what_it_shares(lake: conroi.Lake) -> None:
    clone = lance.dataset(lake["t"].uri).shallow_clone(str(Path(lake.uri) / "clone.lance"), 5)
    lake.register("clone", "clone.lance")
    lake["t"].overwrite([{"n": 0}])
    collected(lake)
    assert numbers(conroi.connect(lake.uri)["clone"]) == [1, 2, 3, 4, 5]
    assert clone.count_rows() == 5


def test_empty_folders_of_dropped_tables_are_removed(lake: conroi.Lake) -> None:
    lake.create_table("gone", [{"n": 0}])
    lake.drop_table("gone")
    lake.create_table("gone", [{"n": 0}])
    again = lake["gone"].uri
    lake.drop_table("gone")
    collected(lake)
    assert not os.path.exists(again), "its name is never used again, so it needs no mark"
