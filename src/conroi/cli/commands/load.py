"""Command load: files into tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from conroi.cli.failures import UsageProblem
from conroi.cli.options import STDIN, Author, Message, command
from conroi.cli.session import Session, writable
from conroi.display import plural

if TYPE_CHECKING:
    from conroi.cli.loads import Load, Loading
    from conroi.cli.sources import Source
    from conroi.lake_snapshot import LakeReader
    from conroi.transaction import TransactionResult

SECTION = "Rows in and out"
MOST_GUESSES = 10
"""So many columns are named with the type that was guessed."""


def add_to(app: typer.Typer) -> None:
    """Register it."""
    command(
        app,
        "load",
        section=SECTION,
        examples=[
            "conroi load ./lake/orders orders.parquet --create --key id",
            "conroi load ./lake/orders 'new/*.csv' --mode merge --on id --once 2026-11-15",
            "conroi load ./lake/orders old.csv --create --delimiter ';' --encoding latin-1 --type zip=string",
            "curl -sS https://host/orders.json | conroi load ./lake/orders - --format json",
            "conroi load ./lake/orders s3://bucket/big.parquet --spark",
            "conroi load ./lake --plan nightly.toml",
        ],
    )(load)


def load(
    session: Session,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="LAKE/TABLE FILES...",
            help="Parquet, CSV, JSON and Arrow files; Lance and Delta folders; patterns; - is standard input.",
        ),
    ],
    mode: Annotated[str, typer.Option(metavar="MODE", help="append, overwrite, or merge (by key).")] = "append",
    on: Annotated[str | None, typer.Option(metavar="A,B", help="For merge: the columns to match rows by.")] = None,
    create: Annotated[bool, typer.Option("--create", help="Create the table if it does not exist.")] = False,
    key: Annotated[str | None, typer.Option(metavar="A,B", help="For --create: the key of the table.")] = None,
    evolve: Annotated[bool, typer.Option("--evolve", help="For append: add columns that are new.")] = False,
    plan: Annotated[
        str | None, typer.Option(metavar="FILE", help="Load what this TOML file says, in one commit.")
    ] = None,
    once: Annotated[
        str | None, typer.Option(metavar="KEY", help="Do nothing if a load with this key was committed before.")
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="FORMAT", help="csv, tsv, json, ndjson, parquet or arrow; else by the ending."
        ),
    ] = None,
    delimiter: Annotated[
        str | None, typer.Option(metavar="CHARACTER", help="What separates values in text files; `tab` is a tab.")
    ] = None,
    encoding: Annotated[str | None, typer.Option(metavar="NAME", help="Of text files: latin-1, cp1252, …")] = None,
    type_: Annotated[
        list[str] | None, typer.Option("--type", metavar="COLUMN=TYPE", help="Of a column in text files; repeatable.")
    ] = None,
    spark: Annotated[bool, typer.Option("--spark", help="Let Spark read and write the files.")] = False,
    message: Message = None,
    author: Author = None,
) -> None:
    """Load files into tables, in one transaction.

    Files are streamed, except for a merge, which holds them in memory unless --spark is given. A plan has a [[table]]
    with name, files, mode, on, key, create for each table, and may have message, author and once at its top. What is
    guessed of a file, such as the types of text, is said.
    """
    from conroi.cli.loads import Load, Loading, LoadPlan, read_plan, spark_frame
    from conroi.cli.sources import Spool, find
    from conroi.cli.text_files import TextOptions, parsed_types

    if plan is not None and len(words) != 1:
        raise UsageProblem("With --plan give the lake alone; the plan names the files.")
    target = session.target(words[0], wants_table=plan is None)
    if plan is not None and target.name is not None:
        raise UsageProblem("With --plan give the lake alone; the plan names the tables.")
    wanted = LoadPlan(()) if plan is None else read_plan(plan)
    with Spool(is_needed=STDIN in words[1:]) as spool:
        if plan is None:
            text = TextOptions(delimiter, encoding, parsed_types(type_ or ())).checked()
            if spark and STDIN in words[1:]:
                raise UsageProblem("Spark cannot read standard input.", hint="Leave out --spark.")
            sources = tuple(each.with_text(text) for each in find(words[1:], format_, spool))
            chosen = Load(target.newest_name, sources, mode, _listed(on), _listed(key), creates=create, evolve=evolve)
            wanted = LoadPlan((chosen,))
        loads = [_with_guesses(session, each, target.lake) for each in wanted.loads]
        with session.output.progress("rows loaded") as progress:
            loading = Loading(loads, progress, spark_frame if spark else None)
            result = loading.run(
                writable(target.lake),
                message=message or wanted.message,
                author=author or wanted.author,
                once=once or wanted.once,
            )
    _say(session, loading, result)


def _with_guesses(session: Session, load: Load, lake: LakeReader) -> Load:
    """The load with what its text files leave open; what is guessed is said."""
    from conroi.cli.text_files import guessed

    known = lake[load.name].schema.names if load.name in lake else ()
    sources: list[Source] = []
    for source in (replace(each, allow_bases=session.allow_bases) for each in load.sources):
        if source.kind == "csv" and "://" not in source.path:
            options, notes = guessed(source.path, source.text, known, source.shown)
            for note in notes:
                session.output.note(note)
            sources.append(source.with_text(options))
        else:
            sources.append(source)
    first = sources[0]
    if load.creates and not known and first.kind in ("csv", "tsv", "json"):
        found = {field.name: field.type for field in first.open().schema if field.name not in first.text.types}
        columns = ", ".join(f"{name} {type_}" for name, type_ in list(found.items())[:MOST_GUESSES])
        more = ", …" if len(found) > MOST_GUESSES else ""
        if found:
            says = "--type COLUMN=TYPE" if first.kind != "json" else "`conroi create` before the load"
            session.output.note(f"{first.shown}: types guessed from its first rows: {columns}{more}; {says} sets them.")
    return replace(load, sources=tuple(sources))


def _listed(columns: str | None) -> tuple[str, ...]:
    return tuple(columns.split(",")) if columns else ()


def _say(session: Session, loading: Loading, result: TransactionResult) -> None:
    if session.as_json:
        session.output.document(
            {
                "version": result.version,
                "was_done_before": result.was_done_before,
                "tables": [
                    {"name": name, "version": result.tables.get(name), "rows_read": loading.rows.get(name)}
                    for name in _names(loading.loads)
                ],
                "attempts": result.attempts,
                "rebased": {name: list(versions) for name, versions in result.rebased.items()},
            }
        )
        return
    if result.was_done_before:
        session.output.line(f"This load was committed before, as version {result.version} of the lake.")
        return
    for name in _names(loading.loads):
        rows = loading.rows.get(name)
        read = "" if rows is None else f"{plural(rows, 'row')} from files, "
        session.output.line(f"{name}: {read}now at version {result.tables.get(name, '?')}")
    session.output.line(f"The lake is at version {result.version}.")


def _names(loads: Sequence[Load]) -> list[str]:
    return list(dict.fromkeys(each.name for each in loads))
