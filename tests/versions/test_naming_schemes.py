"""Two ways to name manifests: both are read, a table keeps the one it has, the old one becomes the new on request."""

from __future__ import annotations

import os
import random
from functools import partial
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import conroi
from conroi import CorruptionError, ManifestNaming, StoreUnavailable, TooMuchContention
from conroi.maintenance.naming_migration import migrate_manifest_names
from conroi.storage import open_objects
from conroi.testing import FaultyObjects, call_after, fail, lose_answer
from tests.support.cloud_servers import BucketServer
from tests.support.instruments import files_on
from tests.support.refusals import refused

pytestmark = pytest.mark.contract("T2")
VERSIONS = 13
V1, V2 = ManifestNaming.V1, ManifestNaming.V2


def manifests(table: conroi.Table) -> set[str]:
    return {name for name in os.listdir(Path(table.uri) / "_versions") if name.endswith(".manifest")}


def names(naming: ManifestNaming, first: int = 1, last: int = VERSIONS) -> set[str]:
    """Written out here, not asked of the code."""
    if naming is V1:
        return {f"{version}.manifest" for version in range(first, last + 1)}
    return {f"{18446744073709551615 - version}.manifest" for version in range(first, last + 1)}


@pytest.fixture
def old(tmp_path: Path) -> conroi.Table:
    """Thirteen versions under old names: 1.manifest, 2.manifest, 10.manifest, …"""
    return with_versions(conroi.create_table(tmp_path / "t.lance", [{"id": 1}], naming=V1))


def with_versions(table: conroi.Table) -> conroi.Table:
    for version in range(2, VERSIONS + 1):
        table = table.append([{"id": version}])
    return table


def assert_intact(uri: str, naming: ManifestNaming, **options: object) -> None:
    """All versions are there, and every client can go on."""
    table = conroi.open_table(uri, **options)  # type: ignore[arg-type]
    assert (table.naming, table.versions()) == (naming, list(range(1, VERSIONS + 1)))
    for version in (1, 5, VERSIONS):
        assert table.at(version).to_arrow()["id"].to_pylist() == list(range(1, version + 1))


@pytest.mark.parametrize("naming", [V1, V2])
def test_a_table_keeps_the_names_it_began_with(naming: ManifestNaming, tmp_path: Path) -> None:
    made = conroi.create_table(tmp_path / "t.lance", [{"id": 1}], naming=naming)
    table = with_versions(conroi.open_table(made.uri))
    assert manifests(table) == names(naming)
    assert lance.dataset(table.uri).version == VERSIONS
    lance.write_dataset(pa.table({"id": [99]}), table.uri, mode="append")
    assert manifests(table) == names(naming, last=VERSIONS + 1)
    assert conroi.open_table(table.uri).naming is naming


@pytest.mark.parametrize("is_new", [False, True])
def test_the_names_of_a_table_of_pylance_are_detected(is_new: bool, tmp_path: Path) -> None:
    naming = V2 if is_new else V1
    lance.write_dataset(pa.table({"id": [1]}), tmp_path / "t", enable_v2_manifest_paths=is_new)
    table = with_versions(conroi.open_table(tmp_path / "t"))
    assert table.naming is naming
    assert manifests(table) == names(naming)
    assert_intact(table.uri, naming)


@pytest.mark.parametrize("hint", ["right", "stale", "none", "garbage", "too new"])
@pytest.mark.parametrize("naming", [V1, V2])
def test_the_newest_version_is_found_whatever_the_hint_says(hint: str, naming: ManifestNaming, tmp_path: Path) -> None:
    table = with_versions(conroi.create_table(tmp_path / "t", [{"id": 1}], naming=naming))
    file = Path(table.uri) / "_versions" / "latest_version_hint.json"
    if hint == "none":
        file.unlink()
    elif hint != "right":
        file.write_text({"stale": '{"version":4}', "garbage": "{{", "too new": '{"version":4000}'}[hint])
    assert_intact(table.uri, naming)


def test_old_names_become_new_ones_on_request(old: conroi.Table) -> None:
    migrated = old.migrate_manifest_names()
    assert (migrated.naming, migrated.version) == (V2, VERSIONS)
    assert manifests(old) == names(V2)
    assert_intact(old.uri, V2)
    assert lance.dataset(old.uri).version == VERSIONS
    assert [version["version"] for version in lance.dataset(old.uri).versions()] == list(range(1, VERSIONS + 1))


def test_a_table_with_new_names_is_left_alone(tmp_path: Path) -> None:
    table = with_versions(conroi.create_table(tmp_path / "t", [{"id": 1}]))
    assert migrate_manifest_names(table._files) == 0
    assert table.migrate_manifest_names().version == VERSIONS
    assert manifests(table) == names(V2)


def test_handles_from_before_the_migration_follow_it(old: conroi.Table) -> None:
    stranger, early = conroi.open_table(old.uri), old.at(3)
    old.migrate_manifest_names()
    for number, handle in enumerate((old, stranger, early), start=1):
        appended = handle.append([{"id": 99}])
        assert (appended.version, appended.naming) == (VERSIONS + number, V2)
    assert manifests(old) == names(V2, last=VERSIONS + 3)


