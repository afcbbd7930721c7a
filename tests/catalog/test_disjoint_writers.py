"""Writers of different tables of a lake in a SQL store never retry, and each publication is one round trip: counted."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import conroi
from conroi.catalog import publication
from conroi.catalog.participant import PublishRequest, dependencies_of
from conroi.catalog.sql_publication import Answer, Outcome, RowPublication, SqlitePublication
from conroi.catalog.sql_queries import LakeCommit
from conroi.catalog.sql_store import SqlStore
from conroi.catalog.sql_tables import LakeTables, SqliteLakeTables
from conroi.catalog.store import Dependencies
from conroi.storage.objects import Objects
from conroi.storage.postgres import PostgresDatabase
from conroi.testing import connect_through
from conroi.versions.retention import other_ages
from tests.support.arrow import column_values
from tests.support.databases import PostgresServer, sql_address
from tests.support.lake_tables import FaultyTables

pytestmark = pytest.mark.contract("X13")

WRITERS, COMMITS = 6, 4


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest) -> str:
    return sql_address(request.param, request)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


@dataclass
class Asked:
    """What clients asked the database for, and what it answered."""

    verbs: Counter[str] = field(default_factory=Counter[str])
    answers: Counter[str] = field(default_factory=Counter[str])

    def wrap(self, inner: LakeTables) -> LakeTables:
        return Counting(inner, self)


class Counting(FaultyTables):
    """The tables of a database, with all that is asked of them counted."""

    def __init__(self, inner: LakeTables, asked: Asked) -> None:
        super().__init__(inner)
        self._asked = asked

    def ask(self, sql: str, parameters: object) -> list[tuple[object, ...]]:
        self._asked.verbs["ask"] += 1
        return super().ask(sql, parameters)  # type: ignore[arg-type]

    def publish(self, lake: str, root: str, wanted: RowPublication) -> Outcome:
        outcome = super().publish(lake, root, wanted)
        self._asked.verbs["publish"] += 1
        self._asked.answers[outcome.answer.value] += 1
        return outcome


def same(objects: Objects) -> Objects:
    return objects


def lake_with(uri: str, store: str, tables: int) -> conroi.Lake:
    lake = conroi.connect(uri, store=store)
    with lake.begin("tables") as tx:
        for number in range(tables):
            tx.create_table(f"t{number}", [{"id": 0}])
    return lake


def work(uri: str, store: str, table_of: Callable[[int], str], asked: Asked) -> list[int]:
    """Each writer is a client of its own, and all publish at once; returns the attempts of each commit."""
    together, attempts = threading.Barrier(WRITERS), list[int]()
    errors: list[BaseException] = []

    def write(number: int) -> None:
        try:
            lake = connect_through(uri, same, store=store, wrap_store=asked.wrap)
            for turn in range(COMMITS):
                tx = lake.begin(f"{number}.{turn}")
                tx[table_of(number)].append([{"id": 100 * (number + 1) + turn}])
                together.wait(60)  # so that all are built on one version
                attempts.append(tx.commit().attempts)
        except BaseException as error:  # noqa: BLE001  # of a thread
            errors.append(error)
            together.abort()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not errors, errors
    return attempts


def test_writers_of_different_tables_never_publish_twice(store: str, uri: str) -> None:
    lake, asked = lake_with(uri, store, WRITERS), Asked()
    attempts = work(uri, store, lambda number: f"t{number}", asked)
    assert attempts == [1] * (WRITERS * COMMITS)
    assert asked.answers == {"published": WRITERS * COMMITS}
    for number in range(WRITERS):
        found = column_values(lake[f"t{number}"].to_arrow()["id"])
        assert sorted(found) == [0, *(100 * (number + 1) + turn for turn in range(COMMITS))]
    history = lake.history()
    assert [commit.version for commit in history] == list(range(WRITERS * COMMITS + 1, 0, -1))
    times = [commit.timestamp for commit in history]
    assert times == sorted(set(times), reverse=True)
    assert {commit.message for commit in history[:-1]} == {
        f"{number}.{turn}" for number in range(WRITERS) for turn in range(COMMITS)
    }
    assert lake.doctor().is_healthy
    assert conroi.connect(uri).version == lake.version, "the copy in the folder has no gap"


@pytest.mark.parametrize("how", ["one table", "the whole lake is compared"])
def test_the_instrument_counts_the_retries_that_there_are(
    store: str, uri: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: where publications do depend on each other, some are refused, and counted."""
    lake, asked = lake_with(uri, store, WRITERS), Asked()

    def everything(request: PublishRequest, changes: Mapping[str, object]) -> Dependencies:
        del changes
        return Dependencies(dependencies_of(request, {}).objects, everything=True)

    if how == "one table":
        attempts = work(uri, store, lambda _: "t0", asked)
    else:
        monkeypatch.setattr(publication, "dependencies_of", everything)
        attempts = work(uri, store, lambda number: f"t{number}", asked)
    assert asked.answers["moved"] >= COMMITS, "of those built on one version all but one are refused"
    # An attempt may also find the final name of its manifest taken, and then asks the database for nothing.
    assert sum(attempts) >= WRITERS * COMMITS + asked.answers["moved"]
    assert lake.version == WRITERS * COMMITS + 1


def test_a_publication_is_one_round_trip_and_knows_the_versions_between(store: str, uri: str) -> None:
    lake_with(uri, store, 3)
    asked = Asked()
    lake = connect_through(uri, same, store=store, wrap_store=asked.wrap)
    other = conroi.connect(uri, store=store)
    for turn in range(3):
        tx = lake.begin()
        tx["t0"].append([{"id": turn}])
        other["t1"].append([{"id": turn}])
        other["t2"].append([{"id": turn}])
        asked.verbs.clear()
        tx.commit()
        assert asked.verbs == {"publish": 1}, "no look before it or after it"
        assert tx.result.version == lake.catalog.known_state().version == 4 + 3 * turn
        versions = {row.object_id: row.pin.version for row in lake.catalog.known_state().tables() if row.pin}
        assert versions == dict.fromkeys(["t0", "t1", "t2"], turn + 2)
    assert asked.verbs == {"publish": 1}


