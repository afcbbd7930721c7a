"""Three-way merge of one table that both branches changed: columns, rows, settings and metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeAlias

from conroi.branches.columns import Carry, Columns, columns_of, is_same, matched, side_with_columns
from conroi.branches.plan import Choose
from conroi.branches.results import Choice, Conflict, TableMerge
from conroi.branches.row_differences import Comparison, key_ids, keyed_changes
from conroi.branches.row_merge import KeyedRows, PlacedRows
from conroi.branches.transfer import brought
from conroi.data.table_version import TableVersion
from conroi.format.fields import key_columns
from conroi.operations.indices import is_system

if TYPE_CHECKING:
    from conroi.staged_table import StagedTable


Stage = Callable[["StagedTable"], None]


@dataclass(frozen=True)
class ThreeVersions:
    """The three sides of a merge of one table: base, source and target."""

    name: str
    base: TableVersion
    source: TableVersion
    target: TableVersion

    @cached_property
    def columns(self) -> tuple[Columns, Columns, Columns]:
        return columns_of(self.base), columns_of(self.source), columns_of(self.target)

    @cached_property
    def under(self) -> Choice | None:
        """The side whose table is the basis of the result; None if both changed the columns differently."""
        return side_with_columns(*self.columns)

    @property
    def is_swapped(self) -> bool:
        """Whether the target's rows are applied to the source, because the source has other columns."""
        return self.under == "source"

    @property
    def below(self) -> TableVersion:
        return self.source if self.is_swapped else self.target

    @property
    def above(self) -> TableVersion:
        return self.target if self.is_swapped else self.source

    @cached_property
    def carry(self) -> Carry:
        """What is put on top, in the columns below."""
        base, source, target = self.columns
        if not is_same(base, source) and not is_same(base, target):
            return Carry.by_name(columns_of(self.above), columns_of(self.below))  # they are alike
        return Carry.between(columns_of(self.above), columns_of(self.below))

    @cached_property
    def changes_above(self) -> Comparison:
        """What was done by the side on top, in the columns that both sides have."""
        every = Comparison.of(self.base, self.above)
        return Comparison(every.before, every.after, every.carry.only(self.carry.here))

    @cached_property
    def changes_below(self) -> Comparison:
        every = Comparison.of(self.base, self.below)
        return Comparison(every.before, every.after, every.carry.only(self.carry.there))

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The key, if both sides have the same one, as it is called below; rows are not matched by nested fields."""
        above, below = (key_columns(each.manifest.fields) for each in (self.above, self.below))
        is_one = key_ids(columns_of(self.above), above) == key_ids(columns_of(self.below), below)
        return below if is_one and not any("." in column for column in below) else ()


@dataclass(frozen=True)
class ContentMerge:
    """The merge of the contents of one table."""

    summary: TableMerge
    stage: Stage
    left_out: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the target's table is unchanged, and no conflict was settled."""
        return self.summary.kind == "same"


def merge_contents(three: ThreeVersions, choose: Choose) -> ContentMerge:
    """Compute the merge of one table; unresolved conflicts count as resolved for `target`."""
    if three.under is None:
        return _whole(three, choose, "schema", "both branches changed its columns")
    rows = KeyedRows(three) if three.key else PlacedRows(three)
    problem = rows.problem
    if problem is not None:
        return _whole(three, choose, "schema", problem)
    clash = rows.conflict
    if clash is not None:
        return _whole(three, choose, "rows", clash)
    settled = rows.settle(choose)
    settings = SettingsMerge.of(three)
    settled += settings.settle(choose)
    left_out = tuple(_left_out_indices(three))
    if not three.is_swapped and not settled and rows.is_empty and settings.is_empty:
        return ContentMerge(TableMerge(three.name, "same"), _nothing, left_out)

    def stage(table: StagedTable) -> None:
        if three.is_swapped:
            table.do(partial(brought, three.source))
        rows.stage(table)
        settings.stage(table)

    return ContentMerge(TableMerge(three.name, "merged", *rows.counts, conflicts=settled), stage, left_out)


def _whole(three: ThreeVersions, choose: Choose, kind: str, message: str) -> ContentMerge:
    """A table of which only one side can be had."""
    answer = choose(Conflict(three.name, kind, message))
    if answer == "source":
        return ContentMerge(TableMerge(three.name, "fast-forward", conflicts=1), taking(three.source))
    return ContentMerge(TableMerge(three.name, "kept", conflicts=answer is not None), _nothing)


def taking(source: TableVersion) -> Stage:
    """The source's version whole, as the next one of the target."""

    def stage(table: StagedTable) -> None:
        table.do(partial(brought, source))

    return stage


def _nothing(table: StagedTable) -> None:
    """The target's table stays what it is."""


def _left_out_indices(three: ThreeVersions) -> list[str]:
    """Indices that only the upper side has: the result keeps those of the lower side."""
    above, below, base = (_index_names(each) for each in (three.above, three.below, three.base))
    return [f"index {name} of table {three.name}" for name in sorted(above - below - base)]


def _index_names(pinned: TableVersion) -> set[str]:
    return {index.name for index in pinned.manifest.indices if not is_system(index)}


# ---------------------------------------------------------------------------------- is it the same?


