"""Many processes put records at the same moments; and the race of a table that is only expected."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from conroi.errors import ExpectedVersionMismatch, StoreUnavailable
from conroi.testing import FaultyRecords, Gate, Request, WrappedRecords, call_before
from conroi.versions import open_records, sql_records
from conroi.versions.records import Record, RecordStore, RecordTaken
from conroi.versions.sql_records import PostgresRecords, SqliteRecords
from tests.support.databases import PostgresServer, aws_environment, sqlite_address
from tests.support.processes import fork_context
from tests.support.record_stores import KINDS, empty_address
from tests.support.together import Meet, together

PROCESSES, PROCESSES_ON_DYNAMODB = 8, 3  # a client of boto3 takes long to start, and moto serves one at a time
PATIENCE_S = 30.0


def record(table: str, version: int, who: object = "a") -> Record:
    return Record(table, version, f"_versions/{version}.manifest-{who}", 1)


@dataclass(frozen=True)
class Puts:
    """One process's part: in each round, try to put the next version of some tables."""

    address: str
    who: int
    rounds: int
    tables: tuple[str, ...] = ("t",)
    is_atomic: bool = True


def put_rounds(job: Puts, meet: Meet) -> list[int]:
    """The rounds in which this process put its batch."""
    os.environ.update(aws_environment())  # these processes were forked from one that has no fixtures
    records: RecordStore = open_records(job.address)
    records.newest("t")  # connected, and the schema is there
    if not job.is_atomic:
        records = LooksThenPuts(records, lambda: meet())
    won: list[int] = []
    for version in range(1, job.rounds + 1):
        meet()
        try:
            records.put_if_absent([record(table, version, job.who) for table in job.tables])
        except RecordTaken:
            continue
        won.append(version)
    return won


class LooksThenPuts(WrappedRecords):
    """What a store must not be: it checks first and puts later, so that others can come in between."""

    def __init__(self, inner: RecordStore, between: Callable[[], object]) -> None:
        super().__init__(inner)
        self._between = between

    def put_if_absent(self, records: Sequence[Record], expected: Mapping[str, int] | None = None) -> None:
        for table, version in (expected or {}).items():
            newest = self.inner.newest(table)
            if (0 if newest is None else newest.version) != version:
                raise ExpectedVersionMismatch("moved", table=table, expected=version, actual=0, hint="-")
        taken = [one for one in records if self.inner.get(one.table, one.version) is not None]
        self._between()
        if taken:
            raise RecordTaken(taken[0].table, taken[0].version, None)
        for one in records:
            try:
                self.inner.put_if_absent([one])
            except RecordTaken:
                self.inner.point(one.table, one.version, one.path, one.size)


def race(address: str, rounds: int, tables: Sequence[tuple[str, ...]], *, is_atomic: bool = True) -> list[list[int]]:
    """By round, who put a batch."""
    processes = PROCESSES_ON_DYNAMODB if address.startswith("dynamodb") else PROCESSES
    jobs = [Puts(address, who, rounds, tables[who % len(tables)], is_atomic) for who in range(processes)]
    won = together(put_rounds, jobs, patience_s=120)
    return [[who for who in range(processes) if number in won[who]] for number in range(1, rounds + 1)]


@pytest.mark.contract("X5")
def test_one_of_many_processes_puts_each_version(empty_store: str) -> None:
    rounds = 5 if empty_store.startswith("dynamodb") else 25
    winners = race(empty_store, rounds, [("t",)])
    assert [len(of_round) for of_round in winners] == [1] * rounds
    assert open_records(empty_store).all("t") == [record("t", n + 1, winner) for n, (winner,) in enumerate(winners)]


@pytest.mark.contract("X5")
@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_one_of_many_processes_puts_each_of_many_versions(kind: str, request: pytest.FixtureRequest) -> None:
    rounds = 100 if kind == "dynamodb" else 1000
    winners = race(empty_address(kind, request), rounds, [("t",)])
    assert [len(of_round) for of_round in winners] == [1] * rounds


