"""Publication of a lake version in SQL: row-level optimistic concurrency control under the lock of the lake's head row.

The statement locks the head's row, which serializes the publications of a lake. Then it compares each object that the
publication depends on or writes: one that was changed since the publication's base refuses it. Otherwise it takes the
next version number, whatever versions of other objects came in between. It returns those, so that the caller knows the
state without another query.

The test is "was it changed since the base", never "does it look the same now". Once an object was changed, a statement
that arrives late is refused for ever. So after a lost response the same statement is sent again: under the lock it
finds its own id among the commits since the base, or else can say that the first one had no effect and never will.

Clients of earlier versions compare the head's version with their base, and write the same rows: both may be mixed.
"""

# ruff: noqa: S608  # what is put into these statements are constants of this module; values are parameters

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from conroi.catalog.rows import TABLE
from conroi.catalog.sql_queries import LakeCommit
from conroi.catalog.store import Dependencies
from conroi.format.json import parse_object
from conroi.storage.sql_schema import Schema

SQLITE_NOW_NS = (
    "(CAST(strftime('%s', 'now') AS INTEGER) * 1000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER)) * 1000000"
)
POSTGRES_NOW_NS = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000"
TICK_NS = 1000
"""Minimum distance of two versions of a lake, in nanoseconds: the resolution of a datetime."""
MOST_BETWEEN = 256
"""Number of versions since the base above which a publication does not return them."""
BARRIER = "{}"
"""The changes of a version that refuses every publication with an older base: garbage collection publishes one before
it deletes files of writers that stood still.
"""
_TABLE_PREFIX = f'["{TABLE}"'
"""How the stored content of a table's row begins; a namespace's does not."""


@dataclass(frozen=True, slots=True)
class RowPublication:
    """What is published: a commit, its rows, and what must be unchanged since its base."""

    base: int
    """The version that it was checked against."""
    commit: LakeCommit
    """Its version is 0: the database gives it the next one. Another number only begins a history."""
    rows: Mapping[str, str | None]
    """The new contents by object id, None for deleted ones."""
    dependencies: Dependencies = field(default_factory=Dependencies)

    @property
    def compared(self) -> list[str]:
        """The objects that must be unchanged since the base."""
        return sorted(self.dependencies.objects | self.rows.keys())


class Answer(Enum):
    """What became of a publication."""

    PUBLISHED = "published"
    """It is there, put now or by an earlier request."""
    MOVED = "moved"
    """Refused, now and whenever it is sent again: something it depends on was changed."""
    GAP = "gap"
    """Refused: versions since its base were collected, so nothing can be said of them."""
    KEY = "key"
    """Refused: another commit has its idempotency key."""
    BUSY = "busy"
    """Nothing was sent: other writers held the database for too long."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer, and with PUBLISHED the commits since the base, the own one last; with KEY the commit that has it.

    Commits between may be left out, if they are more than MOST_BETWEEN, or were collected meanwhile.
    """

    answer: Answer
    commits: Sequence[LakeCommit] = ()


# ------------------------------------------------------------------------------------ SQLite

_COLUMNS = "version, uuid, idempotency_key, notes, changes, timestamp_ns"