def is_same_content(one: TableVersion, other: TableVersion) -> bool:
    """Whether two versions consist of the same files, settings and indices; nothing is read for it."""
    return (
        _is_same_but_rows(one, other)
        and Comparison.of(one, other).is_identical
        and _index_ids(one) == _index_ids(other)
    )


def has_same_rows(one: TableVersion, other: TableVersion) -> bool:
    """Whether two versions have the same columns, settings and rows, wherever the rows are.

    Without a key they are compared in their order, which a compaction keeps.
    """
    if not _is_same_but_rows(one, other):
        return False
    compared = Comparison.of(one, other)
    key = key_columns(other.manifest.fields)
    return not any(keyed_changes(compared, key).counts) if key else compared.has_same_rows()


def _is_same_but_rows(one: TableVersion, other: TableVersion) -> bool:
    columns = columns_of(one), columns_of(other)
    return is_same(*columns) and settings_of(one, columns[0]) == settings_of(other, columns[0])


def _index_ids(pinned: TableVersion) -> Mapping[bytes, str]:
    return {index.uuid.uuid: index.name for index in pinned.manifest.indices if not is_system(index)}


Place: TypeAlias = tuple[str, int, str]
"""`config`, `table`, `schema` or `field`, the id of the field in the base (else -1), and the key."""
Values: TypeAlias = dict[Place, str]


def settings_of(pinned: TableVersion, base: Columns) -> Values:
    """All settings and metadata of a version; those of columns that the base does not have are not among them."""
    head = pinned.manifest.head
    found: Values = {("config", -1, key): value for key, value in head.config.items()}
    found |= {("table", -1, key): value for key, value in head.table_metadata.items()}
    found |= {("schema", -1, key): _text(value) for key, value in head.schema_metadata.items()}
    for number, _, metadata in _fields(base, columns_of(pinned)):
        found |= {("field", number, key): _text(value) for key, value in metadata.items()}
    return found


def _fields(base: Columns, columns: Columns, path: str = "") -> Iterator[tuple[int, str, Mapping[str, bytes]]]:
    """Each field that the base has too: its id there, its path here, and its metadata."""
    for old, new in matched(base, columns):
        if old is not None:
            yield old.id, f"{path}{new.name}", new.metadata
            yield from _fields(old.inside, new.inside, f"{path}{new.name}.")


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


@dataclass
class SettingsMerge:
    """The changes of settings on the lower side."""

    three: ThreeVersions
    changes: dict[Place, str | None]
    """New values for the side below; None deletes."""
    clashes: dict[Place, dict[Choice, str | None]] = field(default_factory=dict[Place, dict[Choice, "str | None"]])
    """Keys that both sides changed differently."""

    @staticmethod
    def of(three: ThreeVersions) -> SettingsMerge:
        columns = three.columns[0]
        common = {number for number, *_ in _fields(columns, columns)}
        for side in three.columns[1:]:
            common &= {number for number, *_ in _fields(columns, side)}
        base, source, target = (
            {place: value for place, value in settings_of(each, columns).items() if place[1] in common | {-1}}
            for each in (three.base, three.source, three.target)
        )
        below = source if three.is_swapped else target
        merge = SettingsMerge(three, {})
        for place in sorted(base.keys() | source.keys() | target.keys()):
            then, theirs, mine = base.get(place), source.get(place), target.get(place)
            if theirs in (then, mine):
                merge._set(place, mine, below)
            elif mine == then:
                merge._set(place, theirs, below)
            else:
                merge.clashes[place] = {"source": theirs, "target": mine}
                merge._set(place, mine, below)
        return merge

    def _set(self, place: Place, value: str | None, below: Values) -> None:
        if below.get(place) != value:
            self.changes[place] = value

    @property
    def is_empty(self) -> bool:
        return not self.changes

    def settle(self, choose: Choose) -> int:
        """Resolve each key that both sides changed; returns how many were resolved."""
        settled = 0
        for place, values in self.clashes.items():
            kind = "setting" if place[0] == "config" else "metadata"
            what = "setting" if place[0] == "config" else f"{place[0]} metadata"
            answer = choose(Conflict(self.three.name, kind, f"both branches changed the {what} {place[2]}"))
            settled += answer is not None
            below: Choice = "source" if self.three.is_swapped else "target"
            self.changes.pop(place, None)
            if (answer or "target") != below:
                self.changes[place] = values[answer or "target"]
        return settled

    def stage(self, table: StagedTable) -> None:
        """Set what differs on the side below."""
        config = {key: value for (what, _, key), value in self.changes.items() if what == "config"}
        if config:
            table.set_config(config)
        notes = {
            what: {key: value for (each, _, key), value in self.changes.items() if each == what}
            for what in ("table", "schema")
        }
        paths = {number: path for number, path, _ in _fields(self.three.columns[0], columns_of(self.three.below))}
        fields: dict[str, dict[str, str | None]] = {}
        for (what, number, key), value in self.changes.items():
            if what == "field":
                fields.setdefault(paths[number], {})[key] = value
        if notes["table"] or notes["schema"] or fields:
            table.set_metadata(notes["table"] or None, schema=notes["schema"] or None, fields=fields or None)
