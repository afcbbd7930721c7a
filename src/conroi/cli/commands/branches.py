"""Commands tag, branch and merge: names for versions and for lines of versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from conroi.branches.results import conflicts_page, merge_page
from conroi.cli.failures import CONFLICT, UsageProblem
from conroi.cli.options import Author, Lake, LakeOrTable, Message, command, new_app
from conroi.cli.session import Session, lake_at, split, table_at, writable
from conroi.display.pages import branches_page, tags_page

if TYPE_CHECKING:
    from conroi.snapshots.tags import Tag, Tags


SECTION = "Names"


def add_to(app: typer.Typer) -> None:
    """Register them."""
    _add_tags_to(app)
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


Words = Annotated[list[str], typer.Argument(metavar="[LAKE[/TABLE]] NAME")]
At = Annotated[
    str | None, typer.Option("--version", metavar="VERSION", help="The version to name; by default the newest.")
]


def _add_tags_to(app: typer.Typer) -> None:
    tag = new_app("Names for versions of a lake or of a table.")
    command(tag, "list", examples=["conroi tag list ./lake", "conroi tag list ./lake/orders"])(list_tags)
    command(tag, "create", examples=["conroi tag create ./lake q3", "conroi tag create ./lake q3 --version 41"])(
        create_tag
    )
    command(tag, "move", examples=["conroi tag move ./lake stable --version 43"])(move_tag)
    command(tag, "delete", examples=["conroi tag delete ./lake q3"])(delete_tag)
    app.add_typer(tag, name="tag", rich_help_panel=SECTION)


def list_tags(session: Session, address: LakeOrTable = None) -> None:
    """List the tags."""
    found = list(_tags(session, address)[0])
    if session.as_json:
        session.output.document([_tag_facts(each) for each in found])
    else:
        session.output.grid(tags_page(found))


def create_tag(session: Session, words: Words, version: At = None) -> None:
    """Create a tag on a version."""
    address, (name,) = split(words, "NAME")
    tags, number = _tags(session, address, version)
    _say_tag(session, tags.create(name, number), "names")


def move_tag(session: Session, words: Words, version: At = None) -> None:
    """Move a tag to another version."""
    address, (name,) = split(words, "NAME")
    tags, number = _tags(session, address, version)
    _say_tag(session, tags.move(name, number), "names now")


def delete_tag(session: Session, words: Words) -> None:
    """Delete a tag. The version stays."""
    address, (name,) = split(words, "NAME")
    tags, _ = _tags(session, address)
    tag = tags.get(name)
    tags.delete(name)
    if session.as_json:
        session.output.document(_tag_facts(tag))
    else:
        session.output.line(f"Deleted {name}, which named version {tag.version}.")


def _tags(session: Session, address: str | None, version: str | None = None) -> tuple[Tags, int | None]:
    """The tags of what the address means, and the version that is meant."""
    target = session.target(address)
    if target.name is not None:
        table = target.table
        return table.tags, None if version is None else table_at(table, version).version
    lake = target.lake
    if version is not None and lake.pinned is not None:
        raise UsageProblem("Say the version once: after the @, or with --version.")
    return lake.tags, None if version is None else lake_at(lake, version).version


def _say_tag(session: Session, tag: Tag, verb: str) -> None:
    if session.as_json:
        session.output.document(_tag_facts(tag))
    else:
        session.output.line(f"{tag.name} {verb} version {tag.version}.")


def _tag_facts(tag: Tag) -> dict[str, Any]:
    return {"name": tag.name, "version": tag.version, "created_at": tag.created_at, "branch": tag.branch}
