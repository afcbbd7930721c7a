"""One run of the command line: the addresses that were typed, and how it connects."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from conroi.cli.failures import UsageProblem
from conroi.cli.output import Output
from conroi.errors import InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from conroi.lake import Lake
    from conroi.lake_snapshot import LakeReader
    from conroi.table import Table
    from conroi.transaction import Transaction, TransactionResult


_MARKED = re.compile(r"([^@]+)@([^/]+)")


@dataclass(frozen=True, slots=True)
class Address:
    """A place, and which version of it; both as typed."""

    place: str
    """A lake, or a table at the end of a lake's path; empty for the default lake."""
    at: str | None = None

    @property
    def parent(self) -> Address | None:
        """The lake, if the last part of the place is a table."""
        lake, slash, _ = self.place.rstrip("/").rpartition("/")
        if not slash or not lake or lake.endswith((":", ":/")):
            return None
        return parsed(lake)

    @property
    def name(self) -> str:
        """The last part of the place."""
        return self.place.rstrip("/").rpartition("/")[2]


def parsed(text: str) -> Address:
    """The address, with the version after its last part taken off."""
    head, slash, last = text.rpartition("/")
    if last.startswith("@") and not head:  # a version of the default lake
        return Address("", _checked(last[1:], text))
    found = _MARKED.fullmatch(last)
    if found is None:
        return Address(text)
    return Address(head + slash + found[1], found[2])


def _checked(at: str, text: str) -> str:
    if not at:
        raise InvalidInputError(f"{text!r} says no version.", hint="Write it after the @, as in ./lake@41.")
    return at


DEFAULT_LAKE = "CONROI_LAKE"


@dataclass(frozen=True)
class Target:
    """What an address means: a lake, or a table of it."""

    lake: LakeReader
    """At the version that was asked for, if one was."""
    name: str | None = None
    version: str | None = None
    """The version of the table, as typed."""

    @property
    def table_name(self) -> str:
        """The table; UsageProblem if the address is that of a whole lake."""
        if self.name is None:
            raise UsageProblem(f"{self.lake.uri} is a lake. Say which table: LAKE/TABLE.")
        return self.name

    @property
    def newest_name(self) -> str:
        """The table for a command that changes it; UsageProblem if a past version of it was given."""
        if self.version is not None:
            raise UsageProblem(
                f"{self.name}@{self.version} is a version of the table, which can only be read.",
                hint=f"Leave out @{self.version}; `conroi restore` brings a past version back.",
            )
        return self.table_name

    @property
    def table(self) -> Table:
        """The table, opened at the version that was asked for."""
        table = self.lake[self.table_name]
        return table if self.version is None else table_at(table, self.version)


@dataclass
class Session:
    """The options that every command has."""

    output: Output
    store: str | None = None
    locks: str | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict[str, str])
    debug: bool = False
    allow_bases: tuple[str, ...] = ()
    """Folders outside the lake to which its tables may refer."""

    @property
    def as_json(self) -> bool:
        return self.output.as_json

    # ------------------------------------------------------------------------ addresses

    def place(self, typed: str | None) -> str:
        """Where a lake is, without opening it; NotFoundError if there is none."""
        place = typed or os.environ.get(DEFAULT_LAKE)
        if not place:
            raise UsageProblem(f"Say which lake: give its path or address, or set {DEFAULT_LAKE}.")
        if not self.is_lake(place):
            raise NotFoundError(f"There is no lake at {place}.", hint="Check the path.")
        return place

    def lake(self, typed: str | None) -> LakeReader:
        """The lake at an address, which must not name a table."""
        target = self.target(typed)
        if target.name is not None:
            raise UsageProblem(f"{typed} is a table. Give the lake alone.")
        return target.lake

    def table(self, typed: str | None) -> Target:
        """The table at an address; NotFoundError if the lake has none of that name."""
        target = self.target(typed, wants_table=True)
        target.lake.catalog.row(_object_id(target.table_name), target.lake.pinned or target.lake.catalog.state())
        return target

    def target(self, typed: str | None, *, wants_table: bool = False) -> Target:
        """What an address means; a name without a slash is a table of the default lake, if there is one.

        `wants_table` is for commands to which a lake alone is of no use: then the last part is never a lake.
        """
        address = parsed(typed or "")
        default = os.environ.get(DEFAULT_LAKE)
        if not address.place:
            if default is None:
                raise UsageProblem(f"Say which lake: give its path or address, or set {DEFAULT_LAKE}.")
            return Target(self._open(parsed(default), address.at))
        if default is not None and "/" not in address.place:
            lake = self._open(parsed(default))
            return self._in(lake, address)
        if self.is_lake(address.place):
            return Target(self._open(address))
        parent = address.parent
        if parent is not None and self.is_lake(parent.place):
            return self._in(self._open(parent), address)
        sought = parent if wants_table and parent is not None else address
        raise NotFoundError(
            f"There is no lake at {sought.place}.",
            hint="Check the path; `conroi init` makes a new lake there."
            if default is None
            else f"Check the path; {DEFAULT_LAKE} is set, so a name without a slash is a table of that lake.",
        )

    def _in(self, lake: LakeReader, address: Address) -> Target:
        return Target(lake, _table_name(lake, address.name), address.at)

    def _open(self, address: Address, at: str | None = None) -> LakeReader:
        at = at or address.at
        lake = self.connect(address.place)
        return lake if at is None else lake_at(lake, at)

    # ------------------------------------------------------------------------ connecting

    def is_lake(self, place: str) -> bool:
        """Whether there is a lake; looking makes none."""
        from conroi.catalog.folders import MARKER
        from conroi.format.on_disk import LAKE_MANIFEST
        from conroi.storage import open_objects

        if "://" not in place:
            return any(os.path.exists(f"{place}/{name}") for name in (LAKE_MANIFEST, MARKER))
        root = open_objects(place, self.storage_options or None)
        return root.head(MARKER) is not None or next(iter(root.list_names(LAKE_MANIFEST)), None) is not None

    def connect(self, place: str) -> Lake:
        """The lake at a place, which becomes one if there is none."""
        import conroi

        return conroi.connect(
            place,
            store=self.store,
            locks=self.locks,
            storage_options=dict(self.storage_options) or None,
            allow_bases=list(self.allow_bases) or None,
        )


