"""A lake as the catalog `lake` of a session for each module of tests, on the shared Spark.

Modules share the lake, and with it one helper process, which takes a second to start. Those that look at all of a lake,
or kill its helper, have one of their own.
"""

from __future__ import annotations

import time

import pytest
from pyspark.sql import SparkSession

import conroi
from conroi.spark.connector.configuration import catalog_settings
from tests.spark.connector.conformance import Conformance
from tests.spark.connector.support import BROADCAST


@pytest.fixture(scope="session")
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


@pytest.fixture(scope="session")
def conformance(spark: SparkSession, lake: conroi.Lake, tmp_path_factory: pytest.TempPathFactory) -> Conformance:
    """Runs cases of conformance, in one session."""
    settings = {
        **catalog_settings(lake.uri, is_local=True),
        "spark.sql.parquet.filterPushdown": "false",  # row groups of Parquet know no NaN
        "spark.sql.adaptive.enabled": "false",
        BROADCAST: "-1",  # Spark would evaluate the filters of small tables again, and hide a wrong one
    }
    session = spark.newSession()
    for key, value in settings.items():
        session.conf.set(key, value)
    return Conformance(session, lake, tmp_path_factory.mktemp("parquet"))
