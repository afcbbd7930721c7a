"""Planted bugs: small mutations of the protocol, each of which a simulation must notice.

Each is a patch that lives as long as a test. Its docstring says what is left out; `WORKLOAD` says where it is looked
for, so that a run is not spent on tables that it cannot touch.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from pyroaring import BitMap

from conroi.catalog import group_commit, manifest_store, publication
from conroi.catalog.catalog import Catalog
from conroi.catalog.manifest_store import ManifestAttempt, ManifestStore
from conroi.catalog.participant import Participant, PublishResult
from conroi.catalog.publication import Publishing
from conroi.catalog.sql_publication import RowPublication, SqlitePublication
from conroi.commit import pending
from conroi.commit.conditional_put import Putting
from conroi.commit.pending import Pending
from conroi.conflicts import matrix, rebase, row_merge
from conroi.conflicts.rules import OK, Rule
from conroi.data import rows as data_rows
from conroi.errors import RetryableConflict
from conroi.maintenance import collection, reachability
from conroi.maintenance.lake_expiry import ManifestHistory
from conroi.operations import Rewrite, append
from conroi.snapshots.snapshot import Snapshot
from conroi.transaction import Transaction
from conroi.transaction_tables import TransactionTables
from conroi.verbs.key_check import KeyGuard
from conroi.versions import folder
from conroi.versions.folder import ConditionalPut, FolderVersions

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]

PLANTED: dict[str, tuple[Plant, str]] = {}
"""By name: the mutation, and the workload in which it is looked for."""

HARMLESS: dict[str, tuple[Plant, str]] = {}
"""Mutations that leave out one of two guards: by name, and the name of the mutation that leaves out both."""


def planted(workload: str) -> Callable[[Plant], Plant]:
    """Register a mutation."""

    def register(plant: Plant) -> Plant:
        PLANTED[plant.__name__] = plant, workload
        return plant

    return register


def harmless(both: str) -> Callable[[Plant], Plant]:
    """Register a mutation that a second guard makes up for."""

    def register(plant: Plant) -> Plant:
        HARMLESS[plant.__name__] = plant, both
        return plant

    return register


# ---------------------------------------------------------------------------------- the put


@planted("bank")
def no_look_after_a_lost_answer(patch: Patch) -> None:
    """A name that is taken is taken by others: what is there is not compared with our own transaction."""

    def look(self: Putting, located: Any, _sent_at: Any) -> None:
        raise RetryableConflict("another writer was faster", table=self._files.root, version=located.version)

    patch.setattr(Putting, "_look_for_mine", look)


def _heads_without_own(self: Publishing) -> Any:
    self._state = self._catalog.refresh(self._state).state


@planted("bank")
def taken_means_ours(patch: Patch) -> None:
    """After ObjectExists the commit is taken for ours, whoever has the name."""
    put = Putting.put

    def blind(self: Putting, located: Any, data: bytes, file: Any) -> Any:
        return put(self, located, data, file) or Snapshot(file.manifest, located, file.transaction)

    patch.setattr(Putting, "put", blind)


@planted("bank")
def unknown_is_called_a_conflict(patch: Patch) -> None:
    """A put without an answer is reported as refused."""

    def refused(self: Putting, error: Any, located: Any) -> Exception:
        return RetryableConflict(error.message, table=self._files.root, version=located.version)

    patch.setattr(Putting, "_unknown_or", refused)


@planted("bank")
def put_replaces(patch: Patch) -> None:
    """The put of a version is no compare-and-swap."""

    def put_new(self: ConditionalPut, objects: Any, path: str, data: bytes) -> None:
        objects.put(path, data)

    patch.setattr(ConditionalPut, "put_new", put_new)


@planted("bank")
def look_before_the_put(patch: Patch) -> None:
    """The expectation that the name is free is checked outside of the put."""

    def put_new(self: ConditionalPut, objects: Any, path: str, data: bytes) -> None:
        if objects.head(path) is not None:
            raise folder.ObjectExists(path)
        objects.put(path, data)

    patch.setattr(ConditionalPut, "put_new", put_new)


# ---------------------------------------------------------------------------------- publication


@planted("registers")
def reads_are_not_checked(patch: Patch) -> None:
    """A serializable transaction publishes without a look at what it read."""
    patch.setattr(TransactionTables, "expectations", lambda self: [])


@planted("registers")
def checked_only_once(patch: Patch) -> None:
    """Preconditions are checked at the first attempt, and not on the state that the put is for."""
    check_at = Publishing.check_at

    def once(self: Publishing, state: Any) -> None:
        if self.checks:
            return
        check_at(self, state)

    patch.setattr(Publishing, "check_at", once)


@planted("bank")
def tables_one_by_one(patch: Patch) -> None:
    """The tables of a transaction are published one after the other."""
    run = Publishing.run

    def separately(self: Publishing) -> PublishResult:
        order = self._request
        if len(order.tables) < 2:
            return run(self)
        alone = [replace(order, tables=[each], expects=(), listing=None, uuid="") for each in order.tables]
        outcomes = [run(Publishing(self._catalog, each)) for each in alone]
        tables = {name: result for outcome in outcomes for name, result in outcome.tables.items()}
        return replace(outcomes[-1], tables=tables)

    patch.setattr(Publishing, "run", separately)


@planted("registers")
def begins_with_what_it_saw_last(patch: Patch) -> None:
    """A transaction begins at the state that its process saw last, without a look."""
    begin = Transaction.__init__

    def stale(self: Transaction, of: Catalog, **how: Any) -> None:
        look = of.state
        of.state = of.known_state  # type: ignore[method-assign]
        try:
            begin(self, of, **how)
        finally:
            of.state = look  # type: ignore[method-assign]

    patch.setattr(Transaction, "__init__", stale)


@planted("names")
def names_need_not_be_free(patch: Patch) -> None:
    """Two publications may add the same name."""
    patch.setattr(publication, "check_arriving", lambda *_: None)


@planted("names")
def names_need_not_be_there(patch: Patch) -> None:
    """A name that is dropped or renamed may have become another table."""
    patch.setattr(publication, "check_leaving", lambda *_: None)


@planted("names")
def any_table_of_that_name(patch: Patch) -> None:
    """A writer goes on in the table that has the name now, if it was dropped and created again."""
    row = Participant._row

    def lenient(self: Participant, state: Any) -> Any:
        found = state.table(self.wanted.was)
        if found is None or found.incarnation == self.wanted.row.incarnation:
            return row(self, state)
        return found

    patch.setattr(Participant, "_row", lenient)


@planted("bank")
def predecessor_is_not_finalized(patch: Patch) -> None:
    """A version is published before the one below it has its final name."""
    patch.setattr(Participant, "_finalize_before", lambda *_: None)
    patch.setattr(Catalog, "_completed", lambda _self, _row, _pin, snapshot: snapshot)


@planted("bank")
def rebased_without_a_look(patch: Patch) -> None:
    """The newest version counts as met, whatever is in the versions between."""

    def catch_up(self: Pending, newest: Any, known: Any = None) -> None:
        self.seen = known if known is not None else self._load(newest)

    patch.setattr(Pending, "catch_up", catch_up)


@harmless("built_on_the_base_without_a_probe")
def built_on_the_base(patch: Patch) -> None:
    """After a lost race the manifests that were staged before are published again.

    The probe finds their final names taken, and the publication is refused.
    """
    build = Participant.build

    def once(self: Participant) -> None:
        if self._built_at is None:
            build(self)

    patch.setattr(Participant, "build", once)


@planted("bank")
def built_on_the_base_without_a_probe(patch: Patch) -> None:
    """The same, without the probe of their final names."""
    built_on_the_base(patch)
    patch.setattr(Participant, "_probe", lambda *_: None)


@planted("bank")
def clock_decides_the_order(patch: Patch) -> None:
    """The timestamp of a lake version is the writer's clock, also if that is behind the version before."""
    build = manifest_store.operations.build

    def timed(head: Any, transaction: Any, operation: Any, step: Any, *, timestamp_ns: int, writer_version: Any) -> Any:
        del timestamp_ns
        now_ns = _writers_clock_ns()
        return build(head, transaction, operation, step, timestamp_ns=now_ns, writer_version=writer_version)

    init = ManifestAttempt.__init__
    clocks: list[Any] = []

    def _writers_clock_ns() -> int:
        return clocks[-1].now_ns()

    def begun(self: ManifestAttempt, heads: Any, files: Any, *rest: Any) -> None:
        clocks.append(files.environment)
        patched = manifest_store.operations.build
        manifest_store.operations.build = timed
        try:
            init(self, heads, files, *rest)
        finally:
            manifest_store.operations.build = patched
            clocks.pop()

    patch.setattr(ManifestAttempt, "__init__", begun)


