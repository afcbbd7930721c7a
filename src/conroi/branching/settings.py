"""Three-way merge of settings and metadata, key by key: of the table, its schema and its columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from conroi.branching.columns import Columns, columns_of, matched
from conroi.branching.plan import Choose
from conroi.branching.results import Choice, Conflict
from conroi.data.pinned import Pinned

if TYPE_CHECKING:
    from conroi.branching.contents import ThreeVersions
    from conroi.handles import TransactionTable

Place: TypeAlias = tuple[str, int, str]
"""`config`, `table`, `schema` or `field`, the id of the field in the base (else -1), and the key."""
Values: TypeAlias = dict[Place, str]


def settings_of(pinned: Pinned, base: Columns) -> Values:
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

    def stage(self, table: TransactionTable) -> None:
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
