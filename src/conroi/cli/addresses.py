"""Address syntax of lakes and tables: LAKE, LAKE@VERSION, LAKE/TABLE, LAKE@VERSION/TABLE, LAKE/TABLE@VERSION."""

from __future__ import annotations

import re
from dataclasses import dataclass

from conroi.errors import InvalidInputError

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
