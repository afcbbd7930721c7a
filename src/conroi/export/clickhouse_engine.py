"""ClickHouse engines: a server over HTTP, or chdb inside this process; target addresses, quoting and typed errors."""

from __future__ import annotations

import http.client
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from conroi.errors import InvalidInputError, StoreError, StoreUnavailable, UnsupportedError
from conroi.format.json import damaged, parse_object

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


class Embedded:
    """chdb on the target's folder, which no other process can have open at the same time."""

    is_shared = False
    has_arrow = True

    def __init__(self, target: Target) -> None:
        self.place: str = target.place
        chdb = _chdb()
        try:
            self._connection: Any = chdb.connect(target.folder)
        except Exception as error:  # noqa: BLE001 (chdb has one kind for everything)
            raise StoreUnavailable(
                f"chdb could not open {self.place}: {str(error)[:200]}",
                hint="One process at a time can have the folder open, and a process can have one folder open.",
            ) from None

    def ask(self, statement: str) -> list[list[Value]]:
        try:
            answer = self._connection.query(statement, "JSONCompact")
        except Exception as error:  # noqa: BLE001
            raise refused(self.place, str(error)) from None
        return rows_of(str(answer)) if is_question(statement) else []

    def send(self, statement: str, form: str, chunks: Iterable[bytes], query_id: str) -> None:  # noqa: ARG002
        # It has no id: it ends with this process, so no other export ever waits for it.
        with self._begun(statement, form) as stream:
            for chunk in chunks:
                self._said(stream.append, chunk)
            self._said(stream.finish)

    def _begun(self, statement: str, form: str) -> Any:
        return self._said(self._connection.send_insert, statement, form)

    def _said(self, act: Any, *given: object) -> Any:
        try:
            return act(*given)
        except RuntimeError as error:
            raise refused(self.place, str(error)) from None

    def close(self) -> None:
        self._connection.close()


def _chdb() -> Any:
    try:
        import chdb
    except ImportError:
        raise UnsupportedError(
            "An export to chdb:// needs the package chdb, which is not installed.", hint="Install it: pip install chdb."
        ) from None
    return chdb


ANSWER_WITHIN_S = 300.0
_FIRST_WITH_ARROW = 20
_OK = 200


class Server:
    """The server that a target is on."""

    is_shared = True

    def __init__(self, target: Target) -> None:
        self._target = target
        self.place: str = target.place

    @property
    def has_arrow(self) -> bool:
        return self._year >= _FIRST_WITH_ARROW

    @cached_property
    def _year(self) -> int:
        ((version,),) = self.ask("SELECT version()")
        return int(str(version).split(".")[0])

    def ask(self, statement: str) -> list[list[Value]]:
        asked = f"{statement} FORMAT JSONCompact" if is_question(statement) else statement
        return rows_of(self._post({}, asked.encode()))

    def send(self, statement: str, form: str, chunks: Iterable[bytes], query_id: str) -> None:
        settings = {"query": f"{statement} FORMAT {form}", "query_id": query_id}
        if self.has_arrow:
            settings["async_insert"] = "0"  # the answer comes when the rows are in, not when they are queued
        self._post(settings, chunks)

    def close(self) -> None:
        """Every request had a connection of its own."""

    def _post(self, settings: Mapping[str, str], body: bytes | Iterable[bytes]) -> str:
        connection = self._connection()
        try:
            # http.client sends a stream of unknown length in chunks.
            connection.request("POST", f"/?{urlencode({**self._target.settings, **settings})}", body, self._headers)
            response = connection.getresponse()
            answer = response.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            raise self._unavailable(error) from None
        finally:
            connection.close()
        # Servers may find an error after they began to answer 200.
        if response.status != _OK or answer.startswith("Code: ") or "\nCode: " in answer[-1000:]:
            raise refused(self.place, answer)
        return answer

    def _connection(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._target.scheme == "https" else http.client.HTTPConnection
        return kind(self._target.host, self._target.port, timeout=ANSWER_WITHIN_S)

    @cached_property
    def _headers(self) -> dict[str, str]:
        if self._target.user is None:
            return {}
        pair = f"{self._target.user}:{self._target.password or ''}"
        return {"Authorization": f"Basic {b64encode(pair.encode()).decode()}"}

    def _unavailable(self, error: Exception) -> StoreUnavailable:
        return StoreUnavailable(
            f"ClickHouse at {self.place} could not be asked: {type(error).__name__}: {error}",
            hint="Check host and port, and that the server runs; it may pass.",
        )


_SCHEMES = {"http": "http", "clickhouse": "http", "https": "https", "clickhouses": "https", "chdb": "chdb"}
_PORTS = {"http": 8123, "https": 8443}


@dataclass(frozen=True)
class Target:
    """One table of a ClickHouse."""

    scheme: str
    host: str
    port: int
    folder: str
    database: str
    table: str
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    settings: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    @property
    def sql(self) -> str:
        """Its name in SQL."""
        return f"{name(self.database)}.{name(self.table)}"

    @property
    def place(self) -> str:
        """Where its ClickHouse is, as people may see it."""
        return f"chdb://{self.folder}" if self.scheme == "chdb" else f"{self.scheme}://{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.place}/{self.database}/{self.table}"

    def engine(self) -> Engine:
        """Its ClickHouse, opened."""
        if self.scheme == "chdb":
            return Embedded(self)

        return Server(self)


def parse(address: str) -> Target:
    """The table at an address; the last two parts of its path are the database and the table."""
    try:
        parts = urlsplit(address)
        scheme, port = _SCHEMES[parts.scheme], parts.port
    except (KeyError, ValueError):
        raise _unreadable() from None
    *folder, database, table = ["", "", *(unquote(part) for part in parts.path.split("/")[1:])]
    if (
        not database
        or not table
        or (scheme == "chdb") != bool("".join(folder))
        or (scheme != "chdb") != bool(parts.hostname)
    ):
        raise _unreadable()
    return Target(
        scheme,
        parts.hostname or "",
        port or _PORTS.get(scheme, 0),
        "/".join(folder[1:]),
        database,
        table,
        *_credentials(parts),
        dict(parse_qsl(parts.query)),
    )


def _credentials(parts: SplitResult) -> tuple[str | None, str | None]:
    return (
        None if parts.username is None else unquote(parts.username),
        None if parts.password is None else unquote(parts.password),
    )


def _unreadable() -> InvalidInputError:
    # The address itself is not shown: it may hold a password.
    return InvalidInputError(
        "The address of the ClickHouse table cannot be read.",
        hint="Write http://user:password@host:8123/database/table for a server, or chdb:///folder/database/table.",
    )
