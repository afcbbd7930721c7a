"""The publish statement of SQL stores, on each database: what it compares, what it returns, what comes late."""

from __future__ import annotations

import threading
import time

import pytest

from conroi.catalog.sql_publication import MOST_BETWEEN, Answer, Outcome, RowPublication
from conroi.catalog.sql_queries import LakeCommit, LakeQueries
from conroi.catalog.sql_tables import LakeTables, open_lake_tables
from conroi.catalog.store import Dependencies
from tests.support.databases import PostgresServer, sql_address

pytestmark = pytest.mark.contract("X13")

ROOT = "/lakes/one"
A, A2, B, C = '["table","a"]', '["table","a2"]', '["table","b"]', '["table","c"]'
SPACE = '["namespace",null]'


@pytest.fixture(params=["sqlite", "postgresql"])
def tables(request: pytest.FixtureRequest) -> LakeTables:
    """A lake with the tables a and b at version 1."""
    tables = open_lake_tables(sql_address(request.param, request))
    tables.add_lake("one", ROOT)
    assert publish(tables, 0, "first", {"a": A, "b": B}).answer is Answer.PUBLISHED
    return tables


def order(
    base: int,
    uuid: str,
    rows: dict[str, str | None],
    *objects: str,
    key: str | None = None,
    listing: bool = False,
    everything: bool = False,
) -> RowPublication:
    names = ",".join(f'"{name}":null' for name in rows)
    commit = LakeCommit(0, uuid, key, "{}", f"{{{names}}}")
    return RowPublication(base, commit, rows, Dependencies(frozenset(objects), listing, everything))


def publish(
    tables: LakeTables,
    base: int,
    uuid: str,
    rows: dict[str, str | None],
    *objects: str,
    key: str | None = None,
    listing: bool = False,
    everything: bool = False,
) -> Outcome:
    wanted = order(base, uuid, rows, *objects, key=key, listing=listing, everything=everything)
    return tables.publish("one", ROOT, wanted)


def ok(tables: LakeTables, base: int, uuid: str, rows: dict[str, str | None]) -> None:
    assert publish(tables, base, uuid, rows).answer is Answer.PUBLISHED


def head(tables: LakeTables) -> int:
    found = LakeQueries(tables, "one").head()
    assert found is not None
    return found.version


def test_another_table_is_published_on_an_old_base_and_what_came_between_is_returned(tables: LakeTables) -> None:
    ok(tables, 1, "second", {"a": A2})
    ok(tables, 2, "third", {"c": C})
    done = publish(tables, 1, "fourth", {"b": '["table","b2"]'}, "x")
    assert done.answer is Answer.PUBLISHED
    assert [(commit.version, commit.uuid, commit.changes) for commit in done.commits] == [
        (2, "second", '{"a":null}'),
        (3, "third", '{"c":null}'),
        (4, "fourth", '{"b":null}'),
    ]
    times = [commit.timestamp_ns for commit in done.commits]
    assert times == sorted(set(times))
    _, loaded = LakeQueries(tables, "one").newest()
    assert loaded is not None
    assert (loaded.version, loaded.rows) == (4, {"a": A2, "b": '["table","b2"]', "c": C})
    _, before = LakeQueries(tables, "one").at(3)
    assert before is not None
    assert before.rows == {"a": A2, "b": B, "c": C}


@pytest.mark.parametrize(
    "between",
    [
        [{"a": A2}],
        [{"a": None}],
        [{"a": A2}, {"a": A}],
        [{"a": None}, {"a": A}],
    ],
)
def test_an_object_that_was_changed_since_the_base_refuses_its_writers_and_its_readers(
    tables: LakeTables, between: list[dict[str, str | None]]
) -> None:
    """Also one that looks the same now."""
    for number, rows in enumerate(between, 1):
        ok(tables, number, f"other {number}", rows)
    assert publish(tables, 1, "writer", {"a": A}) == Outcome(Answer.MOVED)
    assert publish(tables, 1, "reader", {"b": B}, "a") == Outcome(Answer.MOVED)
    assert head(tables) == 1 + len(between)
    ok(tables, 1, "no reader", {"b": B})
    assert publish(tables, head(tables), "late", {"b": B}, "a").answer is Answer.PUBLISHED


