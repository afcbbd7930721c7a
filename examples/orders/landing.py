"""The landing folder: what other systems put down for the pipeline to fetch, as Parquet files."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from . import generator
from .generator import Ids
from .plan import Kind, Plan, Step


class Landing:
    """Where the files of each step are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, day: date, region: str, table: str) -> str:
        """New rows of a day in a region: orders, items or customers."""
        return str(self.folder / "loads" / str(day) / region / f"{table}.parquet")

    def corrections(self, day: date, table: str) -> str:
        """Changed orders and items of a day."""
        return str(self.folder / "corrections" / str(day) / f"{table}.parquet")

    def cancellations(self, day: date) -> str:
        """The ids of the orders of a day that were cancelled."""
        return str(self.folder / "cancellations" / f"{day}.parquet")

    def rows_of(self, step: Step) -> int:
        """How many rows a step brings in or takes away, as far as its files say."""
        if step.kind is Kind.LOAD:
            assert step.day is not None
            assert step.region is not None
            files = [self.load(step.day, step.region, table) for table in ("orders", "items", "customers")]
        elif step.kind is Kind.CORRECT:
            assert step.day is not None
            files = [self.corrections(step.day, table) for table in ("orders", "items")]
        elif step.kind is Kind.CANCEL:
            assert step.day is not None
            files = [self.cancellations(step.day)]
        else:
            files = []
        return sum(pq.read_metadata(file).num_rows for file in files)


def write_landing(plan: Plan, folder: Path) -> Landing:
    """Generate all files."""
    landing = Landing(folder)
    for day, region, batch in plan.batches():
        ids = np.arange(batch.start, batch.stop, dtype=np.int64)
        as_placed = np.zeros(len(ids), dtype=np.bool_)
        orders = generator.order_rows(plan, ids, as_placed)
        customers = np.unique(orders["customer_id"].to_numpy())
        _write(orders, landing.load(day, region, "orders"))
        _write(generator.item_rows(plan, ids, as_placed), landing.load(day, region, "items"))
        _write(generator.customer_rows(plan, customers), landing.load(day, region, "customers"))
    for day in plan.all_days:
        _write_changes(plan, landing, day, _ids_of(plan, day))
    return landing


def _ids_of(plan: Plan, day: date) -> Ids:
    return np.concatenate([np.arange(b.start, b.stop, dtype=np.int64) for d, _, b in plan.batches() if d == day])


def _write_changes(plan: Plan, landing: Landing, day: date, ids: Ids) -> None:
    changed = ids[generator.is_corrected(plan, ids)]
    corrected = np.ones(len(changed), dtype=np.bool_)
    _write(generator.order_rows(plan, changed, corrected), landing.corrections(day, "orders"))
    _write(generator.item_rows(plan, changed, corrected), landing.corrections(day, "items"))
    gone = ids[generator.is_cancelled(plan, ids)]
    _write(pa.table([pa.array(gone)], names=["order_id"]), landing.cancellations(day))


def _write(rows: pa.Table, path: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path)
