"""`lake.merge(source)`: from two states and their base to a plan, and from the plan to one commit of all tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from conroi.arguments import shortened
from conroi.branches.ancestry import (
    Base,
    BaseTable,
    Clock,
    brings_only_itself,
    clock_of,
    has_same_table,
    is_merged,
    merged_row,
)
from conroi.branches.contents import ContentMerge, ThreeVersions, is_same_content, merge_contents, taking
from conroi.branches.lake_ref import LakeRef, Side, TableAtState
from conroi.branches.plan import UNKNOWN, Choose, Facts, MergePlan, TableFact, TablePlan, is_changed, plan
from conroi.branches.results import Choice, Conflict, LakeMerge, Prefer, TableMerge
from conroi.branches.transfer import Bringing
from conroi.catalog.branches import BranchedLake
from conroi.catalog.folders import brought_row, can_inherit, inherited_row
from conroi.catalog.names import shown
from conroi.errors import (
    AlreadyExistsError,
    ExpectedVersionMismatch,
    IncompatibleConflict,
    InvalidInputError,
    MergeConflict,
    RetryableConflict,
    VersionExpired,
)
from conroi.format.on_disk import MERGE_SOURCE_PROPERTY, MERGE_VERSION_PROPERTY, MERGES_ROW
from conroi.retry_policy import pause_s
from conroi.snapshots.branch_names import MAIN

if TYPE_CHECKING:
    from conroi.transaction import Transaction


RETRIES = 10
"""Number of times a merge is computed again after a concurrent publication to the target."""
SHOWN = 5
"""Maximum number of conflicts in an error message."""


Begin = Callable[..., "Transaction"]
"""`lake.begin` of the target."""


def merge(
    source: LakeRef,
    target: LakeRef,
    begin: Begin,
    *,
    dry_run: bool,
    prefer: Prefer,
    message: str | None,
    author: str | None,
) -> LakeMerge:
    """Compute what each table needs, and publish all of it; again after a concurrent publication."""
    _check(source, target, prefer)
    taken = Side.of(source)  # once: what is published on the source from now on is for the next merge
    environment = target.catalog.environment
    for attempt in range(1, RETRIES + 2):
        started = environment.monotonic()
        now = Side.of(target)
        try:
            tags = _left_out_tags(source, taken, clock_of(now))  # before the commit: nothing may fail after it
            done = _Merge(taken, begin, now, prefer).run(dry_run=dry_run, message=message, author=author)
            return replace(done, left_out=(*done.left_out, *tags))
        except (RetryableConflict, ExpectedVersionMismatch, IncompatibleConflict, AlreadyExistsError):
            if attempt > RETRIES:
                raise
            environment.sleep(pause_s(environment, attempt, environment.monotonic() - started))
        except VersionExpired:  # collected between the look at a branch and the opening of a table
            seen = taken.state.version, now.state.version
            taken = Side.of(source)
            if attempt > RETRIES or seen == (taken.state.version, Side.of(target).state.version):
                raise
    raise AssertionError("unreachable")


def _left_out_tags(source: LakeRef, taken: Side, before: Clock) -> list[str]:
    """Tags of the source: they keep naming versions of the source."""
    branch = taken.catalog.identity.lance_name
    known = before.get(branch or MAIN, 0)
    tags = [tag for tag in source.tags if tag.branch == branch and known < tag.version <= taken.state.version]
    return [f"tag {tag.name} of {taken.catalog.identity.name}@{tag.version}" for tag in tags]


def _check(source: LakeRef, target: LakeRef, prefer: Prefer) -> None:
    if source.catalog.identity.id == target.catalog.identity.id:
        raise InvalidInputError(
            f"{source.catalog.identity.name!r} cannot be merged into itself.", hint="Name two different branches."
        )
    if prefer not in (None, "source", "target") and not callable(prefer):
        raise InvalidInputError(
            f"prefer={shortened(prefer)} is not known.",
            hint='Give "source", "target", or a function that returns one of them.',
        )


class _Merge:
    """One attempt."""

    def __init__(self, source: Side, begin: Begin, now: Side, prefer: Prefer) -> None:
        self._source = source
        self._begin = begin
        self._target = now
        self._prefer: Prefer = prefer
        self._open: list[Conflict] = []
        """Unresolved conflicts."""

    def run(self, *, dry_run: bool, message: str | None, author: str | None) -> LakeMerge:
        source, target = self._source, self._target
        result = LakeMerge(
            source=source.catalog.identity.name,
            target=target.catalog.identity.name,
            version=target.state.version,
            source_version=source.state.version,
            base=source.label,
            is_dry_run=dry_run,
        )
        if is_merged(source, target):
            return result
        main = target.catalog.main
        assert main.manifest is not None, "a lake with branches has a __manifest"
        base = Base(BranchedLake(main, main.manifest), [source, target])
        merging = Merging(base, source, target, self._choose)
        if self._open and not dry_run:
            raise self._refused(self._open)
        tables, left_out = tuple(merging.summaries()), tuple(merging.left_out)
        result = replace(result, base=base.label, tables=tables, conflicts=tuple(self._open), left_out=left_out)
        return result if dry_run or merging.is_empty else self._publish(merging, result, message, author)

    def _choose(self, conflict: Conflict) -> Choice | None:
        prefer = self._prefer
        answer = prefer(conflict) if callable(prefer) else prefer
        if callable(prefer) and answer not in ("source", "target"):
            raise InvalidInputError(
                f"The function for conflicts returned {answer!r}.",
                table=conflict.table,
                hint='It must return "source" or "target".',
            )
        if answer is None:
            self._open.append(conflict)
        return answer

    def _publish(self, merging: Merging, result: LakeMerge, message: str | None, author: str | None) -> LakeMerge:
        source, target = self._source, self._target
        properties = {
            MERGE_SOURCE_PROPERTY: source.catalog.identity.lance_name or source.catalog.identity.name,
            MERGE_VERSION_PROPERTY: str(source.state.version),
        }
        text = message or f"merge {result.source} into {result.target}"
        with self._begin(text, author=author, properties=properties) as tx:
            if tx.base_version != target.state.version:
                raise RetryableConflict(
                    "A concurrent writer published to the target while the merge was worked out.",
                    version=tx.base_version,
                    base_version=target.state.version,
                    hint="Merge again.",
                )
            merging.stage(tx)
            tx.expect_row(MERGES_ROW)  # of two merges at once the second one must know what the first one brought
            tx.set_row(MERGES_ROW, merged_row(source, target))
        return replace(result, version=tx.result.version, properties=properties)

    def _refused(self, conflicts: Sequence[Conflict]) -> MergeConflict:
        source, target = self._source.catalog.identity.name, self._target.catalog.identity.name
        shown = "; ".join(str(conflict) for conflict in conflicts[:SHOWN])
        more = f"; and {len(conflicts) - SHOWN:,} more" if len(conflicts) > SHOWN else ""
        tables = sorted({conflict.table for conflict in conflicts})
        return MergeConflict(
            f"{source!r} was not merged into {target!r}, because both changed the same: {shown}{more}.",
            table=tables[0] if len(tables) == 1 else None,
            version=self._target.state.version,
            conflicts=conflicts,
            hint='Look at error.conflicts; merge again with prefer="source", prefer="target", or a function that '
            "decides each.",
        )


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
    base: BaseTable | None, source: TableAtState | None, target: TableAtState | None
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


def _is_same(one: TableAtState, other: TableAtState, is_merged: bool) -> bool:
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

    def _bring(self, tx: Transaction, source: TableAtState, name: str) -> None:
        """Create a table of the source on the target: by reference if possible, else with copies of its files."""
        catalog = self._target.catalog
        if can_inherit(catalog, self._source.catalog, source.row):
            tx.set_row(name, inherited_row(catalog, source.row, None).renamed(name))
            return
        row = brought_row(catalog, source.row).renamed(name)
        tx.bring_table(row, lambda files: Bringing(source.pinned, files, None).plan())

    def _fast_forward(self, tx: Transaction, source: TableAtState, target: TableAtState, name: str) -> None:
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
