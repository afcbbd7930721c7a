"""Commands of the command line, one module for each subject, and their order in the sections of `--help`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from conroi.cli.commands import (
    branches,
    conflicts,
    definition,
    export,
    history,
    inspection,
    load,
    maintenance,
    row_changes,
)
from conroi.cli.failures import INTERRUPTED
from conroi.version import __version__

HELP = """\
Many Lance tables that move as one.

A lake is a folder, or s3://…, gs://…, az://…. Write LAKE, LAKE/TABLE, LAKE@41 (a version of the lake), LAKE@q3 (a tag),
LAKE@41/TABLE, or LAKE/TABLE@7 (a version of the table). With CONROI_LAKE set the lake may be left out.
"""
EPILOG = "\b\nExit codes: 0 ok, 1 error, 2 wrong usage, 3 conflict.\n`conroi VERB --help` shows examples."


class Sections(TyperGroup):
    """A group whose help lists the commands by section."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            found: Any = self.get_command(ctx, name)
            section = getattr(found, "rich_help_panel", None) or "More"
            sections.setdefault(str(section), []).append((name, found.get_short_help_str(formatter.width - 20)))
        widest = max(len(name) for rows in sections.values() for name, _ in rows)
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), text) for name, text in rows])


app = typer.Typer(
    cls=Sections,
    help=HELP,
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"conroi {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Show the version.")
    ] = False,
) -> None:
    """What stands before the verb."""


for part in (
    inspection,
    history,
    branches,
    definition,
    load,
    row_changes,
    export,
    maintenance,
    branches,
    conflicts,
):
    part.add_to(app)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the answer is its exit code."""
    try:
        app(args=None if arguments is None else list(arguments), prog_name="conroi")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        print("conroi: Stopped.", file=sys.stderr)  # noqa: T201
        return INTERRUPTED
    return 0