# ---------------------------------------------------------------------------------- idempotency keys


@planted("jobs")
def key_is_not_looked_up(patch: Patch) -> None:
    """A transaction with a key does not look whether the key was committed before."""
    patch.setattr(ManifestStore, "published_as", lambda *_: None)


@planted("jobs")
def key_is_looked_up_only_at_the_beginning(patch: Patch) -> None:
    """Concurrent commits are not compared with the key."""
    patch.setattr(Publishing, "heads", _heads_without_own)


@planted("jobs")
def key_is_noted_after_the_commit(patch: Patch) -> None:
    """The note by which a later call finds the commit is written when it is acknowledged."""
    finalize = Publishing.finalize

    def noted(self: Publishing, done: Any, attempts: int) -> Any:
        result = finalize(self, done, attempts)
        key = self._request.notes.idempotency_key
        if key is not None and result.earlier is None:
            will_try(cast("ManifestStore", self._catalog.heads), key, result.version)
        return result

    will_try = ManifestStore.will_try
    patch.setattr(ManifestStore, "will_try", lambda *_: None)
    patch.setattr(Publishing, "finalize", noted)


# ---------------------------------------------------------------------------------- keys of rows


@planted("keyed")
def keys_are_checked_at_staging_only(patch: Patch) -> None:
    """Inserted keys are not compared with concurrent commits."""
    patch.setattr(KeyGuard, "__call__", lambda *_: None)


