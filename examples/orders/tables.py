"""The tables of the lake: their columns and keys."""

from __future__ import annotations

import pyarrow as pa

import conroi

from .plan import KEYS


def _columns(key: dict[str, pa.DataType], others: dict[str, pa.DataType]) -> pa.Schema:
    """Key columns are never null."""
    return pa.schema(
        [pa.field(name, kind, nullable=False) for name, kind in key.items()]
        + [pa.field(name, kind) for name, kind in others.items()]
    )


SCHEMAS: dict[str, pa.Schema] = {
    "customers": _columns(
        {"customer_id": pa.int64()},
        {"name": pa.string(), "city": pa.string(), "orders_placed": pa.int64(), "last_day": pa.date32()},
    ),
    "orders": _columns(
        {"order_id": pa.int64()},
        {
            "customer_id": pa.int64(),
            "day": pa.date32(),
            "region": pa.string(),
            "status": pa.string(),
            "lines": pa.int32(),
            "amount_cents": pa.int64(),
        },
    ),
    "items": _columns(
        {"order_id": pa.int64(), "line": pa.int32()},
        {
            "day": pa.date32(),
            "region": pa.string(),
            "product": pa.int32(),
            "quantity": pa.int32(),
            "price_cents": pa.int64(),
        },
    ),
    "daily_totals": _columns(
        {"day": pa.date32(), "region": pa.string()},
        {"orders": pa.int64(), "items": pa.int64(), "amount_cents": pa.int64(), "closed": pa.bool_()},
    ),
}


def create_tables(lake: conroi.Lake) -> None:
    """All four, or none."""
    with lake.begin("create the tables") as tx:
        for name, schema in SCHEMAS.items():
            tx.create_table(name, schema, key=KEYS[name])
