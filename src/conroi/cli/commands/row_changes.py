"""Commands that change rows by a predicate: delete and update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from conroi.cli.failures import UsageProblem
from conroi.cli.options import Author, DryRun, Message, OneTable, Yes, checked_yes, command
from conroi.cli.session import Session, Target, committed
from conroi.display import plural
from conroi.errors import NotFoundError

if TYPE_CHECKING:
    from conroi.transaction import Transaction

SECTION = "Rows in and out"
Where = Annotated[
    str | None, typer.Option(metavar="SQL", help="The rows for which this holds; `--where true` is all rows.")
]


def add_to(app: typer.Typer) -> None:
    """Register them."""
    command(
        app,
        "delete",
        section=SECTION,
        examples=[
            "conroi delete ./lake/orders --where 'amount = 0'",
            "conroi delete ./lake/orders --where 'id = 17' --yes -m 'asked to be forgotten'",
        ],
    )(delete)
    command(
        app,
        "update",
        section=SECTION,
        examples=[
            "conroi update ./lake/orders --set amount=amount*2 --where 'id = 17' --yes",
            "conroi update ./lake/orders --set \"state='paid'\" --where 'amount = 0'",
        ],
    )(update)


def delete(
    session: Session,
    table: OneTable,
    where: Where = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    message: Message = None,
    author: Author = None,
) -> None:
    """Delete rows of a table. Says how many; --yes does it."""
    condition = _condition(where)

    def change(tx: Transaction, name: str) -> None:
        tx[name].delete(condition)

    checked_yes(yes=yes, dry_run=dry_run)
    _changed(session, table, condition, "deleted", change if yes else None, message or f"delete {condition}", author)


def update(
    session: Session,
    table: OneTable,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="COLUMN=SQL", help="The new value, as an SQL expression; repeatable."),
    ] = None,
    where: Where = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    message: Message = None,
    author: Author = None,
) -> None:
    """Set columns in rows of a table. Says in how many; --yes does it.

    A text stands in quotes inside the expression: --set "state='paid'".
    """
    condition, values = _condition(where), _assigned(assignments or ())

    def change(tx: Transaction, name: str) -> None:
        tx[name].update(values, condition)

    checked_yes(yes=yes, dry_run=dry_run)
    if not yes:
        _check(session.table(table), values, condition)
    said = message or f"update {', '.join(values)} where {condition}"
    _changed(session, table, condition, "updated", change if yes else None, said, author)


def _check(target: Target, values: Mapping[str, str], condition: str) -> None:
    """Say now what would be refused with --yes: unknown columns, and SQL that is wrong."""
    table = target.table
    for name in values:
        if name.partition(".")[0] not in table.schema.names:
            raise NotFoundError(
                f"The table has no column {name!r}.",
                table=target.table_name,
                hint=f"Its columns are {', '.join(table.schema.names)}.",
            )
    table.to_arrow(values, condition, limit=1, with_row_id=True)  # with the row id, since values may be constants


def _condition(where: str | None) -> str:
    if where is None or not where.strip():
        raise UsageProblem(
            "Say which rows.", hint="Give --where SQL, such as --where 'id = 17'; `--where true` is all."
        )
    return where


def _assigned(assignments: Sequence[str]) -> dict[str, str]:
    pairs = [each.partition("=") for each in assignments]
    if not pairs or any(not name.strip() or not value.strip() for name, _, value in pairs):
        raise UsageProblem("Say what to set.", hint="Give --set COLUMN=SQL, such as --set amount=amount*2.")
    names = [name.strip() for name, _, _ in pairs]
    if len(set(names)) < len(names):
        raise UsageProblem("A column is set twice.", hint="Give each column once.")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _changed(
    session: Session, table: str, where: str, done: str, change: Any, message: str, author: str | None
) -> None:
    """Count the rows and, with `change`, change them in one transaction; then say so."""
    target = session.table(table)
    name = target.newest_name
    facts: dict[str, Any] = {"name": name, "done": change is not None}
    if change is None:
        opened = target.lake[name]
        facts |= {"rows": opened.count_rows(where), "version": opened.version}
    else:

        def work(tx: Transaction) -> None:
            facts["rows"] = tx[name].count_rows(where)
            change(tx, name)

        with session.output.progress(f"changing {name}"):
            result = committed(target.lake, work, message=message, author=author)
        facts |= {"version": result.tables.get(name, target.lake[name].version), "lake_version": result.version}
    rows = facts["rows"]
    if session.as_json:
        session.output.document(facts)
    elif change is not None:
        session.output.line(f"{plural(rows, 'row')} of {name} {done}; it is at version {facts['version']}.")
    else:
        session.output.line(f"{plural(rows, 'row')} of {name} would be {done}.")
        session.output.note("Nothing was changed; --yes does it.")
