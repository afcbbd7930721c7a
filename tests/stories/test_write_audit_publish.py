"""Write, audit, publish: tonight's load goes to a branch, is looked at there, and reaches others only if it is good.

Ann loads orders and customers every night. The people who read the lake must never see a load with a mistake in it, and
never one of the two tables without the other.
"""

from __future__ import annotations

import pytest

import conroi
from tests.support.arrow import column_values

pytestmark = pytest.mark.contract("B1", "B3")


@pytest.fixture
def lake(uri: str) -> conroi.Lake:
    """What the readers have so far."""
    lake = conroi.connect(uri)
    with lake.begin("the start") as tx:
        tx.create_table("customers", [{"name": "Ada"}], key="name")
        tx.create_table("orders", [{"id": 1, "customer": "Ada", "amount": 5.0}], key="id")
    return lake


def load(branch: conroi.Lake, orders: list[dict[str, object]], customers: list[dict[str, object]]) -> None:
    """Tonight's load: two transactions, so that there is a moment in between."""
    branch["orders"].append(orders)
    branch["customers"].append(customers)


def audit(branch: conroi.Lake) -> list[str]:
    """What is wrong: orders of unknown customers, and amounts that cannot be."""
    known = set(branch["customers"].to_arrow()["name"].to_pylist())
    orders = branch["orders"].to_arrow().to_pylist()
    strangers = [
        f"order {row['id']} is of {row['customer']}, who is unknown" for row in orders if row["customer"] not in known
    ]
    return strangers + [f"order {row['id']} costs {row['amount']}" for row in orders if row["amount"] < 0]


def test_a_good_load_is_published_as_one(lake: conroi.Lake) -> None:
    lake.branches.create("tonight")
    tonight = lake.branch("tonight")

    load(tonight, [{"id": 2, "customer": "Grace", "amount": 7.5}], [{"name": "Grace"}])

    # Two commits are made, and no reader has seen either.
    assert lake["orders"].count_rows() == 1
    assert lake.diff("main", "tonight")["orders"].rows_after == 2
    assert audit(tonight) == []

    # Publishing is one commit, for both tables.
    before = lake.version
    lake.merge("tonight", message="load of tonight")
    lake.branches.delete("tonight")

    assert lake.version == before + 1
    assert lake.history(1)[0].tables == {"customers": 2, "orders": 2}
    assert sorted(column_values(lake["customers"].to_arrow()["name"])) == ["Ada", "Grace"]


def test_a_bad_load_is_thrown_away_and_no_reader_saw_it(lake: conroi.Lake) -> None:
    lake.branches.create("tonight")
    tonight = lake.branch("tonight")

    load(tonight, [{"id": 2, "customer": "Grcae", "amount": -7.5}], [{"name": "Grace"}])

    assert audit(tonight) == ["order 2 is of Grcae, who is unknown", "order 2 costs -7.5"]
    lake.branches.delete("tonight")
    assert [commit.message for commit in lake.history()] == ["the start", None]
    assert lake["orders"].count_rows() == 1


def test_a_bad_load_can_also_be_mended_on_the_branch(lake: conroi.Lake) -> None:
    lake.branches.create("tonight")
    tonight = lake.branch("tonight")
    load(tonight, [{"id": 2, "customer": "Grace", "amount": -7.5}], [{"name": "Grace"}])
    tonight["orders"].update({"amount": "-amount"}, where="amount < 0")
    assert audit(tonight) == []

    # A concurrent writer corrected an older order on the main branch. Both count.
    lake["orders"].update({"amount": "6.0"}, where="id = 1")
    result = lake.merge("tonight")

    assert {table.table: table.kind for table in result.tables} == {"customers": "fast-forward", "orders": "merged"}
    assert {row["id"]: row["amount"] for row in lake["orders"].to_arrow().to_pylist()} == {1: 6.0, 2: 7.5}


def test_what_was_audited_is_what_is_published_whatever_comes_later(lake: conroi.Lake) -> None:
    lake.branches.create("tonight")
    tonight = lake.branch("tonight")
    load(tonight, [{"id": 2, "customer": "Grace", "amount": 7.5}], [{"name": "Grace"}])
    assert audit(tonight) == []
    tonight.tags.create("audited")

    tonight["orders"].append([{"id": 3, "customer": "Unknown", "amount": 1.0}])  # too late for tonight's audit
    lake.merge("audited")

    assert sorted(column_values(lake["orders"].to_arrow()["id"])) == [1, 2]
