"""The tables of a lake's database, statement by statement, on each database."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from conroi.catalog.rows import TABLE, Row
from conroi.catalog.sql_publication import Answer, RowPublication
from conroi.catalog.sql_queries import Head, LakeCommit, LakeQueries, LoadedState
from conroi.catalog.sql_store import PAGE, SqlStore
from conroi.catalog.sql_tables import LakeTables, SqliteLakeTables, open_lake_tables
from conroi.catalog.state import CommitMetadata, LakeState
from conroi.catalog.store import Dependencies
from conroi.environment import SYSTEM
from conroi.errors import CorruptionError, InvalidInputError, NotFoundError, VersionExpired
from conroi.storage import open_objects
from conroi.testing import SeededEnvironment
from conroi.versions.records import full_key
from tests.support.databases import sql_address

ROOT = "/lakes/one"
NOTHING = Dependencies


@pytest.fixture(params=["sqlite", "postgresql"])
def tables(request: pytest.FixtureRequest) -> LakeTables:
    return open_lake_tables(sql_address(request.param, request))


def commit_of(number: int, key: str | None = None) -> LakeCommit:
    return LakeCommit(0, f"uuid-{number}", key, "{}", f'{{"n{number}":null}}')


def wanted(base: int, rows: dict[str, str | None], key: str | None = None) -> RowPublication:
    """The publication that becomes the version after its base, if nothing else does."""
    return RowPublication(base, commit_of(base + 1, key), rows)


def published(tables: LakeTables, lake: str = "one", root: str = ROOT, versions: int = 3) -> LakeQueries:
    """A lake with a table that changes with each version, one that was there in version 2 only, and one since 3."""
    tables.add_lake(lake, root)
    for version in range(1, versions + 1):
        rows: dict[str, str | None] = {"t": f"t{version}"}
        if version in (2, 3):
            rows["u"] = "u2" if version == 2 else None
        if version == 3:
            rows["v"] = "v3"
        done = tables.publish(lake, root, wanted(version - 1, rows, "key" if version == 2 else None))
        assert done.answer is Answer.PUBLISHED
        assert [commit.version for commit in done.commits] == [version]
        assert done.commits[0].timestamp_ns > 0
    return LakeQueries(tables, lake)


def rows_of(loaded: LoadedState | None) -> dict[str, str]:
    assert loaded is not None
    return dict(loaded.rows)


def test_a_lake_begins_at_version_0_and_its_versions_are_published_one_by_one(tables: LakeTables) -> None:
    queries = LakeQueries(tables, "one")
    assert queries.head() is None
    assert (queries.newest(), queries.at(1), queries.as_of(1), queries.after(0, 9)) == (
        (None, None), (None, None), (None, None), (None, []),
    )  # fmt: skip
    tables.add_lake("one", ROOT)
    tables.add_lake("one", "/elsewhere")
    assert queries.head() == Head(0, ROOT)
    assert (queries.newest(), queries.after(0, 9)) == ((Head(0, ROOT), None), (Head(0, ROOT), []))
    assert (queries.lake_at(ROOT), queries.lake_at("/elsewhere")) == ("one", None)
    published(tables)
    assert queries.head() == Head(3, ROOT)


def test_rows_are_those_of_a_version(tables: LakeTables) -> None:
    queries = published(tables)
    published(tables, "other", "/lakes/other", versions=2)
    expected = {1: {"t": "t1"}, 2: {"t": "t2", "u": "u2"}, 3: {"t": "t3", "v": "v3"}}
    for version, rows in expected.items():
        head, loaded = queries.at(version)
        assert head == Head(3, ROOT)
        assert loaded is not None
        assert (loaded.version, rows_of(loaded)) == (version, rows)
    assert rows_of(queries.newest()[1]) == expected[3]
    assert queries.at(4) == (Head(3, ROOT), None)
    times = {commit.version: commit.timestamp_ns for commit in queries.after(0, 9)[1]}
    assert times[1] < times[2] < times[3], "also within one tick of the clock"
    for moment_ns, version in [(times[1], 1), (times[2] - 1, 1), (times[2], 2), (times[3] + 10**15, 3)]:
        assert rows_of(queries.as_of(moment_ns)[1]) == expected[version]
    assert queries.as_of(times[1] - 1) == (Head(3, ROOT), None)


def test_commits_are_found_by_number_key_and_order(tables: LakeTables) -> None:
    queries = published(tables)
    head, commits = queries.after(1, 9)
    assert head == Head(3, ROOT)
    assert [(each.version, each.uuid, each.idempotency_key, each.notes, each.changes) for each in commits] == [
        (2, "uuid-2", "key", "{}", '{"n2":null}'),
        (3, "uuid-3", None, "{}", '{"n3":null}'),
    ]
    assert [each.version for each in queries.after(1, 1)[1]] == [2]
    assert queries.after(3, 9) == (head, [])
    assert [each.version for each in queries.before(2, 9)] == [2, 1]
    assert [each.version for each in queries.before(3, 2)] == [3, 2]
    assert queries.commit(2) == commits[0] == queries.by_key("key")
    assert (queries.commit(4), queries.by_key("other")) == (None, None)


def test_a_publication_of_what_was_changed_or_elsewhere_has_no_effect(tables: LakeTables) -> None:
    queries = published(tables)
    for lake, root, base in [("one", ROOT, 2), ("one", ROOT, 4), ("one", "/elsewhere", 3), ("none", ROOT, 3)]:
        order = RowPublication(base, commit_of(9), {"t": "x"})
        assert tables.publish(lake, root, order).answer is Answer.MOVED
    assert queries.head() == Head(3, ROOT)
    assert rows_of(queries.newest()[1]) == {"t": "t3", "v": "v3"}


def test_versions_are_dated_by_the_clock_of_the_database(tables: LakeTables) -> None:
    before = LakeQueries(tables, "one").now_ns()
    queries = published(tables)
    found = queries.versions()
    assert [version for version, _ in found] == [1, 2, 3]
    assert all(before <= dated_ns <= queries.now_ns() for _, dated_ns in found)
    assert abs(before - SYSTEM.now_ns()) < 10**11


def test_old_versions_are_forgotten_with_the_rows_that_only_they_had(tables: LakeTables) -> None:
    queries = published(tables)
    published(tables, "other", "/lakes/other")
    assert sorted((key, since, until) for key, since, until, _ in queries.spans()) == [
        ("t", 1, 2), ("t", 2, 3), ("t", 3, None), ("u", 2, 3), ("v", 3, None),
    ]  # fmt: skip
    tables.forget("one", [1])
    assert [version for version, _ in queries.versions()] == [2, 3]
    assert sorted((key, since) for key, since, *_ in queries.spans()) == [("t", 2), ("t", 3), ("u", 2), ("v", 3)]
    assert queries.at(1) == (Head(3, ROOT), None)
    head, commits = queries.after(0, 9)
    assert (head, [each.version for each in commits]) == (Head(3, ROOT), [2, 3])
    tables.forget("one", [2, 3])
    assert [version for version, _ in queries.versions()] == [3], "the newest stays"
    assert rows_of(queries.newest()[1]) == {"t": "t3", "v": "v3"}
    assert len(LakeQueries(tables, "other").spans()) == 5


def test_a_lake_is_moved_and_removed_only_from_the_folder_it_is_in(tables: LakeTables) -> None:
    queries = published(tables)
    assert tables.move_lake("one", "/elsewhere", "/new") is False
    assert tables.move_lake("one", ROOT, "/new") is True
    assert queries.head() == Head(3, "/new")
    tables.remove_lake("one", ROOT)
    assert queries.head() == Head(3, "/new")
    tables.remove_lake("one", "/new")
    assert (queries.head(), queries.versions(), queries.spans()) == (None, [], [])


def test_a_database_that_stays_locked_has_taken_nothing(tmp_path: Path) -> None:
    file = tmp_path / "lake.db"
    tables = SqliteLakeTables(str(file), SeededEnvironment(1))
    queries = published(tables)
    blocker = sqlite3.connect(file, isolation_level=None)
    blocker.execute("BEGIN EXCLUSIVE")
    try:
        assert tables.publish("one", ROOT, wanted(3, {"t": "t4"})).answer is Answer.BUSY
    finally:
        blocker.close()
    assert queries.head() == Head(3, ROOT)
    assert tables.publish("one", ROOT, wanted(3, {"t": "t4"})).answer is Answer.PUBLISHED


# ------------------------------------------------------------------------------------------------ the store on them


def test_a_long_history_is_listed_page_by_page(tmp_path: Path) -> None:
    root = open_objects(str(tmp_path))
    tables = SqliteLakeTables(str(tmp_path / "lake.db"))
    store = SqlStore(tables, "one", root, SYSTEM)
    tables.add_lake("one", full_key(root))
    state = store.newest(None).state
    for number in range(PAGE + 5):
        done = store.build(state, {}, CommitMetadata(idempotency_key=f"key {number}"), f"uuid-{number}", NOTHING).put()
        assert isinstance(done, LakeState)
        state = done
    count = PAGE + 5
    assert [each.version for each in store.history(count, None)] == list(range(count, 0, -1))
    assert [each.version for each in store.history(count - 1, PAGE + 2)] == list(range(count - 1, 2, -1))
    assert [each.version for each in store.history(3, 2)] == [3, 2]
    assert list(store.history(3, 0)) == []
    tables.forget("one", [4])
    assert [each.version for each in store.history(5, None)] == [5, 3, 2, 1]
    (found,) = store.history(count, 1)
    assert (found.uuid, found.notes.idempotency_key) == (f"uuid-{count - 1}", f"key {count - 1}")
    assert [store.has_moved(state, versions) for versions in (-1, 0, 1)] == [True, True, False]
    by_key = store.published_as("key 7")
    assert by_key is not None
    assert by_key.version == 8


def test_a_reader_follows_the_commits_since_its_state_or_loads_anew(tmp_path: Path) -> None:
    root = open_objects(str(tmp_path))
    tables = SqliteLakeTables(str(tmp_path / "lake.db"))
    store = SqlStore(tables, "one", root, SYSTEM)
    tables.add_lake("one", full_key(root))
    first = store.newest(None)
    assert (first.state.version, first.state.rows, first.is_complete) == (0, {}, True)
    states = [first.state]
    for number in range(3):
        changes = {"t": Row("t", TABLE, f"{number}.lance"), f"u{number}": Row(f"u{number}", TABLE, "u.lance")}
        done = store.build(states[-1], changes, CommitMetadata(), f"uuid-{number}", NOTHING).put()
        assert isinstance(done, LakeState)
        states.append(done)
    seen = store.newest(first.state)
    assert [each.uuid for each in seen.commits] == ["uuid-0", "uuid-1", "uuid-2"]
    assert (seen.is_complete, seen.state.version, sorted(seen.state.rows)) == (True, 3, ["t", "u0", "u1", "u2"])
    assert seen.state.rows["t"].location == "2.lance"
    assert store.newest(seen.state).commits == ()
    tables.forget("one", [2])
    anew = store.newest(states[1])
    assert (anew.commits, anew.is_complete, anew.state.rows) == ((), False, seen.state.rows)
    assert store.build(states[1], {}, CommitMetadata(), "uuid-9", NOTHING).put() is None, "version 2 was collected"
    with pytest.raises(VersionExpired):
        store.at(2)
    for version in (0, 4):
        with pytest.raises(NotFoundError):
            store.at(version)
    assert store.at(3).rows == seen.state.rows


def test_a_database_that_was_set_back_or_lost_a_commit_is_told(tmp_path: Path) -> None:
    root = open_objects(str(tmp_path))
    file = tmp_path / "lake.db"
    tables = SqliteLakeTables(str(file))
    store = SqlStore(tables, "one", root, SYSTEM)
    with pytest.raises(NotFoundError, match="does not have this lake"):
        store.newest(None)
    tables.add_lake("one", full_key(root))
    state = store.build(store.newest(None).state, {}, CommitMetadata(), "uuid", NOTHING).put()
    assert isinstance(state, LakeState)
    with sqlite3.connect(file) as connection:
        connection.execute("DELETE FROM conroi_lake_commits")
    with pytest.raises(CorruptionError, match="no commit for version 1"):
        store.newest(None)
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE conroi_lakes SET version = 0")
    with pytest.raises(CorruptionError, match="version 0 of the lake as its newest, and had version 1"):
        store.newest(state)
    tables.move_lake("one", full_key(root), "/elsewhere")
    with pytest.raises(InvalidInputError, match="in another folder, /elsewhere"):
        store.newest(state)
