"""Merge base of two branches of a lake: the newest states that both descend from, found by vector clocks.

A branch records, for every other branch, the newest version that it contains: of those it was created from, and of
those that were merged into it. After criss-cross merges there are several newest common states. Then the base is chosen
table by table, and a table that each of them changed has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import TypeAlias, TypeVar

from conroi.branches.contents import has_same_rows, is_same_content
from conroi.branches.lake_ref import Side, TableAtState
from conroi.catalog.branches import BranchedLake
from conroi.catalog.catalog import Catalog
from conroi.catalog.rows import NAMESPACE, Row
from conroi.catalog.state import LakeState
from conroi.errors import CorruptionError, NotFoundError
from conroi.format.json import Document, parse_json
from conroi.format.on_disk import LAKE_MANIFEST, LINEAGE_KEY, MERGES_ROW
from conroi.snapshots.branch_names import MAIN, MAIN_BRANCH, Branch

MOST_MISSED = 20
"""Maximum number of source versions without changes that are examined before the merge is simply recorded."""
T = TypeVar("T")
Lineage: TypeAlias = tuple[tuple[str, int], ...]
"""The folders that have the versions from before a branch, and up to which, nearest first."""
Tables: TypeAlias = dict[str, object]
"""By name: the identity and the pin of a table, wherever it is."""
Clock = Mapping[str, int]
"""Vector clock: by branch (pylance's name; `main` for the main one), the newest version that is merged into this
one.
"""


def clock_of(side: Side) -> dict[str, int]:
    """The vector clock of this state of a branch, itself included; a new branch has the state that it was created
    from.
    """
    branch, version = side.catalog.identity, side.state.version
    clock: dict[str, int] = {}
    noted = side.state.rows.get(MERGES_ROW)
    for name, merged in ({} if noted is None else noted.notes).items():
        clock[name] = int(merged)
    states = [(_name(branch), version), *((_name_of(folder), min(bound, version)) for folder, bound in branch.lineage)]
    for (name, at), (_, before) in zip(states, [*states[1:], ("", 0)], strict=True):
        if at > before:
            clock[name] = max(at, clock.get(name, 0))
    return clock


def merged_row(source: Side, target: Side) -> Row:
    """The record that all of the source was merged into the target."""
    mine, theirs = clock_of(target), clock_of(source)
    both = {name: max(mine.get(name, 0), theirs.get(name, 0)) for name in mine.keys() | theirs.keys()}
    both.pop(_name(target.catalog.identity), None)
    return Row(MERGES_ROW, NAMESPACE).with_notes({name: str(version) for name, version in sorted(both.items())})


def is_merged(source: Side, target: Side) -> bool:
    """Whether all of the source is already in the target."""
    known = clock_of(target)
    return all(known.get(name, 0) >= version for name, version in clock_of(source).items())


def brings_only_itself(source: Side, target: Side) -> bool:
    """Whether the target lacks only versions of the source with tables that it already has.

    If those have nothing new for the target, it need not remember them. Any other version must be remembered, whether
    it brings something or not: a third branch may have merged it, or do so later, and then it is what the two have in
    common.
    """
    known, branch = clock_of(target), source.catalog.identity
    catalogs = {_name(branch): source.catalog, MAIN: source.catalog.main}
    begins = {_name(branch): branch.lineage[0][1]} if branch.lineage else {}  # what was before it is of its parents
    for name, merged in clock_of(source).items():
        last_known = max(known.get(name, 0), begins.get(name, 0))
        if merged <= last_known:
            continue
        if name not in catalogs or merged - last_known > MOST_MISSED:
            return False
        before = _tables_at(catalogs[name], last_known)
        if not all(_is_known(catalogs[name], version, before, target) for version in range(last_known + 1, merged + 1)):
            return False
    return True


def _is_known(catalog: Catalog, version: int, before: Tables | None, target: Side) -> bool:
    """Whether a version has the tables of the last known one, or of the target's state that was merged into it.

    No branch can begin at one that was collected.
    """
    try:
        side = Side(catalog, catalog.at(version))
    except NotFoundError:
        return True
    tables = _tables(side.state)
    return tables == before or tables == _tables_at(
        target.catalog, clock_of(side).get(_name(target.catalog.identity), 0)
    )


def _tables_at(catalog: Catalog, version: int) -> Tables | None:
    try:
        return _tables(catalog.at(version)) if version else None
    except NotFoundError:
        return None


def _tables(state: LakeState) -> Tables:
    """What a state has, wherever it is: a table on a branch is the one that it was made of until it is written."""
    rows = [row for row in state.rows.values() if row.object_id != MERGES_ROW]
    return {row.object_id: (row.incarnation, row.pin) if row.is_table else None for row in rows}


# ---------------------------------------------------------------------------------- the base


@dataclass(frozen=True)
class BaseTable:
    """What a base says of one table."""

    version: TableAtState | None
    """None if criss-cross merges left several."""
    name: str | None
    """None if they left several names."""


class Base:
    """The newest common states; usually one.

    Of several, one has the newer version of a table if the other's is the one that the two have in common.
    """

    def __init__(self, branched: BranchedLake, sides: Sequence[Side], known: dict[str, Base] | None = None) -> None:
        self._branched = branched
        self._known: dict[str, Base] = {} if known is None else known
        self.sides = _newest_common(branched, sides)

    @property
    def label(self) -> str:
        return ", ".join(side.label for side in self.sides)

    def _between(self, one: int, other: int) -> Base:
        """The base of two of the states."""
        sides = [self.sides[one], self.sides[other]]
        label = " ".join(sorted(f"{_name(side.catalog.identity)}@{side.state.version}" for side in sides))
        if label not in self._known:
            self._known[label] = Base(self._branched, sides, self._known)
        return self._known[label]

    @cached_property
    def tables(self) -> dict[str, BaseTable]:
        """By identity."""
        states = [side.tables for side in self.sides]
        found: dict[str, BaseTable] = {}
        for identity in sorted(reduce(set[str].union, map(set[str], states), set[str]())):
            table = self._table(identity, [state.get(identity) for state in states])
            if table is not None:
                found[identity] = table
        return found

    def _table(self, identity: str, versions: Sequence[TableAtState | None]) -> BaseTable | None:
        there = [number for number, version in enumerate(versions) if version is not None]
        missing = [number for number, version in enumerate(versions) if version is None]
        if any(identity in self._between(one, other).tables for one in there for other in missing):
            return None  # one of them dropped it

        def before(one: int, other: int) -> BaseTable:
            return self._between(one, other).tables.get(identity, BaseTable(None, None))

        known = {number: version for number, version in enumerate(versions) if version is not None}
        names = {number: version.name for number, version in known.items()}
        return BaseTable(
            _newest(known, lambda one, other: before(one, other).version, has_same_table),
            _newest(names, lambda one, other: before(one, other).name, str.__eq__),
        )

    @cached_property
    def namespaces(self) -> set[str]:
        """By identity."""
        states = [set(side.namespaces) for side in self.sides]
        everywhere, anywhere = reduce(set.intersection, states), reduce(set.union, states)
        return everywhere | {each for each in anywhere - everywhere if not self._is_dropped(each, states)}

    def _is_dropped(self, namespace: str, states: Sequence[set[str]]) -> bool:
        there = [number for number, state in enumerate(states) if namespace in state]
        missing = [number for number, state in enumerate(states) if namespace not in state]
        return any(namespace in self._between(one, other).namespaces for one in there for other in missing)


def _newest(
    values: Mapping[int, T], before: Callable[[int, int], T | None], is_same: Callable[[T, T], bool]
) -> T | None:
    """The one value that all have, or to which all others are older; None if there are several."""
    distinct: dict[int, T] = {}
    for number, value in values.items():
        if not any(is_same(value, known) for known in distinct.values()):
            distinct[number] = value
    if len(distinct) == 1:
        return next(iter(distinct.values()))

    def is_older(number: int, value: T) -> bool:
        for other in distinct:
            then = None if other == number else before(number, other)
            if then is not None and is_same(then, value):
                return True
        return False

    left = [value for number, value in distinct.items() if not is_older(number, value)]
    return left[0] if len(left) == 1 else None


def has_same_table(one: TableAtState, other: TableAtState) -> bool:
    """Whether two states have the same table: a compaction or an index is not a change."""
    if one.is_same_version(other) or is_same_content(one.pinned, other.pinned):
        return True
    return has_same_rows(one.pinned, other.pinned)


# ---------------------------------------------------------------------------------- which states


def _newest_common(branched: BranchedLake, sides: Sequence[Side]) -> list[Side]:
    """The newest states that all of these descend from.

    Never an older one in their place: rows that the target changed back since would look unchanged, and the merge would
    undo that. So if one of them was collected, the merge is refused.
    """
    clocks = [clock_of(side) for side in sides]
    names = reduce(set[str].intersection, map(set[str], clocks))
    shared = {name: min(clock[name] for clock in clocks) for name in names}
    found = dict(_opened(branched, shared, sides))
    known = {name: clock_of(side) for name, side in found.items() if side is not None}
    newest = [
        name
        for name in sorted(shared)
        if not any(clock.get(name, 0) >= shared[name] for other, clock in known.items() if other != name)
    ]
    lost = [f"version {shared[name]} of {_shown(name)}" for name in newest if name not in known]
    if lost or not newest:
        labels = " and ".join(side.label for side in sides)
        raise NotFoundError(
            f"What {labels} have in common was collected: {', '.join(lost) or 'every common state'}.",
            hint="They cannot be merged any more. Bring the rows over by hand, or onto a new branch of the target.",
        )
    return [side for name in newest if (side := found[name]) is not None]


def _opened(branched: BranchedLake, shared: Clock, sides: Sequence[Side]) -> Iterator[tuple[str, Side | None]]:
    """The states that may be the base; None for one that cannot be read any more.

    Of a branch that was deleted all states may still be there, or none, or what a collector has left of them.
    """
    known = {_name(branch): branch for branch in (MAIN_BRANCH, *branched.names.all())}
    lineages = _lineages([*known.values(), *(side.catalog.identity for side in sides)])
    for name in sorted(shared):
        try:
            branch = known.get(name) or _deleted(branched, name, lineages.get(name))
            catalog, _ = branched.opened(branch)
            yield name, Side(catalog, catalog.at(shared[name]))
        except NotFoundError:
            yield name, None
        except CorruptionError:
            if name in known:
                raise
            yield name, None


def _lineages(branches: Sequence[Branch]) -> dict[str, Lineage]:
    """Where branches began, as the branches that were made from them know it."""
    found: dict[str, Lineage] = {}
    for branch in branches:
        for number, (folder, _) in enumerate(branch.lineage):
            found[_name_of(folder)] = branch.lineage[number + 1 :]
    return found


def _deleted(branched: BranchedLake, name: str, lineage: Lineage | None) -> Branch:
    """A deleted branch; its branch point is known from other branches, or from the setting that marks its deletion."""
    branch = Branch(name, name, lance_name=name)
    if lineage is None:
        _, files = branched.opened(branch)
        noted = files.head().manifest.head.config.get(LINEAGE_KEY, "[]")
        lineage = tuple(Document({"of": parse_json(noted, LINEAGE_KEY)}, f"The branch {name!r}").pairs("of"))
        branched.main.branches.pop(name, None)
    return replace(branch, lineage=lineage)


def _shown(name: str) -> str:
    return name if name == MAIN else f"branch {name.rpartition('-')[0]}"


def _name(branch: Branch) -> str:
    return branch.lance_name or MAIN


def _name_of(folder: str) -> str:
    return MAIN if folder == LAKE_MANIFEST else folder.rpartition("/")[2]
