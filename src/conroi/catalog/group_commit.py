"""Group commit: publications of the threads of one process, committed together as one version of the lake.

Threads queue with what they have staged. The first one leads: it takes all that fit in one version, and puts that with
one compare-and-swap, on behalf of all. In the history each is a commit of its own. Meanwhile the next ones queue.

Members of a group change and compare different rows of the lake, so it makes no difference in which order they are
applied. The exception are appends to one table: they become one Append, with the rows of each member in one run, in the
order of the queue. A leader raises no conflict: what does not fit is left out, and its own thread looks again and
decides.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from conroi.catalog.catalog import Catalog
from conroi.catalog.participant import Participant
from conroi.catalog.rows import Row
from conroi.catalog.state import MOST_RECORDS, CommitMetadata, LakeState, Member
from conroi.catalog.store import Attempt, Dependencies, Published, Task
from conroi.errors import CommitStateUnknown, ConroiError
from conroi.storage.parallel import together

MOST_MEMBERS = 256


@dataclass(eq=False, slots=True)
class Waiting:
    """A publication in the queue, and its outcome."""

    publication: Publication
    state: LakeState | None = None
    """The state that it led to; None: it was not published."""
    error: ConroiError | None = None


class Publication(Protocol):
    """A publication that is ready to be put."""

    uuid: str
    notes: CommitMetadata
    deferred: Mapping[str, Participant]
    """Appends that are not staged, because other threads may append to the same tables."""

    def is_ready_for(self, state: LakeState) -> bool:
        """Whether all that it compares and has staged is valid for this state."""
        ...

    def appends(self) -> Set[str]:
        """The tables of which it can defer its appends."""
        ...

    def defer(self, tables: Set[str]) -> None:
        """Defer its appends to these tables; what is staged of them becomes garbage."""
        ...

    def dependencies(self) -> Dependencies:
        """What must be unchanged: what it compares, and what it changes."""
        ...

    def changes(self) -> dict[str, Row | None]:
        """The rows that it changes, but for deferred appends."""
        ...

    @property
    def goes_alone(self) -> bool:
        """Whether a group with it has failed, so that it finds out by itself why."""
        ...

    def note_failure(self) -> None:
        """A group with it failed before its put."""
        ...

    def probes(self) -> list[Task]:
        """What is to be looked at again of what it has staged."""
        ...

    def stage(self) -> list[Task]:
        """Build what is deferred, and the next version of the lake, for this publication alone, unless it is built."""
        ...

    @property
    def attempt(self) -> Attempt | None:
        """The next version of the lake, if it was built for this publication alone."""
        ...

    def confirm_staged(self) -> bool:
        """All tasks are done; False if a table was written out of band."""
        ...

    def join(self, appended: Mapping[str, Participant]) -> None:
        """Its deferred appends are part of these."""
        ...


def put_together(catalog: Catalog, publication: Publication) -> LakeState | None:
    """Publish it, with others or alone; None if it has to look again."""
    mine = Waiting(publication)
    catalog.publishers.join(mine, lambda queued: _lead(catalog, queued))
    if mine.error is not None:
        raise mine.error
    return mine.state


def _lead(catalog: Catalog, queued: Sequence[Waiting]) -> None:
    """Publish the first of them, and all others that fit in the same version."""
    group = _Group(catalog, catalog.known_state())
    tables = Counter(table for waiting in queued for table in waiting.publication.appends())
    several = {table for table, count in tables.items() if count > 1}
    for waiting in queued:
        try:
            waiting.publication.defer(several)
            if not group.has_room_for(waiting.publication):
                continue  # it stays in the queue, for the next version
            is_ready = _is_ready(waiting.publication, group.state)
            if is_ready:
                group.add(waiting)
        except ConroiError as error:
            _answer(catalog, [waiting], error=error)
            continue
        if not is_ready:
            _answer(catalog, [waiting])
    if group.members:
        _publish(catalog, group)


def _publish(catalog: Catalog, group: _Group) -> None:
    try:
        attempt = group.alone() if len(group.members) == 1 else group.build()
    except ConroiError as error:
        is_own = len(group.members) == 1
        for each in group.members:  # of one of them, so each finds out by itself, alone
            each.publication.note_failure()
        _answer(catalog, group.members, error=error if is_own else None)
        return
    if attempt is None:
        _answer(catalog, group.members)
        return
    try:
        state = attempt.put()
    except ConroiError as error:
        _answer(catalog, group.members, error=error)
        return
    except BaseException:
        _answer(catalog, group.members, error=_interrupted(catalog))
        raise
    assert not isinstance(state, Published), "a put of __manifest knows its state"
    try:
        if state is not None:
            group.settle(state)
            catalog.saw(state, members=group.commits)
    finally:
        _answer(catalog, group.members, state)


def _answer(
    catalog: Catalog, members: Sequence[Waiting], state: LakeState | None = None, error: ConroiError | None = None
) -> None:
    for each in members:
        each.state, each.error = state, None if error is None else _own(error, each.publication)
    catalog.publishers.done(members)


@dataclass(eq=False)
class _Group:
    """The members of one version."""

    catalog: Catalog
    state: LakeState
    members: list[Waiting] = field(default_factory=list[Waiting])
    commits: list[Member] = field(default_factory=list[Member])
    """The members as the history has them; known when it is built."""
    _changes: list[dict[str, Row | None]] = field(default_factory=list["dict[str, Row | None]"])
    _changed: set[str] = field(default_factory=set[str])
    _appended: dict[str, list[Participant]] = field(default_factory=dict[str, list[Participant]])
    _changes_names: bool = False
    _keys: set[str] = field(default_factory=set[str])
    _folded: dict[str, Participant] = field(default_factory=dict[str, Participant])

    def has_room_for(self, publication: Publication) -> bool:
        """Whether no earlier member changes what it depends on, and the version does not get too large."""
        if not self.members:
            return True
        if publication.goes_alone or self.members[0].publication.goes_alone or len(self.members) >= MOST_MEMBERS:
            return False
        changes, needs, appended = publication.changes(), publication.dependencies(), self._appended.keys()
        objects = needs.objects - publication.deferred.keys()
        is_apart = objects.isdisjoint(self._changed) and objects.isdisjoint(appended)
        rows = self._changed | changes.keys() | appended | publication.deferred.keys()
        return (
            is_apart
            and not needs.everything
            and not (needs.listing and self._changes_names)
            and publication.notes.idempotency_key not in self._keys
            and self._changed.isdisjoint(publication.deferred)
            and len(rows) <= MOST_RECORDS
        )

    def add(self, waiting: Waiting) -> None:
        publication, changes = waiting.publication, waiting.publication.changes()
        self.members.append(waiting)
        self._changes.append(changes)
        self._changed |= changes.keys()
        self._changes_names |= any((key in self.state.rows) != (row is not None) for key, row in changes.items())
        if publication.notes.idempotency_key is not None:
            self._keys.add(publication.notes.idempotency_key)
        for object_id, participant in publication.deferred.items():
            self._appended.setdefault(object_id, []).append(participant)

    def alone(self) -> Attempt | None:
        """The only member: as it would be without a group. What was staged before it waited is looked at again."""
        publication = self.members[0].publication
        together(publication.stage() or publication.probes(), is_local=self.catalog.root.is_local)
        self.commits = [Member(publication.uuid, publication.notes, publication.changes())]
        return publication.attempt if publication.confirm_staged() else None

    def build(self) -> Attempt | None:
        """The next version, with all of them; None if one of the tables was written out of band.

        What members have staged is looked at again, in the same wave: while they waited their final names may have been
        taken, or their files collected.
        """
        store = self.catalog.group_store
        assert store is not None
        tasks: list[Task] = []
        for object_id, appends in self._appended.items():
            self._folded[object_id] = folded = Participant.of_appends(self.catalog, self.state, appends)
            tasks += folded.tasks()
        rows = {object_id: participant.pinned_row() for object_id, participant in self._folded.items()}
        for waiting, changes in zip(self.members, self._changes, strict=True):
            publication = waiting.publication
            tasks += publication.probes()
            own = {**changes, **{key: rows[key] for key in publication.deferred}}
            self.commits.append(Member(publication.uuid, publication.notes, own))
        attempt = store.build_group(self.state, self.commits)
        tasks += attempt.tasks
        for key in self._keys:
            tasks.append(partial(store.will_try, key, self.state.version + 1))
        together(tasks, is_local=self.catalog.root.is_local)
        return attempt if self._is_confirmed() else None

    def _is_confirmed(self) -> bool:
        for participant in self._folded.values():
            participant.staged()
        for waiting in self.members:
            if any(self._folded[key].is_taken for key in waiting.publication.deferred):
                waiting.publication.note_failure()  # it stages its append itself, and adopts what was written
        is_free = not any(participant.is_taken for participant in self._folded.values())
        for waiting in self.members:
            is_free = waiting.publication.confirm_staged() and is_free
        return is_free

    def settle(self, state: LakeState) -> None:
        """It is published: tell each member, and of which appends its own have become a part."""
        for waiting in self.members:
            publication = waiting.publication
            publication.join({key: self._folded[key] for key in publication.deferred if key in self._folded})
            waiting.state = state


def _is_ready(publication: Publication, state: LakeState) -> bool:
    """An error is left to its own thread, which meets it on a state that exists."""
    try:
        return publication.is_ready_for(state)
    except ConroiError:
        return False


def _own(error: ConroiError, publication: Publication) -> ConroiError:
    """The error of the put, as this member's own."""
    found = copy.copy(error)
    if isinstance(found, CommitStateUnknown):
        found.transaction_uuid = publication.uuid
    return found


def _interrupted(catalog: Catalog) -> CommitStateUnknown:
    return CommitStateUnknown(
        "The thread that published this commit, together with its own, was interrupted before the storage responded.",
        table=catalog.uri,
        hint="Look at lake.history() before doing the work again. No file was deleted.",
    )
