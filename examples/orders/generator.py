"""The data: every value follows from the seed and an id, so any part of them can be made again on its own.

Amounts are whole cents: sums are exact in any order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .plan import Plan

Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]

CITIES = ("Aldern", "Brack", "Corvil", "Dunmere", "Esk", "Farrow", "Glen", "Hallow")
MOST_LINES = 16  # an order has fewer, so that order_id * 16 + line is a number of its own for each item


def draw(plan: Plan, purpose: int, ids: Ids) -> NDArray[np.uint64]:
    """Random bits for each id; another purpose gives other bits. (The mixing steps are those of splitmix64.)"""
    start = ((plan.seed * 1_000_003 + purpose) * 0x9E3779B97F4A7C15) % 2**64
    bits = ids.astype(np.uint64) * np.uint64(0xD1342543DE82EF95) + np.uint64(start)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def below(plan: Plan, purpose: int, ids: Ids, limit: int) -> Ids:
    """A random number from 0 to limit - 1 for each id."""
    return (draw(plan, purpose, ids) % np.uint64(limit)).astype(np.int64)


def all_ids(plan: Plan) -> Ids:
    """The ids of all orders that are ever placed."""
    return np.arange(plan.orders, dtype=np.int64)


def batch_of(plan: Plan, ids: Ids) -> Ids:
    """The number of the batch (a day of a region) that each order came in with."""
    ends = np.array([batch.stop for _, _, batch in plan.batches()], dtype=np.int64)
    return np.searchsorted(ends, ids, side="right")


def is_cancelled(plan: Plan, ids: Ids) -> Mask:
    """About 3 in 100 orders are cancelled later; never the first of a batch, so that each has some left."""
    firsts = [batch.start for _, _, batch in plan.batches()]
    return (below(plan, 1, ids, 100) < 3) & ~np.isin(ids, firsts)


def is_corrected(plan: Plan, ids: Ids) -> Mask:
    """About 5 in 100 other orders are corrected later."""
    return (below(plan, 1, ids, 100) >= 95) & ~is_cancelled(plan, ids)


def item_rows(plan: Plan, ids: Ids, corrected: Mask) -> pa.Table:
    """The items of these orders; a corrected order has more of its first product, and one line more."""
    lines = 1 + below(plan, 2, ids, 5) + corrected
    owner = np.repeat(np.arange(len(ids)), lines)
    line = np.arange(len(owner)) - np.repeat(np.cumsum(lines) - lines, lines)
    numbers = ids[owner] * MOST_LINES + line
    quantity = 1 + below(plan, 4, numbers, 9) + 10 * (corrected[owner] & (line == 0))
    batches = batch_of(plan, ids[owner])
    return _table(
        order_id=ids[owner],
        line=line.astype(np.int32),
        day=_days(plan)[batches],
        region=_regions(plan)[batches],
        product=below(plan, 3, numbers, 500).astype(np.int32),
        quantity=quantity.astype(np.int32),
        price_cents=99 + below(plan, 5, numbers, 9_900),
    )


def order_rows(plan: Plan, ids: Ids, corrected: Mask) -> pa.Table:
    """The orders, by ascending id; their amount is the sum of their items."""
    items = item_rows(plan, ids, corrected)
    amounts = items["quantity"].to_numpy().astype(np.int64) * items["price_cents"].to_numpy()
    sums = np.zeros(len(ids), dtype=np.int64)
    np.add.at(sums, np.searchsorted(ids, items["order_id"].to_numpy()), amounts)
    batches = batch_of(plan, ids)
    return _table(
        order_id=ids,
        customer_id=customer_of(plan, ids),
        day=_days(plan)[batches],
        region=_regions(plan)[batches],
        status=np.where(corrected, "corrected", "placed"),
        lines=(1 + below(plan, 2, ids, 5) + corrected).astype(np.int32),
        amount_cents=sums,
    )


def customer_of(plan: Plan, ids: Ids) -> Ids:
    """Who placed each order: a customer of its region."""
    in_region = plan.customers // plan.regions
    return (batch_of(plan, ids) % plan.regions) * in_region + below(plan, 6, ids, in_region)


def customer_rows(plan: Plan, customers: Ids) -> pa.Table:
    """What is known of these customers."""
    names = np.array([f"Customer {number:06}" for number in customers])
    return _table(customer_id=customers, name=names, city=np.array(CITIES)[below(plan, 7, customers, len(CITIES))])


def _days(plan: Plan) -> NDArray[np.datetime64]:
    """By number of the batch."""
    return np.array([day for day, _, _ in plan.batches()], dtype="datetime64[D]")


def _regions(plan: Plan) -> NDArray[np.str_]:
    return np.array([region for _, region, _ in plan.batches()])


def _table(**columns: NDArray[Any]) -> pa.Table:
    return pa.table([pa.array(values) for values in columns.values()], names=list(columns))
