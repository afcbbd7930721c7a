"""Contradictions inside a manifest, and between it and what stands beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from conroi.errors import CorruptionError
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import (
    Manifest,
    check_name_fits,
    check_transaction_fits,
    manifest_problems,
    validate_manifest,
)
from conroi.format.naming import ManifestName, ManifestNaming, parse_manifest_name
from conroi.format.row_ids import constant_versions, fresh_row_ids
from conroi.format.transaction import Transaction, decode_transaction
from tests.format.pylance_tables import manifest_files, manifest_paths

TRANSACTION = Transaction(
    pb.Transaction(read_version=2, uuid="b8ec0968-3713-4d97-8dbc-219688a7b73c", append=pb.Transaction.Append())
)


def good_message() -> pb.Manifest:
    files = [pb.DataFile(path="x.lance", fields=[0, 2], column_indices=[0, 1], file_major_version=2)]
    return pb.Manifest(
        fields=[
            pb.Field(name="a", id=0, parent_id=-1, logical_type="int64"),
            pb.Field(name="l", id=1, parent_id=-1, logical_type="list"),
            pb.Field(name="item", id=2, parent_id=1, logical_type="int64"),
        ],
        fragments=[
            pb.DataFragment(id=0, physical_rows=5, files=files, inline_row_ids=fresh_row_ids(0, 5)),
            pb.DataFragment(
                id=1,
                physical_rows=5,
                files=files,
                deletion_file=pb.DeletionFile(num_deleted_rows=2),
                inline_row_ids=fresh_row_ids(5, 5),
                inline_created_at_versions=constant_versions(1, 5),
            ),
        ],
        version=3,
        reader_feature_flags=3,
        writer_feature_flags=3,
        max_fragment_id=1,
        transaction_file=TRANSACTION.file_name,
        base_paths=[pb.BasePath(id=4, path="/x")],
    )


def good_index() -> pb.IndexMetadata:
    return pb.IndexMetadata(uuid=pb.UUID(uuid=bytes(16)), name="i", fields=[0], files=[pb.IndexFile(path="p.lance")])


def test_a_good_manifest_has_no_problems():
    validate_manifest(Manifest(good_message().SerializeToString(), [good_index()]))


def test_pylances_manifests_have_no_problems(busy_table: Path):
    for path, file in zip(manifest_paths(busy_table), manifest_files(busy_table), strict=True):
        assert list(manifest_problems(file.manifest)) == []
        name = parse_manifest_name(path.name)
        assert name is not None
        check_name_fits(name, file.manifest)
        check_transaction_fits(file.manifest, decode_transaction(file.transaction or b""))


def edit(change: Callable[[pb.Manifest], object]) -> Manifest:
    message = good_message()
    change(message)
    return Manifest(message.SerializeToString())


PROBLEMS: dict[str, Callable[[pb.Manifest], object]] = {
    "field 'l' has the id 0": lambda m: setattr(m.fields[1], "id", 0),
    "inside field 9": lambda m: setattr(m.fields[2], "parent_id", 9),
    "two columns have the same name": lambda m: setattr(m.fields[1], "name", "a"),
    "does not exist": lambda m: setattr(m.fields[0], "logical_type", "int65"),
    "order of their ids": lambda m: setattr(m.fragments[0], "id", 1),
    "above the largest id": lambda m: setattr(m, "max_fragment_id", 0),
    "flags say that it has none": lambda m: setattr(m, "reader_feature_flags", 2),
    "has no data files": lambda m: m.fragments[0].ClearField("files"),
    "'../x'": lambda m: setattr(m.fragments[0].files[0], "path", "../x"),
    "2 fields in 1 columns": lambda m: m.fragments[0].files[0].column_indices.pop(),
    "a file with the fields": lambda m: m.fragments[0].files[0].fields.__setitem__(1, 0),
    "the base path 7": lambda m: setattr(m.fragments[0].files[0], "base_id", 7),
    "deletion file at the base path 7": lambda m: setattr(m.fragments[1].deletion_file, "base_id", 7),
    "lost 6 of 5 rows": lambda m: setattr(m.fragments[1].deletion_file, "num_deleted_rows", 6),
    "deletion file of kind 3": lambda m: setattr(m.fragments[1].deletion_file, "file_type", 3),
    "no row ids": lambda m: m.fragments[0].ClearField("inline_row_ids"),
    "5 entries for a fragment of 6 rows": lambda m: setattr(m.fragments[0], "physical_rows", 6),
    "4 entries": lambda m: setattr(m.fragments[1], "inline_created_at_versions", constant_versions(1, 4)),
    "two base paths": lambda m: m.base_paths.add(id=4),
    "transaction file is called": lambda m: setattr(m, "transaction_file", "../x.txn"),
}


@pytest.mark.contract("T14")
@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_contradiction_is_named(problem: str):
    with pytest.raises(CorruptionError) as caught:
        validate_manifest(edit(PROBLEMS[problem]))
    assert problem in caught.value.message
    assert caught.value.version == 3


@pytest.mark.contract("T14")
@pytest.mark.parametrize(
    "change",
    [
        lambda index: setattr(index, "base_id", 7),
        lambda index: setattr(index, "fragment_bitmap", b"abc"),
        lambda index: setattr(index.files[0], "path", "/etc/passwd"),
    ],
)
def test_a_contradiction_in_an_index_is_named(change: Callable[[pb.IndexMetadata], object]):
    index = good_index()
    change(index)
    (problem,) = manifest_problems(Manifest(good_message().SerializeToString(), [index]))
    assert problem.startswith("index 'i' ")


@pytest.mark.contract("T14")
def test_a_renamed_manifest_is_noticed():
    manifest = Manifest(good_message().SerializeToString())
    check_name_fits(ManifestName(3, ManifestNaming.V2), manifest)
    with pytest.raises(CorruptionError, match="version 7 says that it is version 3"):
        check_name_fits(ManifestName(7, ManifestNaming.V2), manifest)


@pytest.mark.contract("T14")
def test_a_transaction_of_another_commit_is_noticed():
    manifest = Manifest(good_message().SerializeToString())
    check_transaction_fits(manifest, TRANSACTION)
    other = Transaction(pb.Transaction(read_version=1, uuid=TRANSACTION.uuid, append=pb.Transaction.Append()))
    with pytest.raises(CorruptionError, match="do not belong together"):
        check_transaction_fits(manifest, other)


@pytest.mark.contract("T14")
def test_a_transaction_cannot_be_made_on_a_version_that_came_later():
    manifest = edit(lambda m: (m.ClearField("transaction_file"), setattr(m, "version", 2)))
    with pytest.raises(CorruptionError, match="made on version 2"):
        check_transaction_fits(manifest, TRANSACTION)
