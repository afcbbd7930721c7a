"""Catalog store on a SQL database: PostgreSQL, or SQLite on one machine."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial

from conroi.catalog.replica_store import FULL_EVERY, CopiedCommit, JsonRow, LakeCopy
from conroi.catalog.rows import Row
from conroi.catalog.sql_publication import Answer, Outcome, RowPublication
from conroi.catalog.sql_queries import Head, LakeCommit, LakeQueries, LoadedState
from conroi.catalog.sql_tables import LakeTables
from conroi.catalog.state import Changes, CommitMetadata, LakeState
from conroi.catalog.store import DependenciesOf, Published, Seen, Task
from conroi.commit.fairness import ACTIVE_FOR_S, PriorityToken, Turns
from conroi.environment import Environment, utc_time
from conroi.errors import (
    CommitStateUnknown,
    ConroiError,
    CorruptionError,
    InvalidInputError,
    NotFoundError,
    StoreUnavailable,
    VersionExpired,
)
from conroi.format.json import parse_json, parse_object, parse_texts
from conroi.history import moment_ns
from conroi.storage.objects import Objects
from conroi.storage.parallel import Running, later
from conroi.versions.records import full_key

_log = logging.getLogger(__name__)

FOLLOW_AT_MOST = 256
"""Number of new versions above which the rows are read instead of the commits."""
PAGE = 100
"""Commits per request when the history is listed."""
RESENDS = 2
"""Number of times a publication is sent again after a lost response."""


class SqlStore:
    """The states of one lake, in a database. Every look is one statement, so one snapshot of the database."""

    def __init__(self, tables: LakeTables, lake: str, root: Objects, environment: Environment) -> None:
        self._tables = tables
        self._lake = lake
        self._key = full_key(root)
        self._queries = LakeQueries(tables, lake)
        self._root = root
        self._environment = environment
        self._turns = Turns(environment)
        self._copy = LakeCopy(root, lake)
        self._copying: Running[object] | None = None
        """The newest version of ours, on its way to the folder."""
        self._lost_at: float | None = None
        """When a publication was refused last."""

    @property
    def turns(self) -> Turns:
        """The database itself serializes writers."""
        return self._turns

    def priority_token(self) -> PriorityToken:
        return PriorityToken(self._root, self._environment, self._turns.me)

    # ------------------------------------------------------------------------ looking

    def newest(self, known: LakeState | None) -> Seen:
        if known is None:
            return Seen(self._load())
        found, commits = self._queries.after(known.version, FOLLOW_AT_MOST)
        head = self._checked(found)
        if head.version < known.version:
            raise CorruptionError(
                f"The store has version {head.version} of the lake as its newest, and had version {known.version}.",
                table=self._root.root,
                version=known.version,
                hint="Was the database set back to an older backup? Its newer commits are lost; open the lake anew to "
                "go on from there.",
            )
        # Commits in between may have been collected, or there are more than were asked for: then load the rows anew.
        if not _follow(known, commits) or known.version + len(commits) != head.version:
            return Seen(self._load(), is_complete=False)
        published = [_published(commit) for commit in commits]
        return Seen(_following(known, commits, [each.changes or {} for each in published]), tuple(published))

    def has_moved(self, known: LakeState, versions: int) -> bool:
        return self._checked(self._queries.head()).version >= known.version + versions

    def _load(self) -> LakeState:
        """The newest state, by reading all rows."""
        found, loaded = self._queries.newest()
        head = self._checked(found)
        if loaded is None and head.version:
            raise CorruptionError(
                f"The store has no commit for version {head.version} of the lake, its newest.",
                table=self._root.root,
                version=head.version,
                hint="Restore the database from a backup.",
            )
        return LakeState(0, 0, {}) if loaded is None else _state(loaded)

    def _checked(self, head: Head | None) -> Head:
        """The head, if the database has the lake, and for this folder."""
        if head is None:
            raise NotFoundError(
                "The store does not have this lake.", table=self._root.root, hint="Check the address of the store."
            )
        if head.root != self._key:
            raise InvalidInputError(
                f"The store has this lake in another folder, {head.root}. Two copies of a folder cannot both be it.",
                table=self._root.root,
                hint="If the folder was moved, call conroi.stores.attach(uri, store). If it is a copy, "
                "attach(uri, store, as_new=True) makes it a lake of its own.",
            )
        return head

    # ------------------------------------------------------------------------ publishing

    @property
    def compares_in_put(self) -> bool:
        """Not while concurrent writers change what we change: then a look saves wasted staging."""
        lost_at = self._lost_at
        return lost_at is None or self._environment.monotonic() - lost_at > ACTIVE_FOR_S

    def lost(self) -> None:
        """Note that a publication was refused."""
        self._lost_at = self._environment.monotonic()

    def build(
        self, base: LakeState, changes: Changes, notes: CommitMetadata, uuid: str, dependencies: DependenciesOf
    ) -> SqlAttempt:
        rows = {key: None if row is None else row.to_json() for key, row in changes.items()}
        commit = LakeCommit(
            version=0,
            uuid=uuid,
            idempotency_key=notes.idempotency_key,
            notes=_json(notes.to_properties()),
            changes=_json(rows),
        )
        contents = {key: None if fields is None else _json(fields) for key, fields in rows.items()}
        return SqlAttempt(self, base, changes, RowPublication(base.version, commit, contents, dependencies()))

    def copy_to_folder(self, state: LakeState) -> None:
        """Ensure that the folder has a copy of this state, before it is superseded."""
        if self._copying is not None:
            self._copying.result()
        if state.version:
            self._copy.ensure(state.version, state.timestamp_ns, _json_rows(state))

    def copy_commits(self, base: LakeState, commits: Sequence[LakeCommit], state: LakeState) -> None:
        """The version that was just published, the last of these, to the folder; on object stores off the caller's
        path. Before it those that came between, unless their writers have done it.
        """
        if self._root.is_local:
            self._copy_commits(base, commits, state)
        else:
            self._copying = later(partial(self._copy_commits, base, commits, state))

    def _copy_commits(self, base: LakeState, commits: Sequence[LakeCommit], state: LakeState) -> None:
        there = self._copy.versions() if len(commits) > 1 else ()
        for number, commit in enumerate(commits, 1):
            if commit.version in there:
                continue
            rows: dict[str, JsonRow] | None = None
            if commit.version == 1 or commit.version % FULL_EVERY == 0:
                is_last = number == len(commits)
                rows = _json_rows(
                    state if is_last else _following(base, commits[:number], _all_changes(commits[:number]))
                )
            copied = CopiedCommit(
                commit.version, commit.timestamp_ns, commit.uuid, _notes(commit), _changes(commit), rows
            )
            if not self._copy.add(copied):
                return

    def publish(self, wanted: RowPublication) -> Outcome:
        """What became of a publication.

        After a lost response the database may still be executing the statement, so "does not exist" means nothing. The
        same statement is sent again: it waits for the lock of the head's row, and then finds the commit of the first
        one, succeeds, or is refused. In each case the first one cannot have an effect any more. Any other error says
        nothing about the first one.
        """
        try:
            return self._send(wanted)
        except StoreUnavailable as error:
            lost = error
        for _ in range(RESENDS):
            _log.info("no response from the store to a publication of %s: sending it again", self._root.root)
            try:
                outcome = self._send(wanted)
            except StoreUnavailable as error:
                lost = error
                continue
            except ConroiError as error:
                raise self._unknown(wanted, f"{lost.message}; sent again, it was refused: {error.message}") from error
            if outcome.answer is Answer.GAP:
                raise self._unknown(wanted, f"{lost.message}; since then a newer version was collected")
            if outcome.answer is not Answer.BUSY:
                return outcome
        raise self._unknown(wanted, lost.message)

    def _send(self, wanted: RowPublication) -> Outcome:
        return self._tables.publish(self._lake, self._key, wanted)

    def _unknown(self, wanted: RowPublication, why: str) -> CommitStateUnknown:
        return CommitStateUnknown(
            f"The store did not say whether a version after {wanted.base} of the lake was written: {why}",
            table=self._root.root,
            transaction_uuid=wanted.commit.uuid,
            hint="When the store responds again, look at lake.history() before doing the work again. No file was "
            "deleted.",
        )

    # ------------------------------------------------------------------------ the past

    def at(self, version: int) -> LakeState:
        found, loaded = self._queries.at(version)
        head = self._checked(found)
        if loaded is None and 0 < version <= head.version:
            raise VersionExpired(
                f"Version {version} of the lake was collected as an old version.",
                table=self._root.root,
                version=version,
                hint="lake.history() lists what there is. To hold a version for long, open it with keep=.",
            )
        if loaded is None:
            raise NotFoundError(
                f"There is no version {version} of the lake.",
                table=self._root.root,
                version=version,
                hint="lake.history() lists what there is.",
            )
        return _state(loaded)

    def as_of(self, moment: datetime | str) -> LakeState:
        found, loaded = self._queries.as_of(moment_ns(moment, self._root.root))
        self._checked(found)
        if loaded is None:
            raise NotFoundError(
                "The lake has no version that old.", table=self._root.root, hint="lake.history() lists what there is."
            )
        return _state(loaded)

    def history(self, newest: int, limit: int | None) -> Iterator[Published]:
        left = newest if limit is None else limit
        while newest > 0 and left > 0:
            page = self._queries.before(newest, min(left, PAGE))
            if not page:
                return
            yield from map(_published, page)
            newest, left = page[-1].version - 1, left - len(page)

    def versions(self) -> list[tuple[int, int]]:
        """All existing versions, ascending, with their commit times by the clock of the database."""
        return self._queries.versions()

    def now_ns(self) -> int:
        """The time by the clock of the database, which is the one that dates the versions."""
        return self._queries.now_ns()

    def rows_since(self, version: int) -> tuple[list[Row], list[Row]]:
        """The rows that this version or a newer one has, and those that only older ones have."""
        kept: list[Row] = []
        gone: list[Row] = []
        for object_id, _, until, content in self._queries.spans():
            row = _row(object_id, content)
            (kept if until is None or until > version else gone).append(row)
        return kept, gone

    def forget(self, versions: Sequence[int]) -> None:
        """Expire old versions. Before that the newest is copied to the folder, which must not name what is
        collected.
        """
        state = self._load()
        self._copy.add_whole(state.version, state.timestamp_ns, _json_rows(state))
        self._tables.forget(self._lake, versions)

    # ------------------------------------------------------------------------ idempotency keys

    def published_as(self, key: str) -> Published | None:
        found = self._queries.by_key(key)
        return None if found is None else _published(found)

    def will_try(self, key: str, version: int) -> None:
        """The key is a column of the commit itself."""


class SqlAttempt:
    """One publication, built on one state."""

    def __init__(self, store: SqlStore, base: LakeState, changes: Changes, wanted: RowPublication) -> None:
        self._store = store
        self._base = base
        self._changes = changes
        self._wanted = wanted
        self.tasks: list[Task] = [partial(store.copy_to_folder, base)]

    def put(self) -> LakeState | Published | None:
        outcome = self._store.publish(self._wanted)
        commits = outcome.commits
        if outcome.answer is Answer.KEY:
            return _published(commits[0])
        if outcome.answer is not Answer.PUBLISHED:
            self._store.lost()
            return None
        if not _follow(self._base, commits):
            return _published(commits[-1])
        state = _following(self._base, commits, [*_all_changes(commits[:-1]), self._changes])
        self._store.copy_commits(self._base, commits, state)
        return state


def _follow(state: LakeState, commits: Sequence[LakeCommit]) -> bool:
    """Whether these are all the commits since a state; some may have been collected, or left out."""
    return all(commit.version == number for number, commit in enumerate(commits, state.version + 1))


def _json(content: object) -> str:
    return json.dumps(content, separators=(",", ":"))


def _json_rows(state: LakeState) -> dict[str, JsonRow]:
    return {key: row.to_json() for key, row in state.rows.items()}


def _state(loaded: LoadedState) -> LakeState:
    rows = {key: _row(key, content) for key, content in loaded.rows.items()}
    return LakeState(loaded.version, loaded.timestamp_ns, rows)


def _row(key: str, content: str) -> Row:
    return Row.from_json(key, parse_json(content, f"The row of {key!r} in the store of the lake"))


def _changes(commit: LakeCommit) -> dict[str, JsonRow | None]:
    return parse_object(commit.changes, f"What the store of the lake says of the changes of version {commit.version}")


def _notes(commit: LakeCommit) -> dict[str, str]:
    return parse_texts(commit.notes, f"What the store of the lake says of version {commit.version}")


def _all_changes(commits: Sequence[LakeCommit]) -> list[Changes]:
    """What each commit changed."""
    return [_rows(_changes(commit)) for commit in commits]


def _rows(changes: Mapping[str, JsonRow | None]) -> Changes:
    return {key: None if fields is None else Row.from_json(key, fields) for key, fields in changes.items()}


def _following(state: LakeState, commits: Sequence[LakeCommit], changes: Sequence[Changes]) -> LakeState:
    """The state after some commits."""
    if not commits:
        return state
    merged: dict[str, Row | None] = {}
    for each in changes:
        merged.update(each)
    return LakeState(commits[-1].version, commits[-1].timestamp_ns, state.changed(merged))


def _published(commit: LakeCommit) -> Published:
    return Published(
        version=commit.version,
        timestamp=utc_time(commit.timestamp_ns),
        notes=CommitMetadata.of(_notes(commit)),
        uuid=commit.uuid,
        changes=_rows(_changes(commit)),
        operation="Update",
    )
