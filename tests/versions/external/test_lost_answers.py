"""The storage or the store fails, or its answer gets lost, at any request of a commit: nothing is lost or doubled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import conroi
from conroi.environment import SYSTEM
from conroi.errors import CommitStateUnknown, StoreError, StoreUnavailable
from conroi.history import find
from conroi.snapshots.snapshot import TableStorage
from conroi.storage import open_objects
from conroi.testing import Fault, FaultyObjects, Request, call_after, call_before, fail, lose_answer
from conroi.versions import open_records
from conroi.versions.external import ExternalVersions
from tests.support.external_crashes import FINAL, STAGED
from tests.support.external_tables import faulty_table, rows, rows_by_pylance, staged_files

pytestmark = pytest.mark.contract("T11")


@pytest.fixture
def uri(store: str, tmp_path: Path) -> Path:
    conroi.create_table(tmp_path / "t.lance", [{"row": 1}], store=store)
    return tmp_path / "t.lance"


AT_STORAGE = [("put", STAGED), ("put_if_absent", FINAL), ("delete", STAGED)]


@pytest.mark.parametrize("kind", [fail, lose_answer])
@pytest.mark.parametrize("verb", ["put_if_absent", "point"])
def test_one_failure_of_the_store_does_not_show(verb: str, kind: Callable[..., Fault], uri: Path, store: str) -> None:
    table, _, records = faulty_table(uri, store, at_store=[kind(verb)])
    done = table.append([{"row": 2}])
    assert len(records.hits) == 1
    assert (done.version, rows(done)) == (2, [1, 2])
    assert rows(conroi.open_table(uri, store=store).append([{"row": 3}])) == [1, 2, 3]
    assert rows_by_pylance(uri) == (3, [1, 2, 3])
    is_pointer_unknown = kind is lose_answer and verb == "point"
    assert len(staged_files(uri)) == is_pointer_unknown, "deleted only when the pointer is known to have moved"


@pytest.mark.parametrize("kind", [fail, lose_answer])
@pytest.mark.parametrize(("verb", "path"), AT_STORAGE[1:])
def test_one_failure_of_the_storage_does_not_show(
    verb: str, path: str, kind: Callable[..., Fault], uri: Path, store: str
) -> None:
    table, objects, _ = faulty_table(uri, store, at_storage=[kind(verb, path)])
    done = table.append([{"row": 2}])
    assert len(objects.hits) == 1
    assert (done.version, rows(done)) == (2, [1, 2])
    assert rows_by_pylance(uri) == (2, [1, 2])


@pytest.mark.parametrize("kind", [fail, lose_answer])
@pytest.mark.parametrize("at_store", ["", "put_if_absent", "point"])
def test_on_a_disk_the_staged_manifest_is_renamed(
    kind: Callable[..., Fault], at_store: str, uri: Path, store: str
) -> None:
    """The last step but one; one failure of it, or of a request to the store, does not show."""
    at_storage = [] if at_store else [kind("rename_if_absent", FINAL)]
    table, objects, records = faulty_table(uri, store, at_storage, [kind(at_store)] if at_store else [], is_cloud=False)
    done = table.append([{"row": 2}])
    assert len(objects.hits) + len(records.hits) == 1
    assert (done.version, rows(done)) == (2, [1, 2])
    assert rows_by_pylance(uri) == (2, [1, 2])
    assert rows(conroi.open_table(uri, store=store).append([{"row": 3}])) == [1, 2, 3]
    assert staged_files(uri) == []


def test_a_store_that_stays_silent_leaves_the_outcome_unknown_and_deletes_nothing(uri: Path, store: str) -> None:
    silence = fail("put_if_absent", times=None)
    table, _, _ = faulty_table(uri, store, at_store=[silence])
    with pytest.raises(CommitStateUnknown) as caught:
        table.append([{"row": 2}])
    assert caught.value.version == 2
    assert len(staged_files(uri)) == 1, "it may still be what a record on its way names"
    assert rows(conroi.open_table(uri, store=store)) == [1]
    assert rows(conroi.open_table(uri, store=store).append([{"row": 2}])) == [1, 2]


def test_an_unknown_outcome_that_did_land_is_found_in_the_history(uri: Path, store: str) -> None:
    table, _, _ = faulty_table(
        uri, store, [fail("put_if_absent", FINAL, times=None)], [lose_answer("put_if_absent", times=None)]
    )
    with pytest.raises(CommitStateUnknown) as caught:
        table.append([{"row": 2}])
    there = conroi.open_table(uri, store=store)
    assert caught.value.transaction_uuid in {commit.transaction_uuid for commit in there.history()}
    assert rows(there) == [1, 2]
    assert rows_by_pylance(uri) == (2, [1, 2])


def test_a_storage_that_refuses_the_final_name_leaves_the_outcome_unknown(uri: Path, store: str) -> None:
    """The version is recorded, so the next writer will complete it: that is no refusal."""
    table, _, _ = faulty_table(uri, store, [refuse("put_if_absent"), refuse("put", FINAL)])
    with pytest.raises(CommitStateUnknown):
        table.append([{"row": 2}])
    assert rows(conroi.open_table(uri, store=store)) == [1, 2]


def test_a_refusal_of_the_store_is_an_answer(uri: Path, store: str) -> None:
    table, _, records = faulty_table(uri, store, at_store=[refuse("put_if_absent")])
    with pytest.raises(StoreError, match="permission denied") as caught:
        table.append([{"row": 2}])
    assert type(caught.value) is StoreError
    assert (len(records.hits), staged_files(uri)) == (1, [])
    assert rows(conroi.open_table(uri, store=store)) == [1]


def test_an_error_before_the_record_leaves_the_table_as_it_was(uri: Path, store: str) -> None:
    table, _, _ = faulty_table(uri, store, [fail("put", "_transactions/*", times=None)])
    with pytest.raises(StoreUnavailable):
        table.append([{"row": 2}])
    assert rows(conroi.open_table(uri, store=store)) == [1]


def test_a_concurrent_writer_may_take_the_version_while_the_answer_is_lost(uri: Path, store: str) -> None:
    def let_another_in(_request: Request) -> None:
        conroi.open_table(uri, store=store).append([{"row": 9}])
        raise StoreUnavailable("never arrived")

    table, _, records = faulty_table(uri, store, at_store=[call_before(let_another_in, "put_if_absent")])
    done = table.append([{"row": 2}])
    assert (done.version, rows(done), len(records.hits)) == (3, [1, 2, 9], 1)


def test_others_may_go_on_from_a_version_whose_answer_is_lost(uri: Path, store: str) -> None:
    def go_on(_request: Request) -> None:
        conroi.open_table(uri, store=store).append([{"row": 9}])
        raise StoreUnavailable("no answer")

    table, _, records = faulty_table(uri, store, at_store=[call_after(go_on, "put_if_absent")])
    done = table.append([{"row": 2}])
    assert (done.version, rows(done), len(records.hits)) == (2, [1, 2], 1)
    assert rows(conroi.open_table(uri, store=store)) == [1, 2, 9]


@pytest.mark.contract("X2")
def test_a_reader_that_cannot_complete_a_version_refuses(uri: Path, store: str) -> None:
    key = open_records(store).key_of(conroi.open_table(uri)._files.objects)
    leave_unfinished(uri, store)
    record = open_records(store).newest(key)
    for fault, kind in ((refuse("put*"), StoreError), (fail("put*", times=None), StoreUnavailable)):
        with pytest.raises(StoreError, match="Version 2 is committed but not yet under its final name") as caught:
            reader(uri, store, fault).latest()
        assert type(caught.value) is kind
        assert "may write" in (caught.value.hint or "")
        assert open_records(store).newest(key) == record
    assert rows(conroi.open_table(uri, version=1, store=store)) == [1], "the version before it opens by its number"
    assert rows(conroi.open_table(uri, store=store)) == [1, 2]


def reader(uri: Path, store: str, fault: Fault) -> conroi.Table:
    """A table opened at its first version, on storage with a fault."""
    objects = FaultyObjects(open_objects(uri), [fault])
    files = TableStorage(objects, ExternalVersions(objects, open_records(store)), SYSTEM)
    return conroi.Table(files, find(files, 1))


def leave_unfinished(uri: Path, store: str) -> None:
    table, _, _ = faulty_table(uri, store, [fail("put_if_absent", FINAL, times=None)])
    with pytest.raises(CommitStateUnknown):
        table.append([{"row": 2}])


def refuse(verb: str, path: str = "*") -> Fault:
    return call_before(_permission_denied, verb, path, times=None)


def _permission_denied(_request: Request) -> None:
    raise StoreError("permission denied", hint="ask the owner")
