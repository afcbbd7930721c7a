"""Commands for maintenance: compact, doctor, mend, locks, expire, gc."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from conroi.cli.failures import FAILED
from conroi.cli.options import Lake, LakeOrTable, Message, OneTable, Yes, command, so_far
from conroi.cli.session import Session, writable
from conroi.display import grid, number
from conroi.display.pages import (
    TableFacts,
    collected_page,
    diagnosis_page,
    environment_page,
    expired_page,
    locks_page,
    table_facts,
)

if TYPE_CHECKING:
    from conroi.maintenance.reports import Collected, Expired
    from conroi.table import Table


SECTION = "Look after it"


def add_to(app: typer.Typer) -> None:
    """Register them."""
    command(
        app,
        "compact",
        section=SECTION,
        examples=[
            "conroi compact ./lake",
            "conroi compact ./lake/orders --yes",
            "conroi compact ./lake/orders --sort-by day --yes",
        ],
    )(compact)
    command(
        app,
        "doctor",
        section=SECTION,
        examples=["conroi doctor ./lake", "conroi doctor ./lake --deep", "conroi doctor ./lake --fix"],
    )(doctor)
    command(
        app, "mend", section=SECTION, examples=["conroi mend ./lake/orders", "conroi mend ./lake/orders --discard"]
    )(mend)
    command(app, "locks", section=SECTION, examples=["conroi locks ./lake --locks postgresql://user:password@host/db"])(
        locks
    )
    _add_collection_to(app)


def compact(
    session: Session,
    address: LakeOrTable = None,
    sort_by: Annotated[str | None, typer.Option(metavar="A,B", help="Put all rows in this order.")] = None,
    rows_per_fragment: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many rows a file may have.")
    ] = None,
    yes: Yes = False,
    message: Message = None,
) -> None:
    """Rewrite small files and deleted rows. Lists them; --yes does it."""
    target = session.target(address)
    names = [target.newest_name] if target.name is not None else target.lake.tables()
    before = {name: table_facts(name, target.lake[name]) for name in names}
    after: dict[str, TableFacts] = {}
    if yes:
        for name in names:
            with session.output.progress(f"compacting {name}", before[name].rows) as progress:
                done = _compacted(target.lake[name], name, sort_by, rows_per_fragment, message, so_far(progress))
            after[name] = table_facts(name, done)
    if session.as_json:
        facts = [_compact_facts(before[name], after.get(name)) for name in names]
        session.output.document({"done": yes, "tables": facts})
        return
    rows = [_compact_row(before[name], after.get(name)) for name in names]
    session.output.grid(grid("table|>rows|fragments|deleted rows", rows, empty="There are no tables yet."))
    if not yes:
        session.output.note("Nothing was changed; --yes compacts.")


def _compacted(
    table: Table, name: str, sort_by: str | None, rows: int | None, message: str | None, progress: Any
) -> Table:
    columns = sort_by.split(",") if sort_by else None
    return table.compact(columns, rows_per_fragment=rows, message=message or f"compact {name}", progress=progress)


def _compact_facts(before: TableFacts, after: TableFacts | None) -> dict[str, Any]:
    now = before if after is None else after
    return {
        "name": before.name,
        "version": now.version,
        "rows": now.rows,
        "fragments_before": before.fragments,
        "fragments": now.fragments,
        "deleted_rows_before": before.deleted_rows,
        "deleted_rows": now.deleted_rows,
    }


def _compact_row(before: TableFacts, after: TableFacts | None) -> tuple[str, str, str, str]:
    def change(then: int, now: int | None) -> str:
        return number(then) if now is None or now == then else f"{number(then)} → {number(now)}"

    fragments = change(before.fragments, None if after is None else after.fragments)
    deleted = change(before.deleted_rows, None if after is None else after.deleted_rows)
    return before.name, number(before.rows), fragments, deleted


def doctor(
    session: Session,
    lake: Lake = None,
    fix: Annotated[bool, typer.Option("--fix", help="Put right what is safe to.")] = False,
    deep: Annotated[bool, typer.Option("--deep", help="Also read all rows of all versions.")] = False,
) -> None:
    """Check the integrity of a lake.

    Says what is wrong and what to do; the exit code is 1 if something is broken. Nothing is deleted, and nothing
    changes without --fix. A lake that is too damaged to be opened is checked all the same.
    """
    from conroi.doctor import diagnose

    place = session.place(lake)
    with session.output.progress("things checked") as progress:
        found = diagnose(
            place,
            store=session.store,
            storage_options=dict(session.storage_options) or None,
            allow_bases=session.allow_bases,
            fix=fix,
            deep=deep,
            progress=so_far(progress),
        )
    if session.as_json:
        session.output.document(found.to_dict())
    else:
        session.output.grid(diagnosis_page(found))
        session.output.line()
        session.output.grid(environment_page(found), with_titles=False)
    if not found.is_healthy:
        raise typer.Exit(FAILED)


def mend(
    session: Session,
    table: OneTable,
    discard: Annotated[
        bool, typer.Option("--discard", help="Where the two changes do not fit, go on from the lake's version.")
    ] = False,
) -> None:
    """Repair a table that diverged after an out-of-band write.

    A table diverges if it was written by its path while the lake wrote it. Nothing is lost: the other change is rebased
    onto the lake's.
    """
    target = session.table(table)
    before = target.table.version
    done = writable(target.lake).mend(target.newest_name, discard=discard)
    if session.as_json:
        facts = {"name": target.table_name, "before": before, "version": done.version, "rows": done.count_rows()}
        session.output.document(facts)
    elif done.version == before:
        session.output.line(f"{target.table_name} is fine, at version {before}.")
    else:
        session.output.line(f"{target.table_name} is repaired, at version {done.version}.")


def locks(session: Session, lake: Lake = None) -> None:
    """Show the holders of insert locks and the waiting workers."""
    found = session.lake(lake).locks()
    if session.as_json:
        session.output.document(
            [
                {"table": e.table, "host": e.host, "pid": e.pid, "since": e.since, "is_waiting": e.is_waiting}
                for e in found
            ]
        )
    else:
        session.output.grid(locks_page(found))


def _add_collection_to(app: typer.Typer) -> None:
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
