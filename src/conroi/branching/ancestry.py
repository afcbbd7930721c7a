"""What two branches of a lake had in common last.

A branch knows of every other one the newest version that went into it: those from which it was made, and those that
were merged into it. The newest version of any branch that both know is what they have in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from conroi.branching.diff import Side
from conroi.catalog.branches import BranchedLake
from conroi.catalog.opening import MANIFEST
from conroi.catalog.rows import NAMESPACE, Row
from conroi.errors import CorruptionError, NotFoundError
from conroi.refs.branches import MAIN, MAIN_BRANCH, Branch

MERGES = "__merges"
"""The row of a lake in which it is noted what was merged into it; pylance takes it for an empty namespace."""

Clock = Mapping[str, int]
"""By branch (as pylance calls it; `main` for the main one): the newest version of it that went into this one."""


def clock_of(side: Side) -> dict[str, int]:
    """What went into this state of a branch, itself included."""
    branch = side.catalog.identity
    clock = {_name_of(folder): version for folder, version in branch.lineage}
    noted = side.state.rows.get(MERGES)
    for name, version in ({} if noted is None else noted.notes).items():
        clock[name] = max(clock.get(name, 0), int(version))
    clock[_name(branch)] = side.state.version
    return clock


def merged_row(source: Side, target: Side) -> Row:
    """The note that all of the source went into the target."""
    mine, theirs = clock_of(target), clock_of(source)
    both = {name: max(mine.get(name, 0), theirs.get(name, 0)) for name in mine.keys() | theirs.keys()}
    both.pop(_name(target.catalog.identity), None)
    return Row(MERGES, NAMESPACE).with_notes({name: str(version) for name, version in sorted(both.items())})


def is_merged(source: Side, target: Side) -> bool:
    """Whether all of the source is in the target already."""
    return clock_of(target).get(_name(source.catalog.identity), 0) >= source.state.version


def common_base(branched: BranchedLake, source: Side, target: Side) -> Side:
    """The newest state that both come from: the merge base.

    Never an older one in its place: rows that the target changed back since would look unchanged, and the merge would
    undo that. So if a state that may be the base was collected, and no other has all that both share, it is refused.
    """
    mine, theirs = clock_of(source), clock_of(target)
    shared = {name: min(mine[name], theirs[name]) for name in mine.keys() & theirs.keys()}
    found: list[Side] = []
    lost: list[str] = []
    for name, side in _opened(branched, shared):
        if side is None:
            lost.append(name)
            continue
        clock = clock_of(side)
        if all(clock.get(each, 0) >= version for each, version in shared.items()):
            return side
        found.append(side)
    if lost or not found:
        names = ", ".join(f"version {shared[name]} of {_shown(name)}" for name in sorted(lost))
        raise NotFoundError(
            f"What {source.label} and {target.label} have in common was collected: {names or 'every common state'}.",
            hint="They cannot be merged any more. Bring the rows over by hand, or onto a new branch of the target.",
        )
    # Each was merged into the other at the same time: of several bases the newest.
    return max(found, key=lambda side: side.state.timestamp_ns)


def _opened(branched: BranchedLake, shared: Clock) -> Iterator[tuple[str, Side | None]]:
    """The states that may be the base, living branches first; None for one that cannot be read any more.

    Of a branch that was deleted all states may still be there, or none, or what a collector has left of them.
    """
    known: dict[str, Branch] = {_name(branch): branch for branch in branched.names.all()}
    known[MAIN] = MAIN_BRANCH
    for name in sorted(shared, key=lambda each: (each not in known, each)):
        branch = known.get(name) or Branch(name, name, lance_name=name)
        try:
            catalog, _ = branched.opened(branch)
            yield name, Side(catalog, catalog.at(shared[name]))
        except NotFoundError:
            yield name, None
        except CorruptionError:
            if name in known:
                raise
            yield name, None


def _shown(name: str) -> str:
    return name if name == MAIN else f"branch {name.rpartition('-')[0]}"


def _name(branch: Branch) -> str:
    return branch.lance_name or MAIN


def _name_of(folder: str) -> str:
    return MAIN if folder == MANIFEST else folder.rpartition("/")[2]