def test_a_publication_to_postgresql_is_one_statement(
    postgres: PostgresServer, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below our own tables, at the connection."""
    lake = lake_with(uri, postgres.new_address(), 2)
    sent: list[str] = []
    run = PostgresDatabase.run

    def noted(self: PostgresDatabase, connection: object, sql: str, parameters: object = ()) -> object:
        sent.append(sql)
        return run(self, connection, sql, parameters)  # type: ignore[arg-type]

    monkeypatch.setattr(PostgresDatabase, "run", noted)
    for turn in range(3):
        tx = lake.begin(idempotency_key=f"key {turn}")
        tx["t0"].append([{"id": turn}])
        tx["t1"].append([{"id": turn}])
        sent.clear()
        tx.commit()
        assert [sql.partition("(")[0] for sql in sent] == ["SELECT * FROM conroi_publish_rows"]


def test_a_writer_that_lost_a_race_looks_before_it_stages_again(store: str, uri: str) -> None:
    """On a hot table a look is cheaper than manifests that are staged in vain."""
    lake_with(uri, store, 2)
    asked = Asked()
    lake, other = connect_through(uri, same, store=store, wrap_store=asked.wrap), conroi.connect(uri, store=store)
    tx = lake.begin()
    tx["t0"].append([{"id": 1}])
    other["t0"].append([{"id": 2}])
    tx.commit()
    assert (tx.result.attempts, asked.answers) == (2, {"published": 1})
    tx = lake.begin()
    tx["t1"].append([{"id": 1}])
    asked.verbs.clear()
    tx.commit()
    assert asked.verbs == {"publish": 1}
    assert sorted(column_values(lake["t0"].to_arrow()["id"])) == [0, 1, 2]


def test_versions_whose_writers_did_not_copy_them_to_the_folder_are_copied_by_the_next(store: str, uri: str) -> None:
    lake = lake_with(uri, store, 2)
    tx = lake.begin("late")
    tx["t0"].append([{"id": 1}])
    other = conroi.connect(uri, store=store)
    for turn in range(2):
        other["t1"].append([{"id": turn}])
    for version in (2, 3):
        (Path(uri) / "_conroi" / "lake" / f"{version:020d}.json").unlink()
    assert conroi.connect(uri).version == 1
    tx.commit()
    without = conroi.connect(uri)
    assert (without.version, without["t1"].version) == (4, 3)
    assert [commit.message for commit in without.history(1)] == ["late"]


@pytest.mark.contract("M3")
@pytest.mark.parametrize("is_barred", [True, False])
def test_a_writer_that_stood_still_while_its_files_were_collected_is_refused(
    uri: str, tmp_path: Path, is_barred: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its last look at its files and its statement; and the control, in which the barrier is not compared."""
    store = f"sqlite:///{tmp_path}/lake.db"
    other = lake_with(uri, store, 1)
    if not is_barred:
        monkeypatch.setattr(SqlitePublication, "is_barred", lambda _: False)
    with other_ages(0, 0):
        lake = conroi.connect(uri, store=store)
        tx = lake.begin()
        tx["t0"].append([{"id": 1}])
        publish, collected = SqlStore.publish, list[object]()

        def stand_still(self: SqlStore, wanted: RowPublication) -> Outcome:
            if wanted.rows and not collected:
                time.sleep(0.05)  # its files must be older than the collector's clock
                collected.append(other.gc(min_age="0s", dry_run=False))
            return publish(self, wanted)

        monkeypatch.setattr(SqlStore, "publish", stand_still)
        if is_barred:
            with pytest.raises(conroi.RetryableConflict):
                tx.commit()
            assert column_values(conroi.connect(uri, store=store)["t0"].to_arrow()["id"]) == [0]
        else:
            with contextlib.suppress(conroi.ConroiError):  # it may notice afterwards
                tx.commit()
            assert conroi.connect(uri, store=store).version == 3, "it was published without its files"
    assert len(collected) == 1


@pytest.mark.contract("X13")
def test_a_statement_that_arrives_late_is_refused_although_the_tables_are_the_same_again(tmp_path: Path) -> None:
    """A table was created and dropped since its base; its sender was told of the first."""
    tables = SqliteLakeTables(str(tmp_path / "lake.db"))
    tables.add_lake("lake", "/root")
    table = '["table","x"]'

    def publish(base: int, uuid: str, rows: dict[str, str | None], *, listing: bool = False) -> Answer:
        changes = json.dumps(dict.fromkeys(rows, 1))
        commit = LakeCommit(version=0, uuid=uuid, idempotency_key=None, notes="{}", changes=changes)
        needs = Dependencies(frozenset(), listing=listing)
        return tables.publish("lake", "/root", RowPublication(base, commit, rows, needs)).answer

    assert publish(0, "first", {"a": table}) is Answer.PUBLISHED
    assert publish(1, "creates", {"x": table}) is Answer.PUBLISHED
    assert publish(1, "late", {"a": '["table","y"]'}, listing=True) is Answer.MOVED
    assert publish(2, "drops", {"x": None}) is Answer.PUBLISHED
    assert publish(1, "late", {"a": '["table","y"]'}, listing=True) is Answer.MOVED
    assert publish(3, "on time", {"a": '["table","y"]'}, listing=True) is Answer.PUBLISHED
