"""The steps of the pipeline. Each is one transaction over several tables: all of it happens, or nothing.

`lake.run(work)` calls `work(tx)` and commits; after a conflict with a concurrent commit it does both
again. A step's name is its idempotency key, so a step that is tried again, by whomever, lands once.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (the usual name)
from pyspark.sql.types import StructType

import conroi

from .landing import Landing
from .plan import Kind, Step

Say = Callable[[str], None]
"""Hears how far a step is."""


class Steps:
    """What a worker can do."""

    def __init__(self, lake: conroi.Lake, spark: SparkSession, landing: Landing) -> None:
        self.lake = lake
        self.spark = spark
        self.landing = landing
        self.say: Say = print
        self.schemas: dict[str, StructType] = {}

    def run(self, step: Step, author: str, say: Say) -> conroi.TransactionResult:
        """Do a step, as often as others make it necessary."""
        self.say = say

        def work(tx: conroi.Transaction) -> conroi.Transaction:
            self.say("attempt")
            if not tx.is_done:
                self._do(tx, step)
            return tx

        return self.lake.run(work, message=step.name, author=author, idempotency_key=step.name).result

    def _do(self, tx: conroi.Transaction, step: Step) -> None:
        if step.kind is Kind.COMPACT:
            return self.compact(tx)
        assert step.day is not None
        if step.kind is Kind.LOAD:
            assert step.region is not None
            return self.load(tx, step.day, step.region)
        return {Kind.CORRECT: self.correct, Kind.CANCEL: self.cancel, Kind.CLOSE: self.close}[step.kind](tx, step.day)

    # ------------------------------------------------------------------------ the transactions

    def load(self, tx: conroi.Transaction, day: date, region: str) -> None:
        """A day of a region: new orders with their items, new and known customers, the day's total."""
        orders, items, customers = (
            self.landed(f"load {table}", self.landing.load(day, region, table))
            for table in ("orders", "items", "customers")
        )
        tx["orders"].append(orders)
        self.say("orders written")
        tx["items"].append(items)
        placed = orders.groupBy("customer_id").agg(F.count("*").alias("orders_placed"), F.max("day").alias("last_day"))
        tx["customers"].merge(customers.join(placed, "customer_id"), on="customer_id").when_matched_update(
            {
                "orders_placed": "target.orders_placed + source.orders_placed",
                "last_day": "greatest(target.last_day, source.last_day)",
            }
        ).when_not_matched_insert_all().execute()
        self.refresh_totals(tx, f"day = date '{day}' AND region = '{region}'")

    def correct(self, tx: conroi.Transaction, day: date) -> None:
        """Orders that were changed: their new items (some are new lines), and the day's totals."""
        orders, items = (
            self.landed(f"correct {table}", self.landing.corrections(day, table)) for table in ("orders", "items")
        )
        tx["orders"].merge(orders, on="order_id").when_matched_update_all().execute()
        tx["items"].merge(
            items, on=["order_id", "line"]
        ).when_matched_update_all().when_not_matched_insert_all().execute()
        self.refresh_totals(tx, f"day = date '{day}'")

    def cancel(self, tx: conroi.Transaction, day: date) -> None:
        """Orders that were cancelled go, with their items."""
        ids = pq.read_table(self.landing.cancellations(day))["order_id"].to_pylist()
        if ids:
            cancelled = f"order_id IN ({', '.join(map(str, ids))})"
            tx["orders"].delete(cancelled)
            tx["items"].delete(cancelled)
            self.refresh_totals(tx, f"day = date '{day}'")

    def close(self, tx: conroi.Transaction, day: date) -> None:
        """Count a day once more and close it; refused if a concurrent commit changes any order or item."""
        tx.expect("orders")
        tx.expect("items")
        where = f"day = date '{day}'"
        counted = {tuple(row) for row in self.totals(tx, where).drop("closed").collect()}
        told = tx["daily_totals"].to_arrow(["day", "region", "orders", "items", "amount_cents"], where).to_pylist()
        if counted != {tuple(row.values()) for row in told}:
            raise RuntimeError(f"The totals of {day} are not those of its items.")
        tx["daily_totals"].update({"closed": "true"}, where)

    def compact(self, tx: conroi.Transaction) -> None:
        """Many small files become few."""
        for name in tx.tables():
            tx[name].compact()

    # ------------------------------------------------------------------------ what several of them do

    def landed(self, kind: str, path: str) -> DataFrame:
        """Files of one kind have one schema, which Spark need not find out with a job each time."""
        known = self.schemas.get(kind)
        frame = (self.spark.read if known is None else self.spark.read.schema(known)).parquet(path)
        self.schemas.setdefault(kind, frame.schema)
        return frame

    def totals(self, tx: conroi.Transaction, where: str) -> DataFrame:
        """The totals of some days, counted by Spark from the items as this transaction sees them."""
        columns = ["order_id", "day", "region", "quantity", "price_cents"]
        items = tx["items"].to_spark(self.spark, columns, where)
        return items.groupBy("day", "region").agg(
            F.count_distinct("order_id").alias("orders"),
            F.count("*").alias("items"),
            F.sum(F.col("quantity") * F.col("price_cents")).alias("amount_cents"),
            F.lit(False).alias("closed"),
        )

    def refresh_totals(self, tx: conroi.Transaction, where: str) -> None:
        """Two transactions that refresh the same total meet in its row: one of them does its work again."""
        self.say("counting")
        tx["daily_totals"].merge(
            self.totals(tx, where), on=["day", "region"]
        ).when_matched_update_all().when_not_matched_insert_all().execute()
