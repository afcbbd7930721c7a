"""Commit graph as text, newest first, in the style of `git log --graph`. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

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
