"""The verb load: files into tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from conroi.cli.registering import command
from conroi.cli.session import Session, Target
from conroi.cli.usage import UsageProblem
from conroi.cli.words import Author, Message
from conroi.views.words import plural

if TYPE_CHECKING:
    from conroi.cli.loads import Load, Loading
    from conroi.cli.sources import Source
    from conroi.cli.text_files import TextOptions
    from conroi.transaction import TransactionResult

SECTION = "Rows in and out"


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
            "conroi load ./lake/orders s3://bucket/big.parquet --spark",
            "conroi load ./lake --plan nightly.toml",
        ],
    )(load)


def load(
    session: Session,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="LAKE/TABLE FILES...", help="Parquet, CSV and JSON lines files; Lance and Delta folders; patterns."
        ),
    ],
    mode: Annotated[str, typer.Option(metavar="MODE", help="append, overwrite, or merge (by key).")] = "append",
    on: Annotated[str | None, typer.Option(metavar="A,B", help="For merge: the columns to match rows by.")] = None,
    create: Annotated[bool, typer.Option("--create", help="Make the table if it is not there.")] = False,
    key: Annotated[str | None, typer.Option(metavar="A,B", help="For --create: the key of the table.")] = None,
    evolve: Annotated[bool, typer.Option("--evolve", help="For append: add columns that are new.")] = False,
    plan: Annotated[
        str | None, typer.Option(metavar="FILE", help="Load what this TOML file says, in one commit.")
    ] = None,
    once: Annotated[
        str | None, typer.Option(metavar="KEY", help="Do nothing if a load with this key was committed before.")
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
    with name, files, mode, on, key, create for each table, and may have message, author and once at its top.
    """
    from conroi.cli.load_plans import LoadPlan, read_plan
    from conroi.cli.loads import Load, Loading, spark_frame
    from conroi.cli.sources import find
    from conroi.cli.text_files import TextOptions, parsed_types

    if plan is not None and len(words) != 1:
        raise UsageProblem("With --plan give the lake alone; the plan names the files.")
    target = session.target(words[0])
    if plan is not None:
        if target.name is not None:
            raise UsageProblem("With --plan give the lake alone; the plan names the tables.")
        wanted = read_plan(plan)
    else:
        text = TextOptions(delimiter, encoding, parsed_types(type_ or ())).checked()
        sources = _described(session, find(words[1:]), text, target)
        chosen = Load(target.table_name, sources, mode, _listed(on), _listed(key), creates=create, evolve=evolve)
        wanted = LoadPlan((chosen,))
    with session.output.progress("rows loaded") as progress:
        loading = Loading(wanted.loads, progress, spark_frame if spark else None)
        result = loading.run(
            target.lake, message=message or wanted.message, author=author or wanted.author, once=once or wanted.once
        )
    _say(session, loading, result)


def _described(session: Session, found: Sequence[Source], text: TextOptions, target: Target) -> tuple[Source, ...]:
    """The files with the options for text; what is guessed of them is said."""
    from conroi.cli.text_files import guessed

    name = target.table_name
    known = target.lake[name].schema.names if name in target.lake else ()
    sources: list[Source] = []
    for source in found:
        options = text
        if source.kind == "csv" and "://" not in source.path:
            options, notes = guessed(source.path, text, known)
            for note in notes:
                session.output.note(note)
        sources.append(replace(source, text=options))
    return tuple(sources)


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
