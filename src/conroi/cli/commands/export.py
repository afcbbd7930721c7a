"""Command export: rows of a table into a file."""

from __future__ import annotations

from typing import Annotated

import typer

from conroi.cli.failures import UsageProblem
from conroi.cli.options import command
from conroi.cli.session import Session
from conroi.display.grid import plural


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
    from conroi.cli.row_files import write_file

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
