"""`conroi log --graph`: the versions of all branches of a lake, drawn as text."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from conroi.errors import ConroiError, UnsupportedError
from conroi.format.on_disk import MERGE_SOURCE_PROPERTY, MERGE_VERSION_PROPERTY
from conroi.lake_history import LakeChange, lake_changes

if TYPE_CHECKING:
    from conroi.lake_snapshot import LakeReader
    from conroi.snapshots.branch_names import Branch


K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Node(Generic[K]):
    """One version, and those it came from."""

    key: K
    parents: Sequence[K]


@dataclass(frozen=True, slots=True)
class Drawn(Generic[K]):
    """What stands before the first line about a version, and before the lines below it."""

    key: K
    above: tuple[str, ...]
    """Whole lines that come first: columns that join."""
    mark: str
    below: str
    after: tuple[str, ...]
    """Whole lines that come last: columns that begin."""


def draw(nodes: Iterable[Node[K]]) -> Iterator[Drawn[K]]:
    """The drawing, line by line. Each version comes before those it came from."""
    columns: list[K] = []
    for node in nodes:
        if node.key not in columns:
            columns.append(node.key)
        column = columns.index(node.key)
        above = tuple(_joined(columns, column))
        mark = " ".join("*" if place == column else "|" for place in range(len(columns)))
        after: list[str] = []
        columns[column : column + 1] = node.parents[:1]
        for parent in node.parents[1:]:
            if parent not in columns:
                columns.insert(column + 1, parent)
                after.append(_line(len(columns), {2 * column + 1: "\\", 2 * column + 2: " "}))
        below = " ".join("|" * (len(columns) - len(after)))
        yield Drawn(node.key, above, mark, below, tuple(after))


def _joined(columns: list[K], column: int) -> Iterator[str]:
    """Other columns that lead to the same version end in its column."""
    for other in reversed(range(column + 1, len(columns))):
        if columns[other] == columns[column]:
            yield _line(len(columns), {2 * other - 1: "/", 2 * other: " "})
            del columns[other]


def _line(width: int, changes: dict[int, str]) -> str:
    letters = list(" ".join("|" * width))
    for place, letter in changes.items():
        letters[place] = letter
    return "".join(letters).rstrip()


Key = tuple[str, int]
"""A branch as pylance calls it (`main` for the main one), and a version of it."""


@dataclass(frozen=True)
class Version:
    """One version of one branch."""

    key: Key
    change: LakeChange
    parents: tuple[Key, ...]
    branch: str
    """The name of its branch; empty for the main one."""
    names: tuple[str, ...] = ()
    """The branches whose newest it is, and its tags."""


def versions(lake: LakeReader, limit: int | None) -> list[Version]:
    """The newest versions of all branches, newest first; of a lake that stays at a version, only its own line."""
    branches = _branches(lake)
    names = _tags(lake)
    found: list[Version] = []
    for branch in branches:
        at = lake if branch.name == lake.branch_name else lake.branch(branch.name)
        if lake.pinned is None:
            key = (_name(branch), at.version)
            names[key] = [branch.name, *names.get(key, [])]
        own = [change for change in lake_changes(at, limit) if change.entry.version > branch.parent_version]
        found += [_version(branch, change, branches) for change in own]
    found.sort(key=lambda each: each.change.entry.timestamp, reverse=True)
    shown = found if limit is None else found[:limit]
    return [replace(each, names=tuple(names.get(each.key, ()))) for each in shown]


def drawn(found: list[Version]) -> Iterator[tuple[Version, Drawn[Key]]]:
    """Each version with what is drawn before it."""
    by_key = {each.key: each for each in found}
    # A version that is not shown has no line that leads to it.
    nodes = [Node(each.key, [parent for parent in each.parents if parent in by_key]) for each in found]
    for line in draw(nodes):
        yield by_key[line.key], line


def _version(branch: Branch, change: LakeChange, branches: list[Branch]) -> Version:
    number, name = change.entry.version, _name(branch)
    first: Key = (name, number - 1)
    if number - 1 <= branch.parent_version and branch.parent is not None:
        ids = {each.id: _name(each) for each in branches}
        first = (ids.get(branch.parent, branch.parent), branch.parent_version)
    properties = change.entry.properties
    merged = (
        [(properties[MERGE_SOURCE_PROPERTY], int(properties[MERGE_VERSION_PROPERTY]))]
        if MERGE_SOURCE_PROPERTY in properties
        else []
    )
    return Version((name, number), change, (first, *merged), "" if branch.is_main else branch.name)


def _branches(lake: LakeReader) -> list[Branch]:
    from conroi.snapshots.branch_names import MAIN_BRANCH

    if lake.pinned is not None:
        return [lake.catalog.identity]
    try:
        return list(lake.branches)
    except UnsupportedError:  # the store keeps none
        return [MAIN_BRANCH]


def _tags(lake: LakeReader) -> dict[Key, list[str]]:
    names: dict[Key, list[str]] = {}
    try:
        for tag in lake.tags:
            names.setdefault((tag.branch or "main", tag.version), []).append(f"tag {tag.name}")
    except ConroiError:  # the store keeps none
        pass
    return names


def _name(branch: Branch) -> str:
    return branch.lance_name or branch.name
