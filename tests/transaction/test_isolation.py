"""What two transactions at the same time can do to each other, in each isolation level."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, cast

import pytest

import conroi

Work = Callable[[Any], object]
SERIALIZABLE = "serializable"


@pytest.fixture
def doctors(uri: str) -> conroi.Lake:
    """Two doctors are on call, each in a table of their own; one of them must stay."""
    lake = conroi.connect(uri)
    for name in ("alice", "bob"):
        lake.create_table(name, [{"id": 1, "on_call": True}])
    return lake


def leave(tx: Any, me: str, colleague: str) -> None:
    if tx[colleague].count_rows(filter="on_call"):
        tx[me].update({"on_call": "false"})


def on_call(lake: conroi.Lake) -> int:
    return sum(lake[name].count_rows(filter="on_call") for name in ("alice", "bob"))


@pytest.mark.contract("W8")
def test_write_skew_is_possible_under_snapshot(doctors: conroi.Lake):
    one, two = doctors.begin(), conroi.connect(doctors.uri).begin()
    leave(one, "alice", "bob")
    leave(two, "bob", "alice")
    one.commit()
    two.commit()
    assert on_call(doctors) == 0


@pytest.mark.contract("W8")
def test_write_skew_is_refused_under_serializable(doctors: conroi.Lake):
    one = doctors.begin(isolation=SERIALIZABLE)
    two = conroi.connect(doctors.uri).begin(isolation=SERIALIZABLE)
    leave(one, "alice", "bob")
    leave(two, "bob", "alice")
    one.commit()
    with pytest.raises(conroi.ExpectedVersionMismatch) as caught:
        two.commit()
    assert caught.value.is_retryable
    assert (caught.value.table, caught.value.expected, caught.value.actual) == ("alice", 1, 2)
    assert on_call(doctors) == 1


@pytest.mark.contract("W8")
def test_run_does_it_again_and_then_sees_what_the_other_did(doctors: conroi.Lake):
    other = conroi.connect(doctors.uri)
    calls: list[int] = []

    def work(tx: Any) -> None:
        calls.append(1)
        leave(tx, "bob", "alice")
        if len(calls) == 1:
            other.run(lambda rival: leave(rival, "alice", "bob"), isolation=SERIALIZABLE)

    doctors.run(work, isolation=SERIALIZABLE)
    assert len(calls) == 2
    assert on_call(doctors) == 1


# ------------------------------------------------------------------------------ what counts as having been read


def read_rows(tx: Any) -> None:
    tx["rates"].to_arrow()


def read_in_vain(tx: Any) -> None:
    """No row was found, and that is what the transaction knows."""
    tx["rates"].delete("rate = 77")


def update_in_vain(tx: Any) -> None:
    tx["rates"].update({"rate": "1"}, where="rate = 77")


def read_and_drop(tx: Any) -> None:
    tx["rates"].count_rows()
    tx.drop_table("rates")


def read_and_rename(tx: Any) -> None:
    tx["rates"].count_rows()
    tx.rename_table("rates", "prices")


@pytest.mark.contract("W8")
@pytest.mark.parametrize("work", [read_rows, read_in_vain, update_in_vain, read_and_drop, read_and_rename])
def test_a_table_that_was_read_must_not_have_moved(lake: conroi.Lake, other: conroi.Lake, work: Work):
    tx = lake.begin(isolation=SERIALIZABLE)
    work(tx)
    tx["orders"].append([{"id": 4, "n": 40}])
    other["rates"].append([{"name": "c", "rate": 77}])
    with pytest.raises(conroi.ExpectedVersionMismatch) as caught:
        tx.commit()
    assert caught.value.is_retryable
    assert caught.value.table == "rates"


@pytest.mark.contract("W8")
def test_a_table_to_which_rows_are_only_added_was_not_read(lake: conroi.Lake, other: conroi.Lake):
    tx = lake.begin(isolation=SERIALIZABLE)
    tx["rates"].append([{"name": "c", "rate": 3}])
    tx["orders"].append([{"id": 4, "n": 40}])
    other["rates"].append([{"name": "d", "rate": 4}])
    other["orders"].append([{"id": 5, "n": 50}])
    tx.commit()
    assert (lake["rates"].count_rows(), lake["orders"].count_rows()) == (4, 5)


@pytest.mark.contract("W8")
def test_a_listing_must_still_be_true(lake: conroi.Lake, other: conroi.Lake):
    tx = lake.begin(isolation=SERIALIZABLE)
    tx["orders"].append([{"id": 4, "n": len(tx.tables())}])
    other.create_table("third", [{"a": 1}])
    with pytest.raises(conroi.ExpectedVersionMismatch, match="third"):
        tx.commit()


@pytest.mark.contract("W8")
@pytest.mark.parametrize("how", ["contains", "getitem", "drop"])
def test_a_name_that_was_looked_for_in_vain_must_still_be_free(lake: conroi.Lake, other: conroi.Lake, how: str):
    tx = lake.begin(isolation=SERIALIZABLE)
    if how == "contains":
        assert "third" not in tx
    else:
        with pytest.raises(conroi.NotFoundError):
            tx["third"] if how == "getitem" else tx.drop_table("third")
    tx["orders"].append([{"id": 4, "n": 40}])
    other.create_table("third", [{"a": 1}])
    with pytest.raises(conroi.ExpectedVersionMismatch) as caught:
        tx.commit()
    assert (caught.value.expected, caught.value.actual) == (0, 1)


@pytest.mark.contract("W8")
@pytest.mark.parametrize("maintain", [lambda t: t.compact(), lambda t: t.create_index("rate")])
def test_compactions_and_indices_do_not_count_as_having_moved(lake: conroi.Lake, other: conroi.Lake, maintain: Work):
    lake["rates"].append([{"name": "c", "rate": 3}])
    tx = lake.begin(isolation=SERIALIZABLE)
    tx["orders"].append([{"id": 4, "n": tx["rates"].count_rows()}])
    maintain(other["rates"])
    assert other["rates"].version == 3
    tx.commit()


@pytest.mark.contract("W8")
def test_a_compaction_and_a_change_do_count(lake: conroi.Lake, other: conroi.Lake):
    lake["rates"].append([{"name": "c", "rate": 3}])
    tx = lake.begin(isolation=SERIALIZABLE)
    tx["orders"].append([{"id": 4, "n": tx["rates"].count_rows()}])
    other["rates"].compact()
    other["rates"].append([{"name": "d", "rate": 4}])
    with pytest.raises(conroi.ExpectedVersionMismatch):
        tx.commit()


@pytest.mark.contract("W8")
def test_under_snapshot_nothing_that_was_only_read_matters(lake: conroi.Lake, other: conroi.Lake):
    tx = lake.begin()
    assert "third" not in tx
    tx["orders"].append([{"id": 4, "n": tx["rates"].count_rows() + len(tx.tables())}])
    other["rates"].append([{"name": "c", "rate": 3}])
    other.create_table("third", [{"a": 1}])
    tx.commit()


# ----------------------------------------------------------------------------------- random interleavings


class Counter:
    """Transactions that add to counters, step by step; the history of what each committed is kept."""

    def __init__(self, lake: conroi.Lake, isolation: str, chance: random.Random) -> None:
        self.lake = conroi.connect(lake.uri)
        self.isolation = isolation
        self.chance = chance
        self.added: dict[tuple[str, int], int] = {}
        self.committed = self.refused = 0
        self._begin()

    def _begin(self) -> None:
        self.tx: Any = self.lake.begin(isolation=cast("Any", self.isolation))
        self.staged: dict[tuple[str, int], int] = {}

    def step(self) -> None:
        if len(self.staged) >= 2 or (self.staged and self.chance.random() < 0.4):
            self._commit()
            return
        table, key, amount = self.chance.choice(["x", "y"]), self.chance.randrange(3), self.chance.randrange(1, 9)
        value = self.tx[table].to_arrow(filter=f"id = {key}")["n"].to_pylist()[0]
        self.tx[table].update({"n": str(value + amount)}, where=f"id = {key}")  # read, then write: easy to lose
        self.staged[table, key] = self.staged.get((table, key), 0) + amount

    def _commit(self) -> None:
        try:
            self.tx.commit()
        except (conroi.RetryableConflict, conroi.ExpectedVersionMismatch):
            self.refused += 1
        else:
            self.committed += 1
            for counter, amount in self.staged.items():
                self.added[counter] = self.added.get(counter, 0) + amount
        self._begin()


def counted(lake: conroi.Lake, isolation: str, seed: int, steps: int) -> list[Counter]:
    """Several clients take steps in an order that chance decides."""
    for name in ("x", "y"):
        lake.create_table(name, [{"id": i, "n": 0} for i in range(3)], key="id")
    chance = random.Random(seed)
    clients = [Counter(lake, isolation, chance) for _ in range(4)]
    for _ in range(steps):
        chance.choice(clients).step()
    return clients


def lost_updates(lake: conroi.Lake, clients: list[Counter]) -> dict[tuple[str, int], int]:
    """By counter, how much of what was committed is not there."""
    there = {(name, row["id"]): row["n"] for name in ("x", "y") for row in lake[name].to_arrow().to_pylist()}
    for client in clients:
        for counter, amount in client.added.items():
            there[counter] -= amount
    return {counter: -left for counter, left in there.items() if left}


@pytest.mark.contract("W8")
@pytest.mark.parametrize("isolation", ["snapshot", SERIALIZABLE])
@pytest.mark.parametrize("seed", [1, 2])
def test_random_interleavings_lose_no_update(uri: str, isolation: str, seed: int):
    lake = conroi.connect(uri)
    clients = counted(lake, isolation, seed, steps=60)
    assert not lost_updates(lake, clients)
    assert sum(client.committed for client in clients) > 5
    assert sum(client.refused for client in clients) > 0, "there was no conflict"


@pytest.mark.contract("W8")
def test_control_without_conflicts_of_rows_updates_are_lost(uri: str, monkeypatch: pytest.MonkeyPatch):
    """The checker sees it when a transaction is committed on top of others without a look at them."""

    def commit_blindly(self: Counter) -> None:
        for (table, _), _amount in self.staged.items():
            for row in self.tx[table].to_arrow().to_pylist():
                self.lake[table].update({"n": str(row["n"])}, where=f"id = {row['id']}")
        for counter, amount in self.staged.items():
            self.added[counter] = self.added.get(counter, 0) + amount
        self.tx.rollback()
        self._begin()

    monkeypatch.setattr(Counter, "_commit", commit_blindly)
    lake = conroi.connect(uri)
    assert lost_updates(lake, counted(lake, "snapshot", 1, steps=40))


@pytest.mark.soak
@pytest.mark.contract("W8")
@pytest.mark.parametrize("isolation", ["snapshot", SERIALIZABLE])
def test_many_random_interleavings_lose_no_update(isolation: str, tmp_path_factory: pytest.TempPathFactory):
    for seed in range(100, 140):
        lake = conroi.connect(tmp_path_factory.mktemp("lake"))
        assert not lost_updates(lake, counted(lake, isolation, seed, steps=150)), seed
