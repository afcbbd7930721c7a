"""Atomic multi-table commit: the publication of a lake, in a `__manifest` table or in a SQL database.

conroi.commit.loop runs it. The preconditions and the put are one compare-and-swap: the put succeeds only if there was
no publication since the state that was checked.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Generator, Mapping, Set
from functools import cached_property

from conroi.catalog.adoption import adoption
from conroi.catalog.catalog import Catalog
from conroi.catalog.external_participant import ExternalParticipant
from conroi.catalog.group_commit import put_together
from conroi.catalog.names import SEPARATOR, parents, shown
from conroi.catalog.participant import (
    Participant,
    PublishRequest,
    PublishResult,
    check_request,
    dependencies_of,
    finalize_later,
)
from conroi.catalog.preconditions import check_arriving, check_leaving, refuse_table
from conroi.catalog.rows import NAMESPACE, Row
from conroi.catalog.state import LakeState, Member
from conroi.catalog.store import Attempt, Dependencies, Published
from conroi.commit.change import CommitResult
from conroi.commit.fairness import RESERVED_S, PriorityToken
from conroi.commit.loop import run
from conroi.errors import (
    BaseVersionExpired,
    CommitStateUnknown,
    ConroiError,
    ExpectedVersionMismatch,
    InvalidInputError,
    TooMuchContention,
    VersionExpired,
)
from conroi.retry_policy import Budget

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
        self.uuid = request.uuid or str(catalog.environment.new_uuid())
        self.notes = request.notes
        self._pinned: dict[str, Row] = {}
        self._checked = request.base
        """The state with these rows, for which all preconditions hold."""
        self.attempt: Attempt | None = None
        self._attempt_on: LakeState | None = None
        self._changes: dict[str, Row | None] = {}
        self.deferred: Mapping[str, Participant] = {}
        """Appends that a group commit will stage, by their tables."""
        self._joined: dict[str, Participant] = {}
        """Of a group commit: the appends to a table as one, of which ours is a part."""
        self.goes_alone = False
        self._has_lost = False
        """Whether a concurrent client was faster, so that the newest state must be looked up."""
        self._has_adopted = False
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

    @cached_property
    def _appends(self) -> dict[str, Participant]:
        """Appends that can be joined with those of other threads: nothing is compared, and no lock is needed."""
        request = self._request
        fixed = {each.object_id for each in (*request.expects, *request.amendments)}
        return {
            object_id: participant
            for object_id, participant in self._participants.items()
            if isinstance(participant, Participant) and participant.is_plain_append and object_id not in fixed
        }

    def run(self) -> PublishResult:
        """Publish, or raise the conflict."""
        return run(self)

    # ------------------------------------------------------------------------ heads

    @contextlib.contextmanager
    def in_turn(self) -> Generator[None]:
        with self._catalog.queue.turn(self._wants):
            self._has_adopted = False
            self._catalog.reservations.let_pass(self._participants, self._longest_wait_s)
            yield

    def _wants(self) -> tuple[Set[str], Set[str]]:
        """What no other thread may change at the same time, and what several may append to."""
        shared = self.appends()
        return {*self._participants, *self._request.rows, *self._leaving} - shared, shared

    @property
    def _may_defer(self) -> bool:
        return self._catalog.group_store is not None and not self.goes_alone

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
        # Elsewhere than on local disk what this process knows will do for one that is alone, or has lost a race.
        may_remember = not self.is_local and (self._has_lost or not self.turns.is_contended())
        seen = self._catalog.remembered(self._state) if may_remember else None
        if seen is None or (self._has_lost and seen.state.version == self._state.version):
            seen = self._catalog.refresh(self._state)
        self._state = seen.state
        key = self.notes.idempotency_key
        for published in seen.commits:
            if self._is_same(published):
                return published
        return None if seen.is_complete or key is None else self._catalog.heads.published_as(key)

    def _is_same(self, published: Published) -> bool:
        key = self.notes.idempotency_key
        return published.uuid == self.uuid or (key is not None and published.notes.idempotency_key == key)

    def get_ready(self) -> None:
        if not self.is_local:
            return
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
        check_request(self._request, state, self._catalog)
        if self._leaving:
            check_leaving(self._leaving, self._request.base, state)
        if self._arriving:
            check_arriving(self._arriving, self._leaving, self._request.rows, state)

    # ------------------------------------------------------------------------ rebase, build, put

    def rebase(self) -> None:
        for participant in self._participants.values():
            participant.catch_up(self._checked)

    def build(self) -> list[Callable[[], object]]:
        """While other threads publish, it will share a version of the lake with others, whose leader builds that."""
        is_shared = self._catalog.group_store is not None and self._catalog.queue.is_shared()
        self.attempt = self._attempt_on = None
        self.deferred = {}
        if is_shared:
            self.defer(self.appends())
        return self._stage(with_lake=not is_shared)

    def _stage(self, *, with_lake: bool) -> list[Callable[[], object]]:
        tasks: list[Callable[[], object]] = []
        for participant in self._staged():
            participant.build()
            tasks += participant.tasks()
        if not with_lake:
            return tasks
        state, heads, key = self._state, self._catalog.heads, self.notes.idempotency_key
        self._attempt_on, self._changes = state, self.changes()
        self.attempt = heads.build(state, self._changes, self.notes, self.uuid, self.dependencies)
        if key is not None:
            tasks.append(lambda: heads.will_try(key, state.version + 1))
        return [*tasks, *self.attempt.tasks]

    def put(self) -> LakeState | Published | None:
        # A final name that is taken may be that of another thread's commit: then the group decides.
        may_be_ours = self._catalog.group_store is not None and self._catalog.known_state() is not self._state
        state = self._put() if self.confirm_staged() or may_be_ours else None
        self._has_lost = state is None
        if state is None:
            self._adopt_taken(self._state)
        return state

    def _put(self) -> LakeState | Published | None:
        catalog = self._catalog
        is_grouped = catalog.group_store is not None
        try:
            if is_grouped and (self._attempt_on is not catalog.known_state() or not catalog.publishers.try_alone()):
                return put_together(catalog, self)
            assert self.attempt is not None, "build() comes first"
            state = self.attempt.put()
            if isinstance(state, LakeState):
                catalog.saw(state, members=[Member(self.uuid, self.notes, self._changes)])
            return state
        finally:
            if is_grouped:
                catalog.publishers.end()

    def _staged(self) -> list[Participant | ExternalParticipant]:
        if not self.deferred:
            return list(self._participants.values())
        return [each for key, each in self._participants.items() if key not in self.deferred]

    def confirm_staged(self) -> bool:
        is_free = True
        for participant in self._staged():
            participant.staged()
            is_free = is_free and not participant.is_taken
        return is_free

    # ------------------------------------------------------------------------ group commit

    def is_ready_for(self, state: LakeState) -> bool:
        if state is self._state:
            return True
        between = self._catalog.remembered_between(self._state, state)
        if between is None or any(map(self._is_same, between)):
            return False
        before, self._state = self._state, state
        is_ready = False
        try:
            self.check()
            staged = {key: each for key, each in self._participants.items() if key not in self.deferred}
            moved = {key for key, each in staged.items() if each.is_taken or not each.is_current(self._checked)}
            self.defer(moved)
            for append in self.deferred.values():
                append.check_append(self._checked)
            is_ready = moved <= self.deferred.keys()
        finally:
            if not is_ready:
                self._state = before
        return is_ready

    def appends(self) -> Set[str]:
        return self._appends.keys() if self._may_defer else frozenset()

    def defer(self, tables: Set[str]) -> None:
        self.deferred = {**self.deferred, **{key: self._appends[key] for key in self.appends() & tables}}

    def dependencies(self) -> Dependencies:
        return dependencies_of(self._request, self.changes())

    def note_failure(self) -> None:
        self.goes_alone = True

    def probes(self) -> list[Callable[[], object]]:
        return [task for participant in self._staged() for task in participant.tasks()]

    def stage(self) -> list[Callable[[], object]]:
        self.deferred = {}
        return [] if self._attempt_on is self._state else self._stage(with_lake=True)

    def join(self, appended: Mapping[str, Participant]) -> None:
        self._joined = dict(appended)

    def conflicts(self) -> int:
        has_moved = self._has_expired or any(participant.moved for participant in self._participants.values())
        return int(has_moved and not self._has_adopted)

    def changes(self) -> dict[str, Row | None]:
        """The rows of the lake that it changes, but for appends that are deferred."""
        state = self._checked
        changes: dict[str, Row | None] = dict(self._pinned)
        for object_id, row in self._request.rows.items():
            is_fixed = object_id in self._request.as_they_are
            changes[object_id] = row if row is None or is_fixed else self._moved_on(row, state)
        for object_id, participant in self._participants.items():
            if object_id in self.deferred:
                continue
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
                    refuse_table(parent, there)
                    if there is None:
                        changes[parent] = Row(parent, NAMESPACE)
        return changes

    def _moved_on(self, row: Row, state: LakeState) -> Row:
        """A row that is only renamed keeps the current version."""
        for now in map(state.rows.get, self._leaving):
            if now is not None and row.is_table and now.incarnation == row.incarnation:
                return now.renamed(row.object_id)
        return row

    def _adopt_taken(self, state: LakeState) -> None:
        """Final names that were taken: by a concurrent publication, or by an out-of-band writer.

        What was written by path becomes a publication of its own, and stays one if it forbids ours.
        """
        taken = [each for each in self._staged() if each.is_taken]
        now = self._catalog.refresh(state).state if taken else state
        for participant in taken:
            was = participant.wanted.was
            if was is not None and now.rows.get(was) != state.rows.get(was):
                continue  # a concurrent publication changed the table
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
        if isinstance(done, Published) and done.uuid != self.uuid:
            return PublishResult(done.version, {}, attempts, done)
        try:
            if isinstance(done, Published):  # an earlier put of ours had succeeded
                return self._found(done, attempts)
            return self._published(done, attempts)
        except ConroiError as error:
            raise CommitStateUnknown(
                f"It was published, but what became of it could not be read: {error.message}",
                table=", ".join(participant.name for participant in self._participants.values()) or None,
                transaction_uuid=self.uuid,
                hint="Look at lake.history() before doing the work again. No file was deleted.",
            ) from error

    def _found(self, done: Published, attempts: int) -> PublishResult:
        """The result by what was published: a group may have staged it, or another attempt."""
        rows = self._catalog.state().rows if done.changes is None else done.changes
        found = {key: each.recovered(rows.get(key), attempts) for key, each in self._participants.items()}
        return PublishResult(done.version, found, attempts)

    def _published(self, state: LakeState, attempts: int) -> PublishResult:
        results: dict[str, CommitResult] = {}
        for object_id, participant in self._participants.items():
            joined = self._joined.get(object_id)
            if joined is not None:
                results[object_id] = self._appends[object_id].joined(joined, attempts)
                continue
            results[object_id] = participant.published(attempts)
            if not self.is_local:
                finalize_later(self._catalog, participant)
        _log.debug("published version %d of %s in %d attempts", state.version, self._catalog.uri, attempts)
        return PublishResult(state.version, results, attempts)

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