@pytest.mark.contract("X6")
def test_batches_over_the_same_tables_in_any_order_land_whole_without_a_deadlock(empty_store: str) -> None:
    rounds = 3 if empty_store.startswith("dynamodb") else 15
    winners = race(empty_store, rounds, [("t", "u", "v"), ("v", "u", "t"), ("u", "v", "t")])
    assert [len(of_round) for of_round in winners] == [1] * rounds
    records = open_records(empty_store)
    for table in "tuv":
        assert records.all(table) == [record(table, n + 1, winner) for n, (winner,) in enumerate(winners)]


def test_control_a_store_that_looks_and_then_puts_has_many_winners(empty_store: str) -> None:
    winners = race(empty_store, 2, [("t",)], is_atomic=False)
    assert max(len(of_round) for of_round in winners) > 1


# ----------------------------------------------------------------------- half a batch and kill -9


def put_and_die(job: Puts, step: int) -> None:
    """Put a batch of three, and be killed when so many of its records are written."""
    records = SqliteRecords(job.address.removeprefix("sqlite:///"))
    records.newest("t")
    inserted = 0

    def watch(statement: str) -> None:
        nonlocal inserted
        inserted += statement.startswith("INSERT INTO conroi_records")
        if inserted > step or (step == 3 and statement == "COMMIT"):
            os.kill(os.getpid(), signal.SIGKILL)

    records._database._opened().set_trace_callback(watch)
    records.put_if_absent([record(table, 1, job.who) for table in job.tables])


@pytest.mark.contract("X6")
@pytest.mark.parametrize("step", [0, 1, 2, 3])
def test_a_writer_that_dies_in_the_middle_of_a_batch_leaves_none_of_it(step: int, tmp_path: Path) -> None:
    job = Puts(sqlite_address(tmp_path), 0, 1, ("t", "u", "v"))
    process = fork_context().Process(target=put_and_die, args=(job, step))
    process.start()
    process.join(PATIENCE_S)
    assert process.exitcode == -signal.SIGKILL
    records = open_records(job.address)
    assert [records.all(table) for table in "tuv"] == [[], [], []]
    records.put_if_absent([record(table, 1, "next") for table in "tuv"])


@pytest.mark.contract("X6")
def test_a_batch_whose_client_is_gone_lands_whole_or_not_at_all(
    postgres: PostgresServer,
) -> None:
    """The client's connection is cut while its batch waits in the server, with one record of another just before it."""
    address = postgres.new_address()
    namespace = address.rpartition("%3D")[2]
    records = PostgresRecords(address, timeout_s=0.3)
    assert records.newest("t") is None
    with postgres.connect() as blocker:
        blocker.execute("BEGIN")
        blocker.execute(f"INSERT INTO {namespace}.conroi_records VALUES ('v', 1, 'x', 1)")  # type: ignore[arg-type]
        with pytest.raises(StoreUnavailable):
            records.put_if_absent([record(table, 1) for table in "tuv"])
        blocker.execute("ROLLBACK")
    found = [len(records.all(table)) for table in "tuv"]
    assert found in ([0, 0, 0], [1, 1, 1])


# ------------------------------------------------------------- a table that is only expected


def publish_while_the_expected_table_moves(ours: RecordStore, theirs: RecordStore, gate: Gate) -> list[str]:
    """A writes orders and only expects rates; between A's check and A's put, B publishes rates. What A heard."""
    theirs.put_if_absent([record("orders", 1), record("rates", 1)])

    def publish() -> str:
        rates = ours.newest("rates")
        assert rates is not None
        try:
            ours.put_if_absent([record("orders", 2)], {"orders": 1, "rates": rates.version})
        except ExpectedVersionMismatch as error:
            return f"{error.table} {error.expected} {error.actual}"
        return "landed"

    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(publish)
        gate.wait_for_arrival()
        theirs.put_if_absent([record("rates", 2)], {"rates": 1})
        gate.open()
        return [answer.result(PATIENCE_S)]


