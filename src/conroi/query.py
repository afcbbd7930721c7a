"""Read-only SQL over the tables of a lake, on DuckDB: one snapshot of all tables, no files, no network."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import pyarrow as pa

from conroi.data.scans import Scan, duckdb_source, missing_duckdb
from conroi.errors import ClosedError, ConroiError, InvalidInputError
from conroi.storage.parallel import stays_in_process

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl

QueryParams: TypeAlias = Sequence[object] | Mapping[str, object]
"""Values for `?` or `$1`, as a list, or for `$name`, as a mapping."""

_READING = {"SELECT", "EXPLAIN"}
_BATCH_ROWS = 10_000
_NAME = re.compile(r'(?:"(?:[^"]|"")*"|[^".\s]+|\.)+')
_PARTS = re.compile(r'"((?:[^"]|"")*)"|([^".]+)')


class Scannable(Protocol):
    """A table that can be scanned."""

    @property
    def scan(self) -> Scan: ...


class Tables(Protocol):
    """The subject of a query: a snapshot of a lake, or a transaction."""

    def tables(self) -> list[str]: ...
    def __contains__(self, name: str) -> bool: ...
    def __getitem__(self, name: str) -> Scannable: ...


@stays_in_process("The result of a query", "Hand over result.to_arrow().")
class QueryResult:
    """The result of a query: a stream that is read once, or, after the first to_arrow(), a table."""

    def __init__(
        self, reader: pa.RecordBatchReader, connection: duckdb.DuckDBPyConnection, scans: Sequence[Scan] = ()
    ) -> None:
        self._reader: pa.RecordBatchReader | None = reader
        self._table: pa.Table | None = None
        self._connection = connection
        self._scans = scans
        self._types = reader.schema

    @cached_property
    def columns(self) -> list[str]:
        """The names of the columns; a duplicate gets a number."""
        names: list[str] = []
        for name in self._types.names:
            again = (f"{name}_{number}" for number in count(1))
            names.append(name if name not in names else next(each for each in again if each not in names))
        return names

    @property
    def schema(self) -> pa.Schema:
        """The columns and their types."""
        return pa.schema(zip(self.columns, self._types.types, strict=True))

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream of Arrow batches."""
        if self._table is not None:
            return self._table.to_reader()
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    stored_rows = to_reader

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, batch by batch."""
        if self._table is not None:
            yield from self._table.to_batches()
            return
        reader, self._reader = self._reader, None
        if reader is None:
            raise ClosedError(
                "The rows of this query were read already, as a stream.",
                hint="Ask again, or call to_arrow() first: that keeps them.",
            )
        try:
            for batch in reader:
                yield batch.rename_columns(self.columns)
        except ConroiError:
            raise
        except Exception as error:
            raise self._typed(error) from error

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table, which is cached."""
        if self._table is None:
            self._table = pa.Table.from_batches(list(self.to_batches()), self.schema)
        return self._table

    def to_pylist(self) -> list[dict[str, Any]]:
        """The rows as dicts."""
        return self.to_arrow().to_pylist()

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a pandas frame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """The rows as a polars frame."""
        import polars

        return cast("pl.DataFrame", polars.from_arrow(self.to_arrow()))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return cast("Any", self.to_reader()).__arrow_c_stream__(requested_schema)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows as dicts, read lazily."""
        for batch in self.to_batches():
            yield from batch.to_pylist()

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name}: {field.type}" for field in self.schema)
        return f"QueryResult({columns}); to_arrow(), to_pandas() and to_pylist() give the rows"

    def _typed(self, error: Exception) -> ConroiError:
        """The original error of a scan: on its way through DuckDB an error loses its type."""
        for failure in (failure for scan in self._scans for failure in scan.failures):
            return failure
        return InvalidInputError(_first_line(error), hint="Check the query; a value may not fit its type.")


def query(source: Tables, text: str, params: QueryParams | None = None) -> QueryResult:
    """The result of one SELECT."""
    connection = _connected()
    import duckdb

    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInputError("A query is a text.", hint='Write "SELECT …".')
    _check_reads(connection, text)
    scans: list[Scan] = []
    try:
        for number, name in enumerate(_used(connection, source, text)):
            scan = source[name].scan
            scans.append(scan)
            _add_view(connection, f"__conroi_scan_{number}", name, duckdb_source(scan))
        connection.execute("SET lock_configuration = true")
        values: Any = params if params is None or isinstance(params, Mapping) else list(params)
        answer = connection.execute(text) if values is None else connection.execute(text, values)
        return QueryResult(answer.to_arrow_reader(_BATCH_ROWS), connection, scans)
    except (duckdb.Error, TypeError, ValueError) as error:
        for failure in (failure for scan in scans for failure in scan.failures):
            raise failure from error
        raise _refused(error, source, text) from error


def _connected() -> duckdb.DuckDBPyConnection:
    """A private in-memory database without access to files and network."""
    try:
        import duckdb
    except ImportError as error:
        raise missing_duckdb() from error
    return duckdb.connect(
        ":memory:",
        config={
            "python_enable_replacements": "false",
            "enable_external_access": "false",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
        },
    )


def _check_reads(connection: duckdb.DuckDBPyConnection, text: str) -> None:
    import duckdb

    try:
        statements = connection.extract_statements(text)
    except duckdb.Error as error:
        raise InvalidInputError(_first_line(error), hint="Correct the query.") from error
    if len(statements) != 1 or statements[0].type.name not in _READING:
        raise InvalidInputError(
            "A query is one SELECT.",
            hint="Rows are changed by the verbs of a table or of lake.begin(), and by the commands of `conroi`.",
        )


# ------------------------------------------------------------------------------ tables


def _used(connection: duckdb.DuckDBPyConnection, source: Tables, text: str) -> list[str]:
    """The names of the lake's tables that the query reads."""
    import duckdb

    try:
        found = connection.get_table_names(text, qualified=True)
    except duckdb.Error:  # DuckDB resolves more than names here, and may lack a table for it
        return [name for name in source.tables() if name.rpartition(".")[2].casefold() in text.casefold()]
    names = [".".join(_parts(each)) for each in sorted(found)]
    used: list[str] = []
    for name in names:
        is_there = False
        with suppress(InvalidInputError):  # no name that a table can have
            is_there = name in source
        same = [name] if is_there else [each for each in source.tables() if each.casefold() == name.casefold()]
        if len(same) > 1:
            raise InvalidInputError(
                f"{name} may be {' or '.join(same)}.", hint="Write it as the lake does, with upper and lower case."
            )
        used += same
    return list(dict.fromkeys(used))


