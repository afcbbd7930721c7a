"""Queries of a lake's history, in SQL common to all databases. Each is one statement, so one snapshot."""

# ruff: noqa: S608  # what is put into these statements are constants of this module; values are parameters

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class LakeCommit:
    """One commit as it is stored; `notes` and `changes` are JSON text."""

    version: int
    uuid: str
    idempotency_key: str | None
    notes: str
    changes: str
    timestamp_ns: int = 0
    """By the clock of the database, and later than that of the previous version; 0 before it is published."""


@dataclass(frozen=True, slots=True)
class Head:
    """The newest version of a lake, and the folder that the database has it for."""

    version: int
    root: str


@dataclass(frozen=True, slots=True)
class LoadedState:
    """The contents of all rows of a lake at one version, by object id."""

    version: int
    timestamp_ns: int
    rows: Mapping[str, str]


class Database(Protocol):
    """What is asked."""

    @property
    def now_ns(self) -> str:
        """The database's clock, as an SQL expression."""
        ...

    def ask(self, sql: str, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
        """The rows of one query, with `?` for each parameter."""
        ...


_COMMIT = "c.version, c.uuid, c.idempotency_key, c.notes, c.changes, c.timestamp_ns"
_ROWS_AT_COMMIT = "r.since <= c.version AND (r.until IS NULL OR r.until > c.version)"


class LakeQueries:
    """The queries of a lake, in SQL common to all databases. Every method is one statement."""

    def __init__(self, tables: Database, lake: str) -> None:
        self._tables = tables
        self._lake = lake

    def head(self) -> Head | None:
        """The newest version; None if the database does not have the lake."""
        found = self._tables.ask("SELECT version, root FROM conroi_lakes WHERE lake = ?", [self._lake])
        return Head(int(found[0][0]), str(found[0][1])) if found else None

    def after(self, version: int, limit: int) -> tuple[Head | None, list[LakeCommit]]:
        """The head, and the commits after a version that are there, oldest first; some may have been collected."""
        sql = (
            f"SELECT h.version, h.root, {_COMMIT} FROM conroi_lakes h "
            "LEFT JOIN conroi_lake_commits c ON c.lake = h.lake AND c.version > ? "
            "WHERE h.lake = ? ORDER BY c.version LIMIT ?"
        )
        found = self._tables.ask(sql, [version, self._lake, limit])
        if not found:
            return None, []
        commits = [LakeCommit(*row[2:]) for row in found if row[2] is not None]
        return Head(int(found[0][0]), str(found[0][1])), commits

    def newest(self) -> tuple[Head | None, LoadedState | None]:
        """The head and all its rows; no state if its commit is missing, or if nothing was committed yet."""
        return self._loaded("h.version", [], "r.until IS NULL AND c.version IS NOT NULL")

    def at(self, version: int) -> tuple[Head | None, LoadedState | None]:
        """The head, and all rows at a version; no state if that does not exist."""
        return self._loaded("?", [version], _ROWS_AT_COMMIT)

    def as_of(self, moment_ns: int) -> tuple[Head | None, LoadedState | None]:
        """The head, and all rows at the newest version that is not newer than this."""
        wanted = "(SELECT max(o.version) FROM conroi_lake_commits o WHERE o.lake = h.lake AND o.timestamp_ns <= ?)"
        return self._loaded(wanted, [moment_ns], _ROWS_AT_COMMIT)

    def _loaded(self, version: str, parameters: Sequence[object], rows: str) -> tuple[Head | None, LoadedState | None]:
        sql = (
            "SELECT h.version, h.root, c.version, c.timestamp_ns, r.object_id, r.content FROM conroi_lakes h "
            f"LEFT JOIN conroi_lake_commits c ON c.lake = h.lake AND c.version = {version} "
            f"LEFT JOIN conroi_lake_rows r ON r.lake = h.lake AND {rows} WHERE h.lake = ?"
        )
        found = self._tables.ask(sql, [*parameters, self._lake])
        if not found:
            return None, None
        head = Head(int(found[0][0]), str(found[0][1]))
        if found[0][2] is None:
            return head, None
        contents = {row[4]: row[5] for row in found if row[4] is not None}
        return head, LoadedState(int(found[0][2]), int(found[0][3]), contents)

    def before(self, version: int, limit: int) -> list[LakeCommit]:
        """The commits up to a version, newest first."""
        sql = (
            f"SELECT {_COMMIT} FROM conroi_lake_commits c WHERE c.lake = ? AND c.version <= ? "
            "ORDER BY c.version DESC LIMIT ?"
        )
        return [LakeCommit(*row) for row in self._tables.ask(sql, [self._lake, version, limit])]

    def commit(self, version: int) -> LakeCommit | None:
        """The commit of this version; None if it does not exist."""
        sql = f"SELECT {_COMMIT} FROM conroi_lake_commits c WHERE c.lake = ? AND c.version = ?"
        found = self._tables.ask(sql, [self._lake, version])
        return LakeCommit(*found[0]) if found else None

    def by_key(self, key: str) -> LakeCommit | None:
        """The commit with this idempotency key."""
        sql = f"SELECT {_COMMIT} FROM conroi_lake_commits c WHERE c.lake = ? AND c.idempotency_key = ?"
        found = self._tables.ask(sql, [self._lake, key])
        return LakeCommit(*found[0]) if found else None

    def lake_at(self, root: str) -> str | None:
        """The id of the lake that the database has for a folder."""
        found = self._tables.ask("SELECT lake FROM conroi_lakes WHERE root = ?", [root])
        return str(found[0][0]) if found else None

    def versions(self) -> list[tuple[int, int]]:
        """All versions that are there, ascending, and when the database made them, by its clock."""
        sql = "SELECT version, dated_ns FROM conroi_lake_commits WHERE lake = ? ORDER BY version"
        return [(int(version), int(moment)) for version, moment in self._tables.ask(sql, [self._lake])]

    def now_ns(self) -> int:
        """The time by the clock of the database."""
        return int(self._tables.ask(f"SELECT {self._tables.now_ns}", [])[0][0])

    def spans(self) -> list[tuple[str, int, int | None, str]]:
        """Every row that any version has: its object id, since when and until before which version, its content."""
        sql = "SELECT object_id, since, until, content FROM conroi_lake_rows WHERE lake = ?"
        return self._tables.ask(sql, [self._lake])  # type: ignore[return-value]