def _object_id(name: str) -> str:
    from conroi.catalog.names import object_id

    return object_id(name)


def _table_name(lake: LakeReader, typed: str) -> str:
    """A table by its name, or by its folder, which is what a shell completes."""
    state = lake.pinned or lake.catalog.state()
    if typed.endswith(".lance"):
        from conroi.catalog.names import shown

        for row in state.tables():
            if row.location == typed:
                return shown(row.object_id)
    return typed


def lake_at(lake: LakeReader, at: str) -> LakeReader:
    """The lake at a version, branch, tag or moment, as typed; `dev@5` is a version of a branch."""
    if at.isdecimal():
        return lake.at(version=int(at))
    name, mark, rest = at.partition("@")
    if mark:
        return lake_at(lake.branch(name), rest)
    try:
        return lake.resolve(at)
    except (NotFoundError, InvalidInputError) as error:
        if not _is_moment(at):
            raise _no_version(at, "lake", "a branch, ") from error
        return lake.at(as_of=at)


def writable(lake: LakeReader, verb: str = "begin") -> Lake:
    """The lake, for a command that changes it; refused if the address is that of a version of it."""
    from conroi.lake import Lake
    from conroi.refusals import PAST_LAKE, refused

    if not isinstance(lake, Lake):
        raise refused(lake, PAST_LAKE[verb])
    return lake


def table_at(table: Table, at: str) -> Table:
    """The table at a version, tag or moment of its own, as typed."""
    if at.isdecimal():
        return table.at(version=int(at))
    try:
        return table.at(tag=at)
    except (NotFoundError, InvalidInputError) as error:
        if not _is_moment(at):
            raise _no_version(at, "table") from error
        return table.at(as_of=at)


def _is_moment(at: str) -> bool:
    try:
        datetime.fromisoformat(at)
    except ValueError:
        return False
    return True


def _no_version(at: str, what: str, besides: str = "") -> NotFoundError:
    return NotFoundError(
        f"The {what} has no version called {at!r}.",
        hint=f"After the @ stands a number, {besides}a tag, or a moment such as 2026-11-15T12:00:00+00:00.",
    )


def committed(
    lake: LakeReader, work: Callable[[Transaction], object], *, message: str, author: str | None = None
) -> TransactionResult:
    """Do the work in a transaction, again if others were first, and say what was committed."""
    attempts: list[Transaction] = []

    def attempt(tx: Transaction) -> None:
        attempts.append(tx)
        work(tx)

    writable(lake).run(attempt, message=message, author=author)
    return attempts[-1].result


def split(words: Sequence[str], *names: str) -> tuple[str | None, list[str]]:
    """The lake, if it was given, and the other words, of which there must be so many."""
    given = list(words)
    if len(given) == len(names) + 1:
        return given[0], given[1:]
    if len(given) == len(names) and os.environ.get(DEFAULT_LAKE):
        return None, given
    raise UsageProblem(f"Give [LAKE] {' '.join(names)}; the lake may be left out if {DEFAULT_LAKE} is set.")