@planted("keyed")
def keys_are_not_checked_after_a_compaction(patch: Patch) -> None:
    """What a concurrent compaction wrote counts as checked, also if its sources were not."""

    def follow(self: KeyGuard, winners: Sequence[Any]) -> None:
        for winner in winners:
            if isinstance(winner.operation, Rewrite):
                for group in winner.operation.groups:
                    self._checked.update(self._key_files(fragment) for fragment in group.new_fragments)

    patch.setattr(KeyGuard, "_follow_rewrites", follow)


@planted("keyed")
def keys_are_checked_at_the_commit_only(patch: Patch) -> None:
    """Inserted keys are not compared with those of the base."""

    def unchecked(pinned: Any, seen: Any, leaving: Any = None, *, mine: str = "Update") -> Any:
        del leaving
        keys = seen.keys()
        return None if keys is None else KeyGuard(pinned.files, pinned.manifest, seen.columns, keys, mine=mine)

    for name in ("conroi.verbs.key_check", "conroi.verbs.append", "conroi.verbs.update", "conroi.folding"):
        module = importlib.import_module(name)
        if hasattr(module, "checked_new_keys"):
            patch.setattr(module, "checked_new_keys", unchecked)


# ---------------------------------------------------------------------------------- conflicts


@planted("bank")
def same_rows_are_joined(patch: Patch) -> None:
    """Two changes of one row are joined like two changes of different rows."""
    patch.setattr(row_merge, "_common", lambda one, other: {})


@planted("keyed")
def compaction_ignores_deletions(patch: Patch) -> None:
    """A compaction is rebased over concurrent deletions without them."""
    patch.setattr(rebase, "_deleted_in", lambda group, meeting: {})


@planted("keyed")
def compacted_rows_can_be_changed(patch: Patch) -> None:
    """A change of rows is published although its fragments were compacted."""
    for mine in ("Delete", "Update"):
        patch.setitem(cast("dict[tuple[str, str], Rule]", matrix.MATRIX), (mine, "Rewrite"), OK)
    patch.setattr(row_merge, "missing", lambda meeting: {})


@planted("keyed")
def older_deletions_are_forgotten(patch: Patch) -> None:
    """A new deletion vector has the new deletions only."""

    def only_new(files: Any, manifest: Any, fragment_id: int, gone: BitMap) -> BitMap:
        return gone

    patch.setattr(data_rows, "_union", only_new)


@planted("keyed")
def deletions_of_the_head_are_forgotten(patch: Patch) -> None:
    """Deletion vectors are merged with those of the base, not of the newest version."""
    patch.setattr(row_merge.Meeting, "deleted_at_head", row_merge.Meeting.deleted_at_base)


@planted("registers")
def row_ids_of_the_base(patch: Patch) -> None:
    """Rows of an append get the ids after those of its base, not of the version before it."""
    assign = append.assign_row_ids
    patch.setattr(append, "assign_row_ids", lambda fragments, first: assign(fragments, 0) and first)


# ---------------------------------------------------------------------------------- collection


@planted("upkeep")
def grace_period_is_ignored(patch: Patch) -> None:
    """Garbage collection deletes files that no version refers to, however young."""
    patch.setattr(collection, "checked_age", lambda _: 0.0)
    patch.setattr(reachability, "announced_names", lambda *_: iter(()))
    patch.setattr(collection, "announced_names", lambda *_: iter(()))


@planted("upkeep")
def slow_writers_do_not_look(patch: Patch) -> None:
    """A commit that took long does not make sure that its files are still there."""
    patch.setattr(pending, "refuse_collected_files", lambda *_, **__: None)


