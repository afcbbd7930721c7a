"""One Spark for all these tests. They stand first in the order, so that one test process takes them all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import conroi.spark
from tests.spark.support import FAST_START, quiet
from tests.support.source import REPOSITORY

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A Java machine takes long to start, so it is started in one test process, and early."""
    items.sort(key=lambda item: not item.path.is_relative_to(HERE))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark with two cores, on which a task is tried twice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(REPOSITORY))  # the workers run functions of the tests
        settings = FAST_START | {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
        session = conroi.spark.session("tests", master="local[2,2]", config=settings)
    quiet(session)
    yield session
    session.stop()


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A place for a table."""
    return str(tmp_path / "table.lance")
