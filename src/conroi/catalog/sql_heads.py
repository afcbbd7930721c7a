"""A SQL database as the store of a lake's states: PostgreSQL, or SQLite on one machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from conroi.catalog.heads import Published, Seen, Task
from conroi.catalog.records import Notes
from conroi.catalog.rows import Row
from conroi.catalog.state import Changes, LakeState
from conroi.commit.baton import Baton
from conroi.commit.turns import Turns
from conroi.environment import Environment
from conroi.errors import CommitStateUnknown, NotFoundError, StoreUnavailable
from conroi.history import moment_ns
from conroi.stores.lake_tables import LakeCommit, LakeQueries, LakeTables
from conroi.stores.objects import Objects

FOLLOW_AT_MOST = 256
PAGE = 100


class SqlHeads:
    """The states of one lake, in a database."""

    def __init__(self, tables: LakeTables, lake: str, root: Objects, environment: Environment) -> None:
        self._tables = tables
        self._lake = lake
        self._queries = LakeQueries(tables, lake)
        self._root = root
        self._environment = environment
        self._turns = Turns(environment)

    @property
    def turns(self) -> Turns:
        """The database itself lets writers wait for each other."""
        return self._turns

    def baton(self) -> Baton:
        return Baton(self._root, self._environment, self._turns.me)

    def ensure(self) -> None:
        """Make the lake, unless it is there."""
        if self._queries.head() is None:
            self._tables.create(self._lake)

    # ------------------------------------------------------------------------ looking

    def newest(self, known: LakeState | None) -> Seen:
        if known is None:
            return Seen(self._at(self._head(), 0))
        found = self._queries.after(known.version, FOLLOW_AT_MOST)
        if len(found) == FOLLOW_AT_MOST:
            return Seen(self._at(self._head(), known.timestamp_ns), is_complete=False)
        state, commits = known, list[Published]()
        for commit in found:
            published = _published(commit)
            state = _following(state, commit.version, commit.timestamp_ns, published.changes or {})
            commits.append(published)
        return Seen(state, tuple(commits))

    def has_moved(self, known: LakeState, versions: int) -> bool:
        return self._head() >= known.version + versions

    def _head(self) -> int:
        found = self._queries.head()
        if found is None:
            raise NotFoundError(
                "The store does not know this lake.", table=self._root.root, hint="Check the address of the store."
            )
        return found

    def _at(self, version: int, timestamp_ns: int) -> LakeState:
        rows = {key: Row.from_json(key, json.loads(content)) for key, content in self._queries.rows_at(version).items()}
        commits = self._queries.before(version, 1)
        return LakeState(version, commits[0].timestamp_ns if commits else timestamp_ns, rows)

    # ------------------------------------------------------------------------ publishing

    def build(self, base: LakeState, changes: Changes, notes: Notes, uuid: str) -> SqlAttempt:
        commit = LakeCommit(
            version=base.version + 1,
            timestamp_ns=max(self._environment.now_ns(), base.timestamp_ns + 1),
            uuid=uuid,
            idempotency_key=notes.idempotency_key,
            notes=json.dumps(notes.to_properties(), separators=(",", ":")),
            changes=json.dumps(
                {key: None if row is None else row.to_json() for key, row in changes.items()}, separators=(",", ":")
            ),
        )
        rows = {
            key: None if row is None else json.dumps(row.to_json(), separators=(",", ":"))
            for key, row in changes.items()
        }
        return SqlAttempt(base, changes, commit, lambda: self._publish(base.version, commit, rows))

    def _publish(self, base: int, commit: LakeCommit, rows: dict[str, str | None]) -> bool:
        """Whether the commit is there now; an answer that got lost is looked for."""
        try:
            landed = self._tables.publish(self._lake, base, commit, rows)
            return landed or self._is_there(commit)
        except StoreUnavailable as error:
            try:
                return self._is_there(commit)
            except StoreUnavailable:
                raise CommitStateUnknown(
                    f"The store did not say whether version {commit.version} of the lake was written: {error.message}",
                    table=self._root.root,
                    version=commit.version,
                    transaction_uuid=commit.uuid,
                    hint="When the store answers again, look at lake.history() before doing the work again. No file "
                    "was deleted.",
                ) from None

    def _is_there(self, commit: LakeCommit) -> bool:
        found = self._queries.before(commit.version, 1)
        return bool(found) and (found[0].version, found[0].uuid) == (commit.version, commit.uuid)

    # ------------------------------------------------------------------------ the past

    def at(self, version: int) -> LakeState:
        found = self._queries.before(version, 1)
        if version > self._head() or not found or found[0].version != version:
            raise NotFoundError(
                f"There is no version {version} of the lake.",
                table=self._root.root,
                version=version,
                hint="lake.history() lists what there is.",
            )
        return self._at(version, 0)

    def as_of(self, moment: datetime | str) -> LakeState:
        found = self._queries.as_of(moment_ns(moment, self._root.root))
        if found is None:
            raise NotFoundError(
                "The lake has no version that old.", table=self._root.root, hint="lake.history() lists what there is."
            )
        return self._at(found.version, found.timestamp_ns)

    def history(self, newest: int, limit: int | None) -> Iterator[Published]:
        left = newest if limit is None else limit
        while newest > 0 and left > 0:
            page = self._queries.before(newest, min(left, PAGE))
            if not page:
                return
            yield from map(_published, page)
            newest, left = page[-1].version - 1, left - len(page)

    def versions(self) -> list[tuple[int, int]]:
        """All versions that are there, ascending, and when they were made."""
        return self._queries.versions()

    def rows_since(self, version: int) -> tuple[list[Row], list[Row]]:
        """The rows that this version or a newer one has, and those that only older ones have."""
        kept: list[Row] = []
        gone: list[Row] = []
        for object_id, _, until, content in self._queries.spans():
            row = Row.from_json(object_id, json.loads(content))
            (kept if until is None or until > version else gone).append(row)
        return kept, gone

    def forget(self, versions: Sequence[int]) -> None:
        """Forget old versions."""
        self._tables.forget(self._lake, versions)

    # ------------------------------------------------------------------------ idempotency keys

    def published_as(self, key: str) -> Published | None:
        found = self._queries.by_key(key)
        return None if found is None else _published(found)

    def will_try(self, key: str, version: int) -> None:
        """The key is a column of the commit itself."""


class SqlAttempt:
    """One publication, built on one state."""

    def __init__(self, base: LakeState, changes: Changes, commit: LakeCommit, publish: Callable[[], bool]) -> None:
        self._base = base
        self._changes = changes
        self._commit = commit
        self._publish = publish

    @property
    def tasks(self) -> Sequence[Task]:
        return ()

    def put(self) -> LakeState | None:
        if not self._publish():
            return None
        return _following(self._base, self._commit.version, self._commit.timestamp_ns, self._changes)


def _following(state: LakeState, version: int, timestamp_ns: int, changes: Changes) -> LakeState:
    return LakeState(version, timestamp_ns, state.changed(changes))


def _published(commit: LakeCommit) -> Published:
    changes = {
        key: None if fields is None else Row.from_json(key, fields)
        for key, fields in json.loads(commit.changes).items()
    }
    return Published(
        version=commit.version,
        timestamp=datetime.fromtimestamp(commit.timestamp_ns / 1e9, UTC),
        notes=Notes.of(json.loads(commit.notes)),
        uuid=commit.uuid,
        changes=changes,
        operation="Update",
    )
