"""What must hold in every version of the lake, beside concurrent writers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .plan import KEYS

Tables = Mapping[str, pa.Table]
Invariant = Callable[[Tables], int]
"""How many rows break it."""

COLUMNS = {
    "customers": ["customer_id"],
    "orders": ["order_id", "customer_id", "day", "region", "lines", "amount_cents"],
    "items": ["order_id", "line", "day", "region", "quantity", "price_cents"],
    "daily_totals": ["day", "region", "orders", "items", "amount_cents"],
}


def no_duplicate_keys(tables: Tables) -> int:
    """No key is there twice, in any table."""
    return sum(rows.num_rows - rows.group_by(KEYS[name]).aggregate([]).num_rows for name, rows in tables.items())


def orders_have_their_items(tables: Tables) -> int:
    """An order has as many items as it says, with its amount, and no item is without its order."""
    counted = _amounts(tables["items"]).group_by("order_id").aggregate([([], "count_all"), ("amount", "sum")])
    both = (
        tables["orders"].select(["order_id", "lines", "amount_cents"]).join(counted, "order_id", join_type="full outer")
    )
    return _different(both, ("lines", "count_all"), ("amount_cents", "amount_sum"))


def totals_are_sums_of_items(tables: Tables) -> int:
    """The totals of each day and region are those of its orders and items."""
    by_items = _amounts(tables["items"]).group_by(["day", "region"]).aggregate([([], "count_all"), ("amount", "sum")])
    orders = (
        tables["orders"]
        .group_by(["day", "region"])
        .aggregate([([], "count_all")])
        .rename_columns(["day", "region", "n"])
    )
    both = tables["daily_totals"].join(by_items, ["day", "region"], join_type="full outer")
    both = both.join(orders, ["day", "region"], join_type="full outer")
    return _different(both, ("items", "count_all"), ("amount_cents", "amount_sum"), ("orders", "n"))


def customers_exist(tables: Tables) -> int:
    """Every order was placed by a customer who is there."""
    known = np.isin(tables["orders"]["customer_id"].to_numpy(), tables["customers"]["customer_id"].to_numpy())
    return int(np.count_nonzero(~known))


INVARIANTS: dict[str, Invariant] = {
    "no key is there twice": no_duplicate_keys,
    "orders have their items": orders_have_their_items,
    "totals are sums of items": totals_are_sums_of_items,
    "customers of orders exist": customers_exist,
}


def _amounts(items: pa.Table) -> pa.Table:
    amount = pc.multiply(items["quantity"].cast(pa.int64()), items["price_cents"])
    return items.append_column("amount", amount)


def _different(rows: pa.Table, *pairs: tuple[str, str]) -> int:
    """In how many rows the columns of some pair differ; what is missing becomes NaN, which differs from everything."""
    different = np.zeros(rows.num_rows, dtype=np.bool_)
    for left, right in pairs:
        different |= rows[left].to_numpy() != rows[right].to_numpy()
    return int(np.count_nonzero(different))
