"""What a transaction promises, on a branch whose head another writer advanced."""

from __future__ import annotations

from pathlib import Path

import pytest

import conroi
from tests.branches.conftest import numbers, texts
from tests.support.paused_commits import paused_before_publication, while_paused
from tests.support.together import Meet, together


@pytest.fixture
def other(lake: conroi.Lake, dev: conroi.Lake) -> conroi.Lake:
    """The same branch, as another process would see it, which has advanced it once."""
    other = conroi.connect(lake.uri, branch="dev")
    other["orders"].append([{"id": 4, "n": 40}])
    return other


@pytest.mark.contract("B2", "W1")
@pytest.mark.parametrize("is_on_branch", [True, False])
def test_the_base_is_captured_once(lake: conroi.Lake, dev: conroi.Lake, other: conroi.Lake, is_on_branch: bool) -> None:
    mine = dev if is_on_branch else lake
    pinned = mine.at(version=mine.version)  # the comparator is pinned too
    tx = mine.begin("reader")
    (other if is_on_branch else conroi.connect(lake.uri))["orders"].delete("id = 1")

    assert tx["orders"].to_arrow().to_pylist() == pinned["orders"].to_arrow().to_pylist()
    assert tx["orders"].count_rows() == (4 if is_on_branch else 3)
    assert mine["orders"].count_rows() == (3 if is_on_branch else 2), "and the head has moved"
    tx.rollback()


@pytest.mark.contract("B2", "W2")
def test_readers_and_writers_open_the_same(dev: conroi.Lake, other: conroi.Lake) -> None:
    with dev.begin() as tx:
        written, read = tx["orders"], dev["orders"]
        assert (written.version, written.uri, written.schema) == (read.version, read.uri, read.schema)
        assert written.to_arrow().to_pylist() == read.to_arrow().to_pylist() == other["orders"].to_arrow().to_pylist()


@pytest.mark.contract("B2", "W3", "W4")
def test_changes_of_a_table_that_moved_are_checked_when_they_commit(dev: conroi.Lake, other: conroi.Lake) -> None:
    with dev.begin() as tx:
        tx["orders"].delete("id = 2")
        tx["log"].append([{"text": "c"}])
        other["orders"].update({"n": "n + 1"}, where="id = 3")
        other["log"].append([{"text": "d"}])

    assert numbers(dev) == {1: 10, 3: 31, 4: 40}
    assert texts(dev) == ["a", "b", "c", "d"]

    late = dev.begin()
    late["orders"].update({"n": "0"}, where="id = 3")
    other["orders"].update({"n": "n + 1"}, where="id = 3")
    with pytest.raises(conroi.RetryableConflict):
        late.commit()
    strict = dev.begin()
    strict["orders"].delete("id = 1", strict=True)
    other["orders"].append([{"id": 5, "n": 50}])
    with pytest.raises(conroi.ExpectedVersionMismatch):
        strict.commit()
    assert numbers(dev) == {1: 10, 3: 32, 4: 40, 5: 50}


@pytest.mark.contract("B2", "P2")
def test_a_strict_change_of_a_branch_that_others_advanced_before_it_succeeds(
    lake: conroi.Lake, dev: conroi.Lake, other: conroi.Lake
) -> None:
    """Strict is about what comes between its base and its commit, not about the version where the branch began."""
    opened = dev["orders"]
    for number in (5, 6):
        other["orders"].append([{"id": number, "n": 10 * number}])
    head = other["orders"].version
    assert opened.delete("id = 1", strict=True).version == head + 1
    with dev.begin() as tx:
        tx["orders"].append([{"id": 7, "n": 70}], strict=True)
        lake["orders"].append([{"id": 8, "n": 80}])  # main is another table
    assert tx.result.tables == {"orders": head + 2}
    assert numbers(dev) == {2: 20, 3: 30, 4: 40, 5: 50, 6: 60, 7: 70}
    assert numbers(lake) == {1: 10, 2: 20, 3: 30, 8: 80}


