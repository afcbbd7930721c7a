"""Commands for history and time travel: log, history, diff, restore."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from conroi.cli.options import Lake, Limit, Message, OneTable, command
from conroi.cli.session import Session, lake_at, split, table_at
from conroi.display.pages import change_row, change_title, diff_details, diff_page, table_history_page

if TYPE_CHECKING:
    from conroi.lake_history import LakeChange
    from conroi.lake_snapshot import LakeReader

SECTION = "The past"
SHOWN = 20


def add_to(app: typer.Typer) -> None:
    """Register them."""
    command(
        app,
        "log",
        section=SECTION,
        examples=["conroi log ./lake", "conroi log ./lake -n 3 --json", "conroi log ./lake@q3 --graph"],
    )(log)
    command(app, "history", section=SECTION, examples=["conroi history ./lake/orders"])(history)
    command(
        app,
        "diff",
        section=SECTION,
        examples=["conroi diff ./lake 41 43", "conroi diff ./lake main dev --json", "conroi diff ./lake/orders 6 7"],
    )(diff)
    command(
        app,
        "restore",
        section=SECTION,
        examples=["conroi restore ./lake/orders 7", "conroi restore ./lake/orders q3 -m 'the load was wrong'"],
    )(restore)


def log(
    session: Session,
    lake: Lake = None,
    limit: Limit = None,
    graph: Annotated[bool, typer.Option("--graph", help="Draw the lines of all branches, with their tags.")] = False,
) -> None:
    """Show the commits of a lake, newest first.

    Who, when and why, and what it did to which tables: rows added and removed, and what it was rebased over.
    """
    from conroi.lake_history import lake_changes

    at = session.lake(lake)
    shown = SHOWN if limit is None and not session.as_json else limit
    if graph and not session.as_json:
        changes = _print_graph(session, at, shown)
    else:
        changes = lake_changes(at, shown)
        _print_log(session, changes)
    if limit is None and len(changes) == shown:
        session.output.note(f"The newest {len(changes)}; -n shows more.")


def _print_log(session: Session, changes: Sequence[LakeChange]) -> None:
    if session.as_json:
        session.output.json_lines(each.to_dict() for each in changes)
        return
    widths = _widths(session, changes, 4)
    for change in changes:
        session.output.hanging(change_title(change), style="bold")
        session.output.aligned([change_row(each) for each in change.tables], "    ", widths)


def _print_graph(session: Session, lake: LakeReader, limit: int | None) -> Sequence[LakeChange]:
    from conroi.cli.graph import drawn, versions

    found = versions(lake, limit)
    lines = list(drawn(found))
    widths = _widths(
        session, [each.change for each in found], max((len(line.below) for _, line in lines), default=0) + 3
    )
    for version, line in lines:
        for joining in line.above:
            session.output.line(joining)
        names = f"  ({', '.join(version.names)})" if version.names else ""
        title = f"{change_title(version.change, version.branch)}{names}"
        session.output.hanging(title, f"{line.mark} ", f"{line.below}   ", style="bold")
        session.output.aligned([change_row(each) for each in version.change.tables], f"{line.below}   ", widths)
        for beginning in line.after:
            session.output.line(beginning)
    return [each.change for each in found]


def _widths(session: Session, changes: Sequence[LakeChange], indent: int) -> list[int]:
    """Widths of the columns about tables, the same for all versions."""
    from conroi.cli.output import narrowed

    rows = [change_row(each) for change in changes for each in change.tables]
    longest = [max((len(row[place]) for row in rows), default=0) for place in range(5)]
    available = session.output.console.width - indent - 2 * (len(longest) - 1)
    return narrowed(longest, available, [False] * 4 + [True], [False, False, True, True, False])


def history(session: Session, table: OneTable, limit: Limit = None) -> None:
    """Show the versions of a table, newest first."""
    commits = session.table(table).table.history(limit)
    if session.as_json:
        session.output.json_lines(asdict(each) for each in commits)
    else:
        session.output.grid(table_history_page(commits))


def diff(
    session: Session,
    words: Annotated[list[str], typer.Argument(metavar="[LAKE[/TABLE]] A B")],
    keys: Annotated[bool, typer.Option(help="Compare tables with a key row by row.")] = True,
) -> None:
    """Show what differs between two versions.

    A and B are versions, tags or branches of the lake, or versions and tags of one table. Tables, columns, row counts
    and keys are compared.
    """
    address, (older, newer) = split(words, "A", "B")
    target = session.target(address)
    with session.output.progress("comparing"):
        if target.name is None:
            lake = target.lake
            found = lake.diff(lake_at(lake, older), lake_at(lake, newer), keys=keys)
        else:
            table = target.lake[target.newest_name]
            one, other = table_at(table, older), table_at(table, newer)
            changed = table.diff(one, other, keys=keys)
            found = changed.alone(f"{target.name}@{one.version}", f"{target.name}@{other.version}")
    if session.as_json:
        session.output.document(found.to_dict())
        return
    session.output.grid(diff_page(found))
    details = diff_details(found)
    if details.rows:
        session.output.line()
        session.output.grid(details)


def restore(
    session: Session,
    words: Annotated[list[str], typer.Argument(metavar="LAKE/TABLE VERSION")],
    message: Message = None,
) -> None:
    """Make a past version of a table its newest again. The versions in between stay in the history."""
    from conroi.cli.failures import UsageProblem

    if len(words) != 2:
        raise UsageProblem("Give LAKE/TABLE and the version, tag or moment to go back to.")
    target = session.table(words[0])
    table = target.lake[target.newest_name]
    wanted = table_at(table, words[1]).version
    done = table.restore(wanted, message=message or f"restore {target.table_name} to version {wanted}")
    facts = {"name": target.table_name, "restored": wanted, "version": done.version, "rows": done.count_rows()}
    if session.as_json:
        session.output.document(facts)
    else:
        session.output.line(f"{target.table_name} is at version {done.version}, which is version {wanted} again.")
