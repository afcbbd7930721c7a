"""The connector for DataFrames and transactions of this Python process: `to_spark`, `table.append(df)`, `lake.sql`.

The JVM of a classic Spark session is a child of this process, and asks it over a Unix socket instead of starting a
helper. So Spark reads versions that only this process knows, its statements become part of transactions that this
process has begun, and the verbs of this process commit what its tasks wrote.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import conroi
from conroi.data.table_version import TableVersion
from conroi.errors import ClosedError
from conroi.lake import Lake
from conroi.spark.connector import jar
from conroi.spark.connector.configuration import PACKAGE
from conroi.spark.connector.helper import Helper, Request
from conroi.spark.connector.lake_session import LakeSession, RowCounts
from conroi.spark.connector.tables import version_facts
from conroi.spark.connector.tasks import part_from_text
from conroi.spark.connector.wire import Frames
from conroi.spark.connector.writes import FragmentWrite
from conroi.spark.packets import Part
from conroi.spark.pins import PinnedVersion
from conroi.spark.transactions import typed_errors
from conroi.spark.write_task import WriteTask
from conroi.storage.cloud_options import StorageOptions
from conroi.storage.memory import process_folder
from conroi.storage.parallel import ProcessLock
from conroi.transaction import Transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PINNED = f"{PACKAGE}.PinnedSource"
_SINK = f"{PACKAGE}.FragmentSink"
_CATALOG = f"{PACKAGE}.LakeCatalog"
_JAR_SETTINGS = ("spark.jars", "spark.driver.extraClassPath")


def has_connector(spark: SparkSession) -> bool:
    """Whether this is a classic session that started with the jar; a Connect server is another machine's process."""
    if not hasattr(spark, "_jsparkSession"):
        return False
    return any(jar.NAME in (spark.conf.get(setting, "") or "") for setting in _JAR_SETTINGS)


def version_frame(pinned: TableVersion, spark: SparkSession, columns: pa.Schema, where: str | None) -> DataFrame:
    """The rows of a version, read by the connector."""
    facts = version_facts(pinned.root, pinned, columns, _without_credentials(PinnedVersion.of(pinned)))
    reader = spark.read.format(_PINNED).options(**_settings()).option("facts", json.dumps(facts))
    return (reader if where is None else reader.option("filter", f"({where})")).load()


def written_parts(frame: DataFrame, task: WriteTask) -> list[Part]:
    """Run the job of a DataFrame, whose tasks write files by the connector; raises the first error in the rows."""
    identity = str(next(_numbers))
    write = _writes[identity] = FragmentWrite(task)
    try:
        with typed_errors():
            frame.write.format(_SINK).mode("append").options(write=identity, **_settings()).save()
    finally:
        del _writes[identity]
    return [part_from_text(text) for text in write.written]


_numbers = itertools.count(1)
_writes: dict[str, FragmentWrite] = {}
"""Under way, by their numbers."""

_credentials: dict[str, StorageOptions] = {}
"""Storage options that a DataFrame refers to by their hash: options of a DataFrame are shown, and outlive it."""


def _without_credentials(version: PinnedVersion) -> str:
    options = version.place.storage_options
    if not options:
        return version.to_text()
    key = hashlib.sha256(json.dumps(sorted(options.items())).encode()).hexdigest()
    _credentials[key] = options
    return f"{key}:{version.with_storage_options(StorageOptions({})).to_text()}"


def _with_credentials(text: str) -> str:
    key, _, bare = text.rpartition(":")
    if not key:
        return bare
    return PinnedVersion.from_text(bare).with_storage_options(_credentials[key]).to_text()


@contextmanager
def joined(tx: Transaction, spark: SparkSession) -> Generator[tuple[str, RowCounts]]:
    """A catalog whose tables are those that the transaction sees, and the rows that statements change there."""
    with _names.leased(spark) as name:
        identity = str(tx.catalog.environment.new_uuid())
        session = LakeSession(name, Lake(tx.catalog), {})
        counts = session.join(identity, tx).changed
        setting = f"spark.conroi.transaction.{name}"
        _sessions[identity] = session
        spark.conf.set(setting, identity)
        try:
            yield name, counts
        finally:
            spark.conf.unset(setting)
            del _sessions[identity]


class _Names:
    """Names of catalogs. A session keeps a catalog for ever, so a name is used again, by one statement at a time."""

    def __init__(self) -> None:
        self._free: list[str] = []
        self._made = 0
        self._lock = ProcessLock()

    @contextmanager
    def leased(self, spark: SparkSession) -> Generator[str]:
        with self._lock:
            if not self._free:
                self._made += 1
                self._free.append(f"conroi_driver_{self._made}")
            name = self._free.pop()
        prefix = f"spark.sql.catalog.{name}"
        for key, value in {
            prefix: _CATALOG,
            **{f"{prefix}.{key}": value for key, value in _settings().items()},
        }.items():
            spark.conf.set(key, value)
        try:
            yield name
        finally:
            with self._lock:
                self._free.append(name)


_names = _Names()
_sessions: dict[str, LakeSession] = {}
"""By transaction."""


class _Transactions:
    """Lakes of the transactions that statements are part of."""

    def open(self, request: Request) -> None:
        """A lake is found by the transaction of a request."""

    def of(self, request: Request) -> LakeSession:
        found = _sessions.get(str(request.get("transaction")))
        if found is None:
            raise ClosedError("The statement is part of no transaction.", hint="Call lake.sql or tx.sql.")
        return found

    def pin(self, text: str) -> str:
        return _with_credentials(text)

    def fragments(self, request: Request) -> FragmentWrite:
        found = _writes.get(str(request["write"]))
        if found is None:
            raise ClosedError("The write has ended.", hint="Run the verb again.")
        return found


def _settings() -> dict[str, str]:
    """Where the JVM finds this process, and the code for its workers."""
    return {"socket": _served(), "pythonPath": str(Path(conroi.__file__).parent.parent)}


@cache
def _served() -> str:
    """The address at which this process answers."""
    path = os.path.join(process_folder("conroi-driver-"), "helper")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen()
    threading.Thread(target=_accept, args=(listening,), name="conroi-driver", daemon=True).start()
    return path


def _accept(listening: socket.socket) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:  # no file descriptor is free
            continue
        threading.Thread(target=_serve, args=(connection,), name="conroi-driver", daemon=True).start()


def _serve(connection: socket.socket) -> None:
    frames = Frames(connection.fileno(), connection.fileno())
    with connection:
        try:
            Helper(frames, _Transactions()).run()
        finally:
            frames.close()