class SqlitePublication:
    """One publication, inside a transaction that has the database to itself."""

    def __init__(self, connection: sqlite3.Connection, lake: str, root: str, wanted: RowPublication) -> None:
        self._connection = connection
        self._lake = lake
        self._root = root
        self._wanted = wanted
        self._base = wanted.base

    def run(self) -> Outcome:
        """Compare and publish."""
        head = self._one("SELECT version FROM conroi_lakes WHERE lake = ? AND root = ?", self._lake, self._root)
        if head is None or head < self._base:
            return Outcome(Answer.MOVED)
        landed = self.landed()
        if landed is not None:
            return Outcome(Answer.PUBLISHED, self._commits(landed))
        if (there := self.with_key()) is not None:
            return Outcome(Answer.KEY, [there])
        if head > self._base:
            if self.has_gap(head):
                return Outcome(Answer.GAP)
            if self.has_moved():
                return Outcome(Answer.MOVED)
        return Outcome(Answer.PUBLISHED, self._commits(self._write(head)))

    def landed(self) -> int | None:
        """The version of an earlier request, if that was executed."""
        uuid = "SELECT version FROM conroi_lake_commits WHERE lake = ? AND version > ? AND uuid = ?"
        return self._one(uuid, self._lake, self._base, self._wanted.commit.uuid)

    def with_key(self) -> LakeCommit | None:
        """The commit that has the idempotency key."""
        key = self._wanted.commit.idempotency_key
        if key is None:
            return None
        found = self._ask(f"SELECT {_COLUMNS} FROM conroi_lake_commits WHERE lake = ? AND idempotency_key = ?", key)
        return LakeCommit(*found[0]) if found else None

    def has_gap(self, head: int) -> bool:
        """Whether commits since the base, or that of the base, were collected."""
        first = max(self._base, 1)
        count = self._one(
            "SELECT count(*) FROM conroi_lake_commits WHERE lake = ? AND version BETWEEN ? AND ?",
            self._lake, first, head,
        )  # fmt: skip
        return count != head - first + 1

    def has_moved(self) -> bool:
        """Whether anything that the publication depends on was changed since its base."""
        wanted = self._wanted.dependencies
        return (
            wanted.everything
            or self.is_barred()
            or self.have_objects_moved()
            or (wanted.listing and self.is_relisted())
        )

    def is_barred(self) -> bool:
        """Whether a barrier was published since the base."""
        barrier = "SELECT version FROM conroi_lake_commits WHERE lake = ? AND version > ? AND changes = ? LIMIT 1"
        return self._one(barrier, self._lake, self._base, BARRIER) is not None

    def have_objects_moved(self) -> bool:
        """Whether a compared object was written or removed since the base: its newest row tells."""
        newest = (
            "SELECT since, until FROM conroi_lake_rows WHERE lake = ? AND object_id = ? ORDER BY since DESC LIMIT 1"
        )
        for object_id in self._wanted.compared:
            for since, until in self._ask(newest, object_id):
                if since > self._base or (until is not None and until > self._base):
                    return True
        return False

    def is_relisted(self) -> bool:
        """Whether a table was added or removed since the base."""
        changed: set[str] = set()
        commits = self._ask(
            "SELECT version, changes FROM conroi_lake_commits WHERE lake = ? AND version > ?", self._base
        )
        for version, changes in commits:
            changed |= parse_object(
                changes, f"What the store of the lake says of the changes of version {version}"
            ).keys()
        # Whether it was added or removed, never whether it looks the same now: a statement may arrive late.
        relisted = (
            "SELECT count(*) FROM conroi_lake_rows r WHERE lake = ?1 AND object_id = ?2 "
            "AND substr(content, 1, ?4) = ?5 "
            "AND ((since > ?3 AND NOT EXISTS (SELECT 1 FROM conroi_lake_rows b WHERE b.lake = ?1 AND b.object_id = ?2 "
            "AND b.until = r.since AND substr(b.content, 1, ?4) = ?5)) "
            "OR (until > ?3 AND NOT EXISTS (SELECT 1 FROM conroi_lake_rows b WHERE b.lake = ?1 AND b.object_id = ?2 "
            "AND b.since = r.until AND substr(b.content, 1, ?4) = ?5)))"
        )
        is_table = len(_TABLE_PREFIX), _TABLE_PREFIX
        return any(self._one(relisted, self._lake, object_id, self._base, *is_table) for object_id in changed)

    def _write(self, head: int) -> int:
        """Write the next version; returns its number."""
        wanted, commit, lake = self._wanted, self._wanted.commit, self._lake
        version = commit.version or head + 1
        run = self._connection
        run.execute("UPDATE conroi_lakes SET version = ? WHERE lake = ?", (version, lake))
        run.executemany(
            "UPDATE conroi_lake_rows SET until = ? WHERE lake = ? AND object_id = ? AND until IS NULL AND since = "
            "(SELECT max(since) FROM conroi_lake_rows WHERE lake = ? AND object_id = ?)",
            [(version, lake, object_id, lake, object_id) for object_id in wanted.rows],
        )
        run.executemany(
            "INSERT INTO conroi_lake_rows VALUES (?, ?, ?, NULL, ?)",
            [(lake, key, version, content) for key, content in wanted.rows.items() if content is not None],
        )
        moment = (
            f"max({SQLITE_NOW_NS}, {TICK_NS} + coalesce((SELECT b.timestamp_ns FROM conroi_lake_commits b "
            "WHERE b.lake = ? AND b.version = ?), 0))"
        )
        run.execute(
            f"INSERT INTO conroi_lake_commits VALUES (?, ?, {moment}, ?, ?, ?, ?, {SQLITE_NOW_NS})",
            (lake, version, lake, head, commit.uuid, commit.idempotency_key, commit.notes, commit.changes),
        )
        return version

    def _commits(self, own: int) -> list[LakeCommit]:
        """The commits since the base, up to the own one."""
        first = self._base if own - self._base <= MOST_BETWEEN else own - 1
        sql = f"SELECT {_COLUMNS} FROM conroi_lake_commits WHERE lake = ? AND version > ? AND version <= ? "
        return [LakeCommit(*row) for row in self._ask(f"{sql} ORDER BY version", first, own)]

    def _ask(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, (self._lake, *parameters)).fetchall()

    def _one(self, sql: str, *parameters: object) -> int | None:
        found = self._connection.execute(sql, parameters).fetchone()
        return None if found is None else found[0]


