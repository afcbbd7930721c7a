"""Commands that inspect a lake: init, tables, show, schema, head, count, and sql, a SELECT without Spark."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import typer

from conroi.cli.failures import UsageProblem
from conroi.cli.options import Lake, LakeOrTable, OneTable, command
from conroi.cli.session import Session, Target, split
from conroi.display import number
from conroi.display.pages import (
    TableFacts,
    change_title,
    changes_page,
    lake_title,
    schema_page,
    table_facts,
    table_page,
    tables_page,
)

SECTION = "Look"


def add_to(app: typer.Typer) -> None:
    """Register them."""
    command(app, "init", section="Start", examples=["conroi init ./lake", "conroi init s3://bucket/lake"])(init)
    command(app, "tables", section=SECTION, examples=["conroi tables ./lake", "conroi tables ./lake@41 --json"])(tables)
    command(
        app,
        "show",
        section=SECTION,
        examples=[
            "conroi show ./lake",
            "conroi show ./lake@41",
            "conroi show ./lake/orders",
            "conroi show ./lake/orders@7",
        ],
    )(show)
    command(app, "schema", section=SECTION, examples=["conroi schema ./lake/orders"])(schema)
    command(
        app,
        "head",
        section=SECTION,
        examples=[
            "conroi head ./lake/orders",
            "conroi head ./lake@41/orders -n 5 --columns id,amount",
            "conroi head ./lake/orders --where 'amount > 100' --json",
        ],
    )(head)
    command(
        app,
        "count",
        section=SECTION,
        examples=["conroi count ./lake/orders", "conroi count ./lake/orders --where 'amount > 100'"],
    )(count)
    _add_sql_to(app)


def init(session: Session, lake: Lake = None) -> None:
    """Create a lake in an empty place. An existing lake stays as it is."""
    import os

    from conroi.cli.session import DEFAULT_LAKE

    place = lake or os.environ.get(DEFAULT_LAKE)
    if place is None:
        raise UsageProblem("Say where the lake should be.")
    was_there = session.is_lake(place)
    made = session.connect(place)
    if session.as_json:
        session.output.document({"uri": made.uri, "version": made.version, "created": not was_there})
    else:
        session.output.line(f"{made.uri} is already a lake." if was_there else f"Created a lake at {made.uri}.")


def tables(
    session: Session,
    lake: Lake = None,
    names: Annotated[bool, typer.Option("--names", help="Only the names, one on a line.")] = False,
    namespace: Annotated[str | None, typer.Option(metavar="NAME", help="Only those in this namespace.")] = None,
) -> None:
    """List the tables of a lake."""
    at = session.lake(lake)
    found = at.tables(namespace)
    if names and not session.as_json:
        for name in found:
            session.output.line(name)
        return
    facts = [table_facts(name, at[name]) for name in found]
    if session.as_json:
        session.output.document({"uri": at.uri, "version": at.version, "tables": [_brief(each) for each in facts]})
    else:
        session.output.grid(tables_page(facts))


def _brief(facts: TableFacts) -> dict[str, Any]:
    return {
        "name": facts.name,
        "version": facts.version,
        "rows": facts.rows,
        "bytes": facts.bytes,
        "key": list(facts.key),
    }


def show(session: Session, address: LakeOrTable = None) -> None:
    """Show a lake, a version of it, or a table.

    A version of a lake (LAKE@41) is shown with what it changed.
    """
    target = session.target(address)
    if target.name is not None:
        _show_table(session, target)
    elif target.lake.pinned is None:
        _show_lake(session, target)
    else:
        _show_version(session, target)


def _show_table(session: Session, target: Target) -> None:
    facts = table_facts(target.table_name, target.table)
    if session.as_json:
        session.output.document(facts.to_dict())
    else:
        session.output.grid(table_page(facts))


def _show_lake(session: Session, target: Target) -> None:
    lake = target.lake
    facts = [table_facts(name, lake[name]) for name in lake.tables()]
    newest = lake.history(limit=1)
    if session.as_json:
        latest = {"message": newest[0].message, "timestamp": newest[0].timestamp} if newest else None
        found = {"uri": lake.uri, "version": lake.version, "latest": latest, "tables": [_brief(each) for each in facts]}
        session.output.document(found)
    else:
        session.output.grid(tables_page(facts, lake_title(lake)))


def _show_version(session: Session, target: Target) -> None:
    from conroi.lake_history import lake_changes

    lake = target.lake
    change = lake_changes(lake, limit=1)[0]
    facts = [table_facts(name, lake[name]) for name in lake.tables()]
    if session.as_json:
        found = {**change.to_dict(), "changed": change.to_dict()["tables"], "tables": [_brief(each) for each in facts]}
        session.output.document(found)
        return
    session.output.grid(changes_page(change.tables, change_title(change)))
    session.output.line()
    session.output.grid(tables_page(facts, lake_title(lake)))


def schema(session: Session, table: OneTable) -> None:
    """Show the columns of a table."""
    target = session.table(table)
    facts = table_facts(target.table_name, target.table)
    if session.as_json:
        described = facts.to_dict()
        session.output.document({key: described[key] for key in ("name", "version", "columns", "key")})
    else:
        session.output.grid(schema_page(facts))


def head(
    session: Session,
    table: OneTable,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, metavar="N", help="So many rows.")] = 10,
    columns: Annotated[str | None, typer.Option(metavar="A,B", help="Only these columns.")] = None,
    where: Annotated[str | None, typer.Option(metavar="SQL", help="Only rows for which this holds.")] = None,
) -> None:
    """Show the first rows of a table."""
    wanted = columns.split(",") if columns else None
    found = session.table(table).table.to_arrow(wanted, where, limit=limit)
    if session.as_json:
        session.output.json_lines(found.to_pylist())
    else:
        session.output.rows(found.to_pylist(), found.column_names, numeric(found.schema))


def numeric(schema: Any) -> list[str]:
    """The columns that stand to the right."""
    import pyarrow as pa

    is_number = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return [field.name for field in schema if any(test(field.type) for test in is_number)]


def count(
    session: Session,
    table: OneTable,
    where: Annotated[str | None, typer.Option(metavar="SQL", help="Only rows for which this holds.")] = None,
) -> None:
    """Count the rows of a table."""
    target = session.table(table)
    opened = target.table
    rows = opened.count_rows(where)
    if session.as_json:
        session.output.document({"name": target.table_name, "version": opened.version, "rows": rows})
    else:
        session.output.line(str(rows))


ON_SCREEN = 100


def _add_sql_to(app: typer.Typer) -> None:
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
