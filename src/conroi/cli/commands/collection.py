"""Commands for retention and garbage collection: expire and gc."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from conroi.cli.options import Lake, Yes, command, so_far
from conroi.cli.session import Session, writable
from conroi.display.reports import collected_page, expired_page

if TYPE_CHECKING:
    from conroi.maintenance.reports import Collected, Expired

SECTION = "Look after it"


def add_to(app: typer.Typer) -> None:
    """Register them."""
    command(
        app,
        "expire",
        section=SECTION,
        examples=["conroi expire ./lake --older-than 30d", "conroi expire ./lake --older-than 7d --keep 20 --yes"],
    )(expire)
    command(app, "gc", section=SECTION, examples=["conroi gc ./lake", "conroi gc ./lake --min-age 3d --yes"])(gc)


def expire(
    session: Session,
    lake: Lake = None,
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="Versions superseded this long ago: 30d, 12h.")
    ] = None,
    keep: Annotated[int | None, typer.Option(min=1, metavar="N", help="At least so many of the newest stay.")] = None,
    yes: Yes = False,
) -> None:
    """Expire old versions. Lists them; --yes does it.

    Tagged versions, what branches need, and the newest ones stay. `conroi gc` then frees the files.
    """
    options: dict[str, Any] = {"older_than": older_than, "keep": keep}
    given = {name: value for name, value in options.items() if value is not None}
    with session.output.progress("tables looked at") as progress:
        found = writable(session.lake(lake)).expire(**given, dry_run=not yes, progress=so_far(progress))
    if session.as_json:
        session.output.document(_expired_facts(found))
        return
    session.output.grid(expired_page(found))
    if not yes and (found.removed or found.tables):
        session.output.note("Nothing was changed; --yes expires them.")


def _expired_facts(found: Expired) -> dict[str, Any]:
    return {
        "done": not found.is_dry_run,
        "removed": list(found.removed),
        "kept": list(found.kept),
        "tables": {name: list(versions) for name, versions in found.tables.items()},
        "bytes": found.bytes,
        "paths": list(found.paths),
        "skipped": dict(found.skipped),
    }


def gc(
    session: Session,
    lake: Lake = None,
    min_age: Annotated[
        str | None, typer.Option(metavar="AGE", help="Only files older than this: 3d, 12h. Longer than any load takes.")
    ] = None,
    yes: Yes = False,
) -> None:
    """Delete unreferenced files. Lists them; --yes does it.

    Readers of retained versions, and writers that take less than --min-age, are safe.
    """
    given: dict[str, Any] = {} if min_age is None else {"min_age": min_age}
    with session.output.progress("folders looked at") as progress:
        found = writable(session.lake(lake)).gc(**given, dry_run=not yes, progress=so_far(progress))
    if session.as_json:
        session.output.document(_collected_facts(found))
        return
    session.output.grid(collected_page(found))
    if not yes and found.garbage:
        session.output.note("Nothing was changed; --yes deletes them.")


def _collected_facts(found: Collected) -> dict[str, Any]:
    return {
        "done": not found.is_dry_run,
        "files": found.files,
        "bytes": found.bytes,
        "garbage": [
            {"table": each.table, "kind": each.kind, "files": each.files, "bytes": each.bytes} for each in found.garbage
        ],
        "paths": list(found.paths),
        "skipped": dict(found.skipped),
    }
