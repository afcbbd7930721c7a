"""Commands that define tables: create, drop, rename, copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from conroi.cli.failures import UsageProblem
from conroi.cli.options import Author, DryRun, Message, OneTable, Yes, checked_yes, command, so_far
from conroi.cli.session import Session, Target, committed
from conroi.display import plural

if TYPE_CHECKING:
    import pyarrow as pa

    from conroi.transaction import Transaction

SECTION = "Tables"


def add_to(app: typer.Typer) -> None:
    """Register them."""
    command(
        app,
        "create",
        section=SECTION,
        examples=[
            'conroi create ./lake/orders --schema "id int64 key, day date not null, amount decimal(10, 2)"',
            'conroi create ./lake/docs --schema "id int64 key, text string, embedding float32[768]"',
            "conroi create ./lake/orders --schema-file orders.parquet --key id --if-not-exists",
        ],
    )(create)
    command(app, "drop", section=SECTION, examples=["conroi drop ./lake/orders", "conroi drop ./lake/orders --yes"])(
        drop
    )
    command(
        app,
        "rename",
        section=SECTION,
        examples=["conroi rename ./lake/orders old_orders", "conroi rename ./lake/orders sales.orders -m 'tidied up'"],
    )(rename)
    command(
        app,
        "copy",
        section=SECTION,
        examples=[
            "conroi copy ./lake/orders orders_before",
            "conroi copy ./lake@q3/orders ./archive/orders_q3",
        ],
    )(copy)


def create(
    session: Session,
    table: OneTable,
    schema: Annotated[
        str | None, typer.Option(metavar="COLUMNS", help="NAME TYPE [not null] [key], with commas between them.")
    ] = None,
    schema_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A text of such columns, or a Parquet, CSV, JSON, Arrow or Lance file."),
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="A,B", help="The key; or write `key` behind its columns.")] = None,
    stable_row_ids: Annotated[bool, typer.Option("--stable-row-ids", help="Rows keep their ids.")] = False,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="An existing table with these columns is no error.")
    ] = False,
    message: Message = None,
    author: Author = None,
) -> None:
    """Create an empty table with columns of these types.

    A file gives the names and types of its columns, never its rows; `conroi load --create` loads them as well.
    """
    from conroi.errors import AlreadyExistsError

    target = session.target(table, wants_table=True)
    name = target.newest_name
    columns, marked = _columns(schema, schema_file)
    named = tuple(key.split(",")) if key else ()
    if named and marked and named != marked:
        raise UsageProblem(f"The schema says that the key is {', '.join(marked)}, and --key {', '.join(named)}.")

    def work(tx: Transaction) -> None:
        tx.create_table(
            name, columns, key=list(named or marked) or None, stable_row_ids=stable_row_ids, exist_ok=if_not_exists
        )

    was_there = name in target.lake
    try:
        committed(target.lake, work, message=message or f"create {name}", author=author)
    except AlreadyExistsError:
        if not if_not_exists or was_there:
            raise
        was_there = True  # a concurrent writer created it first; compare with that one
        committed(target.lake, work, message=message or f"create {name}", author=author)
    made = target.lake[name]
    if session.as_json:
        session.output.document(
            {"name": name, "created": not was_there, "version": made.version, "key": list(made.key)}
            | {"columns": {field.name: str(field.type) for field in made.schema}}
        )
    elif was_there:
        session.output.line(f"{name} already exists, at version {made.version}.")
    else:
        of = f", key {', '.join(made.key)}" if made.key else ""
        session.output.line(f"Created {name}: {plural(len(made.schema), 'column')}{of}.")


def _columns(text: str | None, file: str | None) -> tuple[pa.Schema, tuple[str, ...]]:
    if (text is None) == (file is None):
        raise UsageProblem(
            "Say which columns the table has.",
            hint='Give one of --schema "id int64 key, name string" and --schema-file FILE.',
        )
    from pathlib import Path

    from conroi.cli.schemas import parsed_schema
    from conroi.cli.sources import find, is_data
    from conroi.cli.text_files import TextOptions, guessed

    if text is not None:
        return parsed_schema(text)
    assert file is not None
    if not is_data(file):
        return parsed_schema(Path(file).read_text("utf-8"))
    (source,) = find([file])
    if source.kind == "csv":
        source = source.with_text(guessed(file, TextOptions())[0])
    return source.open().schema, ()


def drop(
    session: Session,
    table: OneTable,
    yes: Yes = False,
    dry_run: DryRun = False,
    message: Message = None,
    author: Author = None,
) -> None:
    """Drop a table. Says which; --yes does it.

    Versions of the lake before that still have it, until `conroi expire` expires them.
    """
    checked_yes(yes=yes, dry_run=dry_run)
    target = session.table(table)
    name = target.newest_name
    lake, found = target.lake, target.lake[name]
    before = lake.version
    facts: dict[str, Any] = {"name": name, "done": yes, "version": found.version, "rows": found.count_rows()}
    if yes:
        result = committed(lake, lambda tx: tx.drop_table(name), message=message or f"drop {name}", author=author)
        before = result.version - 1
        facts["lake_version"] = result.version
    if session.as_json:
        session.output.document(facts)
    elif yes:
        session.output.line(f"Dropped {name}. Version {before} of the lake still has it.")
    else:
        session.output.line(f"{name} would be dropped: {plural(facts['rows'], 'row')} at version {found.version}.")
        session.output.note("Nothing was changed; --yes drops it.")


def rename(
    session: Session,
    words: Annotated[list[str], typer.Argument(metavar="LAKE/TABLE NEW_NAME")],
    message: Message = None,
    author: Author = None,
) -> None:
    """Rename a table, or move it to another namespace. Its history stays with it."""
    if len(words) != 2:
        raise UsageProblem("Give LAKE/TABLE and its new name.")
    address, new_name = words
    if "/" in new_name:
        raise UsageProblem(
            f"{new_name} is no name of a table.", hint="Give the name alone; `conroi copy` copies into another lake."
        )
    target = session.table(address)
    name = target.newest_name
    result = committed(
        target.lake,
        lambda tx: tx.rename_table(name, new_name),
        message=message or f"rename {name} to {new_name}",
        author=author,
    )
    if session.as_json:
        session.output.document({"name": new_name, "renamed_from": name, "lake_version": result.version})
    else:
        session.output.line(f"{name} is called {new_name} now.")


def copy(
    session: Session,
    words: Annotated[list[str], typer.Argument(metavar="LAKE/TABLE NEW", help="NEW is a name, or LAKE/TABLE.")],
    message: Message = None,
    author: Author = None,
) -> None:
    """Copy a table to another name or into another lake.

    It may be of any version. Columns, rows and the key are copied; history, indices, tags and settings are not. --store
    and --storage-option hold for both lakes.
    """
    if len(words) != 2:
        raise UsageProblem("Give LAKE/TABLE and where to copy it: a new name, or LAKE/TABLE.")
    source = session.table(words[0])
    table = source.table
    into = session.target(words[1], wants_table=True) if "/" in words[1] else Target(_newest(session, source), words[1])
    name = into.newest_name
    with session.output.progress(f"copying {source.table_name}", table.count_rows()) as progress:

        def work(tx: Transaction) -> None:
            tx.create_table(
                name,
                table.stored_rows(),
                key=list(table.key) or None,
                stable_row_ids=table.has_stable_row_ids,
                progress=so_far(progress),
            )

        said = message or f"copy {source.table_name} version {table.version} to {name}"
        result = committed(into.lake, work, message=said, author=author)
    rows = table.count_rows()
    if session.as_json:
        facts = {"name": name, "copied_from": source.table_name, "copied_version": table.version, "rows": rows}
        session.output.document(facts | {"uri": into.lake.uri, "lake_version": result.version})
    else:
        session.output.line(f"Copied {plural(rows, 'row')} of {source.table_name} to {name}.")


def _newest(session: Session, source: Target) -> Any:
    """The lake of a source as it is now, on its branch."""
    lake = source.lake
    if lake.pinned is None:
        return lake
    current = session.connect(lake.uri)
    return current if lake.branch_name == current.branch_name else current.branch(lake.branch_name)
