"""DuckDB over the tables of a lake, all at one version."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds

from conroi.errors import InvalidInputError, UnsupportedError

if TYPE_CHECKING:
    import duckdb

    from conroi.lake import Lake
    from conroi.table import Table

READING = {"SELECT", "EXPLAIN"}


class PinnedRows(ds.Dataset):
    """A table at its version, as DuckDB wants it: something with a schema that can be scanned more than once."""

    def __init__(self, table: Table) -> None:
        self._table = table

    @property
    def schema(self) -> pa.Schema:
        return self._table.schema

    def scanner(self, columns: Any = None, filter: Any = None, **_: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """A scan of some columns; a filter that pylance cannot take is applied here."""
        dataset = self._table.to_lance()
        try:
            return _Scan(dataset.scanner(columns=columns, filter=filter).to_reader())
        except (ValueError, NotImplementedError, OSError):
            if filter is None:
                raise
            return ds.Scanner.from_batches(dataset.scanner().to_reader(), columns=columns, filter=filter)


@dataclass(frozen=True)
class _Scan:
    reader: pa.RecordBatchReader

    def to_reader(self) -> pa.RecordBatchReader:
        return self.reader


@dataclass(frozen=True)
class Found:
    """The answer, which is read as it is used."""

    reader: pa.RecordBatchReader

    @cached_property
    def columns(self) -> list[str]:
        """The names; one that comes again gets a number."""
        names: list[str] = []
        for name in self.reader.schema.names:
            again = (f"{name}_{number}" for number in count(1))
            names.append(name if name not in names else next(each for each in again if each not in names))
        return names

    @property
    def numbers(self) -> list[str]:
        from conroi.cli.commands.looking import numeric

        return numeric(pa.schema(zip(self.columns, self.reader.schema.types, strict=True)))

    def rows(self, limit: int | None = None) -> Iterator[dict[str, Any]]:
        """The rows, as long as somebody wants them."""
        left = limit
        for batch in self.reader:
            part = (batch if left is None else batch.slice(0, left)).rename_columns(self.columns)
            yield from part.to_pylist()
            left = None if left is None else left - len(part)
            if left == 0:
                return


def query(lake: Lake, text: str) -> Found:
    """Ask a SELECT of the lake as it is now, or of the version it stays at."""
    pinned = lake.current()
    connection = _connected()
    _check_reads(connection, text)
    _add_tables(connection, pinned, text)
    # Nothing but the tables can be read from here on, and nothing be written.
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    import duckdb

    try:
        return Found(connection.execute(text).to_arrow_reader(10_000))
    except duckdb.Error as error:
        raise _refused(error, pinned) from error


def _connected() -> duckdb.DuckDBPyConnection:
    try:
        import duckdb
    except ImportError as error:
        raise UnsupportedError(
            "`conroi sql` needs DuckDB, which is not installed.", hint='pip install "conroi[cli]"'
        ) from error
    return duckdb.connect(":memory:", config={"python_enable_replacements": "false"})


def _check_reads(connection: duckdb.DuckDBPyConnection, text: str) -> None:
    import duckdb

    try:
        statements = connection.extract_statements(text)
    except duckdb.Error as error:
        raise InvalidInputError(_first_line(error), hint="Mend the query.") from error
    if len(statements) != 1 or statements[0].type.name not in READING:
        raise InvalidInputError(
            "`conroi sql` takes one SELECT.",
            hint="Rows are changed by `conroi load`, or from Python: lake.begin() has the verbs.",
        )


def _add_tables(connection: duckdb.DuckDBPyConnection, lake: Lake, text: str) -> None:
    """The tables whose names are in the query: as `namespace.table`, and whole in quotes."""
    wanted = text.casefold()
    for number, name in enumerate(lake.tables()):
        namespace, _, last = name.rpartition(".")
        if last.casefold() not in wanted:
            continue
        source = f"conroi_{number}"
        connection.register(source, PinnedRows(lake[name]))
        rows = f"SELECT * FROM {source}"  # noqa: S608 (a name of our own)
        connection.execute(f"CREATE VIEW {_quoted(name)} AS {rows}")
        if namespace:
            schema = _quoted(namespace)
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
            connection.execute(f"CREATE VIEW {schema}.{_quoted(last)} AS {rows}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _refused(error: duckdb.Error, lake: Lake) -> InvalidInputError:
    names = lake.tables()
    listed = (
        f"The lake has {', '.join(names[:10])}{', …' if len(names) > 10 else ''}." if names else "It has no tables."
    )
    return InvalidInputError(_first_line(error), hint=f"{listed} A name with more than one dot needs double quotes.")


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]
