"""View functions: each takes the facts of one subject and returns a text grid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from conroi.views.grid import Grid, grid
from conroi.views.words import changed_rows, moment, number, plain, plural, size, value

if TYPE_CHECKING:
    from conroi.history import Commit
    from conroi.lake import Lake
    from conroi.lake_changes import LakeChange, TableChange
    from conroi.lake_history import LakeCommit
    from conroi.locks import LockInfo
    from conroi.refs.tags import Tag
    from conroi.views.facts import TableFacts

MOST_TABLES = 100
"""Maximum number of tables of a lake that are opened for display."""


def lake_title(lake: Lake) -> str:
    """The first line about a lake."""
    branch = "" if lake.branch_name == "main" else f"branch {lake.branch_name}, "
    return f"{lake.uri}: {branch}version {lake.version}, {plural(len(lake), 'table')}"


def tables_page(facts: Sequence[TableFacts], title: str = "", more: int = 0) -> Grid:
    """The tables of a lake."""
    rows = [(each.name, str(each.version), number(each.rows), size(each.bytes), ", ".join(each.key)) for each in facts]
    rows += [(f"… {plural(more, 'more table')}", "", "", "", "")] if more else []
    return grid("table|>version|>rows|>size|key", rows, title=title, empty="There are no tables yet.")


def lake_page(lake: Lake) -> Grid:
    """A lake with its tables."""
    from conroi.views.facts import table_facts

    names = lake.tables()
    facts = [table_facts(name, lake[name]) for name in names[:MOST_TABLES]]
    return tables_page(facts, lake_title(lake), len(names) - len(facts))


def table_page(facts: TableFacts, key_mark: str = "key") -> Grid:
    """One table: what it holds and how."""
    lines = [
        f"{plural(facts.rows, 'row')} in {plural(facts.fragments, 'fragment')}, {size(facts.bytes)}"
        + (f", {plural(facts.deleted_rows, 'deleted row')} not yet compacted" if facts.deleted_rows else ""),
        *(f"index {plain(name)} on {', '.join(columns)}" for name, columns in facts.indices.items()),
        *(["row ids are stable"] if facts.has_stable_row_ids else []),
        *(f"{plain(key)} = {plain(text)}" for key, text in facts.config.items()),
    ]
    return schema_page(facts, f"{facts.name}: version {facts.version}", lines, key_mark)


def schema_page(facts: TableFacts, title: str = "", lines: Iterable[str] = (), key_mark: str = "key") -> Grid:
    """The columns of a table."""
    rows = [
        (plain(each.name), plain(each.type), "" if each.is_nullable else "not null", key_mark if each.is_key else "")
        for each in facts.columns
    ]
    return grid("column|type|null|key", rows, title=title, lines=lines)


def rows_page(
    rows: Sequence[Mapping[str, object]], columns: Sequence[str], right: Iterable[str] = (), *, longest: int = 60
) -> Grid:
    """Some rows of a table; a value is cut to so many letters."""
    numbers = set(right)
    titles = tuple(f">{plain(name)}" if name in numbers else plain(name) for name in columns)
    return Grid(
        titles, tuple([value(row[name], longest) for name in columns] for row in rows), empty="There are no rows."
    )


def lake_history_page(commits: Iterable[LakeCommit]) -> Grid:
    """The versions of a lake."""
    rows = [
        (
            str(each.version),
            moment(each.timestamp),
            plain(each.author or ""),
            plain(each.message or ""),
            ", ".join(f"{name} {'dropped' if at is None else at}" for name, at in each.tables.items()),
        )
        for each in commits
    ]
    return grid(">version|time|author|message|tables", rows, empty="There are no versions.")


def table_history_page(commits: Iterable[Commit]) -> Grid:
    """The versions of a table."""
    rows = [
        (str(c.version), moment(c.timestamp), c.operation, number(c.rows), plain(c.writer), plain(c.message or ""))
        for c in commits
    ]
    return grid(">version|time|operation|>rows|writer|message", rows, empty="There are no versions.")


def change_title(change: LakeChange, branch: str = "") -> str:
    """The first line about a version of a lake, or of a branch of it."""
    entry = change.entry
    at = f"{branch}@{entry.version}" if branch else str(entry.version)
    said = [moment(entry.timestamp), plain(entry.author or ""), plain(entry.message or "")]
    return "  ".join([f"version {at}", *filter(None, said)])


def changes_page(tables: Sequence[TableChange], title: str = "") -> Grid:
    """What a version of a lake did to its tables."""
    return grid("table|what|version|rows|rebased", [change_row(each) for each in tables], title=title)


def change_row(change: TableChange) -> tuple[str, str, str, str, str]:
    """One table of such a version."""
    versions = [str(each) for each in (change.before, change.version) if each is not None]
    over = f"rebased over {', '.join(map(str, change.rebased_over))}" if change.rebased_over else ""
    rows = changed_rows(change.rows_added, change.rows_removed)
    return change.name, change.what, " → ".join(dict.fromkeys(versions)), rows, over


def tags_page(tags: Iterable[Tag]) -> Grid:
    """Names for versions."""
    rows = [(each.name, str(each.version), moment(each.created_at)) for each in tags]
    return grid("tag|>version|created", rows, empty="There are no tags.")


def locks_page(locks: Iterable[LockInfo]) -> Grid:
    """Holders of insert locks, and waiters."""
    rows = [
        (each.table, "waits" if each.is_waiting else "holds", plain(each.host), str(each.pid), moment(each.since))
        for each in locks
    ]
    return grid("table|what|host|>process|since", rows, empty="No insert lock is held or waited for.")
