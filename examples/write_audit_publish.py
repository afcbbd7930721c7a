"""Write, audit, publish: a load with Spark goes to a branch, is checked there, and is merged only if it is good.

    python examples/write_audit_publish.py [FOLDER]

The first load has an order of an unknown customer: it is thrown away, and no reader ever saw it. The second is
good: both tables reach the main branch in one commit. Without the extra `conroi[spark]` it does the same with Arrow.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import conroi

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = Sequence[Mapping[str, Any]]

NIGHTS: list[tuple[str, Rows, Rows]] = [
    ("monday", [{"id": 2, "customer": "Grcae", "amount": 7.5}], [{"name": "Grace"}]),
    ("tuesday", [{"id": 2, "customer": "Grace", "amount": 7.5}], [{"name": "Grace"}]),
]


def write(branch: conroi.Lake, orders: Rows, customers: Rows, spark: SparkSession | None) -> None:
    """The load; with Spark, its executors write the files."""
    with branch.begin("load") as tx:
        for name, rows in (("orders", orders), ("customers", customers)):
            tx[name].append(rows if spark is None else spark.createDataFrame(cast("Any", rows)))


def audit(branch: conroi.Lake, spark: SparkSession | None) -> int:
    """How many orders are of an unknown customer."""
    orders, customers = branch["orders"], branch["customers"]
    if spark is None:
        known = set(customers.to_arrow()["name"].to_pylist())
        return sum(customer not in known for customer in orders.to_arrow()["customer"].to_pylist())
    names = customers.to_spark(spark).withColumnRenamed("name", "customer")
    return orders.to_spark(spark).join(names, "customer", "left_anti").count()


def publish(lake: conroi.Lake, name: str, spark: SparkSession | None) -> None:
    """Merge the branch if it is good; it is not needed any more in either case."""
    print(lake.diff("main", name))
    strangers = audit(lake.branch(name), spark)
    if strangers:
        print(f"  {name}: {strangers} orders of unknown customers, so this load is thrown away")
    else:
        print(f"  {lake.merge(name, message=f'load of {name}')}")
    lake.branches.delete(name)


def run(lake: conroi.Lake, spark: SparkSession | None) -> None:
    """Two nights."""
    with lake.begin("the start") as tx:
        tx.create_table("customers", [{"name": "Ada"}], key="name")
        tx.create_table("orders", [{"id": 1, "customer": "Ada", "amount": 5.0}], key="id")
    for name, orders, customers in NIGHTS:
        lake.branches.create(name)
        write(lake.branch(name), orders, customers, spark)
        publish(lake, name, spark)
    print([(commit.version, commit.message) for commit in lake.history()])


def main() -> None:
    """Run it in a folder, with Spark if it is there."""
    parser = argparse.ArgumentParser(description="Write, audit, publish.")
    parser.add_argument("folder", nargs="?", help="where the lake goes; a temporary folder if not given")
    parser.add_argument("--no-spark", action="store_true", help="with Arrow alone")
    chosen = parser.parse_args()
    has_spark = importlib.util.find_spec("pyspark") is not None and not chosen.no_spark
    spark = None
    if has_spark:
        from conroi.spark import session

        spark = session("write-audit-publish")
    with tempfile.TemporaryDirectory() as temporary:
        run(conroi.connect(chosen.folder or temporary), spark)
    if spark is not None:
        spark.stop()


if __name__ == "__main__":
    main()
