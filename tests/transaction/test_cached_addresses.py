"""What is kept in memory from one statement to the next is right after a rebase gave fragments other ids."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import conroi

Model = dict[int, str]
Statement = tuple[str, tuple[int, ...]]


def upsert(table: Any, rows: Model) -> None:
    given_rows = [{"id": number, "v": value} for number, value in rows.items()]
    table.merge(given_rows, on="id").when_matched_update_all().when_not_matched_insert_all().execute()


def rows_of(table: conroi.Table) -> list[tuple[int, str]]:
    return sorted((row["id"], row["v"]) for row in table.to_arrow().to_pylist())


def in_order(model: Model) -> list[tuple[int, str]]:
    return sorted(model.items())


@pytest.mark.contract("T22")
@pytest.mark.parametrize("stable_row_ids", [False, True])
def test_a_merge_after_a_transaction_that_was_rebased(tmp_path: Path, stable_row_ids: bool) -> None:
    """A1: the merge deleted the concurrent writer's row, and its own key was there twice."""
    lake = conroi.connect(str(tmp_path / "lake"))
    lake.create_table("t", [{"id": 1, "v": "one"}], key="id", stable_row_ids=stable_row_ids)
    tx = lake.begin()
    upsert(tx["t"], {17: "first"})
    upsert(tx["t"], {18: "x"})
    conroi.connect(lake.uri)["t"].append([{"id": 99, "v": "other"}])
    tx.commit()
    upsert(lake["t"], {17: "second"})
    assert rows_of(lake["t"].latest()) == [(1, "one"), (17, "second"), (18, "x"), (99, "other")]


@pytest.mark.contract("T22")
@pytest.mark.parametrize("stable_row_ids", [False, True])
def test_a_merge_after_a_transaction_in_which_a_fragment_of_its_own_died(tmp_path: Path, stable_row_ids: bool) -> None:
    """I1: no other writer at all; the fragment of the second statement gets the id of the first one's."""
    lake = conroi.connect(str(tmp_path / "lake"))
    lake.create_table("t", [{"id": 1, "v": "one"}], key="id", stable_row_ids=stable_row_ids)
    with lake.begin() as tx:
        upsert(tx["t"], {17: "a"})
        upsert(tx["t"], {17: "b", 18: "b"})
        upsert(tx["t"], {19: "c"})
    upsert(lake["t"], {18: "d"})
    assert rows_of(lake["t"].latest()) == [(1, "one"), (17, "b"), (18, "d"), (19, "c")]


# -------------------------------------------------------------------------------- by chance

_few_ids = st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True).map(tuple)
_statement = st.tuples(st.sampled_from(["upsert", "upsert", "upsert", "update", "delete"]), _few_ids)
_transaction = st.tuples(st.lists(_statement, min_size=1, max_size=3), st.sampled_from(["none", "append", "delete"]))


def run(table: Any, model: Model, statement: Statement, value: str) -> None:
    """One statement, on the table and on what it should be."""
    verb, ids = statement
    condition = f"id IN ({', '.join(map(str, ids))})"
    if verb == "upsert":
        upsert(table, dict.fromkeys(ids, value))
        model |= dict.fromkeys(ids, value)
    elif verb == "update":
        table.update({"v": f"'{value}'"}, where=condition)
        model |= {number: value for number in ids if number in model}
    else:
        table.delete(condition)
        for number in ids:
            model.pop(number, None)


def check(begin: Callable[[], Any], table_of: Callable[[Any], Any], latest: Callable[[], Any], plan: Any) -> None:
    model: Model = {0: "zero", 1: "one"}
    for number, (statements, other) in enumerate(plan):
        tx, mine = begin(), dict(model)
        for at, statement in enumerate(statements):
            run(table_of(tx), mine, statement, f"{number}.{at}")
            assert rows_of(table_of(tx)) == in_order(mine), "a transaction sees its own statements"
        key = 100 + number
        if other == "append":
            latest().append([{"id": key, "v": "other"}])
            mine[key] = model[key] = "other"
        elif other == "delete":
            latest().delete("id >= 100")
            mine = {i: v for i, v in mine.items() if i < 100}
            model = {i: v for i, v in model.items() if i < 100}
        try:
            tx.commit()
        except conroi.RetryableConflict:
            assert other != "none"
        else:
            model = mine
        assert rows_of(latest()) == in_order(model)
    run(latest(), model, ("upsert", tuple(range(5))), "last")
    assert rows_of(latest()) == in_order(model)


def check_lake(plan: Any, stable_row_ids: bool) -> None:
    with TemporaryDirectory() as folder:
        lake = conroi.connect(folder + "/lake")
        lake.create_table("t", [{"id": 0, "v": "zero"}, {"id": 1, "v": "one"}], key="id", stable_row_ids=stable_row_ids)
        check(lake.begin, lambda tx: tx["t"], lambda: lake["t"].latest(), plan)


def check_table(plan: Any, stable_row_ids: bool) -> None:
    with TemporaryDirectory() as folder:
        table = conroi.create_table(
            folder + "/t", [{"id": 0, "v": "zero"}, {"id": 1, "v": "one"}], key="id", stable_row_ids=stable_row_ids
        )
        check(lambda: table.latest().begin(), lambda tx: tx, lambda: table.latest(), plan)


_plans = st.lists(_transaction, min_size=1, max_size=4)


@pytest.mark.contract("T22", "K6")
@settings(max_examples=40)
@given(plan=_plans, stable_row_ids=st.booleans())
def test_any_transactions_on_a_table(plan: Any, stable_row_ids: bool) -> None:
    check_table(plan, stable_row_ids)


@pytest.mark.contract("T22", "K6")
@settings(max_examples=30)
@given(plan=_plans, stable_row_ids=st.booleans())
def test_any_transactions_in_a_lake(plan: Any, stable_row_ids: bool) -> None:
    check_lake(plan, stable_row_ids)


@pytest.mark.soak
@pytest.mark.contract("T22", "K6")
@pytest.mark.timeout(3600)
@settings(max_examples=3000)
@given(plan=_plans, stable_row_ids=st.booleans())
def test_any_transactions_for_long(plan: Any, stable_row_ids: bool) -> None:
    check_table(plan, stable_row_ids)
    check_lake(plan, stable_row_ids)
