"""Command export: rows of a table into a file, which appears whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from conroi.cli.failures import UsageProblem
from conroi.cli.options import command
from conroi.cli.output import to_json
from conroi.cli.session import Session
from conroi.display import plural
from conroi.errors import AlreadyExistsError, InvalidInputError, UnsupportedError

if TYPE_CHECKING:
    import pyarrow as pa

    from conroi.table import Table


def add_to(app: typer.Typer) -> None:
    """Register it."""
    command(
        app,
        "export",
        section="Rows in and out",
        examples=[
            "conroi export ./lake/orders orders.parquet",
            "conroi export ./lake@q3/orders orders.csv --columns id,amount --where 'amount > 100'",
        ],
    )(export)


def export(
    session: Session,
    words: Annotated[
        list[str], typer.Argument(metavar="LAKE/TABLE FILE", help="The file ends in .parquet, .csv or .jsonl.")
    ],
    columns: Annotated[str | None, typer.Option(metavar="A,B", help="Only these columns.")] = None,
    where: Annotated[str | None, typer.Option(metavar="SQL", help="Only rows for which this holds.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write the rows of a table to a file. They are streamed; an existing file is not overwritten."""
    if len(words) != 2:
        raise UsageProblem("Give LAKE/TABLE and a file to write.")
    target = session.table(words[0])
    table = target.table
    wanted = columns.split(",") if columns else None
    total = None if where else table.count_rows()
    with session.output.progress("rows written", total) as progress:
        rows = write_file(words[1], table, wanted, where, progress, force=force)
    if session.as_json:
        facts = {"name": target.table_name, "version": table.version, "file": words[1], "rows": rows}
        session.output.document(facts)
    else:
        session.output.line(f"Wrote {plural(rows, 'row')} to {words[1]}.")


# ------------------------------------------------------------------------------------ the file


class Writer(Protocol):
    """Takes batches until it is closed."""

    def write_batch(self, batch: pa.RecordBatch) -> None: ...
    def close(self) -> None: ...


class JsonLines:
    """One JSON document for each row."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "w", encoding="utf-8")  # noqa: SIM115

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._file.writelines(f"{to_json(row)}\n" for row in batch.to_pylist())

    def close(self) -> None:
        self._file.close()


def _parquet(path: str, schema: pa.Schema) -> Any:
    from pyarrow import parquet

    return parquet.ParquetWriter(path, schema)


def _csv(path: str, schema: pa.Schema) -> Any:
    from pyarrow import csv

    return csv.CSVWriter(path, schema)


WRITERS: dict[str, Callable[[str, pa.Schema], Writer]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".jsonl": lambda path, _schema: JsonLines(path),
    ".ndjson": lambda path, _schema: JsonLines(path),
}


def write_file(
    path: str,
    table: Table,
    columns: Sequence[str] | None,
    where: str | None,
    progress: Callable[[int], None],
    *,
    force: bool,
) -> int:
    """The number of rows that were written; under another name until they all are."""
    import pyarrow as pa

    open_writer = WRITERS.get(os.path.splitext(path)[1].lower())
    if open_writer is None:
        raise UnsupportedError(f"It cannot be told how to write {path}.", hint=f"Files end in {', '.join(WRITERS)}.")
    if os.path.exists(path) and not force:
        raise AlreadyExistsError(f"There is a file {path} already.", hint="Give --force to replace it.")
    schema = table.schema if columns is None else table.to_arrow(columns, limit=0).schema
    partial = f"{path}.part"
    try:
        rows = _write(open_writer, partial, schema, table.to_batches(columns, where), progress)
        os.replace(partial, path)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidInputError(
            f"The rows cannot be written to {path}: {str(error).splitlines()[0]}",
            hint="CSV takes only plain columns: choose them with --columns, or write .parquet or .jsonl.",
        ) from error
    finally:
        if os.path.exists(partial):
            os.remove(partial)
    return rows


def _write(
    open_writer: Callable[[str, pa.Schema], Writer],
    path: str,
    schema: pa.Schema,
    batches: Any,
    progress: Callable[[int], None],
) -> int:
    rows = 0
    writer = open_writer(path, schema)
    try:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
            progress(batch.num_rows)
    finally:
        writer.close()
    return rows
