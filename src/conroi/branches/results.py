"""Result of a branch merge: what it did to each table, and its conflicts; both as grids of text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from conroi.display import Grid, grid, key_text, number, plain, plural, to_html

Choice: TypeAlias = Literal["source", "target"]


@dataclass(frozen=True)
class Conflict:
    """Something that both branches changed differently since their merge base."""

    table: str
    kind: str
    """`row` (one key), `rows` (of a table without a key), `schema`, `setting`, `metadata`, `name`, `dropped`,
    `created`, or `history` (criss-cross merges left no common state of the table).
    """
    message: str
    key: Mapping[str, Any] | None = None
    """The key of the row, for a table with a key."""
    base: Mapping[str, Any] | None = None
    """The row in the merge base; None if it did not exist."""
    source: Mapping[str, Any] | None = None
    """The row on the source branch; None if it was deleted there."""
    target: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, object]:
        """The facts as plain values."""
        plain = {name: getattr(self, name) for name in ("key", "base", "source", "target")}
        rows = {name: None if value is None else dict(value) for name, value in plain.items()}
        return {"table": self.table, "kind": self.kind, "message": self.message, **rows}

    def __str__(self) -> str:
        where = self.table
        if self.key is not None:
            where += f" [{', '.join(f'{name}={value!r}' for name, value in self.key.items())}]"
        return f"{where}: {self.message}"


Prefer: TypeAlias = Choice | Callable[[Conflict], Choice] | None
"""Which side wins where both changed the same thing."""


@dataclass(frozen=True)
class TableMerge:
    """The merge of one table."""

    table: str
    kind: str
    """`fast-forward`, `merged`, `created`, `dropped`, `renamed`, `kept` (the target's own was preferred)."""
    inserted: int | None = None
    """Rows inserted; None if they were not counted."""
    updated: int | None = None
    deleted: int | None = None
    conflicts: int = 0
    """How many conflicts were resolved by preferring one side."""

    def with_conflicts(self, more: int) -> TableMerge:
        """The same, with this many more resolved conflicts."""
        return replace(self, conflicts=self.conflicts + more)

    def to_dict(self) -> dict[str, object]:
        """The facts as plain values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def __str__(self) -> str:
        counts = {"inserted": self.inserted, "updated": self.updated, "deleted": self.deleted}
        facts = [self.kind, *(f"{count:,} {name}" for name, count in counts.items() if count)]
        if self.conflicts:
            facts.append(f"{self.conflicts:,} conflicts settled")
        return f"{self.table}: {', '.join(facts)}"


@dataclass(frozen=True)
class LakeMerge:
    """What a merge did, or (`dry_run`) would do."""

    source: str
    target: str
    version: int
    """The new version of the target, or its newest one if it was a no-op."""
    source_version: int
    base: str
    """The merge base: a branch and its version."""
    tables: tuple[TableMerge, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    """Of a dry run: the conflicts that would make the merge fail."""
    left_out: tuple[str, ...] = ()
    """What a merge does not bring from the source: tags, indices of merged tables, namespaces that are not empty."""
    is_dry_run: bool = False
    properties: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def has_changes(self) -> bool:
        """Whether there is, or was, anything to do."""
        return bool(self.tables or self.conflicts)

    def to_dict(self) -> dict[str, object]:
        """The facts as plain values."""
        return {
            "source": self.source,
            "target": self.target,
            "version": self.version,
            "source_version": self.source_version,
            "base": self.base,
            "is_dry_run": self.is_dry_run,
            "tables": [table.to_dict() for table in self.tables],
            "conflicts": [conflict.to_dict() for conflict in self.conflicts],
            "left_out": list(self.left_out),
        }

    def _repr_html_(self) -> str:
        return to_html(merge_page(self), *([conflicts_page(self.conflicts)] if self.conflicts else []))

    def __str__(self) -> str:
        would = "would merge" if self.is_dry_run else "merged"
        head = f"{would} {self.source}@{self.source_version} into {self.target}@{self.version}"
        lines = [f"  {table}" for table in self.tables]
        lines += [f"  conflict: {conflict}" for conflict in self.conflicts]
        lines = lines or ["  nothing to do"]
        return "\n".join([head, *lines, *(f"  left out: {each}" for each in self.left_out)])


def merge_page(result: LakeMerge) -> Grid:
    """What a merge did, or would do."""
    would = "Would merge" if result.is_dry_run else "Merged"
    rows = [
        (
            each.table,
            each.kind,
            _count(each.inserted),
            _count(each.updated),
            _count(each.deleted),
            _count(each.conflicts),
        )
        for each in result.tables
    ]
    source, target = f"{result.source}@{result.source_version}", f"{result.target}@{result.version}"
    title = f"{would} {source} into {target}"
    return grid("table|what|>inserted|>updated|>deleted|>settled", rows, title=title, empty="There is nothing to do.")


def _count(value: int | None) -> str:
    return "" if value is None else number(value)


def conflicts_page(conflicts: Sequence[Conflict]) -> Grid:
    """What stands in the way of a merge."""
    rows = [
        (each.table, key_text(dict(each.key)) if each.key else each.kind, plain(each.message)) for each in conflicts
    ]
    return grid("table|key|why", rows, title=f"{plural(len(rows), 'conflict')}:")
