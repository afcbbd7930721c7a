"""Command sql: a SELECT on one version of a lake, without Spark."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import typer

from conroi.cli.commands.inspection import numeric
from conroi.cli.options import command
from conroi.cli.session import Session, split
from conroi.display.words import number

ON_SCREEN = 100


def add_to(app: typer.Typer) -> None:
    """Register it."""
    command(
        app,
        "sql",
        section="Look",
        examples=[
            "conroi sql ./lake 'SELECT day, sum(amount) FROM orders GROUP BY day'",
            "conroi sql ./lake@41 'SELECT count(*) FROM sales.customers' --json",
        ],
    )(sql)


def sql(
    session: Session,
    words: Annotated[list[str], typer.Argument(metavar="[LAKE] QUERY")],
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=0, help=f"At most so many rows; {ON_SCREEN} on a screen.")
    ] = None,
) -> None:
    """Run a SELECT on one version of the lake. All tables are read at that version."""
    address, (text,) = split(words, "QUERY")
    found = session.lake(address).query(text)
    if session.as_json:
        session.output.json_lines(islice(found, limit))
        return
    shown = ON_SCREEN if limit is None else limit
    rows = list(islice(found, shown + 1))
    session.output.rows(rows[:shown], found.columns, numeric(found.schema))
    if len(rows) > shown and limit is None:
        session.output.note(f"The first {number(shown)} rows; --limit shows more, --json all.")
