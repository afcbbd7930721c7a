"""Transactions over several SQL statements of a Spark session: all of them are committed together, or none."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from conroi.errors import InvalidInputError
from conroi.spark.connector.configuration import DEFAULT_NAME
from conroi.spark.connector.errors import typed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from conroi.transaction import Isolation

_SETTING = "spark.conroi.transaction"


class SparkTransaction:
    """An open transaction of a catalog, to which every statement of its Spark session belongs."""

    def __init__(self, spark: SparkSession, catalog: str, identity: str) -> None:
        self._spark = spark
        self._catalog = catalog
        self._identity = identity
        self.version: int | None = None
        """The version of the lake after the commit."""

    def sql(self, query: str, args: Mapping[str, Any] | list[Any] | None = None) -> DataFrame:
        """Run a statement; as `spark.sql`, but an error of conroi is raised as that error."""
        with typed_errors():
            return self._spark.sql(query, args)  # pyright: ignore[reportArgumentType]

    def commit(self) -> None:
        """Commit; the end of the `with` block does it."""
        self.version = self._ended("commit")

    def rollback(self) -> None:
        """Drop all changes; an exception in the `with` block does it."""
        self._ended("rollback")

    def _ended(self, how: str) -> int | None:
        call = f"CALL {self._catalog}.system.{how}(transaction => '{self._identity}')"
        with typed_errors():
            row = self._spark.sql(call).first()
        return None if row is None else row[0]


@contextmanager
def transaction(
    spark: SparkSession,
    message: str | None = None,
    *,
    catalog: str = DEFAULT_NAME,
    isolation: Isolation | None = None,
) -> Generator[SparkTransaction]:
    """Run the statements of a `with` block in one transaction of a lake that is a catalog of this session.

    They read one version of the lake and their own changes, and are committed together at the end; after an exception
    nothing is. Statements of other sessions are not part of it. Conflicts are raised as errors of conroi.
    """
    setting = f"{_SETTING}.{catalog}"
    if not catalog.isidentifier():
        raise InvalidInputError(f"{catalog!r} is no name of a catalog.", hint="Give the name that statements use.")
    if spark.conf.get(setting, ""):
        raise InvalidInputError(
            f"This session is in a transaction of {catalog!r} already.", hint="End it first, or use spark.newSession()."
        )
    identity = str(uuid4())
    with typed_errors():
        given = {"identity": identity, "message": message, "isolation": isolation}
        call = f"CALL {catalog}.system.begin(transaction => :identity, message => :message, isolation => :isolation)"
        spark.sql(call, given).collect()
    open_transaction = SparkTransaction(spark, catalog, identity)
    spark.conf.set(setting, identity)
    try:
        with typed_errors():
            yield open_transaction
    except BaseException:
        spark.conf.unset(setting)
        open_transaction.rollback()
        raise
    spark.conf.unset(setting)
    open_transaction.commit()


@contextmanager
def typed_errors() -> Generator[None]:
    """Raise an error of conroi that came through Spark as what it was."""
    try:
        yield
    except Exception as error:
        found = typed(error)
        if found is None or found is error:
            raise
        raise found from error