@pytest.mark.contract("B2", "P2")
def test_expected_versions_hold_on_a_branch(lake: conroi.Lake, dev: conroi.Lake, other: conroi.Lake) -> None:
    for expect in ({"orders": 1}, {"nothing": 1}):
        tx = dev.begin(expect=expect)
        tx["log"].append([{"text": "x"}])
        with pytest.raises(conroi.ExpectedVersionMismatch):
            tx.commit()
    lake["orders"].delete("id = 1")  # another branch's version 2
    with dev.begin(expect={"orders": 2}) as tx:
        tx["log"].append([{"text": "y"}])
    assert texts(dev) == ["a", "b", "y"]


@pytest.mark.contract("B2", "P3", "P4")
def test_the_race_of_the_untouched_table_on_a_branch(lake: conroi.Lake, dev: conroi.Lake) -> None:
    writer, gate = paused_before_publication(lake.uri)
    branch = writer.branch("dev")
    tx = branch.begin("A")
    tx["log"].append([{"text": "late"}])
    tx.expect("orders")

    outcome = while_paused(gate, tx.commit, lambda: dev["orders"].append([{"id": 4, "n": 40}]))

    with pytest.raises(conroi.ExpectedVersionMismatch):
        outcome.result()
    assert texts(dev) == ["a", "b"]


@pytest.mark.contract("B2", "P3")
def test_and_what_is_published_on_main_does_not_disturb_it(lake: conroi.Lake, dev: conroi.Lake) -> None:
    writer, gate = paused_before_publication(lake.uri)
    branch = writer.branch("dev")
    tx = branch.begin("A")
    tx["log"].append([{"text": "late"}])
    tx.expect("orders")

    # The gate also stops publications on main, so this one goes through another connection.
    outcome = while_paused(gate, tx.commit, lambda: lake["orders"].append([{"id": 4, "n": 40}]))

    outcome.result()
    assert texts(dev) == ["a", "b", "late"]


@pytest.mark.contract("B2", "P6", "P1")
def test_one_bad_table_and_nothing_of_the_transaction_is_there(lake: conroi.Lake, dev: conroi.Lake) -> None:
    tx = dev.begin()
    tx["log"].append([{"text": "x"}])
    with pytest.raises(conroi.DuplicateKeyError):
        tx["orders"].append([{"id": 1, "n": 1}])
    tx.rollback()
    assert texts(dev) == ["a", "b"]
    assert dev.version == lake.version


# ---------------------------------------------------------------------------- a bank, on a branch

ACCOUNTS, MONEY = 6, 100


def _transfer(job: tuple[str, int, int], meet: Meet) -> tuple[int, bool]:
    """Move money about between two tables; how many transfers were made, and whether every look saw all the money."""
    uri, seed, rounds = job
    dev = conroi.connect(uri, branch="dev")
    made, saw_all = 0, True
    meet()
    for n in range(rounds):
        a, b = (seed + n) % ACCOUNTS, (seed * 3 + 2 * n + 1) % ACCOUNTS

        def work(tx: conroi.Transaction, a: int = a, b: int = b) -> None:
            tx["left"].update({"n": "n - 1"}, where=f"id = {a}")
            tx["right"].update({"n": "n + 1"}, where=f"id = {b}")

        dev.run(work, retries=200)
        made += 1
        now = dev.at(version=dev.version)
        saw_all &= sum(numbers(now, "left").values()) + sum(numbers(now, "right").values()) == 2 * ACCOUNTS * MONEY
    return made, saw_all


@pytest.mark.contract("B2", "P1", "W8")
def test_no_money_is_lost_on_a_branch_and_main_does_not_notice(tmp_path: Path) -> None:
    lake = conroi.connect(tmp_path / "bank")
    for name in ("left", "right"):
        lake.create_table(name, [{"id": i, "n": MONEY} for i in range(ACCOUNTS)], key="id")
    lake.branches.create("dev")
    before = lake.version

    said = together(_transfer, [(lake.uri, seed, 2) for seed in range(8)])

    made = sum(count for count, _ in said)
    assert made == 16
    assert all(saw_all for _, saw_all in said)
    dev = lake.branch("dev")
    assert sum(numbers(dev, "left").values()) == ACCOUNTS * MONEY - made, "no update was lost"
    assert sum(numbers(dev, "right").values()) == ACCOUNTS * MONEY + made
    assert lake.version == before
    assert set(numbers(lake, "left").values()) == {MONEY}
