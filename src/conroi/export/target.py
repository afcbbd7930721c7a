"""Addresses of ClickHouse tables: `http://user:password@host:8123/database/table`, `chdb:///folder/database/table`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from conroi.errors import InvalidInputError
from conroi.export.engine import Engine, name

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
            from conroi.export.embedded import Embedded

            return Embedded(self)
        from conroi.export.server import Server

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
