"""What a merge does to each table: decided before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from conroi.branching.bringing import Bringing
from conroi.branching.comparing import Comparison
from conroi.branching.diff import Side, is_same_version
from conroi.branching.results import Choice, Conflict, TableMerge
from conroi.branching.three_way import KeyedMerge, PlacedMerge, ThreeWay, same_columns
from conroi.catalog.names import shown
from conroi.catalog.placing import brought_row, can_inherit, inherited_row
from conroi.catalog.rows import Row
from conroi.data.pinned import Pinned
from conroi.operations.indices import is_system

if TYPE_CHECKING:
    from conroi.transaction import Transaction

Stage = Callable[["Transaction", Sequence[Choice]], TableMerge]


@dataclass(frozen=True)
class Planned:
    """What is to happen to one table; `stage` gets the choice for each conflict."""

    summary: TableMerge
    stage: Stage
    conflicts: Sequence[Conflict] = ()


class Planning:
    """A merge of one state of a lake into another, with the one that both come from."""

    def __init__(self, base: Side, source: Side, target: Side) -> None:
        self._base = base
        self._source = source
        self._target = target

    def tables(self) -> Iterator[Planned]:
        """All tables for which there is anything to do."""
        base, source, target = (side.by_incarnation() for side in (self._base, self._source, self._target))
        for incarnation in sorted(base.keys() | source.keys()):
            planned = self._table(base.get(incarnation), source.get(incarnation), target.get(incarnation))
            if planned is not None:
                yield planned

    def namespaces(self) -> list[Row]:
        """Namespaces that were made on the source."""
        there = self._base.state.rows.keys() | self._target.state.rows.keys()
        rows = self._source.state.rows.values()
        new = [row for row in rows if not row.is_table and row.object_id not in there]
        return [row for row in new if not row.object_id.startswith("__")]

    def _table(self, base: Row | None, source: Row | None, target: Row | None) -> Planned | None:
        if source is None:
            return None if base is None or target is None else self._dropped(base, target)
        if source.pin is None:  # not managed, so no branch has written it
            return None
        if base is None:
            return self._created(source) if target is None else self._both_created(source, target)
        is_changed = not self._is_same(self._base, base, self._source, source)
        is_renamed = base.object_id != source.object_id
        if not is_changed and not is_renamed:
            return None
        if target is None:
            return self._dropped_on_target(source)
        planned = self._changed(base, source, target) if is_changed else None
        return self._with_name(base, source, target, planned) if is_renamed else planned

    # ------------------------------------------------------------------------ has it changed?

    def _is_same(self, one: Side, then: Row, other: Side, now: Row) -> bool:
        """Whether a table is the same in two states, by its id or, if it was brought over, by what it consists of."""
        if is_same_version(then, now):
            return True
        before, after = one.pinned(then), other.pinned(now)
        return (
            same_columns(before, after)
            and not any(Comparison(before, after).touched)
            and _settings(before) == _settings(after)
            and _indices(before) == _indices(after)
        )

    # ------------------------------------------------------------------------ dropped and created

    def _dropped(self, base: Row, target: Row) -> Planned | None:
        name = shown(target.object_id)

        def drop(tx: Transaction, choices: Sequence[Choice]) -> TableMerge:
            if "target" in choices:
                return TableMerge(name, "kept", conflicts=1)
            tx.expect(name)
            tx.drop_table(name)
            return TableMerge(name, "dropped", conflicts=len(choices))

        conflicts: list[Conflict] = []
        if not self._is_same(self._base, base, self._target, target):
            conflicts.append(Conflict(name, "dropped", "dropped on the source, changed on the target"))
        return Planned(TableMerge(name, "dropped"), drop, conflicts)

    def _created(self, source: Row) -> Planned:
        name = shown(source.object_id)
        taken = self._target.state.rows.get(source.object_id)
        conflicts = [] if taken is None else [Conflict(name, "created", "the target has another table of this name")]

        def create(tx: Transaction, choices: Sequence[Choice]) -> TableMerge:
            if "target" in choices:
                return TableMerge(name, "kept", conflicts=1)
            if taken is not None:
                tx.expect(name)
                tx.drop_table(name)
            self._bring(tx, source)
            return TableMerge(name, "created", conflicts=len(choices))

        return Planned(TableMerge(name, "created"), create, conflicts)

    def _both_created(self, source: Row, target: Row) -> Planned | None:
        """The target got it by an earlier merge which nobody remembers."""
        if self._is_same(self._source, source, self._target, target):
            return None
        name = shown(target.object_id)
        return self._one_side(source, target, Conflict(name, "created", "both branches changed it since it was made"))

    def _dropped_on_target(self, source: Row) -> Planned:
        name = shown(source.object_id)

        def create(tx: Transaction, choices: Sequence[Choice]) -> TableMerge:
            if "target" in choices:
                return TableMerge(name, "kept", conflicts=1)
            fresh = str(self._target.catalog.environment.new_uuid())
            self._bring(tx, source.with_notes({"conroi.incarnation": fresh}))
            return TableMerge(name, "created", conflicts=1)

        conflict = Conflict(name, "dropped", "dropped on the target, changed on the source")
        return Planned(TableMerge(name, "created"), create, [conflict])

    def _bring(self, tx: Transaction, source: Row) -> None:
        """Make a table of the source on the target: as it is if that can be, else with copies of its files."""
        if self._can_inherit(source):
            tx.set_row(inherited_row(self._target.catalog, source, None))
            return
        pinned = self._source.pinned(source)
        tx.bring_table(brought_row(self._target.catalog, source), lambda files: Bringing(pinned, files, None).plan())

    def _can_inherit(self, source: Row) -> bool:
        return can_inherit(self._target.catalog, self._source.catalog, source)

    # ------------------------------------------------------------------------ changed

    def _changed(self, base: Row, source: Row, target: Row) -> Planned | None:
        if self._is_same(self._source, source, self._target, target):
            return None
        if self._is_same(self._base, base, self._target, target):
            return self._fast_forward(source, target)
        three = ThreeWay(
            shown(target.object_id),
            self._base.pinned(base),
            self._source.pinned(source),
            self._target.pinned(target),
        )
        clash = three.schema_conflict()
        if clash is not None:
            return self._one_side(source, target, clash)
        if three.is_keyed:
            return self._by_key(three, KeyedMerge.of(three))
        placed = PlacedMerge(three)
        if placed.conflicts:
            return self._one_side(source, target, placed.conflicts[0])
        return self._by_place(three, placed)

    def _fast_forward(self, source: Row, target: Row) -> Planned:
        name = shown(target.object_id)

        def forward(tx: Transaction, choices: Sequence[Choice]) -> TableMerge:
            if target.is_inherited and self._can_inherit(source):
                tx.expect(name)
                moved = inherited_row(self._target.catalog, source, target).renamed(target.object_id)
                tx.set_row(moved if target.lock is None else moved.with_lock(target.lock))
            else:
                tx[name].do(partial(_brought, self._source.pinned(source)))
            return TableMerge(name, "fast-forward", conflicts=len(choices))

        return Planned(TableMerge(name, "fast-forward"), forward)

    def _one_side(self, source: Row, target: Row, conflict: Conflict) -> Planned:
        """A table of which only one side can be had."""
        name = shown(target.object_id)

        def choose(tx: Transaction, choices: Sequence[Choice]) -> TableMerge:
            if "target" in choices:
                return TableMerge(name, "kept", conflicts=1)
            tx[name].do(partial(_brought, self._source.pinned(source)))
            return TableMerge(name, "fast-forward", conflicts=1)

        return Planned(TableMerge(name, "merged"), choose, [conflict])

    def _by_key(self, three: ThreeWay, merge: KeyedMerge) -> Planned:
        rows, settings = merge.conflicts, _Settings.of(three)

        def put(tx: Transaction, choices: Sequence[Choice]) -> TableMerge:
            loses: Choice = "source" if three.is_swapped else "target"
            losing = [c.key for c, choice in zip(rows, choices, strict=False) if choice == loses and c.key is not None]
            if three.is_swapped:
                tx[three.name].do(partial(_brought, three.source))
            counts = merge.stage(tx[three.name], losing)
            settings.stage(tx, three, choices[len(rows) :])
            return TableMerge(three.name, "merged", *counts, conflicts=len(choices))

        over = merge.over.counts
        return Planned(TableMerge(three.name, "merged", *over), put, [*rows, *settings.conflicts])

    def _by_place(self, three: ThreeWay, merge: PlacedMerge) -> Planned:
        settings = _Settings.of(three)

        def put(tx: Transaction, choices: Sequence[Choice]) -> TableMerge:
            if three.is_swapped:
                tx[three.name].do(partial(_brought, three.source))
            counts = merge.stage(tx[three.name])
            settings.stage(tx, three, choices)
            return TableMerge(three.name, "merged", *counts, conflicts=len(choices))

        gone, came = three.over.counted()
        return Planned(TableMerge(three.name, "merged", came, 0, gone), put, settings.conflicts)

    # ------------------------------------------------------------------------ names

    def _with_name(self, base: Row, source: Row, target: Row, planned: Planned | None) -> Planned | None:
        """The same, and the name that the source gave the table."""
        then, now, wanted = shown(base.object_id), shown(target.object_id), shown(source.object_id)
        if now == wanted:
            return planned
        conflicts: list[Conflict] = []
        if now != then:
            conflicts = [Conflict(now, "name", f"renamed to {wanted} on the source, to {now} on the target")]
        elif source.object_id in self._target.state.rows:
            conflicts = [Conflict(now, "name", f"renamed to {wanted}, which the target has already")]
        can_be = source.object_id not in self._target.state.rows
        inner = list(planned.conflicts) if planned is not None else []

        def rename(tx: Transaction, choices: Sequence[Choice]) -> TableMerge:
            done = None if planned is None else planned.stage(tx, choices[: len(inner)])
            if "target" not in choices[len(inner) :] and can_be:
                tx.rename_table(now, wanted)
            return done or TableMerge(wanted, "renamed", conflicts=len(choices))

        summary = TableMerge(wanted, "renamed") if planned is None else planned.summary
        return Planned(summary, rename, [*inner, *conflicts])


def _brought(source: Pinned, at: Pinned):
    return Bringing(source, at.files, at.manifest).plan()


def _settings(pinned: Pinned) -> dict[str, str]:
    return dict(pinned.manifest.head.config)


def _indices(pinned: Pinned) -> set[bytes]:
    return {index.uuid.uuid for index in pinned.manifest.indices if not is_system(index)}


@dataclass(frozen=True)
class _Settings:
    """The settings that the source changed."""

    wanted: dict[str, str | None]
    conflicts: list[Conflict]
    names: list[str]

    @staticmethod
    def of(three: ThreeWay) -> _Settings:
        base, source, target = (_settings(each) for each in (three.base, three.source, three.target))
        changed = {key: source.get(key) for key in base.keys() | source.keys() if base.get(key) != source.get(key)}
        wanted = {key: value for key, value in changed.items() if target.get(key) != value}
        names = sorted(key for key in wanted if target.get(key) != base.get(key))
        found = [Conflict(three.name, "setting", f"both branches changed the setting {key}") for key in names]
        return _Settings(wanted, found, names)

    def stage(self, tx: Transaction, three: ThreeWay, choices: Sequence[Choice]) -> None:
        kept = {key for key, choice in zip(self.names, choices, strict=True) if choice == "target"}
        if three.is_swapped:  # the source's settings are there already; bring the target's own back
            base, target = _settings(three.base), _settings(three.target)
            mine = {key: target.get(key) for key in base.keys() | target.keys() if base.get(key) != target.get(key)}
            changes = {key: value for key, value in mine.items() if key not in self.wanted or key in kept}
        else:
            changes = {key: value for key, value in self.wanted.items() if key not in kept}
        if changes:
            tx[three.name].set_config(changes)
