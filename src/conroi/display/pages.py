"""Pages, as grids of text: a lake, a table, a history, names; expiry, garbage collection, diagnoses, diffs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from conroi.display import Grid, changed_rows, grid, key_text, moment, number, plain, plural, size, value

if TYPE_CHECKING:
    from conroi.branches.diff import LakeDiff, TableDiff
    from conroi.doctor.findings import Diagnosis, Finding
    from conroi.format import lance_pb2 as pb
    from conroi.history import Commit
    from conroi.inserts import LockInfo
    from conroi.lake_history import LakeChange, LakeCommit, TableChange
    from conroi.lake_snapshot import LakeReader
    from conroi.maintenance.reports import Collected, Expired
    from conroi.reader import Reader
    from conroi.snapshots.branch_names import Branch
    from conroi.snapshots.tags import Tag


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """One column."""

    name: str
    type: str
    is_nullable: bool
    is_key: bool


@dataclass(frozen=True, slots=True)
class TableFacts:
    """One table at one version, from its manifest alone."""

    name: str
    uri: str
    version: int
    rows: int
    deleted_rows: int
    """Rows that are in the files and are gone: compact() takes them out."""
    fragments: int
    bytes: int | None
    """Of the data files; None if one of them does not say."""
    columns: tuple[ColumnFacts, ...]
    key: tuple[str, ...]
    indices: dict[str, tuple[str, ...]]
    has_stable_row_ids: bool
    config: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def table_facts(name: str, table: Reader) -> TableFacts:
    """The facts of a table."""
    fragments = table.pinned.manifest.fragments
    return TableFacts(
        name=name,
        uri=table.uri,
        version=table.version,
        rows=table.count_rows(),
        deleted_rows=sum(each.deletion_file.num_deleted_rows for each in fragments),
        fragments=len(fragments),
        bytes=_bytes(fragments),
        columns=tuple(
            ColumnFacts(each.name, str(each.type), each.nullable, each.name in table.key) for each in table.schema
        ),
        key=table.key,
        indices=table.indices,
        has_stable_row_ids=table.has_stable_row_ids,
        config=table.config,
    )


def _bytes(fragments: Sequence[pb.DataFragment]) -> int | None:
    sizes = [file.file_size_bytes for fragment in fragments for file in fragment.files]
    return sum(sizes) if all(sizes) else None


MOST_TABLES = 100
"""Maximum number of tables of a lake that are opened for display."""


def lake_title(lake: LakeReader) -> str:
    """The first line about a lake."""
    branch = "" if lake.branch_name == "main" else f"branch {lake.branch_name}, "
    return f"{lake.uri}: {branch}version {lake.version}, {plural(len(lake), 'table')}"


def tables_page(facts: Sequence[TableFacts], title: str = "", more: int = 0) -> Grid:
    """The tables of a lake."""
    rows = [(each.name, str(each.version), number(each.rows), size(each.bytes), ", ".join(each.key)) for each in facts]
    rows += [(f"… {plural(more, 'more table')}", "", "", "", "")] if more else []
    return grid("table|>version|>rows|>size|key", rows, title=title, empty="There are no tables yet.")


def lake_page(lake: LakeReader) -> Grid:
    """A lake with its tables."""

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


def branches_page(branches: Iterable[Branch], names: dict[str, str], current: str) -> Grid:
    """The branches of a lake; `names` has the name of each by its id."""
    rows = [
        (
            f"* {each.name}" if each.name == current else f"  {each.name}",
            "" if each.is_main else f"{names.get(each.parent or '', each.parent or '')}@{each.parent_version}",
            moment(each.created_at),
        )
        for each in branches
    ]
    return grid("  branch|from|created", rows)


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


# ---------------------------------------------------------------------------- reports

SHOWN_PATHS = 20
"""Maximum number of displayed paths; `paths` of a report and the JSON output have all of them."""


def expired_page(found: Expired) -> Grid:
    """Versions that were expired, or would be."""
    what = "would be expired" if found.is_dry_run else "expired"
    title = f"{plural(len(found.removed), 'version')} of the lake {what}, {len(found.kept):,} kept"
    lines = [f"{_ranges(found.removed)}"] if found.removed else []
    rows = [(name, number(len(versions)), _ranges(versions)) for name, versions in sorted(found.tables.items())]
    lines += [f"{folder} was left alone: {plain(why)}" for folder, why in sorted(found.skipped.items())]
    return grid("table|>versions|which", rows, title=title, lines=[*lines, *_paths(found)])


def collected_page(found: Collected) -> Grid:
    """Files that were deleted, or would be."""
    what = "would be deleted" if found.is_dry_run else "deleted"
    title = f"{plural(found.files, 'file')} {what}, {size(found.bytes)}"
    rows = [(each.table, each.kind, number(each.files), size(each.bytes)) for each in found.garbage]
    lines = [f"{table} was left alone: {plain(why)}" for table, why in sorted(found.skipped.items())]
    return grid("table|kind|>files|>size", rows, title=title, lines=[*lines, *_paths(found)])


def _paths(found: Expired | Collected) -> list[str]:
    """The first files that would go."""
    if not found.is_dry_run:
        return []
    lines = [plain(path) for path in found.paths[:SHOWN_PATHS]]
    more = len(found.paths) - SHOWN_PATHS
    return [*lines, f"… and {more:,} more files"] if more > 0 else lines


def _ranges(numbers: Iterable[int]) -> str:
    """Such as `1-4, 7`."""
    runs: list[list[int]] = []
    for each in sorted(numbers):
        if runs and each == runs[-1][1] + 1:
            runs[-1][1] = each
        else:
            runs.append([each, each])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


MOST_FINDINGS = 10


def diagnosis_page(diagnosis: Diagnosis) -> Grid:
    """What a doctor found."""
    counts: dict[str, int] = {}
    rows: list[tuple[str, str, str, str]] = []
    for finding in diagnosis.findings:
        counts[finding.kind] = counts.get(finding.kind, 0) + 1
        if counts[finding.kind] <= MOST_FINDINGS:
            rows.append(_finding(finding))
    rows += [
        ("…", "", "", f"{count - MOST_FINDINGS:,} more of {kind}")
        for kind, count in counts.items()
        if count > MOST_FINDINGS
    ]
    looked = ", ".join(f"{count:,} {what}" for what, count in diagnosis.checked.items())
    fixed = sum(finding.fixed for finding in diagnosis.findings)
    verdict = "Healthy." if diagnosis.is_healthy else "Not healthy."
    said = f" {plural(fixed, 'finding')} fixed." if fixed else ""
    return grid("severity|kind|where|finding", rows, title=f"{verdict}{said}", lines=[f"Looked at {looked}."])


def _finding(finding: Finding) -> tuple[str, str, str, str]:
    version = "" if finding.version is None else f"@{finding.version}"
    todo = "Fixed." if finding.fixed else finding.hint
    return finding.severity, finding.kind, f"{finding.table or ''}{version}", plain(f"{finding.what} {todo}")


def environment_page(diagnosis: Diagnosis) -> Grid:
    """What a lake runs on."""
    return grid("what|is", [(plain(key), plain(text)) for key, text in diagnosis.environment.items()])


MOST_KEYS = 5


def diff_page(diff: LakeDiff) -> Grid:
    """What differs between two states of a lake."""
    rows = [
        (
            each.name,
            each.kind if each.renamed_from is None else f"renamed from {each.renamed_from}",
            _versions(each.version_before, each.version_after),
            f"{number(each.rows_before)} → {number(each.rows_after)}",
            _row_difference(each),
        )
        for each in diff.tables
    ]
    title = f"{diff.before} → {diff.after}"
    return grid("table|what|version|rows|difference", rows, title=title, empty="There is no difference.")


def diff_details(diff: LakeDiff) -> Grid:
    """The columns and keys in which tables differ."""
    rows = [(each.name, line) for each in diff.tables for line in _details(each)]
    return grid("table|detail", rows)


def _versions(before: int | None, after: int | None) -> str:
    return " → ".join(str(each) for each in (before, after) if each is not None)


def _row_difference(table: TableDiff) -> str:
    if table.kind != "changed":
        return changed_rows(table.rows_after, table.rows_before)
    if table.keys is not None:
        kinds = (("+", table.keys.inserted), ("−", table.keys.deleted), ("~", table.keys.updated))
        return " ".join(f"{sign}{keys.num_rows:,}" for sign, keys in kinds if keys.num_rows) or "same rows"
    return changed_rows(table.rows_added, table.rows_removed) or "same rows"


def _details(table: TableDiff) -> list[str]:
    if table.kind != "changed":
        return []
    lines = [f"+ column {plain(name)} {plain(type_)}" for name, type_ in table.columns_added.items()]
    lines += [f"− column {plain(name)} {plain(type_)}" for name, type_ in table.columns_dropped.items()]
    lines += [f"~ column {plain(name)} {then} → {now}" for name, (then, now) in table.columns_changed.items()]
    if table.keys is not None:
        kinds = (("+", table.keys.inserted), ("−", table.keys.deleted), ("~", table.keys.updated))
        for sign, keys in kinds:
            lines += [f"{sign} {key_text(row)}" for row in keys.slice(0, MOST_KEYS).to_pylist()]
            more = keys.num_rows - MOST_KEYS
            lines += [f"{sign} … {more:,} more"] if more > 0 else []
    return lines
