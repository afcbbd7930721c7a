"""Command tag: names for versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from conroi.cli.commands import branches
from conroi.cli.failures import UsageProblem
from conroi.cli.options import LakeOrTable, command, new_app
from conroi.cli.session import Session, lake_at, split, table_at
from conroi.display.pages import tags_page

if TYPE_CHECKING:
    from conroi.snapshots.tags import Tag, Tags

SECTION = "Names"

Words = Annotated[list[str], typer.Argument(metavar="[LAKE[/TABLE]] NAME")]
At = Annotated[
    str | None, typer.Option("--version", metavar="VERSION", help="The version to name; by default the newest.")
]


def add_to(app: typer.Typer) -> None:
    """Register them."""
    tag = new_app("Names for versions of a lake or of a table.")
    command(tag, "list", examples=["conroi tag list ./lake", "conroi tag list ./lake/orders"])(list_tags)
    command(tag, "create", examples=["conroi tag create ./lake q3", "conroi tag create ./lake q3 --version 41"])(create)
    command(tag, "move", examples=["conroi tag move ./lake stable --version 43"])(move)
    command(tag, "delete", examples=["conroi tag delete ./lake q3"])(delete)
    app.add_typer(tag, name="tag", rich_help_panel=SECTION)
    branches.add_to(app)


def list_tags(session: Session, address: LakeOrTable = None) -> None:
    """List the tags."""
    found = list(_tags(session, address)[0])
    if session.as_json:
        session.output.document([_facts(each) for each in found])
    else:
        session.output.grid(tags_page(found))


def create(session: Session, words: Words, version: At = None) -> None:
    """Create a tag on a version."""
    address, (name,) = split(words, "NAME")
    tags, number = _tags(session, address, version)
    _say(session, tags.create(name, number), "names")


def move(session: Session, words: Words, version: At = None) -> None:
    """Move a tag to another version."""
    address, (name,) = split(words, "NAME")
    tags, number = _tags(session, address, version)
    _say(session, tags.move(name, number), "names now")


def delete(session: Session, words: Words) -> None:
    """Delete a tag. The version stays."""
    address, (name,) = split(words, "NAME")
    tags, _ = _tags(session, address)
    tag = tags.get(name)
    tags.delete(name)
    if session.as_json:
        session.output.document(_facts(tag))
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


def _say(session: Session, tag: Tag, verb: str) -> None:
    if session.as_json:
        session.output.document(_facts(tag))
    else:
        session.output.line(f"{tag.name} {verb} version {tag.version}.")


def _facts(tag: Tag) -> dict[str, Any]:
    return {"name": tag.name, "version": tag.version, "created_at": tag.created_at, "branch": tag.branch}
