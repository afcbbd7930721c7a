"""The copy of a lake's newest states in its folder: what is written, what is deleted, and what can be read."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime

import pytest

from conroi.catalog.folders import Marker
from conroi.catalog.replica_store import FULL_EVERY, CopiedCommit, LakeCopy, ReplicaStore
from conroi.catalog.state import CommitMetadata
from conroi.catalog.store import Dependencies
from conroi.errors import CorruptionError, InvalidInputError, NotFoundError
from conroi.format.on_disk import REPLICA_DIR
from conroi.storage import open_objects
from conroi.storage.objects import Objects
from conroi.testing import CountingObjects, FaultyObjects, SeededEnvironment, fail

T, U = ["table", "t.lance", None, None], ["table", "u.lance", None, None]


@pytest.fixture
def objects() -> Objects:
    return open_objects(f"memory://{uuid.uuid4().hex}")


def path(version: int) -> str:
    return f"{REPLICA_DIR}/{version:020d}.json"


def full(version: int, **rows: list[str | None]) -> CopiedCommit:
    return CopiedCommit(version, 1_000 * version, f"uuid-{version}", {"k": "v"}, {}, rows)


def changed(version: int, **changes: list[str | None] | None) -> CopiedCommit:
    return CopiedCommit(version, 1_000 * version, f"uuid-{version}", {"k": "v"}, changes)


def copy_of(objects: Objects, *commits: CopiedCommit) -> LakeCopy:
    copy = LakeCopy(objects, "lake")
    for commit in commits:
        copy.add(commit)
    return copy


def rows_by_version(copy: LakeCopy) -> dict[int, dict[str, object]]:
    return {commit.version: dict(commit.rows or {}) for commit in copy.chain()}


def store_on(objects: Objects) -> ReplicaStore:
    return ReplicaStore(objects, Marker("sqlite", "lake"), SeededEnvironment(1))


def test_the_newest_versions_are_those_since_the_last_one_with_all_rows(objects: Objects) -> None:
    copy = copy_of(objects, full(3), full(4, t=T), changed(5, u=U), changed(6, t=None))
    assert rows_by_version(copy) == {4: {"t": T}, 5: {"t": T, "u": U}, 6: {"u": U}}
    content = json.loads(objects.get(path(5)))
    del content["conroi.checksum"]
    assert content == {
        "lake": "lake",
        "version": 5,
        "timestamp_ns": 5_000,
        "uuid": "uuid-5",
        "notes": {"k": "v"},
        "changes": {"u": U},
    }


def test_files_of_another_lake_and_those_after_a_gap_do_not_count(objects: Objects) -> None:
    copy = copy_of(objects, full(4, t=T), changed(5, u=U), changed(7, t=None))
    assert rows_by_version(copy) == {4: {"t": T}, 5: {"t": T, "u": U}}
    LakeCopy(objects, "other").add(full(6))
    assert rows_by_version(copy) == {4: {"t": T}, 5: {"t": T, "u": U}}
    objects.put(f"{REPLICA_DIR}/00000000000000000009.tmp", b"")
    objects.put(f"{REPLICA_DIR}/readme.json", b"")
    assert rows_by_version(copy) == {4: {"t": T}, 5: {"t": T, "u": U}}
    objects.delete([path(4)])
    assert rows_by_version(copy) == {}
    copy.replace(full(2, u=U))
    assert rows_by_version(copy) == {2: {"u": U}}
    assert objects.head(path(5)) is objects.head(path(7)) is None


def test_a_version_with_all_rows_deletes_those_that_are_much_older(objects: Objects) -> None:
    copy = copy_of(objects, *(full(version) for version in range(1, 4)))
    copy.add(changed(FULL_EVERY + 3))
    assert objects.head(path(1)) is not None
    copy.add(full(FULL_EVERY + 3))
    kept = [version for version in range(1, FULL_EVERY + 4) if objects.head(path(version)) is not None]
    assert kept == [3, FULL_EVERY + 3]


def test_a_version_is_written_once_and_then_known(objects: Objects) -> None:
    counted = CountingObjects(objects)
    copy = LakeCopy(counted, "lake")
    with counted.measure() as first:
        copy.ensure(5, 5_000, {"t": T})
    with counted.measure() as second:
        copy.ensure(5, 5_000, {})
        copy.ensure(4, 4_000, {})
    assert (first.requests(), second.requests()) == (2, 0)
    LakeCopy(objects, "lake").ensure(5, 9_000, {})
    assert rows_by_version(copy) == {5: {"t": T}}
    copy.add(changed(7))
    with counted.measure() as third:
        copy.ensure(7, 7_000, {})
    assert third.requests() == 0


def test_a_file_that_cannot_be_written_is_left_to_the_next_writer(objects: Objects) -> None:
    copy = LakeCopy(FaultyObjects(objects, [fail("put*", times=1)]), "lake")
    copy.add(full(5))
    assert rows_by_version(copy) == {}
    copy.ensure(5, 5_000, {"t": T})
    assert rows_by_version(copy) == {5: {"t": T}}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"lake": "lake"}', b'{"lake": "lake", "version": "x", "timestamp_ns": 1}']
)
def test_a_damaged_file_is_told(objects: Objects, content: bytes) -> None:
    objects.put(path(5), content)
    with pytest.raises(CorruptionError, match=path(5)):
        LakeCopy(objects, "lake").chain()


def test_files_that_disappear_under_a_reader_again_and_again_are_told(objects: Objects) -> None:
    class Vanishing(CountingObjects):
        def get(self, path: str) -> bytes:
            super().get(path)
            raise NotFoundError("It was deleted.", hint="Look again.")

    copy_of(objects, full(5))
    vanishing = Vanishing(objects)
    with pytest.raises(CorruptionError, match="gaps"), vanishing.measure() as counts:
        LakeCopy(vanishing, "lake").chain()
    assert counts.requests("get") == 3


# ------------------------------------------------------------------------------- read without the store


def test_the_states_of_the_folder_are_read_by_number_and_time(objects: Objects) -> None:
    copy_of(objects, full(4, t=T), changed(5, u=U), changed(6, t=None))
    store = store_on(objects)
    newest = store.newest(None)
    assert (newest.state.version, sorted(newest.state.rows), newest.is_complete) == (6, ["u"], True)
    assert sorted(store.at(5).rows) == ["t", "u"]
    assert [store.as_of(datetime.fromtimestamp(ns / 1e9, UTC)).version for ns in (4_000, 5_000, 9_000)] == [4, 5, 6]
    for missing in (lambda: store.at(3), lambda: store.at(7), lambda: store.as_of("1969-01-01T00:00:00Z")):
        with pytest.raises(NotFoundError, match="only its store"):
            missing()


def test_a_state_that_is_known_is_not_made_again(objects: Objects) -> None:
    copy = copy_of(objects, full(4, t=T))
    store = store_on(objects)
    known = store.newest(None).state
    assert store.newest(known).state is known
    assert (store.has_moved(known, 0), store.has_moved(known, 1)) == (True, False)
    copy.add(changed(5, u=U))
    copy.add(changed(6, u=None))
    assert [store.has_moved(known, versions) for versions in (1, 2, 3)] == [True, True, False]
    seen = store.newest(known)
    assert (seen.state.version, seen.is_complete) == (6, False), "what came in between may be missing"
    older = store.at(5)
    assert store.newest(seen.state).state is seen.state
    assert store.newest(older).state.version == 6


def test_the_history_of_the_folder_is_listed_newest_first(objects: Objects) -> None:
    copy = copy_of(objects, full(4, t=T), changed(5, u=U), changed(6, t=None))
    copy.replace(CopiedCommit(6, 6_000, None, {"__conroi_idempotency_key": "k"}, None, {"t": T}))
    store = store_on(objects)
    (newest,) = store.history(6, None)
    assert (newest.version, newest.uuid, newest.changes, newest.operation) == (6, None, None, "Unknown")

    copy_of(objects, full(7, t=T), changed(8, u=U, t=None), changed(9))
    assert [each.version for each in store.history(9, None)] == [9, 8, 7]
    assert [each.version for each in store.history(8, 1)] == [8]
    (eighth,) = store.history(8, 1)
    assert (eighth.uuid, eighth.operation) == ("uuid-8", "Update")
    assert {key: row and row.location for key, row in (eighth.changes or {}).items()} == {"u": "u.lance", "t": None}


def test_an_idempotency_key_is_found_in_the_folder(objects: Objects) -> None:
    notes = CommitMetadata(idempotency_key="key").to_properties()
    copy_of(objects, full(4, t=T), CopiedCommit(5, 5_000, "uuid-5", notes, {}), changed(6))
    found = store_on(objects).published_as("key")
    assert found is not None
    assert found.version == 5
    assert store_on(objects).published_as("other") is None


def test_a_lake_without_its_store_can_only_be_read(objects: Objects) -> None:
    store = store_on(objects)
    with pytest.raises(InvalidInputError, match="has no copy"):
        store.newest(None)
    copy_of(objects, full(4, t=T))
    state = store.newest(None).state
    refused = [
        store.priority_token,
        lambda: store.build(state, {}, CommitMetadata(), "uuid", Dependencies),
        lambda: store.will_try("key", 5),
    ]
    for call in refused:
        with pytest.raises(InvalidInputError, match="can only be read"):
            call()