@pytest.mark.parametrize("stopped_after", range(VERSIONS))
@pytest.mark.parametrize("how", ["before a rename", "after a rename"])
def test_a_migration_that_was_stopped_is_finished_by_running_it_again(
    stopped_after: int, how: str, old: conroi.Table
) -> None:
    fault = fail if how == "before a rename" else lose_answer
    faulty = FaultyObjects(old._files.objects, [fault("rename_if_absent", skip=stopped_after)])
    with pytest.raises(StoreUnavailable):
        migrate_manifest_names(files_on(faulty))
    renamed = stopped_after + (how == "after a rename")
    assert manifests(old) == names(V1, last=VERSIONS - renamed) | names(V2, first=VERSIONS - renamed + 1)
    if 0 < renamed < VERSIONS:
        assert_half_done(old.uri)
    conroi.open_table(old.uri).migrate_manifest_names()
    assert manifests(old) == names(V2)
    assert_intact(old.uri, V2)


def assert_half_done(uri: str) -> None:
    """The newest version is found in every way there is, and who would list them all is told what to do."""
    for keeps_hint in (True, False):
        if not keeps_hint:
            (Path(uri) / "_versions" / "latest_version_hint.json").unlink()
        table = conroi.open_table(uri)
        assert (table.version, table.naming) == (VERSIONS, V2)
        assert table.at(1).count_rows() == 1
        for look in (table.versions, table.history, partial(table.at, as_of="2099-01-01")):
            with pytest.raises(CorruptionError, match="both naming schemes") as caught:
                look()
            assert "migrate_manifest_names()" in (caught.value.hint or "")
    with pytest.raises(ValueError, match="multiple manifest naming schemes"):
        lance.dataset(uri)  # pylance does not open such a table at all, not even to repair it


def test_a_rename_that_was_cut_in_two_is_finished(old: conroi.Table) -> None:
    """The new name is there and the old one too: what a crash between the two steps of a rename leaves."""
    folder = Path(old.uri) / "_versions"
    for version in (13, 12):
        os.link(folder / f"{version}.manifest", folder / f"{18446744073709551615 - version}.manifest")
    (folder / "12.manifest").write_bytes((folder / "12.manifest").read_bytes())
    old.migrate_manifest_names()
    assert_intact(old.uri, V2)


def test_two_different_manifests_of_one_version_are_never_thrown_away(old: conroi.Table) -> None:
    folder = Path(old.uri) / "_versions"
    other = (folder / "5.manifest").read_bytes()
    (folder / f"{18446744073709551615 - 7}.manifest").write_bytes(other)
    with pytest.raises(CorruptionError, match="two different manifests of version 7") as caught:
        old.migrate_manifest_names()
    assert (caught.value.version, caught.value.table) == (7, old.uri)
    assert (folder / "7.manifest").exists()
    assert (folder / f"{18446744073709551615 - 7}.manifest").read_bytes() == other


def test_a_version_of_a_concurrent_writer_is_renamed_too(old: conroi.Table) -> None:
    """A writer that looked at the old names a moment ago may do this."""

    def write_one(_request: object) -> None:
        old._files.objects.put("_versions/14.manifest", b"another writer's")

    faulty = FaultyObjects(old._files.objects, [call_after(write_one, "rename_if_absent")])
    assert migrate_manifest_names(files_on(faulty)) == VERSIONS + 1
    assert manifests(old) == names(V2, last=VERSIONS + 1)


def test_a_migration_that_never_comes_to_an_end_says_so(old: conroi.Table) -> None:
    next_version = iter(range(14, 1000))

    def write_one(_request: object) -> None:
        old._files.objects.put(f"_versions/{next(next_version)}.manifest", b"another writer's")

    faulty = FaultyObjects(old._files.objects, [call_after(write_one, "rename_if_absent", times=None)])
    with pytest.raises(TooMuchContention, match="keep writing") as caught:
        migrate_manifest_names(files_on(faulty))
    assert "Stop all writers" in (caught.value.hint or "")


def test_old_names_become_new_ones_in_an_object_store(bucket: BucketServer) -> None:
    """Here the newest version is the first name of a listing, also while only some names are new."""
    options = {"storage_options": bucket.options}
    table = with_versions(conroi.create_table(bucket.new_uri(), [{"id": 1}], naming=V1, **options))  # type: ignore[arg-type]
    assert_intact(table.uri, V1, **options)
    stopped_after = random.Random(5).randrange(1, VERSIONS)
    faulty = FaultyObjects(open_objects(table.uri, bucket.options), [fail("rename_if_absent", skip=stopped_after)])
    with pytest.raises(StoreUnavailable):
        migrate_manifest_names(files_on(faulty))
    half = conroi.open_table(table.uri, **options)  # type: ignore[arg-type]
    assert (half.version, half.naming) == (VERSIONS, V2)
    half.migrate_manifest_names()
    assert_intact(table.uri, V2, **options)
    assert lance.dataset(table.uri, storage_options=bucket.options).version == VERSIONS


def test_names_that_are_no_manifests_are_ignored(old: conroi.Table) -> None:
    folder = Path(old.uri) / "_versions"
    for name in (
        "x.manifest",
        "007.manifest",
        "14.manifest-abc",
        ".tmp_1",
        "14.manifest.bak",
        "99999999999999999999.manifest",
    ):
        (folder / name).write_bytes(b"not a manifest")
    (folder / "latest_version_hint.json").unlink()
    assert_intact(old.uri, V1)
    with refused(old, conroi.NotFoundError):
        old.at(14)