@planted("crowd")
def members_are_not_compared(patch: Patch) -> None:
    """A group takes members that change or compare the same rows of the lake."""
    patch.setattr(group_commit._Group, "conflicts_with", lambda *_: False)


@planted("crowd")
def a_leader_trusts_what_was_checked(patch: Patch) -> None:
    """A leader does not check its members on the state that it builds on."""
    patch.setattr(group_commit, "_is_ready", lambda *_: True)


@planted("crowd")
def a_leader_joins_only_the_first_append(patch: Patch) -> None:
    """The appends of a group to one table become one, without the rows of all but the first."""
    of_appends = Participant.of_appends
    patch.setattr(Participant, "of_appends", lambda catalog, state, appends: of_appends(catalog, state, appends[:1]))


@planted("threaded_jobs")
def keys_of_a_group_are_not_noted(patch: Patch) -> None:
    """A group does not note the idempotency keys of its members."""
    patch.setattr(ManifestStore, "will_try", lambda *_: None)


@planted("lone_table")
def collected_numbers_come_back(patch: Patch) -> None:
    """A version may be put under a number that was collected."""
    patch.setattr(FolderVersions, "confirm", lambda *_: None)


@planted("lone_table")
def watermark_is_read_too_early(patch: Patch) -> None:
    """Whether a number was collected is looked up before the put, not after it."""
    confirm, put = FolderVersions.confirm, FolderVersions.put

    def early(self: FolderVersions, version: int, naming: Any, data: bytes) -> Any:
        located = folder.ManifestRef(version, naming.path(version), naming)
        confirm(self, located, folder.moment(self._environment))
        own = vars(self)  # not of the class, since others put at the same time
        own["confirm"] = lambda *_: None
        try:
            return put(self, version, naming, data)
        finally:
            own.pop("confirm", None)

    patch.setattr(FolderVersions, "put", early)


@planted("upkeep")
def pins_of_older_versions_are_ignored(patch: Patch) -> None:
    """Expiry keeps the table versions of the newest lake version only."""
    rows = ManifestHistory.rows
    patch.setattr(ManifestHistory, "rows", lambda self, kept, gone: rows(self, kept[-1:], gone))


@planted("upkeep")
def staged_manifests_are_garbage(patch: Patch) -> None:
    """What is published and not final yet is no reason to keep a staged manifest."""
    patch.setattr(reachability, "_is_root", lambda place, info, horizon: False)


@planted("upkeep")
def data_of_older_versions_is_garbage(patch: Patch) -> None:
    """The files of retained versions other than the newest are collected."""
    needs_of = reachability.needs_of

    def newest(place: Any, horizon: Any) -> Any:
        found = needs_of(place, horizon)
        return replace(found, names=sorted(found.names)[: len(found.names) // 2])  # the same in every process

    patch.setattr(collection, "needs_of", newest)


@planted("upkeep")
def known_version_is_trusted_for_ever(patch: Patch) -> None:
    """A reader that was away does not ask whether the versions after the one it knows were collected."""
    patch.setattr(ManifestStore, "_is_superseded", lambda *_: False)


# ---------------------------------------------------------------------------------- SQL stores


@planted("database_bank")
def written_rows_are_not_compared(patch: Patch) -> None:
    """A publication to a database takes the next version, whatever was changed since its base."""
    patch.setattr(SqlitePublication, "have_objects_moved", lambda _: False)


@planted("database_registers")
def read_rows_are_not_compared(patch: Patch) -> None:
    """The database compares the rows that are written; those that were only read were checked before."""
    patch.setattr(RowPublication, "compared", property(lambda self: sorted(self.rows)))


@planted("database_bank")
def rows_are_compared_with_the_newest_version(patch: Patch) -> None:
    """The database compares with the head, and not with the version that the publication was checked against."""

    def moved(self: SqlitePublication) -> bool:
        self._base = cast("int", self._one("SELECT version FROM conroi_lakes WHERE lake = ?", self._lake))
        return False

    patch.setattr(SqlitePublication, "have_objects_moved", moved)


@harmless("own_commit_is_never_looked_up")
def own_commit_is_not_looked_up(patch: Patch) -> None:
    """A publication that is sent again after a lost answer is compared with its own commit, and refused.

    The look before the next attempt finds it.
    """
    patch.setattr(SqlitePublication, "landed", lambda _: None)


@planted("database_bank")
def own_commit_is_never_looked_up(patch: Patch) -> None:
    """The same, without that look."""
    own_commit_is_not_looked_up(patch)
    patch.setattr(Publishing, "heads", _heads_without_own)