def _parts(name: str) -> list[str]:
    """The parts of a name as DuckDB gives it: quoted where need be, and with the alias behind it."""
    found = _NAME.match(name)
    assert found is not None, "a table has a name"
    return [quoted.replace('""', '"') if quoted else plain for quoted, plain in _PARTS.findall(found.group())]


def _add_view(connection: duckdb.DuckDBPyConnection, scan: str, name: str, rows: object) -> None:
    """The table under its name: as `namespace.table`, and whole in quotes."""
    connection.register(scan, rows)
    select = f"SELECT * FROM {scan}"  # noqa: S608 (a name of our own)
    connection.execute(f"CREATE VIEW {_quoted(name)} AS {select}")
    namespace, _, last = name.rpartition(".")
    if namespace:
        schema = _quoted(namespace)
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        connection.execute(f"CREATE VIEW {schema}.{_quoted(last)} AS {select}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _refused(error: Exception, source: Tables, text: str) -> InvalidInputError:
    said = _first_line(error)
    if "disabled by configuration" in said or re.search(r"\b(read|scan|glob)_?\w*\s*\(", text, re.IGNORECASE):
        return InvalidInputError(
            said, hint="A query reads the tables of the lake and nothing else; bring files in with `conroi load`."
        )
    names = source.tables()
    listed = (
        f"The lake has {', '.join(names[:10])}{', …' if len(names) > 10 else ''}." if names else "It has no tables."
    )
    dotted = " A name with more than one dot needs double quotes." if any(n.count(".") > 1 for n in names) else ""
    return InvalidInputError(said, hint=listed + dotted)


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]
