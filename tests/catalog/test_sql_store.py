"""What is particular to a history in a SQL database: looks at the head, lost answers, times, interrupts."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

import conroi
from conroi.catalog.sql_tables import LakeTables, open_lake_tables
from conroi.environment import SystemEnvironment
from conroi.locks.postgres import postgres_lock
from conroi.reader import Reader
from conroi.storage.objects import Objects
from conroi.storage.postgres import PostgresDatabase
from conroi.storage.sqlite import SqliteDatabase
from conroi.testing import Fault, Request, call_after, call_before, connect_through, fail, lose_answer
from conroi.versions.retention import other_ages
from tests.support.databases import PostgresServer, sql_address
from tests.support.lake_tables import FaultyTables
from tests.support.proxy import Mood, proxy_to

SOON = timedelta(0)


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest) -> str:
    return sql_address(request.param, request)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


def same(objects: Objects) -> Objects:
    return objects


def faulty(uri: str, store: str, faults: Sequence[Fault]) -> conroi.Lake:
    """A client of the lake whose statements meet these faults, from when it is open."""
    tables: list[FaultyTables] = []

    def wrap(inner: LakeTables) -> LakeTables:
        tables.append(FaultyTables(inner))
        return tables[0]

    lake = connect_through(uri, same, store=store, wrap_store=wrap)
    tables[0].plan = FaultyTables(tables[0].inner, faults).plan
    return lake


def ids(table: Reader) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())  # pyright: ignore[reportArgumentType]


def files_of(uri: str) -> set[str]:
    return {str(path) for path in Path(uri).rglob("*") if path.is_file()}


def expire(lake: conroi.Lake) -> None:
    """Forget all versions but the newest, whatever their age."""
    with other_ages(0, 0):
        lake.expire(SOON, keep=1, dry_run=False)


# ------------------------------------------------------------------------------------ looks


@pytest.mark.contract("X7")
@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_a_lake_that_was_idle_while_versions_expired_loads_again(store: str, uri: str, isolation: str) -> None:
    """F1: the state must not be followed over a gap; the next commit would lose the rows of others."""
    idle = conroi.connect(uri, store=store)
    idle.create_table("t", [{"id": 1}])
    other = conroi.connect(uri, store=store)
    other["t"].append([{"id": 2}])
    other["t"].append([{"id": 3}])
    other.create_table("u", [{"id": 1}])
    expire(other)
    tx = idle.begin(isolation=isolation)  # pyright: ignore[reportArgumentType]
    assert (tx.base_version, ids(tx["t"])) == (4, [1, 2, 3])
    idle["t"].append([{"id": 9}])
    assert ids(conroi.connect(uri, store=store)["t"]) == [1, 2, 3, 9]
    other["t"].append([{"id": 10}])
    assert ids(conroi.connect(uri, store=store)["t"]) == [1, 2, 3, 9, 10]
    assert other.doctor().is_healthy


@pytest.mark.contract("X7")
@pytest.mark.parametrize("look", ["open", "refresh", "at", "as_of"])
def test_a_client_that_pauses_at_any_statement_of_a_look_sees_one_state(store: str, uri: str, look: str) -> None:
    """F1: number, rows and commit are read together, so others may commit and expire at any point in between."""
    lake = conroi.connect(uri, store=store)
    lake.create_table("t", [{"id": 1}])
    lake.create_table("u", [{"id": 1}])
    other = conroi.connect(uri, store=store)

    def concurrent_commit(_request: Request) -> None:
        other["t"].append([{"id": 2}])
        other.create_table(f"x{other.version}", [{"id": 1}])
        expire(other)

    for number in range(10):
        before = other.version
        client = faulty(uri, store, [call_after(concurrent_commit, "ask", skip=number)])
        if look == "open":
            state = client.catalog.heads.newest(None).state
        elif look == "refresh":
            state = client.catalog.state()
        elif look == "at":
            state = client.catalog.heads.at(before)
        else:
            state = client.catalog.heads.as_of("2100-01-01T00:00:00+00:00")
        tables = {row.object_id for row in state.tables()}
        assert {"t", "u"} <= tables, f"paused after statement {number + 1}: {tables}"
        if other.version == before:  # it needed fewer statements than that
            break
        assert state.version in (before, other.version)
    else:
        raise AssertionError("it never ended")
    assert number >= 1, "it did pause"


@pytest.mark.contract("X7")
def test_a_database_that_was_set_back_is_noticed(store: str, uri: str) -> None:
    lake = conroi.connect(uri, store=store)
    lake.create_table("t", [{"id": 1}])
    lake["t"].append([{"id": 2}])
    execute(store, "UPDATE conroi_lakes SET version = 1")
    execute(store, "DELETE FROM conroi_lake_commits WHERE version = 2")
    with pytest.raises(conroi.CorruptionError, match="version 1 of the lake as its newest"):
        _ = lake.version


# ------------------------------------------------------------------------------------ lost answers


@pytest.mark.contract("X8", "T11")
@pytest.mark.parametrize("fault", [lose_answer("publish"), fail("publish"), fail("publish", times=2)])
def test_a_publication_without_an_answer_lands_once(store: str, uri: str, fault: Fault) -> None:
    conroi.connect(uri, store=store).create_table("t", [{"id": 1}])
    client = faulty(uri, store, [fault])
    client["t"].append([{"id": 2}])
    other = conroi.connect(uri, store=store)
    assert (other.version, ids(other["t"])) == (2, [1, 2])


@pytest.mark.contract("X8", "T11")
@pytest.mark.parametrize("how", [lose_answer, fail])
def test_a_store_that_stays_silent_leaves_the_outcome_unknown(store: str, uri: str, how: Callable[..., Fault]) -> None:
    conroi.connect(uri, store=store).create_table("t", [{"id": 1}])
    client = faulty(uri, store, [how("publish", times=None)])

    def append(lake: conroi.Lake) -> conroi.TransactionResult:
        with lake.begin(idempotency_key="once") as tx:
            tx["t"].append([{"id": 2}])
        return tx.result

    before = files_of(uri)
    with pytest.raises(conroi.CommitStateUnknown) as unknown:
        append(client)
    assert unknown.value.version is None, "others may have taken the next number"
    assert before < files_of(uri), "nothing is deleted"
    other = conroi.connect(uri, store=store)
    has_landed = how is lose_answer
    assert (other.version, ids(other["t"])) == ((2, [1, 2]) if has_landed else (1, [1]))
    assert append(other).was_done_before == has_landed
    assert ids(other["t"]) == [1, 2], "done once, whatever became of the first time"


@pytest.mark.contract("X8", "T11")
@pytest.mark.parametrize("has_landed", [True, False])
def test_a_refusal_after_a_lost_answer_leaves_the_outcome_unknown(store: str, uri: str, has_landed: bool) -> None:
    """The store executed the publication, or will, and refuses whatever comes next (read-only after a failover)."""
    conroi.connect(uri, store=store).create_table("t", [{"id": 1}])

    def refuse(_request: Request) -> None:
        raise conroi.StoreError("cannot execute UPDATE in a read-only transaction (injected)")

    first = lose_answer("publish") if has_landed else fail("publish")
    table = faulty(uri, store, [first, call_before(refuse, "publish", times=None)])["t"]
    with pytest.raises(conroi.CommitStateUnknown) as unknown:
        table.append([{"id": 2}])
    assert unknown.value.transaction_uuid is not None
    other = conroi.connect(uri, store=store)
    assert (other.version, ids(other["t"])) == ((2, [1, 2]) if has_landed else (1, [1]))


@pytest.mark.contract("X8", "T11")
def test_a_lost_answer_and_a_collected_version_leave_the_outcome_unknown(store: str, uri: str) -> None:
    """F1, F12: a commit of ours that was collected is not one that never landed."""
    conroi.connect(uri, store=store).create_table("t", [{"id": 1}])
    other = conroi.connect(uri, store=store)

    def others(_request: Request) -> None:
        other["t"].append([{"id": 3}])
        expire(other)
        raise conroi.StoreUnavailable("no answer (injected)")

    client = faulty(uri, store, [call_after(others, "publish")])
    with pytest.raises(conroi.CommitStateUnknown, match="collected"):
        client["t"].append([{"id": 2}])
    assert ids(conroi.connect(uri, store=store)["t"]) == [1, 2, 3]


@pytest.mark.contract("X8", "T11")
def test_others_that_were_first_after_a_lost_request_are_rebased_over(store: str, uri: str) -> None:
    conroi.connect(uri, store=store).create_table("t", [{"id": 1}])
    other = conroi.connect(uri, store=store)

    def others(_request: Request) -> None:
        other["t"].append([{"id": 3}])
        raise conroi.StoreUnavailable("no answer (injected)")

    faulty(uri, store, [call_before(others, "publish")])["t"].append([{"id": 2}])
    assert ids(conroi.connect(uri, store=store)["t"]) == [1, 2, 3]


@pytest.mark.contract("X8", "T11")
def test_a_statement_that_the_server_is_still_executing_is_waited_for(postgres: PostgresServer, uri: str) -> None:
    """F13: the connection breaks while the statement waits at the server; it lands after we ask again."""
    address = postgres.new_address()
    lake = conroi.connect(uri, store=address)
    lake.create_table("t", [{"id": 1}])
    tables = open_lake_tables(address)
    held = threading.Event()
    done = threading.Event()

    def hold() -> None:
        """Another session has the head's row, so that the publication waits."""
        with postgres.connect() as connection:
            connection.execute(f"SET search_path = {address.rpartition('%3D')[2]}")  # type: ignore[arg-type]
            with connection.transaction():
                connection.execute("SELECT 1 FROM conroi_lakes FOR UPDATE")
                held.set()
                done.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(30)
    is_cut = threading.Event()

    def cut(_request: Request) -> None:
        """While the server executes the statement, the client's line is cut; a moment later it may go on."""
        waiting = (
            "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%conroi_publish_rows%'"
        )
        with postgres.connect() as connection:
            while not connection.execute(waiting).fetchall():
                time.sleep(0.01)
        line = client_tables[0].inner._database._connection  # type: ignore[attr-defined]
        with socket.socket(fileno=os.dup(line.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)
        is_cut.set()

    client_tables: list[FaultyTables] = []

    def wrap(inner: LakeTables) -> LakeTables:
        client_tables.append(FaultyTables(inner))
        return client_tables[0]

    client = connect_through(uri, same, store=address, wrap_store=wrap)
    watcher = threading.Thread(target=lambda: (cut(Request("publish", "")), time.sleep(0.3), done.set()))
    watcher.start()
    client["t"].append([{"id": 2}])
    watcher.join(30)
    holder.join(30)
    assert is_cut.is_set()
    assert ids(conroi.connect(uri, store=address)["t"]) == [1, 2]
    assert tables.ask("SELECT count(*) FROM conroi_lake_commits", []) == [(2,)]


@pytest.mark.contract("X8", "T11")
@pytest.mark.parametrize("mood", ["losing one answer", "cutting one request"])
@pytest.mark.parametrize(("verb", "skip"), [("publish", 0), ("ask", 0), ("ask", 1), ("ask", 2)])
def test_a_line_that_breaks_at_a_statement_of_a_commit(
    mood: Mood, verb: str, skip: int, postgres: PostgresServer, uri: str
) -> None:
    """On the wire: the server did what it was asked and the answer got lost, or never got the request."""
    address = postgres.new_address()
    conroi.connect(uri, store=address).create_table("t", [{"id": 1}])
    with proxy_to(postgres.port) as proxy:
        through = address.replace(f":{postgres.port}/", f":{proxy.port}/")

        def spoil(_request: Request) -> None:
            proxy.mood = mood

        client = faulty(uri, through, [call_before(spoil, verb, skip=skip)])
        client["t"].append([{"id": 2}])
        client["t"].append([{"id": 3}])
    lake = conroi.connect(uri, store=address)
    assert (lake.version, ids(lake["t"])) == (3, [1, 2, 3])


# ------------------------------------------------------------------------------------ times


class Behind(SystemEnvironment):
    """A writer whose clock is two minutes behind."""

    def now_ns(self) -> int:
        return time.time_ns() - 120 * 10**9


@pytest.mark.contract("X9")
def test_a_writer_whose_clock_is_behind_makes_no_old_versions(store: str, uri: str) -> None:
    """F3: retention compares times of the database with each other."""
    behind = conroi.connect(uri, store=store, environment=Behind())
    behind.create_table("t", [{"id": 1}])
    behind.create_table("u", [{"id": 1}])
    reader = conroi.connect(uri, store=store)
    reader["t"].count_rows()
    behind["t"].append([{"id": 2}])
    behind["u"].append([{"id": 2}])
    for lake in (behind, reader):
        assert lake.expire(timedelta(seconds=60), keep=1, dry_run=False).removed == ()
        assert lake.expire(timedelta(seconds=60), keep=1, dry_run=True).removed == ()
    assert ids(reader["t"]) == [1, 2]


class Ahead(SystemEnvironment):
    """A collector whose clock is an hour ahead."""

    def now_ns(self) -> int:
        return time.time_ns() + 3600 * 10**9


@pytest.mark.contract("X9")
def test_a_collector_whose_clock_is_ahead_collects_nothing_young(store: str, uri: str) -> None:
    lake = conroi.connect(uri, store=store)
    lake.create_table("t", [{"id": 1}])
    lake["t"].append([{"id": 2}])
    ahead = conroi.connect(uri, store=store, environment=Ahead())
    assert ahead.expire(timedelta(seconds=60), keep=1, dry_run=False).removed == ()


@pytest.mark.contract("X9")
def test_times_of_versions_grow_and_find_them(store: str, uri: str) -> None:
    lake = conroi.connect(uri, store=store)
    lake.create_table("t", [{"id": 0}])
    behind = conroi.connect(uri, store=store, environment=Behind())
    for number in range(1, 6):
        (lake if number % 2 else behind)["t"].append([{"id": number}])
    history = list(reversed(lake.history()))
    times = [commit.timestamp for commit in history]
    assert times == sorted(set(times))
    assert abs(times[-1].timestamp() - time.time()) < 60
    for commit in history:
        assert lake.at(as_of=commit.timestamp).version == commit.version


@pytest.mark.contract("X9")
def test_a_database_clock_that_was_set_back_keeps_times_growing(store: str, uri: str) -> None:
    lake = conroi.connect(uri, store=store)
    lake.create_table("t", [{"id": 0}])
    later = 10**9 * (round(time.time()) + 3600)
    execute(store, f"UPDATE conroi_lake_commits SET timestamp_ns = {later}")
    lake["t"].append([{"id": 1}])
    newest, oldest = conroi.connect(uri, store=store).history()
    assert newest.timestamp - oldest.timestamp == timedelta(microseconds=1)


def execute(store: str, *statements: str) -> None:
    """Past conroi, straight in the database."""
    if store.startswith("sqlite"):
        connection = sqlite3.connect(store.removeprefix("sqlite:///"))
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()
        return
    import psycopg

    with psycopg.connect(store, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------ interrupts


def interrupted_after(seconds: float, work: Callable[[], object]) -> None:
    """What Ctrl-C does, after so long; work that is through by then is left alone."""
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            work()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        pass


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """The alarm raises KeyboardInterrupt."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.contract("X10")
@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupt_in_the_middle_of_anything_leaves_a_lake_that_works(store: str, uri: str) -> None:
    """F8: Ctrl-C closes the connection it came in on; the same Lake goes on with another one."""
    lake = conroi.connect(uri, store=store)
    lake.create_table("t", [{"id": 0}])

    def work() -> None:
        _ = [lake.version for _ in range(10)]
        lake["t"].append([{"id": -1}])

    for number in range(20):
        interrupted_after(0.0003 + 0.001 * number, work)
        assert lake.version >= 1, f"round {number}"
    for number in range(1, 4):
        lake["t"].append([{"id": number}])
    other = conroi.connect(uri, store=store)
    assert [each for each in ids(other["t"]) if each >= 0] == [0, 1, 2, 3]
    assert other.doctor().is_healthy


@pytest.mark.contract("X10")
@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupt_during_a_statement_of_postgresql_costs_only_its_connection(postgres: PostgresServer) -> None:
    """Also of single tables' records and of locks, which have the same class underneath."""
    database = PostgresDatabase(postgres.new_address())
    slow = "SELECT pg_sleep(5)"

    def transact() -> None:
        with database.transaction() as run:
            run("CREATE TABLE half (n int)", ())
            run(slow, ())

    for work in (lambda: database.call(slow), transact):
        interrupted_after(0.2, work)
        assert database.call("SELECT 1") == [(1,)]
        assert database.call("SELECT to_regclass('half')") == [(None,)]
    lock = postgres_lock(postgres.address(), "t")

    def lock_twice() -> None:
        with lock(1), lock(2):  # another connection, which waits for the first
            raise AssertionError("two holders")

    interrupted_after(0.3, lock_twice)
    with lock(3) as held:
        held.confirm()


@pytest.mark.contract("X10")
@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupt_during_a_transaction_of_sqlite_lets_go_of_the_database(tmp_path: Path) -> None:
    database = SqliteDatabase(str(tmp_path / "one.db"))
    endless = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 100) SELECT i FROM n"

    def work() -> None:
        with database.transaction() as connection:
            for _ in range(20):
                connection.execute(endless).fetchall()

    for number in range(40):
        interrupted_after(0.0001 + 0.00005 * number, work)
        other = SqliteDatabase(str(tmp_path / "one.db"), timeout_s=2)
        with other.transaction() as connection:  # its lock is free again
            connection.execute("CREATE TABLE IF NOT EXISTS t (n INTEGER)")
            connection.execute("INSERT INTO t VALUES (?)", (number,))
        other.close()
        assert database.read("SELECT max(n) FROM t") == [(number,)]


@pytest.mark.contract("X10")
def test_a_transaction_that_an_interrupt_left_open_is_ended_by_the_next_call(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    """Between two statements an interrupt can come anywhere, also before our own code takes hold of it."""
    lite, server = SqliteDatabase(str(tmp_path / "one.db")), PostgresDatabase(postgres.new_address())
    lite.read("SELECT 1")
    lite._connection.execute("BEGIN IMMEDIATE")  # type: ignore[union-attr]
    with lite.transaction() as connection:
        connection.execute("CREATE TABLE t (n INTEGER)")
    assert SqliteDatabase(str(tmp_path / "one.db")).read("SELECT count(*) FROM t") == [(0,)]
    server.call("SELECT 1")
    server._connection.execute("BEGIN")  # type: ignore[union-attr]
    server.call("CREATE TABLE t (n INTEGER)")
    server.close()
    assert server.call("SELECT count(*) FROM t") == [(0,)]


# ------------------------------------------------------------------------------------ forks


def in_a_child(work: Callable[[], object]) -> None:
    """The work in a forked process, which must end well, and soon."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)  # a child that hangs is killed
        try:
            work()
            os._exit(0)
        except BaseException:  # noqa: BLE001
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.contract("X10")
def test_a_fork_while_another_thread_is_in_a_statement(tmp_path: Path, postgres: PostgresServer) -> None:
    """The thread and its lock do not exist in the child, which opens a connection of its own."""
    lite, server = SqliteDatabase(str(tmp_path / "one.db")), PostgresDatabase(postgres.new_address())
    with lite.transaction() as connection:
        connection.execute("CREATE TABLE t (n INTEGER)")
    server.call("SELECT 1")
    is_inside, is_done = threading.Event(), threading.Event()

    def hold() -> None:
        with lite.transaction() as connection, server.transaction() as run:
            connection.execute("SELECT 1")
            run("SELECT 1", ())
            is_inside.set()
            is_done.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    assert is_inside.wait(30)
    in_a_child(lambda: (lite.read("SELECT count(*) FROM t"), server.call("SELECT 1")))
    is_done.set()
    holder.join(30)
    with lite.transaction() as connection:
        connection.execute("INSERT INTO t VALUES (1)")
    assert server.call("SELECT 1") == [(1,)]
