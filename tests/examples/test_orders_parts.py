"""The parts of the main example that need no Spark: the data, the invariants, the report, and who imports what."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from orders import generator
from orders.checker import Found, expected_tables
from orders.events import Event, What
from orders.invariants import INVARIANTS
from orders.landing import write_landing
from orders.plan import Kind, Plan
from orders.report import make_report
from orders.timeline import Outcome, Recorder

from tests.examples.conftest import EXAMPLES
from tests.support.arrow import column_values

PLAN = Plan(orders=400, days=3, regions=2, customers=60, seed=3)
ALL_RIGHT = Found(expected=1, rows=1, lost=0, duplicated=0, unexpected=0, wrong=0)


# ---------------------------------------------------------------------------- the checker is on its own


def imports_of(module: str) -> set[str]:
    """The modules that a module of the example imports, with those that its siblings import."""
    found: set[str] = set()
    todo, seen = [module], set[str]()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        for node in ast.walk(ast.parse((EXAMPLES / "orders" / f"{name}.py").read_text("utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                found.add((node.module or "").partition(".")[0])
            elif isinstance(node, ast.ImportFrom):
                todo += [node.module] if node.module else [alias.name for alias in node.names]
    return found


def test_the_checker_imports_pylance_and_nothing_of_conroi():
    found = imports_of("checker") | imports_of("__init__")
    assert "lance" in found
    assert "conroi" not in found
    assert "conroi" in imports_of("steps"), "this test would see it"


def test_a_process_that_runs_the_checker_has_not_loaded_conroi():
    code = "import sys, orders.checker; print([name for name in sys.modules if name.partition('.')[0] == 'conroi'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=EXAMPLES, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---------------------------------------------------------------------------- the data


def test_any_part_of_the_data_can_be_made_again_on_its_own():
    ids = generator.all_ids(PLAN)
    corrected = generator.is_corrected(PLAN, ids)
    part = slice(100, 180)
    whole = generator.order_rows(PLAN, ids, corrected)
    assert generator.order_rows(PLAN, ids[part], corrected[part]) == whole.slice(100, 80)


def test_another_seed_gives_other_data():
    ids = generator.all_ids(PLAN)
    other = replace(PLAN, seed=4)
    assert not np.array_equal(generator.customer_of(PLAN, ids), generator.customer_of(other, ids))


def test_some_orders_are_corrected_some_cancelled_and_none_both():
    ids = generator.all_ids(PLAN)
    corrected, cancelled = generator.is_corrected(PLAN, ids), generator.is_cancelled(PLAN, ids)
    assert corrected.any()
    assert cancelled.any()
    assert not (corrected & cancelled).any()


def test_every_step_can_be_begun_at_some_time():
    undone = PLAN.steps()
    done: set[str] = set()
    while undone:
        ready = [step for step in undone if step.needs <= done]
        assert ready
        done |= {step.name for step in ready}
        undone = [step for step in undone if step.name not in done]
    assert len(done) == len(PLAN.steps()), "and no two have one name"
    assert {step.kind for step in PLAN.steps()} == set(Kind)


# ---------------------------------------------------------------------------- the invariants can break


def without_last(rows: pa.Table) -> pa.Table:
    return rows.slice(0, rows.num_rows - 1)


def with_first_again(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, rows.slice(0, 1)])


def with_higher_amount(rows: pa.Table) -> pa.Table:
    place = rows.schema.get_field_index("amount_cents")
    return rows.set_column(place, "amount_cents", [[value + 1 for value in column_values(rows["amount_cents"])]])


@pytest.mark.parametrize("claim", INVARIANTS)
def test_the_data_as_planned_keep_every_invariant(claim: str):
    assert INVARIANTS[claim](expected_tables(PLAN)) == 0


@pytest.mark.parametrize(
    ("claim", "table", "change"),
    [
        ("no key is there twice", "items", with_first_again),
        ("no key is there twice", "customers", with_first_again),
        ("orders have their items", "items", without_last),
        ("orders have their items", "orders", without_last),
        ("orders have their items", "orders", with_higher_amount),
        ("totals are sums of items", "daily_totals", without_last),
        ("totals are sums of items", "daily_totals", with_higher_amount),
        ("totals are sums of items", "items", without_last),
        ("totals are sums of items", "orders", without_last),
    ],
)
def test_an_invariant_breaks_when_it_should(claim: str, table: str, change: Callable[[pa.Table], pa.Table]):
    tables = expected_tables(PLAN)
    assert INVARIANTS[claim](tables | {table: change(tables[table])}) > 0


def test_an_order_of_a_customer_who_is_not_there_is_noticed():
    tables = expected_tables(PLAN)
    assert INVARIANTS["customers of orders exist"](tables | {"customers": tables["customers"].slice(0, 10)}) > 0


def test_empty_tables_keep_every_invariant():
    tables = {name: rows.slice(0, 0) for name, rows in expected_tables(PLAN).items()}
    assert [check(tables) for check in INVARIANTS.values()] == [0, 0, 0, 0]


# ---------------------------------------------------------------------------- the timeline and the report

LOAD = f"load {date(2026, 11, 2)} north"


def heard(*events: Event) -> Recorder:
    recorder = Recorder(100.0)
    for event in events:
        recorder.hear(event)
    return recorder


def test_each_attempt_has_its_place_and_its_outcome():
    attempt: dict[str, Any] = {"step": LOAD, "note": "attempt"}
    timeline = heard(
        Event(What.STARTING, "worker-1", 100),
        Event(What.READY, "worker-1", 103),
        Event(What.NOTE, "worker-1", 104, **attempt),
        Event(What.NOTE, "worker-1", 106, **attempt),
        Event(What.KILLED, "worker-1", 107, step=LOAD, note="published"),
        Event(What.NOTE, "worker-2", 108, **attempt),
        Event(What.DONE, "worker-2", 109, step=LOAD, version=9, was_done_before=True),
    ).timeline

    told = [(a.who, a.start, a.end, a.outcome) for a in timeline.attempts]
    assert told == [
        ("worker-1", 4, 6, Outcome.RETRIED),
        ("worker-1", 6, 7, Outcome.KILLED),
        ("worker-2", 8, 9, Outcome.FOUND),
    ]
    assert timeline.starts == [("worker-1", 0, 3)]
    assert [a.is_published for a in timeline.attempts] == [False, True, False], "the killed one had published it"


@pytest.mark.parametrize(
    "fault",
    [
        {"tables": {"orders": replace(ALL_RIGHT, lost=1)}},
        {"tables": {"orders": replace(ALL_RIGHT, duplicated=1)}},
        {"tables": {"orders": replace(ALL_RIGHT, wrong=1)}},
        {"problems": ["version 3: no key is there twice: 1 rows"]},
        {"published_once": 0},
        {"audits": 0},
    ],
    ids=str,
)
def test_a_report_with_any_fault_is_not_right(fault: dict[str, object], tmp_path: Path):
    timeline = heard(
        Event(What.NOTE, "worker-1", 101, step=LOAD, note="attempt"),
        Event(What.DONE, "worker-1", 102, step=LOAD),
        Event(What.AUDIT, "reader-1", 103, version=2, checks=6),
    ).timeline
    names: list[str | None] = [step.name for step in PLAN.steps()]
    good = make_report(PLAN, timeline, {"orders": ALL_RIGHT}, names, write_landing(PLAN, tmp_path))
    assert good.is_right
    assert not replace(good, **fault).is_right
