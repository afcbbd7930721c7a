"""Arguments and options shared by several commands."""

from __future__ import annotations

from typing import Annotated

import typer

from conroi.cli.completion import addresses, lakes, tables
from conroi.cli.usage import UsageProblem

STDIN = "-"
"""The name of standard input."""

Lake = Annotated[
    str | None, typer.Argument(metavar="[LAKE]", help="The lake; by default CONROI_LAKE.", autocompletion=lakes)
]
LakeOrTable = Annotated[
    str | None,
    typer.Argument(
        metavar="[LAKE[/TABLE]]", help="A lake or one of its tables, of any version.", autocompletion=addresses
    ),
]
OneTable = Annotated[str, typer.Argument(metavar="LAKE/TABLE", help="A table of a lake.", autocompletion=tables)]
Limit = Annotated[int | None, typer.Option("--limit", "-n", min=0, metavar="N", help="At most so many.")]
Message = Annotated[str | None, typer.Option("--message", "-m", metavar="TEXT", help="What the history says about it.")]
Author = Annotated[
    str | None, typer.Option(envvar="CONROI_AUTHOR", metavar="NAME", help="Who the history says did it.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it; without this it is only said what would be done.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done, as without --yes.")]


def checked_yes(*, yes: bool, dry_run: bool) -> None:
    """UsageProblem for a command that is told to do it and not to."""
    if yes and dry_run:
        raise UsageProblem("--yes does it and --dry-run does not.", hint="Give one of them.")
