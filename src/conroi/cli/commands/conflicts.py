"""Command explain-conflict: why a commit was refused."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conroi.cli.failures import UsageProblem, in_commands
from conroi.cli.options import command
from conroi.cli.session import Session
from conroi.display import moment, plain, plural
from conroi.errors import CorruptionError

if TYPE_CHECKING:
    from conroi.cli.conflict_report import Meeting, Refused

MESSAGE = 60
"""So many letters of a commit message are shown."""
SCREEN = 20
"""So many lines are printed, of the 24 that a terminal has; --all prints all."""
_SEVERITY = ("incompatible", "retryable", "rebased", "compatible")

SAYS = {
    "compatible": "both fit, as they are",
    "rebased": "both fit, after a small repair",
    "retryable": "yours must be done again on the newer version",
    "incompatible": "yours is refused; you decide",
}


@dataclass(frozen=True, slots=True)
class Block:
    """What is said about one commit."""

    title: str
    lines: tuple[str, ...]


def add_to(app: typer.Typer) -> None:
    """Register it."""
    command(
        app,
        "explain-conflict",
        section="Look after it",
        examples=[
            "conroi explain-conflict ./lake/orders                        # commits that never landed",
            "conroi explain-conflict ./lake/orders --all                  # with everything that they met",
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
    everything: Annotated[bool, typer.Option("--all", help="All commits, each with all that it met.")] = False,
) -> None:
    """Say why a commit was refused.

    A commit that lost its race after it had written its transaction left that in the table's folder: LAKE/TABLE alone
    finds such commits and checks them again, exactly. Where there is none, say what you did and on which version, or
    give the error as JSON. The answer fits on a screen: who committed what is in the way, and by which rule; --all
    shows the rest.
    """
    from conroi.cli import conflict_report

    if error is not None:
        text = sys.stdin.read() if error == "-" else Path(error).read_text("utf-8")
        _say(session, [conflict_report.from_error(_parsed(text))], everything=everything)
    elif mine is not None and theirs is not None and theirs.isdecimal() and table is not None:
        number = int(theirs)
        met = conflict_report.since(session.table(table).table, conflict_report.operation_named(mine), number - 1)
        _say(session, [each for each in met if each.version == number], everything=everything)
    elif mine is not None and theirs is not None:
        pair = conflict_report.operation_named(mine), conflict_report.operation_named(theirs)
        _say(session, [conflict_report.by_kind(*pair)], everything=everything)
    elif table is None or (mine is None) != (since is None):
        raise UsageProblem("Give LAKE/TABLE, with --mine and --since or without; or --mine and --theirs; or --error.")
    elif mine is not None and since is not None:
        _say(
            session,
            conflict_report.since(session.table(table).table, conflict_report.operation_named(mine), since),
            everything=everything,
        )
    else:
        _say_refused(session, table, commit, everything=everything)


def _parsed(text: str) -> dict[str, object]:
    from conroi.format.json import parse_object

    for line in reversed(text.strip().splitlines()):
        try:
            return parse_object(line, "The error")
        except CorruptionError:
            continue
    raise UsageProblem("There is no JSON of an error in it; a command with --json writes it to stderr.")


def _say(session: Session, meetings: Sequence[Meeting], *, everything: bool) -> None:
    if session.as_json:
        session.output.document([each.to_dict() for each in meetings])
        return
    if not meetings:
        session.output.line("No commit came since.")
    blocks = [_meeting_block(each) for each in meetings] if everything else _grouped(meetings)
    _print(session, blocks, everything=everything)


def _grouped(meetings: Sequence[Meeting]) -> list[Block]:
    """One block for each kind of commit that came since; those that conflict stand first."""
    groups: dict[tuple[object, ...], list[Meeting]] = {}
    for each in meetings:
        groups.setdefault((each.theirs, each.answers, each.why, each.hint), []).append(each)
    ordered = sorted(groups.values(), key=lambda group: _SEVERITY.index(group[0].answers[-1]))
    return [_meeting_block(group[-1], group) for group in ordered]


def _meeting_block(meeting: Meeting, group: Sequence[Meeting] = ()) -> Block:
    """A commit that came first, or the newest of several of its kind."""
    title = f"{meeting.mine} after {meeting.theirs}"
    if meeting.version is not None:
        title = f"{_winner(meeting)}: {title}"
    if len(group) > 1:
        title += f"; and {plural(len(group) - 1, 'commit')} like it, from version {group[0].version}"
    one = meeting.answers[0]
    answer = f"{one}: {SAYS[one]}" if len(meeting.answers) == 1 else f"may be {_either(meeting.answers)}"
    lines = [answer, *meeting.why]
    return Block(title, (*lines, *([f"hint: {in_commands(meeting.hint)}"] if meeting.hint else [])))


def _winner(meeting: Meeting) -> str:
    """Who committed what, and when."""
    said = f" “{shortened(meeting.message)}”" if meeting.message else ""
    who = f" by {plain(meeting.author)}" if meeting.author else ""
    told = ", ".join(filter(None, (moment(meeting.timestamp), plain(meeting.writer or ""))))
    return f"version {meeting.version}{said}{who}" + (f" ({told})" if told else "")


def _either(answers: Sequence[str]) -> str:
    return f"{', '.join(answers[:-1])} or {answers[-1]}"


def shortened(text: str) -> str:
    """A message, short enough for a title."""
    text = plain(text)
    return text if len(text) <= MESSAGE else f"{text[: MESSAGE - 1]}…"


# ---------------------------------------------------------------------------- refused commits


def _say_refused(session: Session, table: str, commit: str | None, *, everything: bool) -> None:
    from conroi.cli import conflict_report

    target = session.table(table)
    found = conflict_report.refused(target.table, commit)
    if session.as_json:
        session.output.document([each.to_dict() for each in found])
        return
    if not found:
        session.output.line("Every transaction in the table's folder became a version.")
        return
    session.output.line(f"{target.table_name}: {plural(len(found), 'commit')} never became a version.")
    blocks = [_refused_block(each, everything=everything) for each in found]
    _print(session, blocks if everything else _counted(blocks), everything=everything or commit is not None)
    if not everything and commit is None:
        session.output.note("A command or verb that lost a race and did its work again leaves such a commit, too.")


def _refused_block(refused: Refused, *, everything: bool) -> Block:
    said = f" “{shortened(refused.message)}”" if refused.message else ""
    who = f" by {plain(refused.author)}" if refused.author else ""
    title = f"{refused.operation}{said}{who}, made on version {refused.base_version}"
    if everything:
        met = [line for each in refused.meetings for line in _indented(_meeting_block(each))]
        lines = [f"id {refused.uuid}", *met]
    elif refused.refusal is not None:
        block = _meeting_block(refused.refusal)
        lines = [block.title, *block.lines]
    else:
        lines = []
    if refused.refusal is None:
        lines.append("Nothing that was committed since is in its way: it was given up, or is on its way.")
    return Block(title, tuple(lines))


def _indented(block: Block) -> list[str]:
    return [block.title, *(f"  {line}" for line in block.lines)]


def _counted(blocks: Sequence[Block]) -> list[Block]:
    """Equal ones once, with how many there are."""
    counts: dict[Block, int] = {}
    for each in blocks:
        counts[each] = counts.get(each, 0) + 1
    return [
        each if count == 1 else Block(f"{each.title} ({count} times)", each.lines) for each, count in counts.items()
    ]


def _print(session: Session, blocks: Sequence[Block], *, everything: bool) -> None:
    """As many as fit on a screen, or all; a hint that several have is said once, behind the last of them."""
    used = 0
    hints: list[str] = []
    for number, block in enumerate(blocks):
        lines = [line for line in block.lines if everything or not line.startswith("hint: ")]
        used += session.output.height(block.title) + sum(session.output.height(line, 2) for line in lines)
        if not everything and number and used > SCREEN - 2 * (len(hints) + 1):
            session.output.note(f"{plural(len(blocks) - number, 'more kind')}: --all shows everything.")
            break
        hints += [line for line in block.lines if line not in lines and line not in hints]
        session.output.prose(block.title, style="bold")
        for line in lines:
            session.output.prose(line.lstrip(), indent=2 + len(line) - len(line.lstrip()))
    for hint in hints:
        session.output.prose(hint)