# ------------------------------------------------------------------------------------ PostgreSQL

_PUBLISH = f"""
CREATE OR REPLACE FUNCTION conroi_publish_rows(
    my_lake TEXT, my_root TEXT, base BIGINT, number BIGINT, compared TEXT[], is_all BOOLEAN, is_listing BOOLEAN,
    keys TEXT[], contents TEXT[], my_uuid TEXT, my_key TEXT, my_notes TEXT, my_changes TEXT
) RETURNS TABLE (
    answer TEXT, version BIGINT, uuid TEXT, idempotency_key TEXT, notes TEXT, changes TEXT, timestamp_ns BIGINT
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    head BIGINT;
    own BIGINT;
    oldest CONSTANT BIGINT := greatest(base, 1);
    is_complete BOOLEAN;
    has_moved BOOLEAN;
    now_ns BIGINT;
BEGIN
    -- Each statement below must see what was committed while we waited for the lock.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'conroi needs transactions that are read committed';
    END IF;
    SELECT h.version INTO head FROM conroi_lakes h WHERE h.lake = my_lake AND h.root = my_root FOR NO KEY UPDATE;
    IF head IS NULL OR head < base THEN
        answer := '{Answer.MOVED.value}';
        RETURN NEXT;
        RETURN;
    END IF;
    IF head > base THEN
        -- In one statement, so in one snapshot: expiry does not take the lock.
        SELECT (SELECT c.version FROM conroi_lake_commits c
                WHERE c.lake = my_lake AND c.version > base AND c.uuid = my_uuid),
            (SELECT count(*) = head - oldest + 1 FROM conroi_lake_commits c
                WHERE c.lake = my_lake AND c.version BETWEEN oldest AND head),
            is_all
            OR EXISTS (SELECT 1 FROM conroi_lake_commits c
                WHERE c.lake = my_lake AND c.version > base AND c.changes = '{BARRIER}')
            OR EXISTS (SELECT 1 FROM unnest(compared) AS wanted(id) CROSS JOIN LATERAL (
                    SELECT r.since, r.until FROM conroi_lake_rows r
                    WHERE r.lake = my_lake AND r.object_id = wanted.id ORDER BY r.since DESC LIMIT 1
                ) AS newest WHERE newest.since > base OR newest.until > base)
            OR is_listing AND EXISTS (SELECT 1 FROM (
                    SELECT DISTINCT json_object_keys(c.changes::json) AS id FROM conroi_lake_commits c
                    WHERE c.lake = my_lake AND c.version > base
                ) AS changed JOIN conroi_lake_rows r ON r.lake = my_lake AND r.object_id = changed.id
                    AND starts_with(r.content, '{_TABLE_PREFIX}')
                WHERE r.since > base AND NOT EXISTS (
                    SELECT 1 FROM conroi_lake_rows b WHERE b.lake = my_lake AND b.object_id = changed.id
                    AND b.until = r.since AND starts_with(b.content, '{_TABLE_PREFIX}')
                ) OR r.until > base AND NOT EXISTS (
                    SELECT 1 FROM conroi_lake_rows b WHERE b.lake = my_lake AND b.object_id = changed.id
                    AND b.since = r.until AND starts_with(b.content, '{_TABLE_PREFIX}')
                ))
        INTO own, is_complete, has_moved;
    END IF;
    IF own IS NULL THEN
        IF my_key IS NOT NULL THEN
            RETURN QUERY SELECT '{Answer.KEY.value}', c.version, c.uuid, c.idempotency_key, c.notes, c.changes,
                c.timestamp_ns FROM conroi_lake_commits c WHERE c.lake = my_lake AND c.idempotency_key = my_key;
            IF FOUND THEN
                RETURN;
            END IF;
        END IF;
        IF NOT is_complete OR has_moved THEN
            answer := CASE WHEN is_complete THEN '{Answer.MOVED.value}' ELSE '{Answer.GAP.value}' END;
            RETURN NEXT;
            RETURN;
        END IF;
        own := coalesce(number, head + 1);
        now_ns := {POSTGRES_NOW_NS};
        UPDATE conroi_lakes h SET version = own WHERE h.lake = my_lake;
        UPDATE conroi_lake_rows r SET until = own FROM unnest(keys) AS written(id)
            WHERE r.lake = my_lake AND r.object_id = written.id AND r.until IS NULL AND r.since = (
                SELECT max(o.since) FROM conroi_lake_rows o WHERE o.lake = my_lake AND o.object_id = written.id);
        INSERT INTO conroi_lake_rows (lake, object_id, since, until, content)
            SELECT my_lake, written.id, own, NULL, written.content FROM unnest(keys, contents) AS written(id, content)
            WHERE written.content IS NOT NULL;
        INSERT INTO conroi_lake_commits (lake, version, timestamp_ns, uuid, idempotency_key, notes, changes, dated_ns)
            SELECT my_lake, own, greatest(now_ns, {TICK_NS} + coalesce((SELECT c.timestamp_ns
                FROM conroi_lake_commits c WHERE c.lake = my_lake AND c.version = head), 0)),
                my_uuid, my_key, my_notes, my_changes, now_ns;
    END IF;
    -- The caller has its own notes and changes.
    RETURN QUERY SELECT '{Answer.PUBLISHED.value}', c.version, c.uuid, c.idempotency_key,
        CASE WHEN c.version < own THEN c.notes END, CASE WHEN c.version < own THEN c.changes END, c.timestamp_ns
        FROM conroi_lake_commits c WHERE c.lake = my_lake AND c.version <= own
        AND c.version > CASE WHEN own - base <= {MOST_BETWEEN} THEN base ELSE own - 1 END ORDER BY c.version;
END $$
"""
POSTGRES_FUNCTIONS = Schema("lake functions", ((_PUBLISH,),))
"""Apart from the tables, so that clients of earlier versions, which need no function, go on working beside it."""
POSTGRES_PUBLISH = (
    "SELECT * FROM conroi_publish_rows(%s, %s, %s, %s, %s::text[], %s, %s, %s::text[], %s::text[], %s, %s, %s, %s)"
)


def postgres_parameters(lake: str, root: str, wanted: RowPublication) -> list[object]:
    """The parameters of POSTGRES_PUBLISH."""
    commit = wanted.commit
    return [
        lake, root, wanted.base, commit.version or None, wanted.compared, wanted.dependencies.everything,
        wanted.dependencies.listing, list(wanted.rows), list(wanted.rows.values()), commit.uuid, commit.idempotency_key,
        commit.notes, commit.changes,
    ]  # fmt: skip


def postgres_outcome(wanted: RowPublication, found: Sequence[tuple[Any, ...]]) -> Outcome:
    """What the function returned."""
    answer = Answer(found[0][0])
    if answer is Answer.KEY:
        return Outcome(answer, [LakeCommit(*found[0][1:])])
    if answer is not Answer.PUBLISHED:
        return Outcome(answer)
    *between, own = (row[1:] for row in found)
    mine = replace(wanted.commit, version=int(own[0]), timestamp_ns=int(own[-1]))
    return Outcome(answer, [*(LakeCommit(*row) for row in between), mine])
