"""Names of files: written, parsed, and refused."""

from __future__ import annotations

import uuid
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conroi.errors import CorruptionError
from conroi.format import lance_pb2 as pb
from conroi.format.naming import (
    ManifestName,
    ManifestNaming,
    check_relative_path,
    data_file_name,
    deletion_path,
    detect_naming,
    index_dir,
    parse_manifest_name,
    parse_staged_name,
    parse_transaction_name,
    staged_name,
    transaction_path,
)
from tests.format.effort import few

V1, V2 = ManifestNaming.V1, ManifestNaming.V2
SOME_ID = uuid.UUID("b8ec0968-3713-4d97-8dbc-219688a7b73c")
versions = st.integers(1, (1 << 63) - 1)


@pytest.mark.contract("T2")
def test_known_versions_have_known_names():
    assert V1.path(7) == "_versions/7.manifest"
    assert V2.path(1) == "_versions/18446744073709551614.manifest"
    assert V2.path(7) == "_versions/18446744073709551608.manifest"
    assert V1.path(12655642071930582209) == V2.path(12655642071930582209) == "_versions/d12655642071930582209.manifest"


@pytest.mark.contract("T2")
@few
@given(versions, st.sampled_from(ManifestNaming))
def test_a_name_says_its_version_and_scheme(version: int, naming: ManifestNaming):
    assert parse_manifest_name(naming.file_name(version)) == ManifestName(version, naming)


@pytest.mark.contract("T2")
@few
@given(st.integers(1 << 63, (1 << 64) - 1))
def test_a_detached_version_is_known_by_its_name(version: int):
    assert parse_manifest_name(V2.file_name(version)) == ManifestName(version, V2, is_detached=True)


@pytest.mark.contract("T2")
@few
@given(st.lists(versions, min_size=2, unique=True))
def test_the_newest_version_comes_first_in_a_listing_of_v2_names(several: list[int]):
    assert min(V2.file_name(version) for version in several) == V2.file_name(max(several))


@pytest.mark.contract("T2")
@pytest.mark.parametrize(
    "name",
    [
        "latest_version_hint.json",
        "_latest.manifest",
        ".manifest",
        "7.manifest.tmp",
        "07.manifest",
        "-7.manifest",
        "7_0.manifest",
        "٧.manifest",
        "7manifest",
        "d7.manifest",
        "d.manifest",
        "99999999999999999999.manifest",
        "123456789012345678901234.manifest",
        f"7.manifest-{SOME_ID}",
    ],
)
def test_other_files_are_not_taken_for_manifests(name: str):
    assert parse_manifest_name(name) is None


@pytest.mark.contract("T2")
def test_the_scheme_of_a_table_is_that_of_its_manifests():
    assert detect_naming(["1.manifest", "2.manifest", "d12655642071930582209.manifest"]) is V1
    assert detect_naming([V2.file_name(1), "latest_version_hint.json"]) is V2
    assert detect_naming(["latest_version_hint.json", f"1.manifest-{SOME_ID}"]) is None


@pytest.mark.contract("T2")
def test_a_table_with_both_schemes_is_refused():
    with pytest.raises(CorruptionError, match="both naming schemes"):
        detect_naming([V1.file_name(1), V2.file_name(2)])


@pytest.mark.contract("T2")
@pytest.mark.parametrize("naming", ManifestNaming)
def test_pylance_uses_the_same_names(tmp_path: Path, naming: ManifestNaming):
    table = pa.table({"a": [1]})
    for mode in ("create", "append"):
        lance.write_dataset(table, tmp_path / "t", mode=mode, enable_v2_manifest_paths=naming is V2)
    names = {path.name for path in (tmp_path / "t" / "_versions").glob("*.manifest")}
    assert names == {naming.file_name(1), naming.file_name(2)}
    assert detect_naming(names) is naming


@few
@given(versions, st.sampled_from(ManifestNaming), st.uuids())
def test_a_staged_name_says_what_it_is_staged_for(version: int, naming: ManifestNaming, staging_id: uuid.UUID):
    staged = staged_name(naming.file_name(version), staging_id)
    assert parse_staged_name(staged) == (ManifestName(version, naming), staging_id)
    assert parse_manifest_name(staged) is None


@pytest.mark.parametrize("name", ["7.manifest", "7.manifest-", "7.manifest-x", f"x.manifest-{SOME_ID}", f"7-{SOME_ID}"])
def test_other_names_are_not_taken_for_staged_ones(name: str):
    assert parse_staged_name(name) is None


@pytest.mark.contract("T3")
def test_a_transaction_file_says_its_read_version_and_id():
    assert transaction_path(f"3-{SOME_ID}.txn") == f"_transactions/3-{SOME_ID}.txn"
    assert parse_transaction_name(f"3-{SOME_ID}.txn") == (3, SOME_ID)
    for other in (f"3-{SOME_ID}", f"x-{SOME_ID}.txn", "3-.txn", f"{SOME_ID}.txn", "3.txn"):
        assert parse_transaction_name(other) is None


def test_a_data_file_is_named_as_pylance_does(tmp_path: Path):
    lance.write_dataset(pa.table({"a": [1]}), tmp_path / "t")
    (path,) = (tmp_path / "t" / "data").iterdir()
    spread, rest = path.name[:24], path.name[24:-6]
    file_id = uuid.UUID(bytes=int(spread, 2).to_bytes(3, "big") + bytes.fromhex(rest))
    assert data_file_name(file_id) == path.name
    assert file_id.version == 4


def test_a_deletion_file_is_named_by_its_parts():
    array = pb.DeletionFile(read_version=2, id=4407350848373372496)
    bitmap = pb.DeletionFile(file_type=pb.DeletionFile.BITMAP, read_version=5, id=1)
    assert deletion_path(0, array) == "_deletions/0-2-4407350848373372496.arrow"
    assert deletion_path(9, bitmap) == "_deletions/9-5-1.bin"
    assert index_dir(SOME_ID) == f"_indices/{SOME_ID}"


@pytest.mark.parametrize("path", ["a.lance", "a/b/c.lance", "..a", "a..b/c", "ünï/x", "a/b:c"])
def test_a_plain_path_is_accepted(path: str):
    assert check_relative_path(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../x",
        "a/../b",
        "a/..",
        "a//b",
        "a/",
        "./a",
        "a/.",
        "a\\b",
        "..\\x",
        "a\0b",
        "C:/x",
        "s3://b/x",
    ],
)
def test_a_path_that_could_leave_the_table_is_refused(path: str):
    with pytest.raises(CorruptionError) as caught:
        check_relative_path(path)
    assert repr(path) in caught.value.message
