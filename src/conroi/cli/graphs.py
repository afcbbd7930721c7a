"""`conroi log --graph`: the versions of all branches of a lake as one graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from conroi.branching.merging import SOURCE, SOURCE_VERSION
from conroi.errors import ConroiError, UnsupportedError
from conroi.lake_changes import LakeChange, lake_changes
from conroi.views.graph import Drawn, Node, draw

if TYPE_CHECKING:
    from conroi.lake import Lake
    from conroi.refs.branches import Branch

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


def versions(lake: Lake, limit: int | None) -> list[Version]:
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
    merged = [(properties[SOURCE], int(properties[SOURCE_VERSION]))] if SOURCE in properties else []
    return Version((name, number), change, (first, *merged), "" if branch.is_main else branch.name)


def _branches(lake: Lake) -> list[Branch]:
    from conroi.refs.branches import MAIN_BRANCH

    if lake.pinned is not None:
        return [lake.catalog.identity]
    try:
        return list(lake.branches)
    except UnsupportedError:  # the store keeps none
        return [MAIN_BRANCH]


def _tags(lake: Lake) -> dict[Key, list[str]]:
    names: dict[Key, list[str]] = {}
    try:
        for tag in lake.tags:
            names.setdefault((tag.branch or "main", tag.version), []).append(f"tag {tag.name}")
    except ConroiError:  # the store keeps none
        pass
    return names


def _name(branch: Branch) -> str:
    return branch.lance_name or branch.name
