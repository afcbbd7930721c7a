"""Rows produced by a distributed engine (Spark): executors write the data files, only file metadata returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, cast

import pyarrow as pa

from conroi.data.writer import DataWriter, Progress, WrittenFiles


@dataclass(frozen=True)
class WrittenRemoteRows:
    """Files that a distributed engine wrote for us, and the keys of their rows."""

    files: WrittenFiles
    keys: Sequence[pa.Table] = field(default_factory=list[pa.Table])
    """As `KeysSeen` has them; empty for a table without a key."""


class RemoteRows(ABC):
    """Rows that can be written without passing through this process.

    Not a protocol: a DataFrame has an attribute of any name, since it might be a column's.
    """

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """Their columns."""

    @abstractmethod
    def write(
        self, writer: DataWriter, schema: pa.Schema, key: Sequence[str], progress: Progress | None = None
    ) -> WrittenRemoteRows:
        """Write them as files of the writer's table; idempotent for the same request."""

    def in_pieces(self, writer: DataWriter, schema: pa.Schema, key: Sequence[str], rows: int) -> Sequence[RemoteRows]:
        """Write them at once, and yield them in pieces of at most this many rows, in their order."""
        del writer, schema, key, rows
        return [self]  # what is written already stays as it is

    @abstractmethod
    def to_reader(self) -> pa.RecordBatchReader:
        """The rows in this process; InvalidInputError if they are too many for that."""


def from_elsewhere(data: object) -> RemoteRows | None:
    """The data as remote rows, if it is a DataFrame."""
    if isinstance(data, RemoteRows):
        return data
    if type(data).__module__.partition(".")[0] != "pyspark":
        return None
    return cast("RemoteRows | None", in_spark("frames").from_spark(data))


def in_spark(module: str) -> Any:
    """A module of conroi.spark, a higher layer; imported only when it is used, since Spark is optional."""
    return import_module(f"conroi.spark.{module}")


def kept(data: object) -> object:
    """The data, for one verb: remote rows are cached, so that they are written only once."""
    return from_elsewhere(data) or data