@pytest.mark.parametrize("between", [[{"c": C}], [{"c": C}, {"c": None}]])
def test_a_name_that_must_be_absent_is_compared(tables: LakeTables, between: list[dict[str, str | None]]) -> None:
    for number, rows in enumerate(between, 1):
        ok(tables, number, f"other {number}", rows)
    assert publish(tables, 1, "reader", {"b": B}, "c") == Outcome(Answer.MOVED)
    assert publish(tables, 1, "writer", {"c": C}) == Outcome(Answer.MOVED)


@pytest.mark.parametrize(
    ("rows", "answer"),
    [
        ({"a": A2}, Answer.PUBLISHED),
        ({"n": SPACE}, Answer.PUBLISHED),
        ({"c": C}, Answer.MOVED),
        ({"a": None}, Answer.MOVED),
        ({"a": SPACE}, Answer.MOVED),
    ],
)
def test_a_listing_is_compared_by_the_names_of_tables(
    tables: LakeTables, rows: dict[str, str | None], answer: Answer
) -> None:
    ok(tables, 1, "other", rows)
    assert publish(tables, 1, "lister", {"b": B}, listing=True).answer is answer


def test_a_publication_that_depends_on_everything_needs_the_head(tables: LakeTables) -> None:
    ok(tables, 1, "other", {"c": C})
    assert publish(tables, 1, "register", {"d": C}, everything=True) == Outcome(Answer.MOVED)
    assert publish(tables, 2, "register", {"d": C}, everything=True).answer is Answer.PUBLISHED


def test_a_barrier_refuses_every_older_base(tables: LakeTables) -> None:
    """Garbage collection publishes no changes, so that writers that stood still look again."""
    ok(tables, 1, "barrier", {})
    assert publish(tables, 1, "stalled", {"a": A2}) == Outcome(Answer.MOVED)
    ok(tables, 2, "looked", {"a": A2})


@pytest.mark.parametrize("collected", [1, 2, 3])
def test_a_base_that_was_collected_or_a_gap_after_it_says_nothing(tables: LakeTables, collected: int) -> None:
    ok(tables, 1, "second", {"b": None})
    ok(tables, 2, "third", {"c": C})
    ok(tables, 3, "fourth", {"c": A})
    tables.forget("one", [collected])
    assert publish(tables, 1, "late", {"a": A2}, "b") == Outcome(Answer.GAP)
    ok(tables, 4, "looked", {"a": A2})


def test_an_idempotency_key_is_compared(tables: LakeTables) -> None:
    first = publish(tables, 1, "one", {"a": A2}, key="k")
    assert first.answer is Answer.PUBLISHED
    for base in (1, 2):
        assert publish(tables, base, "other", {"b": B}, key="k") == Outcome(Answer.KEY, first.commits)
    assert publish(tables, 1, "third", {"b": B}, key="l").answer is Answer.PUBLISHED


def test_a_statement_that_is_sent_again_finds_its_own_commit(tables: LakeTables) -> None:
    first = publish(tables, 1, "mine", {"a": A2}, key="k")
    ok(tables, 2, "other", {"a": A, "b": None})
    again = publish(tables, 1, "mine", {"a": A2}, key="k")
    assert again == first
    assert [commit.version for commit in again.commits] == [2]
    assert head(tables) == 3


@pytest.mark.parametrize("rows", [{"a": A2}, {"a": None}, {}])
def test_a_statement_that_arrives_late_has_no_effect(tables: LakeTables, rows: dict[str, str | None]) -> None:
    """It was sent again meanwhile, with success; even if that commit was collected since."""
    assert publish(tables, 1, "mine", rows).answer is Answer.PUBLISHED
    ok(tables, 2, "other", {"c": C})
    assert publish(tables, 1, "mine", rows).commits[-1].version == 2
    tables.forget("one", [2])
    assert publish(tables, 1, "mine", rows) == Outcome(Answer.GAP)
    assert head(tables) == 3


