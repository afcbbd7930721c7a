"""Shell completion: folders, lakes, their tables and versions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from conroi.errors import ConroiError

if TYPE_CHECKING:
    from conroi.cli.session import Session

MOST_VERSIONS = 20


def addresses(incomplete: str) -> list[str]:
    """Lakes, tables and versions."""
    with suppress(ConroiError, OSError):  # a shell is no place for errors
        return list(_addresses(incomplete))
    return []


lakes = addresses
tables = addresses


def _addresses(incomplete: str) -> Iterator[str]:
    from conroi.cli.output import Output
    from conroi.cli.session import DEFAULT_LAKE, Session

    session = Session(Output(as_json=False))
    default = os.environ.get(DEFAULT_LAKE)
    head, slash, last = incomplete.rpartition("/")
    place, at, version = last.partition("@")
    if at:
        yield from _versions(session, head + slash + place, version)
    elif slash and "://" not in head and session.is_lake(head):
        yield from (f"{head}/{name}" for name in session.connect(head).tables() if name.startswith(last))
        return  # the other folders of a lake are its own
    elif not slash and default:
        yield from (name for name in session.connect(default).tables() if name.startswith(last))
    if not at and "://" not in head:
        yield from _folders(head + slash, last)


def _versions(session: Session, place: str, begun: str) -> Iterator[str]:
    target = session.target(place)
    of = target.lake if target.name is None else target.table
    numbers = [str(number) for number in range(of.version, max(0, of.version - MOST_VERSIONS), -1)]
    yield from (f"{place}@{each}" for each in (*(tag.name for tag in of.tags), *numbers) if each.startswith(begun))


def _folders(head: str, begun: str) -> Iterator[str]:
    if not os.path.isdir(head or "."):
        return
    with os.scandir(head or ".") as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            is_own = entry.name.startswith((".", "__")) or entry.name.endswith(".lance")
            if entry.name.startswith(begun) and not is_own and entry.is_dir():
                yield f"{head}{entry.name}"
