"""Negative controls that are executed: systems without the promised isolation, in which the checker finds anomalies."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

import conroi
from conroi.catalog import publication
from conroi.catalog.publication import Publishing
from conroi.testing.history import Isolation, Operation, Outcome, Transaction, check
from conroi.transaction_tables import TransactionTables
from tests.histories import workload
from tests.histories.conftest import NewSetting
from tests.histories.crew import Setting
from tests.histories.planted import plant
from tests.histories.running import Size, run
from tests.histories.workload import BAG, CELLS, LOG, TABLES, Step

pytestmark = pytest.mark.contract("H1")


class Script:
    """Transactions on one lake in a fixed order of steps, written down as the processes of a history do."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self.lake = setting.connect()
        workload.make(self.lake)
        self.history: list[Transaction] = []
        self._open: dict[str, tuple[conroi.Transaction, list[Operation], int]] = {}

    def begin(self, name: str, lake: conroi.Lake | None = None) -> None:
        lake = self._setting.connect() if lake is None else lake
        tx = lake.begin(isolation=self._setting.isolation)
        self._open[name] = (tx, [], time.monotonic_ns())

    def do(self, name: str, *steps: Step) -> None:
        tx, done, _ = self._open[name]
        for step in steps:
            workload.do(tx.table, step, done)

    def commit(self, name: str) -> None:
        tx, done, invoked = self._open.pop(name)
        outcome: Outcome = "ok"
        try:
            tx.commit()
        except conroi.ConflictError:
            outcome = "fail"
        self.history.append(Transaction(name, done, outcome, invoked, time.monotonic_ns()))

    def look(self, name: str, lake: conroi.Lake | None = None) -> None:
        self.begin(name, lake)
        self.do(name, *(Step(table, "scan", 0) for table in TABLES))
        self.commit(name)

    def kinds(self) -> set[str]:
        self.look("end")
        return set(check(self.history, self._setting.isolation).kinds)


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], None]:
    """Plants a bug for as long as the test runs."""
    for owner, name in (
        (TransactionTables, "expectations"),
        (conroi.Transaction, "__init__"),
        (Publishing, "run"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    return plant


@pytest.mark.parametrize(("bug", "kinds"), [(None, set[str]()), ("unchecked", {"G2"})])
def test_reads_that_are_not_checked_give_write_skew(
    bug: str | None, kinds: set[str], planted: Callable[[str | None], None], new_setting: NewSetting
):
    planted(bug)
    script = Script(new_setting("local", "serializable"))
    script.begin("a")
    script.begin("b")
    script.do("a", Step(CELLS, "read", 0), Step(LOG, "append", 0, 1))
    script.do("b", Step(LOG, "read", 0), Step(CELLS, "write", 0, 2))
    script.commit("a")
    script.commit("b")
    assert script.kinds() == kinds


@pytest.mark.parametrize(("bug", "kinds"), [(None, set[str]()), ("stale", {"G-single-realtime"})])
def test_a_transaction_that_begins_without_a_look_reads_the_past(
    bug: str | None, kinds: set[str], planted: Callable[[str | None], None], new_setting: NewSetting
):
    planted(bug)
    script = Script(new_setting("local", "snapshot"))
    reader = script.lake
    script.look("before", reader)
    script.begin("a")
    script.do("a", Step(BAG, "append", 0, 1), Step(CELLS, "update", 0, 2))
    script.commit("a")
    script.look("after", reader)
    assert script.kinds() == kinds


@pytest.mark.parametrize(("bug", "kinds"), [(None, set[str]()), ("separately", {"G-single"})])
def test_tables_that_are_published_separately_are_seen_apart(
    bug: str | None,
    kinds: set[str],
    planted: Callable[[str | None], None],
    new_setting: NewSetting,
    monkeypatch: pytest.MonkeyPatch,
):
    planted(bug)
    script = Script(new_setting("local", "snapshot"))
    script.begin("a")
    script.do("a", Step(CELLS, "write", 0, 1), Step(LOG, "append", 0, 2))
    publish, looks = publication.run, iter(("between", "after"))

    def publish_and_look(of: Publishing) -> object:
        done = publish(of)
        script.look(next(looks))  # which publishes nothing itself
        return done

    monkeypatch.setattr(publication, "run", publish_and_look)
    script.commit("a")
    monkeypatch.setattr(publication, "run", publish)
    assert script.kinds() == kinds


@pytest.mark.soak
@pytest.mark.parametrize(
    ("bug", "isolation", "kinds"),
    [
        ("unchecked", "serializable", {"G2", "G2-realtime"}),
        ("stale", "serializable", {"G-single-realtime", "G1c-realtime", "G-nonadjacent-realtime"}),
        ("separately", "snapshot", {"G-single", "G-nonadjacent", "incompatible"}),
    ],
)
def test_processes_with_a_planted_bug_are_found_out(
    bug: str, isolation: Isolation, kinds: set[str], new_setting: NewSetting
):
    setting = replace(new_setting("local", isolation), planted=bug, version_s=60.0, file_s=3600.0)
    size = Size(tried=600, seconds=120, kill_every=1e9, pause_every=1e9)
    outcome = run(setting, size, ("writer", "writer", "writer", "reader"))
    print(outcome)
    assert outcome.report.kinds.keys() & kinds
