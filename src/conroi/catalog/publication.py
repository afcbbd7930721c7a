"""Atomic multi-table commit: the publication of a lake, in a `__manifest` table or in a SQL database.

conroi.commit.loop runs it. The preconditions and the put are one compare-and-swap: the put succeeds only if there was
no publication since the state that was checked.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Generator, Set
from dataclasses import replace
from functools import partial

from conroi.catalog.adoption import adoption
from conroi.catalog.catalog import Catalog
from conroi.catalog.external_participant import ExternalParticipant
from conroi.catalog.names import SEPARATOR, parents, shown
from conroi.catalog.participant import Participant, PublishRequest, PublishResult, dependencies_of
from conroi.catalog.preconditions import Expectation
from conroi.catalog.rows import NAMESPACE, Row
from conroi.catalog.state import CommitMetadata, LakeState
from conroi.catalog.store import Attempt, Published
from conroi.commit.change import CommitResult
from conroi.commit.fairness import RESERVED_S, PriorityToken
from conroi.commit.loop import run
from conroi.errors import (
    AlreadyExistsError,
    BaseVersionExpired,
    CommitStateUnknown,
    ConroiError,
    ExpectedVersionMismatch,
    IncompatibleConflict,
    InvalidInputError,
    RetryableConflict,
    TooMuchContention,
    VersionExpired,
)
from conroi.retry_policy import PUBLICATION_RETRIES, Budget
from conroi.storage.parallel import later

_log = logging.getLogger(__name__)

FOREIGN_WAIT_S = 0.1
"""Maximum wait of a client that builds manifests itself for another client's reservation, in seconds. It is short: how
long Lance waits before its retry depends on how long its first attempt took.
"""


class Publishing:
    """One publication: see conroi.commit.loop."""

    may_skip_turns = False
    """A lost attempt wastes the manifests that it staged, one for each table."""

    def __init__(self, catalog: Catalog, request: PublishRequest) -> None:
        self.environment = catalog.environment
        self.turns = catalog.heads.turns
        self.retries = request.retries
        self.timeout_s: float | None = request.timeout_s
        self.is_local = catalog.root.is_local
        self.checks = 0
        """How often the preconditions were checked."""
        self._catalog = catalog
        self._request = request
        self._state = request.base
        """The newest state seen."""
        self._participants: dict[str, Participant | ExternalParticipant] = {}
        """The tables that get a new version, by their new names."""
        self._arriving: set[str] = set()
        """Names that must be free."""
        self._leaving = set(request.leaving)
        """Names that must exist, and are free afterwards."""
        self._longest_wait_s = RESERVED_S
        """Maximum wait for a client that builds manifests itself, and was refused."""
        self._read_request(request)
        self._uuid = request.uuid or str(catalog.environment.new_uuid())
        self._pinned: dict[str, Row] = {}
        self._checked = request.base
        """The state with these rows, for which all preconditions hold."""
        self._attempt: Attempt | None = None
        self._has_adopted = False
        """Whether the last attempt only adopted an out-of-band commit: that is no lost race."""
        self._has_expired = False
        self._token: PriorityToken | None = None

    @property
    def token(self) -> PriorityToken:
        if self._token is None:
            self._token = self._catalog.heads.priority_token()
        return self._token

    def _read_request(self, request: PublishRequest) -> None:
        for wanted in request.tables:
            object_id = wanted.object_id
            if object_id in self._participants:
                raise InvalidInputError(
                    f"{shown(object_id)} comes twice in one publication, and a table gets one new version in it.",
                    table=shown(object_id),
                    hint="Fold the changes of a table into one.",
                )
            if wanted.foreign is None:
                self._participants[object_id] = Participant(self._catalog, wanted)
            else:
                self._participants[object_id] = ExternalParticipant(self._catalog, wanted, wanted.foreign)
                self._longest_wait_s = FOREIGN_WAIT_S
            if wanted.was != object_id:
                self._arriving.add(object_id)
        for object_id, row in request.rows.items():
            if row is None:
                self._leaving.add(object_id)
            elif object_id not in request.base.rows:
                self._arriving.add(object_id)

    def run(self) -> PublishResult:
        """Publish, or raise the conflict."""
        return run(self)

    # ------------------------------------------------------------------------ heads

    @contextlib.contextmanager
    def in_turn(self) -> Generator[None]:
        with self._catalog.queue.turn():
            self._has_adopted = False
            self._catalog.reservations.let_pass(self._participants, self._longest_wait_s)
            yield

    def is_head_known(self) -> bool:
        if self._catalog.heads.compares_in_put:
            return not self.turns.is_contended()
        if self.is_local or self._catalog.known_state().version > self._state.version:
            return False
        return not self.turns.is_contended()

    def heads(self) -> Published | None:
        """A newer publication that is ours, or has our idempotency key, is returned; a transaction looks for an older
        one when it begins.
        """
        seen = self._catalog.refresh(self._state)
        self._state = seen.state
        key = self._request.notes.idempotency_key
        for published in seen.commits:
            if published.uuid == self._uuid or (key is not None and published.notes.idempotency_key == key):
                return published
        return None if seen.is_complete or key is None else self._catalog.heads.published_as(key)

    def get_ready(self) -> None:
        for participant in self._participants.values():
            participant.get_ready()

    def has_moved(self, versions: int) -> bool:
        return self._catalog.heads.has_moved(self._state, versions)

    def refuse_expired(self, error: VersionExpired) -> None:
        if isinstance(error, BaseVersionExpired) or self._catalog.state().version == self._state.version:
            raise error
        self._has_expired = True

    # ------------------------------------------------------------------------ check

    def check(self) -> None:
        self._has_expired = False
        self._checked = self._state
        self._pinned = {}
        if self._state.unpinned:
            self._pin_expected(self._state)
        self.check_at(self._checked)

    def _pin_expected(self, state: LakeState) -> None:
        """Tables with a precondition that the lake has not pinned yet, pinned at their current version.

        The pins are published with the rest, so that the version that is checked is the version at the put, whatever is
        written out of band in between.
        """
        expected = {each.object_id for each in self._request.expects if not each.is_presence}
        found = {key: self._catalog.pinned(state.rows[key]) for key in sorted(expected & state.unpinned)}
        self._pinned = {key: row for key, row in found.items() if row.pin is not None}
        self._checked = state.with_rows(self._pinned)

    def check_at(self, state: LakeState) -> None:
        """Check all preconditions on this state."""
        self.checks += 1
        for expectation in self._request.expects:
            expectation.check(state, self._catalog.version_of, self._catalog.operations_between)
        if self._request.listing is not None:
            self._request.listing.check(state)
        for tags in self._request.tags:
            tags.check()
        for amendment in self._request.amendments:
            amendment.check(state.table(amendment.object_id))
        if self._leaving:
            self._check_leaving(self._leaving, state)
        for object_id, row in self._request.unchanged.items():
            if state.rows.get(object_id) != row:
                raise RetryableConflict(
                    f"A concurrent publication changed {shown(object_id)!r}, on which this one depends.",
                    hint="Run the work again.",
                )
        if self._arriving:
            self._check_arriving(self._arriving, self._leaving, state)

    def _check_arriving(self, arriving: Set[str], leaving: Set[str], state: LakeState) -> None:
        """Names that are added must be free, and so must their folders."""
        for object_id in sorted(arriving - leaving):
            if object_id in state.rows:
                raise AlreadyExistsError(
                    f"There is a {state.rows[object_id].object_type} {shown(object_id)!r} in the lake already.",
                    table=shown(object_id),
                    hint="Open it with lake[name], or choose another name.",
                )
        rows = [self._request.rows.get(object_id) for object_id in arriving]
        folders = {row.location for row in rows if row is not None and row.is_table}
        if folders:
            self._check_folders(folders, leaving, state)

    def _check_leaving(self, leaving: Set[str], state: LakeState) -> None:
        """Names that are removed must exist."""
        for object_id in sorted(leaving):
            now, then = state.rows.get(object_id), self._request.base.rows.get(object_id)
            if then is None:
                continue
            if now is None or (then.is_table and now.incarnation != then.incarnation):
                raise IncompatibleConflict(
                    f"{shown(object_id)!r} was dropped, renamed or created again concurrently.",
                    table=shown(object_id),
                    hint="Nothing was committed. Look at lake.history() for who did it.",
                )
            if not now.is_table and any(
                shown(key).startswith(f"{shown(object_id)}.") and key not in leaving for key in state.rows
            ):
                raise InvalidInputError(
                    f"The namespace {shown(object_id)!r} is not empty.", hint="Drop its tables first."
                )

    def _check_folders(self, arriving: Set[str | None], leaving: Set[str], state: LakeState) -> None:
        """A folder holds one table of the lake, not two."""
        for object_id, row in state.rows.items():
            if row.location in arriving and row.is_table and object_id not in leaving:
                raise AlreadyExistsError(
                    f"The folder {row.location!r} is the table {shown(object_id)!r} of the lake already.",
                    table=shown(object_id),
                    hint="Rename that table with lake.rename_table(), or leave it.",
                )

    # ------------------------------------------------------------------------ rebase, build, put

    def rebase(self) -> None:
        for participant in self._participants.values():
            participant.catch_up(self._checked)

    def build(self) -> list[Callable[[], object]]:
        tasks: list[Callable[[], object]] = []
        for participant in self._participants.values():
            participant.build()
            tasks += participant.tasks()
        state, heads = self._state, self._catalog.heads
        changes = {**self._pinned, **self._changes(self._checked)}
        dependencies = partial(dependencies_of, self._request, changes)
        self._attempt = heads.build(state, changes, self._request.notes, self._uuid, dependencies)
        tasks += self._attempt.tasks
        key = self._request.notes.idempotency_key
        if key is not None:
            tasks.append(lambda: heads.will_try(key, state.version + 1))
        return tasks

    def put(self) -> LakeState | Published | None:
        assert self._attempt is not None, "build() comes first"
        is_taken = False
        for participant in self._participants.values():
            participant.staged()
            is_taken = is_taken or participant.is_taken
        if is_taken:
            self._adopt(self._state)
            return None
        return self._attempt.put()

    def conflicts(self) -> int:
        has_moved = self._has_expired or any(participant.moved for participant in self._participants.values())
        return int(has_moved and not self._has_adopted)

    def _changes(self, state: LakeState) -> dict[str, Row | None]:
        changes: dict[str, Row | None] = {}
        for object_id, row in self._request.rows.items():
            is_fixed = object_id in self._request.as_they_are
            changes[object_id] = row if row is None or is_fixed else self._moved_on(row, state)
        for object_id, participant in self._participants.items():
            was = participant.wanted.was
            if was is not None and was != object_id:
                changes.setdefault(was, None)
            changes[object_id] = participant.pinned_row()
        for amendment in self._request.amendments:
            row = changes.get(amendment.object_id) or state.rows[amendment.object_id]
            changes[amendment.object_id] = amendment.amended(row)
        for object_id in list(changes):
            if SEPARATOR in object_id and changes[object_id] is not None:
                for parent in parents(object_id):
                    there = changes[parent] if parent in changes else state.rows.get(parent)
                    _refuse_table(parent, there)
                    if there is None:
                        changes[parent] = Row(parent, NAMESPACE)
        return changes

    def _moved_on(self, row: Row, state: LakeState) -> Row:
        """A row that is only renamed keeps the current version."""
        for now in map(state.rows.get, self._leaving):
            if now is not None and row.is_table and now.incarnation == row.incarnation:
                return now.renamed(row.object_id)
        return row

    def _adopt(self, state: LakeState) -> None:
        """A final name was taken: by a concurrent publication, or by an out-of-band writer.

        What was written by path becomes a publication of its own, and stays one if it forbids ours.
        """
        now = self._catalog.refresh(state).state
        for participant in self._participants.values():
            if not participant.is_taken or _has_changed(participant, state, now):
                continue
            row, located = participant.taken()
            first = adoption(
                self._catalog.known_state(), row, participant.wanted.files, located.version, located.naming
            )
            if first is not None:
                with contextlib.suppress(ExpectedVersionMismatch):  # concurrent publication: look again
                    Publishing(self._catalog, first).run()
                    self._has_adopted = True

    # ------------------------------------------------------------------------ finalize

    def finalize(self, done: LakeState | Published, attempts: int) -> PublishResult:
        if isinstance(done, Published) and done.uuid != self._uuid:
            return PublishResult(done.version, {}, attempts, done)
        try:
            if isinstance(done, Published):  # an earlier put of ours had succeeded
                return replace(self._published(self._catalog.state(), attempts), version=done.version)
            return self._published(done, attempts)
        except ConroiError as error:
            raise CommitStateUnknown(
                f"It was published, but what became of it could not be read: {error.message}",
                table=", ".join(participant.name for participant in self._participants.values()) or None,
                transaction_uuid=self._uuid,
                hint="Look at lake.history() before doing the work again. No file was deleted.",
            ) from error

    def _published(self, state: LakeState, attempts: int) -> PublishResult:
        self._catalog.saw(state)
        results: dict[str, CommitResult] = {}
        for object_id, participant in self._participants.items():
            results[object_id] = participant.published(attempts)
        if not self.is_local:
            for participant in self._participants.values():
                self._finalize_later(participant)
        _log.debug("published version %d of %s in %d attempts", state.version, self._catalog.uri, attempts)
        return PublishResult(state.version, results, attempts)

    def _finalize_later(self, participant: Participant | ExternalParticipant) -> None:
        finalizing = self._catalog.finalizing
        finalizing[participant.key] = running = later(participant.finalize)
        running.when_done(lambda: finalizing.pop(participant.key, None))

    def contention(self, budget: Budget) -> TooMuchContention:
        is_late = budget.timeout_s == 0.0
        names = ", ".join(participant.name for participant in self._participants.values())
        return TooMuchContention(
            f"{budget.attempts} attempts in {budget.waited_s:.1f} s to publish {names or 'a change'} lost to other "
            "writers; nothing was committed.",
            table=names or None,
            attempts=budget.attempts,
            conflicts=budget.conflicts,
            hint=f"Allow {'more time, begin(timeout=…)' if is_late else 'more retries'}, write bigger batches, or use "
            "an insert lock. lake.run(function, timeout=…) does the work again until then.",
        )

    def release(self) -> None:
        if self._token is not None:
            self._token.pass_on()


def _has_changed(participant: Participant | ExternalParticipant, state: LakeState, now: LakeState) -> bool:
    """Whether a concurrent publication changed the table."""
    was = participant.wanted.was
    return was is not None and now.rows.get(was) != state.rows.get(was)


def _refuse_table(parent: str, row: Row | None) -> None:
    if row is not None and row.is_table:
        raise AlreadyExistsError(
            f"{shown(parent)!r} is a table, so nothing can be inside it.",
            table=shown(parent),
            hint="Choose another name, or rename the table first.",
        )


def pin_tables(catalog: Catalog) -> None:
    """Publish the versions of all tables that other software listed and wrote, and that have no pin yet."""
    for _ in range(PUBLICATION_RETRIES):
        state = catalog.state()
        rows = [row for row in map(catalog.pinned, map(state.rows.__getitem__, state.unpinned)) if row.pin is not None]
        if not rows:
            return
        expects = [Expectation(row.object_id, catalog.version_of(row), row.incarnation, seen=row) for row in rows]
        notes = CommitMetadata(f"pin {len(rows)} tables that were written past the lake")
        with contextlib.suppress(ExpectedVersionMismatch):  # concurrent write: look again
            Publishing(catalog, PublishRequest(state, expects=expects, notes=notes)).run()
