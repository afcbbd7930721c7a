"""A lake as the catalog `lake`, one for each module of tests, in a session of its own on the shared Spark."""

from __future__ import annotations

import time

import pytest
from pyspark.sql import SparkSession

import conroi
from conroi.spark.connector.configuration import catalog_settings
from tests.spark.connector.conformance import Conformance
from tests.spark.connector.support import BROADCAST


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> conroi.Lake:
    """The lake that `sql` has as its catalog."""
    return conroi.connect(tmp_path_factory.mktemp("connector") / "lake")


@pytest.fixture(scope="module")
def sql(spark: SparkSession, lake: conroi.Lake) -> SparkSession:
    """A session with the lake as the catalog `lake`."""
    session = spark.newSession()
    for key, value in catalog_settings(lake.uri, is_local=True).items():
        session.conf.set(key, value)
    session.udf.register("slow", slow, "boolean")
    return session


def slow(value: int, sought: int) -> bool:
    """True, after three seconds for one value: meanwhile something else happens."""
    if value == sought:
        time.sleep(3)
    return True


@pytest.fixture(scope="module")
def conformance(sql: SparkSession, lake: conroi.Lake, tmp_path_factory: pytest.TempPathFactory) -> Conformance:
    """Runs cases of conformance."""
    settings = {
        "spark.sql.parquet.filterPushdown": "false",  # row groups of Parquet know no NaN
        "spark.sql.adaptive.enabled": "false",
        BROADCAST: "-1",  # Spark would evaluate the filters of small tables again, and hide a wrong one
    }
    for key, value in settings.items():
        sql.conf.set(key, value)
    return Conformance(sql, lake, tmp_path_factory.mktemp("parquet"))
