"""Random histories of branches and merges in which Spark does the statements on single tables."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.branches.histories.running import random_history


@pytest.mark.soak
@pytest.mark.contract("S1", "B3")
@pytest.mark.parametrize("seed", range(10))
def test_histories_with_spark(spark: SparkSession, seed: int) -> None:
    outcome = random_history(seed, 15, spark=spark, without=("collect",))
    assert outcome.problem is None, f"{outcome.problem}\n" + "\n".join(outcome.code)
