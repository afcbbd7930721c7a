"""The verb explain-conflict: why a commit was refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conroi.cli.registering import command
from conroi.cli.session import Session
from conroi.cli.usage import UsageProblem
from conroi.views.words import moment, plain

if TYPE_CHECKING:
    from conroi.cli.explaining import Meeting

SAYS = {
    "compatible": "both fit, as they are",
    "rebased": "both fit, after a small repair",
    "retryable": "yours must be done again on the newer version",
    "incompatible": "yours is refused; you decide",
}


def add_to(app: typer.Typer) -> None:
    """Register it."""
    command(
        app,
        "explain-conflict",
        section="Look after it",
        examples=[
            "conroi explain-conflict ./lake/orders                        # commits that never landed",
            "conroi explain-conflict ./lake/orders --mine merge --since 5 # what a merge made on 5 met",
            "conroi explain-conflict --mine delete --theirs compact       # the rule for two operations",
            "conroi load ./lake/orders f.csv --json 2>error.json; conroi explain-conflict --error error.json",
        ],
    )(explain)


def explain(
    session: Session,
    table: Annotated[str | None, typer.Argument(metavar="[LAKE/TABLE]", help="The table that was written.")] = None,
    mine: Annotated[
        str | None, typer.Option(metavar="OPERATION", help="What you did: append, delete, merge, …")
    ] = None,
    theirs: Annotated[
        str | None, typer.Option(metavar="OPERATION", help="What the other one did, or its version.")
    ] = None,
    since: Annotated[int | None, typer.Option(metavar="VERSION", help="The version that yours was made on.")] = None,
    commit: Annotated[str | None, typer.Option(metavar="ID", help="The transaction id of a refused commit.")] = None,
    error: Annotated[str | None, typer.Option(metavar="FILE", help="The JSON of an error; - reads stdin.")] = None,
) -> None:
    """Say why a commit was refused.

    A commit that lost its race after it had written its transaction left that in the table's folder: LAKE/TABLE alone
    finds such commits and checks them again, exactly. Where there is none, say what you did and on which version, or
    give the error as JSON.
    """
    from conroi.cli import explaining

    if error is not None:
        text = sys.stdin.read() if error == "-" else Path(error).read_text("utf-8")
        _say(session, [explaining.from_error(_parsed(text))])
    elif mine is not None and theirs is not None and theirs.isdecimal() and table is not None:
        number = int(theirs)
        met = explaining.since(session.table(table).table, explaining.operation_named(mine), number - 1)
        _say(session, [each for each in met if each.version == number])
    elif mine is not None and theirs is not None:
        pair = explaining.operation_named(mine), explaining.operation_named(theirs)
        _say(session, [explaining.by_kind(*pair)])
    elif table is None or (mine is None) != (since is None):
        raise UsageProblem("Give LAKE/TABLE, with --mine and --since or without; or --mine and --theirs; or --error.")
    elif mine is not None and since is not None:
        _say(session, explaining.since(session.table(table).table, explaining.operation_named(mine), since))
    else:
        _say_refused(session, table, commit)


def _parsed(text: str) -> dict[str, object]:
    for line in reversed(text.strip().splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            return found  # pyright: ignore[reportUnknownVariableType]
    raise UsageProblem("There is no JSON of an error in it; a command with --json writes it to stderr.")


def _say(session: Session, meetings: Sequence[Meeting]) -> None:
    if session.as_json:
        session.output.document([each.to_dict() for each in meetings])
        return
    if not meetings:
        session.output.line("Nobody committed since.")
    for meeting in meetings:
        _print(session, meeting)


def _print(session: Session, meeting: Meeting) -> None:
    said = f" “{plain(meeting.message)}”" if meeting.message else ""
    where = "" if meeting.version is None else f"version {meeting.version}{said}: "
    who = ", ".join(filter(None, (moment(meeting.timestamp), plain(meeting.writer or ""))))
    session.output.prose(f"{where}{meeting.mine} after {meeting.theirs}" + (f" ({who})" if who else ""), style="bold")
    for answer in meeting.answers:
        may = "may be " if len(meeting.answers) > 1 else ""
        session.output.prose(f"{may}{answer}: {SAYS[answer]}", indent=2)
    for why in meeting.why:
        session.output.prose(why, indent=2)
    if meeting.hint:
        session.output.prose(f"hint: {meeting.hint}", indent=2)


def _say_refused(session: Session, table: str, commit: str | None) -> None:
    from conroi.cli import explaining

    found = explaining.refused(session.table(table).table, commit)
    if session.as_json:
        session.output.document([each.to_dict() for each in found])
        return
    if not found:
        session.output.line("Every transaction in the table's folder became a version.")
    for each in found:
        made = f"{each.operation} {each.uuid}, made on version {each.base_version}"
        session.output.prose(f"{made}, never became a version", style="bold")
        if not each.meetings:
            session.output.prose(
                "Nothing that was committed since is in its way: it was given up, or is on its way.", indent=2
            )
        for meeting in each.meetings:
            _print(session, meeting)
