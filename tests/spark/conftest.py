"""One Spark session for these tests; `tests/support/order_plugin.py` keeps them in one test process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import conroi.spark
from conroi.spark.connector.configuration import EXTENSION, connector_jar
from conroi.spark.sessions import java_home
from tests.spark.support import FAST_START, quiet, without_connector
from tests.support.source import REPOSITORY


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark with two cores, on which a task is tried twice."""
    with pytest.MonkeyPatch.context() as patch:
        # The workers run functions of the tests.
        patch.setenv("PYTHONPATH", os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)]))
        settings = FAST_START | {
            "spark.jars": connector_jar(java_home()),
            "spark.sql.extensions": EXTENSION,
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        }
        session = conroi.spark.session("tests", master="local[2,2]", config=settings)
    quiet(session)
    yield session
    session.stop()


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A place for a table."""
    return str(tmp_path / "table.lance")


@pytest.fixture(params=["connector", "python"])
def both(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the connector, and as in a session that started without its jar: results are the same."""
    if request.param == "python":
        without_connector(monkeypatch)
    return request.param


@pytest.fixture
def way(both: str) -> str:
    """The same, for tests that have no other `way`."""
    return both