@pytest.mark.contract("P3", "X6")
def test_a_table_that_is_only_expected_cannot_move_between_check_and_put(empty_store: str) -> None:
    gate, theirs = Gate(), open_records(empty_store)
    ours = FaultyRecords(open_records(empty_store), [call_before(gate, "put_if_absent")])
    assert publish_while_the_expected_table_moves(ours, theirs, gate) == ["rates 1 2"]
    assert [found.version for found in theirs.all("orders")] == [1]


@pytest.mark.contract("P3", "X6")
def test_control_a_store_that_looks_and_then_puts_lets_it_move(empty_store: str) -> None:
    gate, theirs = Gate(), open_records(empty_store)
    ours = LooksThenPuts(open_records(empty_store), lambda: gate(Request("put_if_absent", "orders")))
    assert publish_while_the_expected_table_moves(ours, theirs, gate) == ["landed"]


@pytest.mark.contract("P3", "X6")
def test_in_postgres_a_writer_of_an_expected_table_waits_for_the_one_that_expects_it(postgres: PostgresServer) -> None:
    """A is stopped in the very middle, after its check: by a row that another writer is about to insert."""
    address = postgres.new_address()
    namespace = address.rpartition("%3D")[2]
    ours, theirs = open_records(address), cast("Any", type(open_records(address)))(address)
    ours.put_if_absent([record("orders", 1), record("rates", 1)])
    theirs.newest("rates")
    landed: list[str] = []
    with postgres.connect() as blocker, postgres.connect() as watcher, ThreadPoolExecutor(2) as threads:
        blocker.execute("BEGIN")
        blocker.execute(f"INSERT INTO {namespace}.conroi_records VALUES ('orders', 2, 'x', 1)")  # type: ignore[arg-type]

        def put(records: RecordStore, one: Record, expected: dict[str, int]) -> bool:
            """Whether A's record is there when this one has landed."""
            records.put_if_absent([one], expected)
            landed.append(one.table)
            return records.get("orders", 2) is not None

        a = threads.submit(put, ours, record("orders", 2), {"orders": 1, "rates": 1})
        wait_until(lambda: waiting(watcher) == 1)
        b = threads.submit(put, theirs, record("rates", 2), {"rates": 1})
        wait_until(lambda: waiting(watcher) == 2)
        assert landed == []
        blocker.execute("ROLLBACK")
        assert a.result(PATIENCE_S)
        assert b.result(PATIENCE_S), "B went on only when A was through"


def waiting(watcher: object) -> int:
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%%put_records%%'"
    return watcher.execute(query).fetchone()[0]  # type: ignore[attr-defined]


def wait_until(is_so: Callable[[], bool]) -> None:
    for _ in range(3000):
        if is_so():
            return
        threading.Event().wait(0.01)
    raise TimeoutError("it never was so")


@pytest.mark.contract("P3", "X6")
def test_in_sqlite_no_writer_moves_a_table_while_another_checks_and_puts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A is stopped in the very middle, between its look at the newest versions and its insert."""
    path = sqlite_address(tmp_path).removeprefix("sqlite:///")
    ours, theirs = SqliteRecords(path), SqliteRecords(path, timeout_s=0.05)
    ours.put_if_absent([record("orders", 1), record("rates", 1)])
    gate, look = Gate(), sql_records._newest

    def look_and_wait(connection: object, tables: set[str]) -> dict[str, int]:
        found = look(connection, tables)  # type: ignore[arg-type]
        if "orders" in tables:
            gate(Request("put_if_absent", "orders"))
        return found

    monkeypatch.setattr(sql_records, "_newest", look_and_wait)
    with ThreadPoolExecutor(1) as thread:
        a = thread.submit(ours.put_if_absent, [record("orders", 2)], {"orders": 1, "rates": 1})
        gate.wait_for_arrival()
        with pytest.raises(StoreUnavailable, match="others were writing"):
            theirs.put_if_absent([record("rates", 2)], {"rates": 1})
        gate.open()
        a.result(PATIENCE_S)
    theirs.put_if_absent([record("rates", 2)], {"rates": 1})
    assert [found.version for found in ours.all("orders")] == [1, 2]
