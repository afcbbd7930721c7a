"""Bugs planted into merges, for negative controls: a history with one of them must not pass."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import conroi

Merge = Callable[..., Any]


def _target(lake: conroi.Lake, into: str | None) -> conroi.Lake:
    return lake if into is None else conroi.connect(lake.uri, branch=into)


def _after(change: Callable[[conroi.Lake], None]) -> Callable[[Merge], Merge]:
    """A merge that does something more to its target."""

    def planted(real: Merge) -> Merge:
        def merge(self: conroi.Lake, source: Any, into: str | None = None, **how: Any) -> Any:
            before = _target(self, into).version
            result = real(self, source, into, **how)
            target = _target(self, into)
            if target.version != before:
                change(target)
            return result

        return merge

    return planted


def _lose_a_row(lake: conroi.Lake) -> None:
    for name in lake.tables():
        rows = lake[name].to_arrow(columns=["id"])["id"].to_pylist()
        if rows:
            found = rows[0]
            lake[name].delete(f"id = {found!r}")
            return


def _double_a_row(lake: conroi.Lake) -> None:
    for name in lake.tables():
        rows = lake[name].to_arrow()
        if not lake[name].key and rows.num_rows:
            lake[name].append(rows.slice(0, 1))
            return


def _swap_names(lake: conroi.Lake) -> None:
    first, second = lake.tables()[:2]
    with lake.begin() as tx:
        tx.rename_table(first, "other")
        tx.rename_table(second, first)
        tx.rename_table("other", second)


def _other_preference(real: Merge) -> Merge:
    """The wrong side is preferred."""
    other = {"source": "target", "target": "source"}

    def merge(self: conroi.Lake, source: Any, into: str | None = None, *, prefer: Any = None, **how: Any) -> Any:
        return real(self, source, into, prefer=other.get(prefer, prefer), **how)

    return merge


def _silent(real: Merge) -> Merge:
    """The dry run lists no conflicts."""

    def merge(self: conroi.Lake, source: Any, into: str | None = None, *, dry_run: bool = False, **how: Any) -> Any:
        result = real(self, source, into, dry_run=dry_run, **how)
        return replace(result, conflicts=()) if dry_run else result

    return merge


def _hasty(real: Merge) -> Merge:
    """Conflicts without an answer are settled by the source."""

    def merge(self: conroi.Lake, source: Any, into: str | None = None, **how: Any) -> Any:
        try:
            return real(self, source, into, **how)
        except conroi.MergeConflict:
            return real(self, source, into, **{**how, "prefer": "source"})

    return merge


def _older_base(real: Merge) -> Merge:
    """The base is where the source began, whatever was merged since."""

    def merge(self: conroi.Lake, source: Any, into: str | None = None, **how: Any) -> Any:
        began = next(each.parent_version for each in self.branches if each.name == source)
        if how.get("dry_run") or not began:
            return real(self, source, into, **how)
        main, theirs = conroi.connect(self.uri), conroi.connect(self.uri, branch=source)
        main.branches.create("hidden", from_=began)
        hidden = main.branch("hidden")
        for name in hidden.tables():
            hidden[name].overwrite(theirs[name].to_arrow())
        try:
            return real(self, "hidden", into, **how)
        finally:
            main.branches.delete("hidden")

    return merge


MERGES: dict[str, Callable[[Merge], Merge]] = {
    "a row is lost": _after(_lose_a_row),
    "a row is there twice": _after(_double_a_row),
    "the names of two tables are swapped": _after(_swap_names),
    "the wrong side is preferred": _other_preference,
    "the dry run lists no conflicts": _silent,
    "the base is older than the last merge": _older_base,
    "a refused merge happens all the same": _hasty,
}
CHANGING_PAST = "past states are the newest one"
PLANTED = (*MERGES, CHANGING_PAST)


@contextlib.contextmanager
def planted(name: str) -> Generator[None]:
    """Conroi with a bug."""
    merge, at = conroi.Lake.merge, conroi.Lake.at

    try:
        if name in MERGES:
            conroi.Lake.merge = MERGES[name](merge)  # type: ignore[method-assign]
        else:
            assert name == CHANGING_PAST
            conroi.Lake.at = lambda self, version=None, **how: at(self, self.version)  # type: ignore[method-assign]
        yield
    finally:
        conroi.Lake.merge, conroi.Lake.at = merge, at  # type: ignore[method-assign]
