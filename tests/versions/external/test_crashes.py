"""A process that dies after any step of the commit leaves a table that every client can read and write."""

from __future__ import annotations

import shutil
from itertools import product
from pathlib import Path

import pytest

import conroi
from tests.support.databases import dynamodb_address
from tests.support.external_crashes import STEPS, Job, is_committed, is_final, killed
from tests.support.external_tables import rows, rows_by_pylance, staged_files
from tests.support.record_stores import KINDS
from tests.support.sampling import sampled
from tests.support.servers import S3Server


@pytest.fixture
def uri(store: str, tmp_path: Path) -> str:
    """A table under the store with row 1."""
    uri = str(tmp_path / "t.lance")
    conroi.create_table(uri, [{"row": 1}], store=store)
    return uri


@pytest.mark.contract("X1", "X2", "X3")
@pytest.mark.parametrize(
    ("step", "store"), sampled("crashes", list(product(STEPS, KINDS)), least=9), indirect=["store"]
)
def test_after_a_crash_at_any_step_everybody_reads_and_writes(step: str, uri: str, store: str) -> None:
    killed(Job(uri, store, step))
    old, new = (1, [1]), (2, [1, 2])

    assert rows_by_pylance(uri) == (new if is_final(step) else old), "who does not know the store is one behind at most"

    table = conroi.open_table(uri, store=store)
    assert (table.version, rows(table)) == (new if is_committed(step) else old)
    assert rows_by_pylance(uri) == (new if is_committed(step) else old), "which the reader has completed"

    table = table.append([{"row": 3}])
    expected = [1, 2, 3] if is_committed(step) else [1, 3]
    assert (table.version, rows(table)) == (len(expected), expected)
    assert rows_by_pylance(uri) == (len(expected), expected)
    assert table.versions() == list(range(1, len(expected) + 1))
    assert len(staged_files(uri)) == (step in ("staged", "pointed")), "what no record names is left to collection"


@pytest.mark.contract("X1", "X2", "X3")
def test_after_a_crash_between_the_rename_and_the_pointer_everybody_reads_and_writes(uri: str, store: str) -> None:
    """On a disk the record then names a staged manifest that is not there any more."""
    killed(Job(uri, store, "renamed"))
    assert staged_files(uri) == []
    assert rows_by_pylance(uri) == (2, [1, 2])
    table = conroi.open_table(uri, store=store)
    assert (table.version, rows(table)) == (2, [1, 2])
    assert rows(table.append([{"row": 3}])) == [1, 2, 3]
    assert rows_by_pylance(uri) == (3, [1, 2, 3])


@pytest.mark.contract("X2")
def test_a_writer_that_opened_the_table_before_the_crash_completes_it_as_well(uri: str, store: str) -> None:
    table = conroi.open_table(uri, store=store)
    killed(Job(uri, store, "recorded"))
    assert rows(table.append([{"row": 3}])) == [1, 2, 3]
    assert rows_by_pylance(uri) == (3, [1, 2, 3])


@pytest.mark.contract("X4")
@pytest.mark.parametrize(
    ("step", "store"),
    [*((step, "sqlite") for step in STEPS), *((s, k) for s in ("recorded", "completed") for k in KINDS[1:])],
    indirect=["store"],
)
def test_the_folder_copied_away_opens_without_the_store(step: str, uri: str, store: str, tmp_path: Path) -> None:
    killed(Job(uri, store, step))
    copy = str(tmp_path / "copy.lance")
    shutil.copytree(uri, copy)
    expected = [1, 2] if is_final(step) else [1]
    table = conroi.open_table(copy)
    assert (table.version, rows(table)) == (len(expected), expected)
    assert rows_by_pylance(copy) == (len(expected), expected)
    assert rows(table.append([{"row": 9}])) == [*expected, 9]
    assert rows(conroi.open_table(uri, store=store)) == ([1, 2] if is_committed(step) else [1])


@pytest.mark.contract("X2")
@pytest.mark.parametrize(
    ("step", "store"),
    sampled("crashes of readers", list(product(["completed", "pointed", "deleted"], KINDS)), least=5),
    indirect=["store"],
)
def test_a_reader_that_dies_while_it_completes_a_version_does_no_harm(step: str, uri: str, store: str) -> None:
    killed(Job(uri, store, "recorded"))
    killed(Job(uri, store, step, is_writing=False))
    table = conroi.open_table(uri, store=store)
    assert (table.version, rows(table)) == (2, [1, 2])
    assert rows(table.append([{"row": 3}])) == [1, 2, 3]
    assert rows_by_pylance(uri) == (3, [1, 2, 3])


@pytest.mark.contract("X2")
@pytest.mark.parametrize("step", ["recorded", "pointed"])
def test_a_creation_that_died_is_completed_by_the_next_one(step: str, store: str, tmp_path: Path) -> None:
    uri = str(tmp_path / "new.lance")
    killed(Job(uri, store, step, is_creating=True))
    with pytest.raises(conroi.AlreadyExistsError):
        conroi.create_table(uri, [{"row": 5}], store=store)
    assert rows(conroi.open_table(uri, store=store)) == [2]
    assert rows_by_pylance(uri) == (1, [2])


@pytest.mark.contract("X2", "X3")
@pytest.mark.parametrize("step", STEPS)
def test_on_an_s3_server_pylance_completes_what_conroi_left(
    step: str, seaweedfs: S3Server, moto: S3Server, aws: None
) -> None:
    """The store is DynamoDB, which pylance knows too."""
    store = dynamodb_address(moto.endpoint)
    options = {**seaweedfs.options, "dynamodb_endpoint": moto.endpoint}
    uri = seaweedfs.new_uri()
    conroi.create_table(uri, [{"row": 1}], store=store, storage_options=options)
    killed(Job(uri, store, step, options=options))
    assert rows_by_pylance(uri, options) == ((2, [1, 2]) if is_final(step) else (1, [1]))
    through_store = f"s3+ddb{uri.removeprefix('s3')}?ddbTableName={store.removeprefix('dynamodb://').partition('?')[0]}"
    expected = (2, [1, 2]) if is_committed(step) else (1, [1])
    assert rows_by_pylance(through_store, options) == expected
    assert rows_by_pylance(uri, options) == expected, "which pylance has completed"
    table = conroi.open_table(uri, store=store, storage_options=options)
    assert rows(table.append([{"row": 3}])) == [*expected[1], 3]
