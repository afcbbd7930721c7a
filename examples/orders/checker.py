"""The last word: reads the tables with plain pylance and compares every row with the plan, computed again.

    python -m orders.checker LAKE PLAN

It shares no code with conroi, so a mistake there cannot hide itself here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from . import generator
from .plan import KEYS, Plan


@dataclass(frozen=True, slots=True)
class Found:
    """What was found in one table."""

    expected: int
    rows: int
    lost: int
    """Keys that should be there."""
    duplicated: int
    """Rows beyond the first of their key."""
    unexpected: int
    """Keys that should not be there."""
    wrong: int
    """Rows with another value than they should have."""

    @property
    def is_right(self) -> bool:
        """Whether the table is exactly as planned."""
        return not (self.lost or self.duplicated or self.unexpected or self.wrong)


def check(lake: Path, plan: Plan) -> dict[str, Found]:
    """Compare each table of the lake with what should be in it when all steps are done."""
    expected = expected_tables(plan)
    return {
        name: compare(rows, lance.dataset(str(lake / f"{name}.lance")).to_table(), KEYS[name])
        for name, rows in expected.items()
    }


def expected_tables(plan: Plan) -> dict[str, pa.Table]:
    """All rows that should be there in the end."""
    placed = generator.all_ids(plan)
    kept = placed[~generator.is_cancelled(plan, placed)]
    corrected = generator.is_corrected(plan, kept)
    orders, items = generator.order_rows(plan, kept, corrected), generator.item_rows(plan, kept, corrected)
    return {"customers": _customers(plan), "orders": orders, "items": items, "daily_totals": _totals(orders, items)}


def _customers(plan: Plan) -> pa.Table:
    """All who placed an order, also if it was cancelled."""
    ids = generator.all_ids(plan)
    orders = generator.order_rows(plan, ids, np.zeros(len(ids), dtype=np.bool_))
    placed = orders.group_by("customer_id").aggregate([([], "count_all"), ("day", "max")]).sort_by("customer_id")
    known = generator.customer_rows(plan, placed["customer_id"].to_numpy())
    return known.append_column("orders_placed", placed["count_all"]).append_column("last_day", placed["day_max"])


def _totals(orders: pa.Table, items: pa.Table) -> pa.Table:
    by = ["day", "region"]
    amount = pc.multiply(items["quantity"].cast(pa.int64()), items["price_cents"])
    of_orders = orders.group_by(by).aggregate([([], "count_all")]).rename_columns([*by, "orders"])
    of_items = items.append_column("amount", amount).group_by(by).aggregate([([], "count_all"), ("amount", "sum")])
    both = of_orders.join(of_items.rename_columns([*by, "items", "amount_cents"]), by)
    return both.append_column("closed", pa.array([True] * both.num_rows))


def compare(expected: pa.Table, found: pa.Table, key: Sequence[str]) -> Found:
    """Count what is missing, doubled, too much or different."""
    distinct = _first_of_each_key(found, key)
    here = [*key, *(name for name in expected.column_names if name not in key)]
    both = expected.select(here).join(distinct.select(here), list(key), join_type="inner", right_suffix="_found")
    same = np.ones(both.num_rows, dtype=np.bool_)
    for name in here[len(key) :]:
        same &= both[name].to_numpy() == both[f"{name}_found"].to_numpy()
    return Found(
        expected=expected.num_rows,
        rows=found.num_rows,
        lost=expected.num_rows - both.num_rows,
        duplicated=found.num_rows - distinct.num_rows,
        unexpected=distinct.num_rows - both.num_rows,
        wrong=int(np.count_nonzero(~same)),
    )


def _first_of_each_key(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    ordered = rows.sort_by([(name, "ascending") for name in key])
    is_new = np.zeros(ordered.num_rows, dtype=np.bool_)
    is_new[:1] = True
    for name in key:
        values = ordered[name].to_numpy()
        is_new[1:] |= values[1:] != values[:-1]
    return ordered.filter(pa.array(is_new))


def main(lake: str, plan_json: str) -> None:
    """Print what was found, as JSON."""
    found = check(Path(lake), Plan.from_json(plan_json))
    print(json.dumps({name: asdict(each) for name, each in found.items()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