def test_more_versions_than_a_caller_follows_are_not_returned(tables: LakeTables) -> None:
    for number in range(MOST_BETWEEN):
        ok(tables, number + 1, f"other {number}", {"a": f'["table","{number}"]'})
    far, near = publish(tables, 1, "far", {"b": A2}), publish(tables, 2, "near", {"c": C})
    assert [commit.version for commit in far.commits] == [MOST_BETWEEN + 2]
    assert far.commits[0].changes == '{"b":null}'
    assert [commit.version for commit in near.commits] == [MOST_BETWEEN + 3]
    assert len(publish(tables, 4, "nearer", {"d": C}).commits) == MOST_BETWEEN


def test_a_publication_that_waited_for_the_lock_compares_what_is_there_then(postgres: PostgresServer) -> None:
    """A single statement of PostgreSQL would compare the rows as they were before it waited."""
    address = postgres.new_address()
    tables, other = open_lake_tables(address), open_lake_tables(address)
    tables.add_lake("one", ROOT)
    ok(tables, 0, "first", {"a": A, "b": B})
    ok(other, 1, "warm", {"c": C})
    answers: list[Outcome] = []
    with postgres.connect() as connection:
        connection.execute(f"SET search_path = {address.rpartition('%3D')[2]}")  # type: ignore[arg-type]
        with connection.transaction():
            connection.execute("UPDATE conroi_lakes SET version = 3")
            connection.execute("UPDATE conroi_lake_rows SET until = 3 WHERE object_id = 'a'")
            connection.execute("INSERT INTO conroi_lake_rows VALUES ('one', 'a', 3, NULL, '[]')")
            connection.execute(
                "INSERT INTO conroi_lake_commits SELECT lake, 3, timestamp_ns + 1000, 'x', NULL, notes, "
                """'{"a":null}', dated_ns FROM conroi_lake_commits WHERE version = 2"""
            )
            waiting = [
                threading.Thread(target=lambda: answers.append(publish(tables, 2, "reader", {"b": B}, "a"))),
                threading.Thread(target=lambda: answers.append(publish(other, 2, "no reader", {"b": B}))),
            ]
            for thread in waiting:
                thread.start()
            count = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            with postgres.connect() as watching:
                while watching.execute(count).fetchall() != [(2,)]:
                    time.sleep(0.01)
    for thread in waiting:
        thread.join(30)
    kinds = sorted(answer.answer.value for answer in answers)
    assert kinds == ["moved", "published"]
    assert head(tables) == 4


def test_a_client_of_an_earlier_version_works_beside_it(postgres: PostgresServer) -> None:
    """Its statement compares the head, and needs no more than the tables that it knows."""
    address = postgres.new_address()
    tables = open_lake_tables(address)
    tables.add_lake("one", ROOT)
    ok(tables, 0, "first", {"a": A, "b": B})

    def earlier(base: int, uuid: str) -> int:
        """The publication of conroi 0.15, without its rows."""
        statement = (
            "WITH head AS (UPDATE conroi_lakes SET version = %(next)s WHERE lake = 'one' AND version = %(base)s "
            "RETURNING version), closed AS (UPDATE conroi_lake_rows SET until = %(next)s WHERE object_id = 'a' "
            "AND until IS NULL AND EXISTS (SELECT 1 FROM head)), added AS (INSERT INTO conroi_lake_rows "
            "SELECT 'one', 'a', version, NULL, '[]' FROM head), noted AS (INSERT INTO conroi_lake_commits "
            """SELECT 'one', version, %(next)s, %(uuid)s, NULL, '{}', '{"a":null}', 0 FROM head RETURNING 1) """
            "SELECT 1 FROM noted"
        )
        with postgres.connect() as connection:
            connection.execute(f"SET search_path = {address.rpartition('%3D')[2]}")  # type: ignore[arg-type]
            return len(
                connection.execute(statement, {"next": base + 1, "base": base, "uuid": uuid}).fetchall()  # type: ignore[arg-type]
            )

    assert earlier(1, "old") == 1
    assert publish(tables, 1, "new", {"a": A2}) == Outcome(Answer.MOVED)
    ok(tables, 1, "new", {"b": A2})
    assert earlier(2, "old again") == 0, "the head has moved"
    assert earlier(3, "old again") == 1
    components = tables.ask("SELECT component, version FROM conroi_schema ORDER BY component", [])
    assert components == [("lake functions", 1), ("lakes", 2)], "an earlier version refuses lakes of schema 3"
