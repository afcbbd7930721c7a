"""Commands branch and merge."""

from __future__ import annotations

from typing import Annotated

import typer

from conroi.cli.failures import CONFLICT, UsageProblem
from conroi.cli.options import Author, Lake, Message, command, new_app
from conroi.cli.session import Session, split, writable
from conroi.display.merges import branches_page, conflicts_page, merge_page

SECTION = "Names"


def add_to(app: typer.Typer) -> None:
    """Register them."""
    branch = new_app("Branches of a lake: all its tables at once.")
    command(branch, "list", examples=["conroi branch list ./lake"])(list_branches)
    command(
        branch, "create", examples=["conroi branch create ./lake dev", "conroi branch create ./lake dev --from q3"]
    )(create)
    command(branch, "rename", examples=["conroi branch rename ./lake dev next"])(rename)
    command(
        branch, "delete", examples=["conroi branch delete ./lake dev", "conroi branch delete ./lake dev --drop-tags"]
    )(delete)
    app.add_typer(branch, name="branch", rich_help_panel=SECTION)
    command(
        app,
        "merge",
        section=SECTION,
        examples=[
            "conroi merge ./lake dev --dry-run",
            "conroi merge ./lake dev --into main -m 'the new prices'",
            "conroi merge ./lake dev --prefer source",
        ],
    )(merge)


def list_branches(session: Session, lake: Lake = None) -> None:
    """List the branches."""
    at = session.lake(lake)
    found = list(at.branches)
    if session.as_json:
        session.output.document([each.to_dict() for each in found])
    else:
        session.output.grid(branches_page(found, {each.id: each.name for each in found}, at.branch_name))


def create(
    session: Session,
    words: Annotated[list[str], typer.Argument(metavar="[LAKE] NAME")],
    origin: Annotated[
        str | None, typer.Option("--from", metavar="VERSION", help="A version, tag or branch; by default the newest.")
    ] = None,
) -> None:
    """Create a branch. Nothing is copied."""
    address, (name,) = split(words, "NAME")
    start = int(origin) if origin is not None and origin.isdecimal() else origin
    made = session.lake(address).branches.create(name, start)
    if session.as_json:
        session.output.document(made.to_dict())
    else:
        session.output.line(f"{made.name} begins at version {made.parent_version}. Write to it as LAKE@{made.name}.")


def rename(session: Session, words: Annotated[list[str], typer.Argument(metavar="[LAKE] NAME NEW_NAME")]) -> None:
    """Rename a branch."""
    address, (name, new_name) = split(words, "NAME", "NEW_NAME")
    renamed = session.lake(address).branches.rename(name, new_name)
    if session.as_json:
        session.output.document(renamed.to_dict())
    else:
        session.output.line(f"{name} is called {renamed.name} now.")


def delete(
    session: Session,
    words: Annotated[list[str], typer.Argument(metavar="[LAKE] NAME")],
    drop_tags: Annotated[bool, typer.Option("--drop-tags", help="Delete the tags of its versions too.")] = False,
) -> None:
    """Delete a branch. Its files are garbage-collected. One with tagged versions is not deleted."""
    address, (name,) = split(words, "NAME")
    branches = session.lake(address).branches
    branch = branches.get(name)
    branches.delete(name, tags="drop" if drop_tags else "refuse")
    if session.as_json:
        session.output.document(branch.to_dict())
    else:
        session.output.line(f"{name} is deleted.")


def merge(
    session: Session,
    words: Annotated[list[str], typer.Argument(metavar="[LAKE] BRANCH", help="The branch to bring in.")],
    into: Annotated[str | None, typer.Option(metavar="BRANCH", help="Where to; by default the lake as given.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would happen.")] = False,
    prefer: Annotated[
        str | None, typer.Option(metavar="SIDE", help="Where both changed the same: source or target.")
    ] = None,
    message: Message = None,
    author: Author = None,
) -> None:
    """Merge a branch into another, all tables or none.

    Where both changed the same rows the exit code is 3, and the rows are listed; --prefer says which side wins.
    """
    address, (source,) = split(words, "BRANCH")
    if prefer not in (None, "source", "target"):
        raise UsageProblem("--prefer is source or target.")
    from conroi.errors import MergeConflict

    lake = writable(session.lake(address), "merge")
    try:
        with session.output.progress(f"merging {source}"):
            result = lake.merge(source, into, dry_run=dry_run, prefer=prefer, message=message, author=author)
    except MergeConflict as error:
        if not session.as_json:
            session.output.grid(conflicts_page(error.conflicts))
        raise
    if session.as_json:
        session.output.document(result.to_dict())
    else:
        session.output.grid(merge_page(result))
        if result.conflicts:
            session.output.line()
            session.output.grid(conflicts_page(result.conflicts))
    if result.conflicts:
        raise typer.Exit(CONFLICT)
