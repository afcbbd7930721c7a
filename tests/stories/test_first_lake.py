"""A first lake: two tables that must agree, a load that fails half way, and two people who work at once."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest

import conroi
from conroi.lake_snapshot import LakeReader
from tests.support.arrow import column_values


@pytest.fixture
def lake(tmp_path: Path) -> conroi.Lake:
    lake = conroi.connect(tmp_path / "lake")
    with lake.begin("first day") as tx:
        tx.create_table("orders", [{"id": 1, "amount": 5.0}], key="id")
        tx.create_table("totals", [{"day": "mon", "amount": 5.0}], key="day")
    return lake


def total_of_orders(lake: LakeReader) -> float:
    return sum(column_values(lake["orders"].to_arrow()["amount"]))


def total_as_told(lake: conroi.Lake) -> float:
    return sum(column_values(lake["totals"].to_arrow()["amount"]))


@pytest.mark.contract("P1", "W6")
def test_both_tables_change_together(lake: conroi.Lake):
    with lake.begin("second day") as tx:
        tx["orders"].append([{"id": 2, "amount": 7.5}])
        amount = sum(column_values(tx["orders"].to_arrow()["amount"]))  # it sees what it has just written
        tx["totals"].update({"amount": str(amount)}, where="day = 'mon'")

    assert (total_of_orders(lake), total_as_told(lake)) == (12.5, 12.5)
    assert tx.result.tables == {"orders": 2, "totals": 2}, "one version of each"


@pytest.mark.contract("P1")
def test_a_load_that_fails_half_way_never_was(lake: conroi.Lake):
    before = lake.version

    def load(tx: conroi.Transaction) -> None:
        tx["orders"].append([{"id": 2, "amount": 7.5}])
        raise RuntimeError("the second file is missing")

    with pytest.raises(RuntimeError, match="second file"):
        lake.run(load)

    assert (lake.version, total_of_orders(lake), total_as_told(lake)) == (before, 5.0, 5.0)


@pytest.mark.contract("W1", "W8")
def test_two_people_at_once_lose_nothing(lake: conroi.Lake):
    mine = lake.begin("mine")
    mine["orders"].append([{"id": 10, "amount": 1.0}])

    with lake.begin("hers") as hers:  # she is faster
        hers["orders"].append([{"id": 20, "amount": 2.0}])

    assert mine["orders"].count_rows() == 2, "mine still reads what it began with, and its own row"
    result = mine.commit()

    assert result.rebased == {"orders": (2,)}, "and is put on top of hers"
    assert sorted(column_values(lake["orders"].to_arrow()["id"])) == [1, 10, 20]


@pytest.mark.contract("P2")
def test_a_rate_that_must_not_change_during_the_transaction(lake: conroi.Lake):
    tx = lake.begin("convert")
    tx["orders"].update({"amount": "amount * 2"})
    tx.expect("totals")
    lake["totals"].append([{"day": "tue", "amount": 0.0}])

    with pytest.raises(conroi.ExpectedVersionMismatch) as caught:
        tx.commit()

    assert (caught.value.table, caught.value.expected, caught.value.actual) == ("totals", 1, 2)
    assert total_of_orders(lake) == 5.0


@pytest.mark.contract("W2")
def test_yesterday_is_still_there_and_pylance_reads_today(lake: conroi.Lake):
    yesterday = lake.version
    lake["orders"].append([{"id": 2, "amount": 7.5}], message="today")

    assert total_of_orders(lake.at(version=yesterday)) == 5.0
    assert [commit.message for commit in lake.history(2)] == ["today", "first day"]
    assert lance.dataset(lake["orders"].uri).count_rows() == 2
