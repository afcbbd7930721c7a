"""ClickHouse interface of an export: a server, or embedded in this process."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Protocol

from conroi.errors import StoreError
from conroi.format.documents import damaged, parse_object

TABLE_EXISTS = 57
_LONGEST_TEXT = 300

Value = Any
"""What JSON can hold; ClickHouse's 64-bit numbers may come as text, so `int()` is theirs."""


class ClickHouseError(StoreError):
    """ClickHouse refused a statement; `code` is its error code."""

    code: int = 0


class Engine(Protocol):
    """A ClickHouse that takes statements and streams of rows."""

    place: str
    """Where it is, without credentials."""
    is_shared: bool
    """Whether other processes can write to it at the same time."""

    @property
    def has_arrow(self) -> bool:
        """Whether it reads Arrow; servers from before 2020 do not."""
        ...

    def ask(self, statement: str) -> list[list[Value]]:
        """Run a statement; returns its rows."""
        ...

    def send(self, statement: str, form: str, chunks: Iterable[bytes], query_id: str) -> None:
        """Run an INSERT with these bytes in this format, under this query id; sent once, never retried."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


def is_question(statement: str) -> bool:
    """Whether the statement returns rows."""
    return statement.startswith("SELECT")


def rows_of(answer: str) -> list[list[Value]]:
    """The rows of a response in the format JSONCompact."""
    if not answer.strip():
        return []
    found = parse_object(answer, "The answer of ClickHouse").get("data")
    if not isinstance(found, list):
        raise damaged("The answer of ClickHouse", "it has no rows")
    return found  # pyright: ignore[reportUnknownVariableType]


def refused(place: str, text: str) -> ClickHouseError:
    """ClickHouse's error as ours."""
    code = re.search(r"Code: (\d+)", text)
    # Old servers end with `, e.what() = …`, new ones with their version; neither helps.
    said = re.split(r", e\.what\(\)|\(version ", text)[0].strip().replace("e.displayText() = ", "")
    error = ClickHouseError(
        f"ClickHouse at {place} refused: {said[:_LONGEST_TEXT]}",
        hint="See what it says; the rows of this export do not stay in the target.",
    )
    error.code = int(code[1]) if code else 0
    return error


def text(value: str) -> str:
    """A value in SQL. Parameters would be better, but old servers have none."""
    return _quoted(value, "'")


def name(identifier: str) -> str:
    """An identifier in SQL."""
    return _quoted(identifier, "`")


def _quoted(value: str, mark: str) -> str:
    """The one way in which foreign text gets into a statement."""
    return mark + value.replace("\\", "\\\\").replace(mark, f"\\{mark}") + mark
