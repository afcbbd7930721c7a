"""lancedb, pylance, conroi's verbs and transactions and a compactor on one lake, killed and paused.

The long run: `CONROI_CLIENTS=folder make soak ARGS=tests/mixed`, where the folder is one of
`tools.client_environments`; `CONROI_MIXED_OPERATIONS`, `CONROI_MIXED_SECONDS` and `CONROI_MIXED_SEED` change its size.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import conroi
from tests.mixed.journal import Effect, Journal, Operation, load, path_of
from tests.mixed.oracle import Report, judge
from tests.mixed.runner import Size, interpreters, make, run
from tests.mixed.worker import rows

ROW = Effect("t", "put", 7, "x")
KEPT = Operation("runner", "make", (Effect("k", "put", 0, "first"),), "ok")
"""The row that a new lake has."""


@pytest.mark.contract("N8")
def test_mixed_clients_lose_and_double_nothing(tmp_path: Path) -> None:
    """A few operations of few clients; the processes' imports take most of the time."""
    size = Size(operations=40, seconds=60, kill_every_s=0.5, pause_every_s=0.5, longest_pause_s=0.5)
    clients = interpreters(clients=("lancedb", "pylance", "transactions"))
    made = run(tmp_path / "run", 1, size, clients)
    assert made.report.anomalies == [], made
    assert made.report.pairs_compared > 0, made


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
@pytest.mark.contract("N8")
def test_ten_thousand_operations_of_all_clients(tmp_path: Path) -> None:
    folder = os.environ.get("CONROI_CLIENTS")
    size = Size(
        int(os.environ.get("CONROI_MIXED_OPERATIONS", "10000")), float(os.environ.get("CONROI_MIXED_SECONDS", "10800"))
    )
    seed = int(os.environ.get("CONROI_MIXED_SEED", "15"))
    made = run(tmp_path / "run", seed, size, interpreters(Path(folder) if folder else None))
    print(made)
    assert made.report.anomalies == [], made
    assert min(made.report.shares().values()) >= 0.25, made


def judged(lake: conroi.Lake, *operations: Operation) -> Report:
    return judge(lake, [KEPT, *operations])


def of_pair(outcome: str) -> Operation:
    effects = (Effect("a", "put", 5, "x"), Effect("b", "put", 5, "x"))
    return Operation("transactions", "transaction, append", effects, outcome)  # pyright: ignore[reportArgumentType]


@pytest.mark.contract("N8")
def test_a_correct_lake_has_no_anomaly(tmp_path: Path) -> None:
    lake = make(tmp_path)
    lake["t"].append(rows(ROW))
    for outcome in ("ok", "unknown"):
        report = judged(lake, Operation("verbs", "append", (ROW,), outcome))  # pyright: ignore[reportArgumentType]
        assert report.anomalies == []
    removed = Operation("verbs", "delete", (Effect("t", "remove", 7),), "unknown")
    assert judged(lake, Operation("verbs", "append", (ROW,), "ok"), removed).anomalies == []
    lake["t"].delete("id = 7")
    assert judged(lake, Operation("verbs", "append", (ROW,), "ok"), removed).anomalies == []


def test_control_a_lost_row_is_reported(tmp_path: Path) -> None:
    lake = make(tmp_path)
    lake["t"].append(rows(ROW))
    lake["t"].delete("id = 7")
    report = judged(lake, Operation("verbs", "append", (ROW,), "ok"))
    assert report.anomalies == ["t: row 7 is None, not one of ['x']"]


def test_control_a_doubled_and_a_refused_row_are_reported(tmp_path: Path) -> None:
    lake = make(tmp_path)
    lake["t"].append(rows(ROW))
    refused = judged(lake, Operation("verbs", "append", (ROW,), "refused"))
    assert refused.anomalies == ["t: row 7 is there, which was refused or never written"]
    lake["t"].append(rows(ROW))
    doubled = judged(lake, Operation("verbs", "append", (ROW,), "ok"))
    assert doubled.anomalies == ["t: row 7 is there 2 times"]


def test_control_a_lost_update_is_reported(tmp_path: Path) -> None:
    lake = make(tmp_path)
    update = Operation("verbs", "update", (Effect("k", "update", 0, "second"),), "ok")
    assert judged(lake, update).anomalies == ["k: row 0 is 'first', not one of ['second']"]


def test_control_a_pair_in_two_commits_is_reported(tmp_path: Path) -> None:
    lake = make(tmp_path)
    lake["a"].append(rows(Effect("a", "put", 5, "x")))
    half = lake.version
    lake["b"].append(rows(Effect("b", "put", 5, "x")))
    report = judged(lake, of_pair("ok"))
    assert report.anomalies == [f"the pair differs at lake version {half}: [(5, 'x')]"]


def test_control_half_of_a_killed_transaction_is_reported(tmp_path: Path) -> None:
    lake = make(tmp_path)
    lake["a"].append(rows(Effect("a", "put", 5, "x")))
    first, second = judged(lake, of_pair("unknown")).anomalies
    assert first.startswith("transactions: transaction, append is half visible")
    assert second == f"the pair differs at lake version {lake.version}: [(5, 'x')]"


def test_a_journal_ends_with_an_unknown_outcome_if_its_client_was_killed(tmp_path: Path) -> None:
    for instance in (1, 2):
        journal = Journal(path_of(tmp_path, "lancedb-0.39.0", instance))
        journal.intent("append", (ROW,))
        if instance == 2:
            journal.outcome("ok", "", 0.5, [])
    killed, done = load(tmp_path)
    assert (killed.client, killed.outcome, killed.is_ended) == ("lancedb-0.39.0", "unknown", False)
    assert (done.effects, done.outcome, done.is_ended) == ((ROW,), "ok", True)
