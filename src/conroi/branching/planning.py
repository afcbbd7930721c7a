"""Merge planning: from two states of a lake and their base to a plan, and from the plan to one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conroi.branching.ancestry import Base, BaseTable, brings_only_itself, has_same_table
from conroi.branching.bringing import Bringing
from conroi.branching.contents import (
    ContentMerge,
    ThreeVersions,
    is_same_content,
    merge_contents,
    taking,
)
from conroi.branching.plan import UNKNOWN, Choose, Facts, MergePlan, TableFact, TablePlan, is_changed, plan
from conroi.branching.results import TableMerge
from conroi.branching.states import Side, TableVersion
from conroi.catalog.names import shown
from conroi.catalog.placing import brought_row, can_inherit, inherited_row

if TYPE_CHECKING:
    from conroi.transaction import Transaction


@dataclass(frozen=True)
class MergeFacts:
    """The input of the pure plan."""

    base: Facts
    source: Facts
    target: Facts
    left_out: tuple[str, ...] = ()

    @staticmethod
    def of(base: Base, source: Side, target: Side) -> MergeFacts:
        """Label the contents of each table in the three states; manifests are compared, rows only where it matters."""
        facts: tuple[dict[str, TableFact], ...] = ({}, {}, {})
        left_out: list[str] = []
        for identity in base.tables.keys() | source.tables.keys() | target.tables.keys():
            then = base.tables.get(identity)
            theirs, mine = source.tables.get(identity), target.tables.get(identity)
            if theirs is not None and theirs.row.pin is None:  # not managed, so no branch has written it
                left_out += [f"table {shown(theirs.name)}, which the lake does not manage yet"] if then is None else []
                theirs = None if then is None else then.version
            for state, fact in zip(facts, _labelled(then, theirs, mine), strict=True):
                if fact is not None:
                    state[identity] = fact
        namespaces = (base.namespaces, source.namespaces, target.namespaces)
        for state, known in zip(facts, namespaces, strict=True):
            for each in known:
                state[each] = TableFact(each.partition(" ")[2], is_table=False)
        return MergeFacts(*facts, left_out=tuple(sorted(left_out)))


def _labelled(
    base: BaseTable | None, source: TableVersion | None, target: TableVersion | None
) -> tuple[TableFact | None, TableFact | None, TableFact | None]:
    """The facts of one table; its content goes by the number of the first version that has the same."""
    versions = (None if base is None else base.version, source, target)
    is_merged = None not in versions
    labels: list[object] = []
    for number, version in enumerate(versions):
        earlier = [(label, other) for label, other in enumerate(versions[:number]) if other is not None]
        same = [label for label, other in earlier if version is not None and _is_same(other, version, is_merged)]
        labels.append(UNKNOWN if version is None else labels[same[0]] if same else number)
    names = (None if base is None else base.name, *(None if each is None else each.name for each in versions[1:]))
    there = (base, source, target)
    facts = [
        None if each is None else TableFact(name, label) for each, name, label in zip(there, names, labels, strict=True)
    ]
    return facts[0], facts[1], facts[2]


def _is_same(one: TableVersion, other: TableVersion, is_merged: bool) -> bool:
    """Of a table that one side has to be taken of, compaction and indices are no change; else they are brought."""
    if not is_merged:
        return has_same_table(one, other)
    return one.is_same_version(other) or is_same_content(one.pinned, other.pinned)


class Merging:
    """A computed merge of one state of a lake into another, not written yet."""

    def __init__(self, base: Base, source: Side, target: Side, choose: Choose) -> None:
        self._base = base
        self._source = source
        self._target = target
        facts = MergeFacts.of(base, source, target)
        self.plan: MergePlan = plan(facts.base, facts.source, facts.target, choose)
        self._contents: Mapping[str, ContentMerge] = {
            each.identity: self._content(each, choose)
            for each in self.plan.tables
            if each.name is not None and each.content == "both"
        }
        self._is_remembered = is_changed(facts.base, facts.source) or not brings_only_itself(source, target)
        """Whether the target must record that the source was merged, even if nothing changes."""
        kept = [f"dropping namespace {shown(each)}, which is not empty" for each in self.plan.kept_namespaces]
        indices = [line for content in self._contents.values() for line in content.left_out]
        self.left_out = [*facts.left_out, *kept, *indices]

    def _content(self, table: TablePlan, choose: Choose) -> ContentMerge:
        base = self._base.tables[table.identity].version
        assert base is not None, "without a base one side is taken whole"
        source, target = self._source.tables[table.identity], self._target.tables[table.identity]
        name = shown(target.name)
        return merge_contents(ThreeVersions(name, base.pinned, source.pinned, target.pinned), choose)

    def summaries(self) -> list[TableMerge]:
        """The changes by table."""
        found = [self._summary(each) for each in self.plan.tables if each.is_changed]
        return [each for each in found if each is not None]

    def _summary(self, table: TablePlan) -> TableMerge | None:
        before = _shown_name(table)
        settled = table.conflicts
        if table.is_created or table.is_dropped:
            return TableMerge(before, "created" if table.is_created else "dropped", conflicts=settled)
        content = self._contents.get(table.identity)
        if content is not None and not content.is_empty:
            return content.summary.with_conflicts(settled)
        if table.name is not None and table.content == "source":
            return TableMerge(before, "fast-forward", conflicts=settled)
        if table.is_renamed:
            assert table.name is not None
            return TableMerge(shown(table.name), "renamed", conflicts=settled)
        return TableMerge(before, "kept", conflicts=settled) if settled else None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write and nothing to record."""
        has_namespaces = any(each.is_changed for each in self.plan.namespaces)
        return not (self._is_remembered or self.summaries() or has_namespaces)

    # ------------------------------------------------------------------------ publishing

    def stage(self, tx: Transaction) -> None:
        """Stage it all: names first, so that every table is changed under the name that it will have."""
        tables = [each for each in self.plan.tables if each.is_changed]
        dropped = [_target_name(each) for each in tables if each.is_dropped]
        for name in dropped:
            tx.expect(shown(name))
        moved = {_target_name(each): each.name for each in tables if each.is_renamed}
        tx.arrange({**dict.fromkeys(dropped), **moved})
        for namespace in self.plan.namespaces:
            if namespace.is_created:
                assert namespace.name is not None
                tx.set_row(namespace.name, self._source.state.rows[namespace.name])
            elif namespace.is_dropped:
                tx.set_row(_target_name(namespace), None)
        for table in tables:
            if table.name is not None:
                self._stage_table(tx, table, table.name)

    def _stage_table(self, tx: Transaction, table: TablePlan, name: str) -> None:
        if table.is_created:
            self._bring(tx, self._source.tables[table.identity], name)
        elif table.content == "both":
            content = self._contents[table.identity]
            if not content.is_empty:
                content.stage(tx[shown(name)])
        elif table.content == "source":
            self._fast_forward(tx, self._source.tables[table.identity], self._target.tables[table.identity], name)

    def _bring(self, tx: Transaction, source: TableVersion, name: str) -> None:
        """Create a table of the source on the target: by reference if possible, else with copies of its files."""
        catalog = self._target.catalog
        if can_inherit(catalog, self._source.catalog, source.row):
            tx.set_row(name, inherited_row(catalog, source.row, None).renamed(name))
            return
        row = brought_row(catalog, source.row).renamed(name)
        tx.bring_table(row, lambda files: Bringing(source.pinned, files, None).plan())

    def _fast_forward(self, tx: Transaction, source: TableVersion, target: TableVersion, name: str) -> None:
        """Fast-forward: the target gets the source's version, by reference or as its own next one."""
        catalog = self._target.catalog
        if not target.row.is_inherited or not can_inherit(catalog, self._source.catalog, source.row):
            taking(source.pinned)(tx[shown(name)])
            return
        tx.expect(shown(target.name))
        row = inherited_row(catalog, source.row, target.row).renamed(name)
        tx.set_row(name, row if target.row.lock is None else row.with_lock(target.row.lock))


def _target_name(table: TablePlan) -> str:
    assert table.target is not None
    assert table.target.name is not None
    return table.target.name


def _shown_name(table: TablePlan) -> str:
    """The name on the target, else that which it gets, else that on the source."""
    names: Sequence[str | None] = (
        None if table.target is None else table.target.name,
        table.name,
        None if table.source is None else table.source.name,
    )
    return shown(next(name for name in names if name is not None))
