"""What outside tests found, put back: each mutation is an old mistake in today's code, which a simulation must notice.

The net is a workload of the simulator, or `histories`: the random histories of branches (tests/branches/histories).
docs/evidence/2026-11-19-findings.md says at which seed each is noticed, and which test holds the findings that are
not here.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from conroi import environment
from conroi.branches import ancestry, contents
from conroi.branches import columns as branch_columns
from conroi.branches import plan as merge_plan
from conroi.branches import row_merge as branch_rows
from conroi.catalog import catalog, folders
from conroi.catalog.folders import Released
from conroi.catalog.rows import ROW_INCARNATION, TABLE, Row
from conroi.catalog.sql_publication import Answer, Outcome
from conroi.catalog.sql_store import SqlStore
from conroi.catalog.state import LakeState
from conroi.catalog.store import Seen
from conroi.commit.conditional_put import Putting
from conroi.data import keys
from conroi.environment import Moment
from conroi.errors import RetryableConflict, StoreUnavailable
from conroi.format import fields
from conroi.format import lance_pb2 as pb
from conroi.inserts.fence import Fence
from conroi.maintenance import reachability
from conroi.snapshots import branch_storage, pin
from conroi.snapshots import snapshot as snapshots
from conroi.storage.objects import ObjectExists
from conroi.testing.simulation import database
from conroi.testing.simulation.scheduler import Client, WorkerEnvironment
from conroi.testing.simulation.storage import SimulatedObjects
from conroi.testing.simulation.world import World
from conroi.transaction_tables import TransactionTables, VersionsUpTo
from conroi.verbs import columns as column_verbs

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]

HISTORIES = "histories"
FINDINGS: dict[str, tuple[Plant, str, tuple[str, ...]]] = {}
"""By name: the mutation, the net in which it is looked for, and the findings that it stands for."""


def finding(net: str, *ids: str) -> Callable[[Plant], Plant]:
    """Register a mutation."""

    def register(plant: Plant) -> Plant:
        FINDINGS[plant.__name__] = plant, net, ids
        return plant

    return register


def everywhere(patch: Patch, name: str, old: object, new: object) -> None:
    """Replace what modules have imported by name."""
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("conroi") and vars(module).get(name) is old:
            patch.setattr(module, name, new)


# ---------------------------------------------------------------------------------- rows


@finding("upserts", "A1", "I1")
def addresses_are_kept_with_the_keys(patch: Patch) -> None:
    """What is cached of a fragment's keys has the number that the fragment had then."""
    live_keys, first = keys.live_keys, dict[int, tuple[keys.Part, int]]()

    def kept(
        pinned: Any, fragments: Sequence[pb.DataFragment], columns: Sequence[str], among: pa.Table | None = None
    ) -> pa.Table | None:
        del among
        found: list[pb.DataFragment] = []

        def addressed(rows: pa.Table, fragments: Sequence[pb.DataFragment], counts: Sequence[int]) -> pa.Table:
            del fragments
            offsets = rows.column("_offset").to_numpy()
            starts = np.array([each.id << 32 for each in found], np.uint64)
            addresses: Any = pa.array(offsets + np.repeat(starts, counts), pa.uint64())
            return rows.set_column(rows.num_columns - 1, "_rowaddr", addresses)

        def parts(pinned: Any, fragments: Sequence[pb.DataFragment], what: Any) -> list[keys.Part] | None:
            there = parts_of(pinned, fragments, what)
            for part, fragment in zip(there or (), fragments, strict=False):
                found.append(pb.DataFragment(id=first.setdefault(id(part), (part, fragment.id))[1]))
            return there

        parts_of, addressed_of = keys._parts, keys._addressed
        keys._parts, keys._addressed = parts, addressed  # pyright: ignore[reportAttributeAccessIssue]
        try:
            return live_keys(pinned, fragments, columns)
        finally:
            keys._parts, keys._addressed = parts_of, addressed_of  # pyright: ignore[reportAttributeAccessIssue]

    patch.setattr(keys, "live_keys", kept)


@finding("columns", "A3")
def nullability_is_promised(patch: Patch) -> None:
    """A new column without nulls tells concurrent writers that rows without it still fit."""
    patch.setattr(column_verbs, "keeps_nullability", lambda before, after: True)
    everywhere(patch, "never_null_and_missing", fields.never_null_and_missing, lambda fragment, fields: [])


@finding("truncations", "G3")
def only_the_next_row_id_is_watched(patch: Patch) -> None:
    """An insert in pieces goes on if no concurrent writer added rows behind it, also if its first pieces are gone."""
    patch.setattr(Fence, "_check_line", lambda *_: None)


# ---------------------------------------------------------------------------------- ownership


@finding("ownership", "A2")
def deregistered_tables_are_the_lakes(patch: Patch) -> None:
    """A folder that left the lake is expired and collected like one of its own."""
    patch.setattr(Released, "has", lambda *_: False)


@finding("ownership", "G1")
def registered_tables_have_no_version(patch: Patch) -> None:
    """A table that comes into the lake is read at the newest version of its folder, in every version of the lake."""

    def found_row(of: Any, object_id: str, location: str, properties: Mapping[str, str] | None = None) -> Row:
        incarnation = {ROW_INCARNATION: str(of.environment.new_uuid())}
        return Row(object_id, TABLE, location).with_notes({**(properties or {}), **incarnation})

    everywhere(patch, "found_row", folders.found_row, found_row)
    patch.setattr(LakeState, "seen_at", lambda self, _moment_ns: self)


# ---------------------------------------------------------------------------------- clocks and lost answers


@finding("idle", "F1")
def commits_are_followed_over_a_gap(patch: Patch) -> None:
    """A client of a database that was idle applies the commits that are left, whatever was forgotten between."""
    newest = SqlStore.newest

    def followed(self: Any, known: Any) -> Seen:
        if known is None:
            return newest(self, known)
        after = self._queries.after

        def gapless(version: int, limit: int) -> Any:
            head, commits = after(version, limit)
            return head, commits

        head, commits = gapless(known.version, 256)
        if [each.version for each in commits] == list(range(known.version + 1, head.version + 1)):
            return newest(self, known)
        from conroi.catalog import sql_store

        published = [sql_store._published(each) for each in commits]
        state = sql_store._following(known, commits, [each.changes or {} for each in published])
        return Seen(state, tuple(published))

    patch.setattr(SqlStore, "newest", followed)


@finding("idle", "F3")
def writers_date_their_commits(patch: Patch) -> None:
    """The age of a version of the lake goes by the clock of its writer, and not of the database."""
    publish, strftime = database._Tables.publish, database._strftime
    ahead_ns = [0]

    def dated(self: Any, *what: Any) -> Any:
        actor = self._world.scheduler.current
        ahead_ns[0] = 0 if actor is None else round(actor.client.offset_s * 1e9)
        try:
            return publish(self, *what)
        finally:
            ahead_ns[0] = 0

    class Ahead:
        def __init__(self, world: World) -> None:
            self.now_ns = lambda: world.now_ns() + ahead_ns[0]

    patch.setattr(database._Tables, "publish", dated)
    patch.setattr(database, "_strftime", lambda world, what, moment: strftime(cast("Any", Ahead(world)), what, moment))


@finding("idle", "F13")
def not_there_yet_is_not_there(patch: Patch) -> None:
    """After a publication without an answer the database is asked once; what it does not have is taken for refused."""

    def publish(self: Any, wanted: Any) -> Any:
        try:
            return self._tables.publish(self._lake, self._key, wanted)
        except StoreUnavailable:
            _, commits = self._queries.after(wanted.base, 256)
            uuids = [commit.uuid for commit in commits]
            if wanted.commit.uuid in uuids:
                return Outcome(Answer.PUBLISHED, commits[: uuids.index(wanted.commit.uuid) + 1])
            return Outcome(Answer.MOVED)

    patch.setattr(SqlStore, "publish", publish)


@finding("standing_still", "F2")
def the_clock_stops_with_the_machine(patch: Patch) -> None:
    """Decisions about what may have been collected go by a clock that does not count the time of suspend."""
    befall, slept = World._befall, dict[Client, float]()

    def fallen(self: World, client: Client, fault: str) -> None:
        befall(self, client, fault)
        if fault == "pause":
            slept[client] = slept.get(client, 0.0) + client.paused_until - self.scheduler.now

    def monotonic(self: WorkerEnvironment) -> float:
        return (self._scheduler.now - slept.get(self._client, 0.0)) * self._client.rate

    def seconds_since(of: Any, then: Moment) -> float:
        return of.monotonic() - then.steady_s

    patch.setattr(World, "_befall", fallen)
    patch.setattr(WorkerEnvironment, "monotonic", monotonic)
    everywhere(patch, "seconds_since", environment.seconds_since, seconds_since)


@finding("bank", "F5")
def a_busy_answer_says_taken(patch: Patch) -> None:
    """A conditional write without a definite answer is told as "the name is taken"; a final name as taken by others."""
    put_if_absent = SimulatedObjects.put_if_absent

    def busy(self: SimulatedObjects, path: str, data: bytes) -> None:
        try:
            put_if_absent(self, path, data)
        except StoreUnavailable:
            raise ObjectExists(path) from None

    def put_final(objects: Any, of: pin.Pin, data: bytes | None, environment: Any) -> bool:
        del environment
        try:
            objects.put_if_absent(of.final.path, objects.get(of.manifest) if data is None else data)
        except ObjectExists:
            if pin._final(objects, of) is not None:
                return False
            raise pin.forked(objects, of) from None
        return True

    patch.setattr(SimulatedObjects, "put_if_absent", busy)
    patch.setattr(pin, "_put_final", put_final)


@finding("standing_still", "F12")
def a_collected_version_was_never_ours(patch: Patch) -> None:
    """A put without an answer whose version was collected since counts as refused."""

    def collected(self: Any, located: Any, _collected: Any) -> RetryableConflict:
        return RetryableConflict("others committed it", table=self._files.root, version=located.version)

    patch.setattr(Putting, "_collected", collected)
    patch.setattr(Putting, "_refuse_reused", lambda *_: None)
    patch.setattr(Putting, "_refuse_doubt", lambda *_: None)


# ---------------------------------------------------------------------------------- isolation


@finding("guards", "F6")
def names_that_were_found_are_not_remembered(patch: Patch) -> None:
    """Under serializable isolation only names that were looked up in vain are checked at the commit."""
    find = TransactionTables.find

    def forgetful(self: TransactionTables, key: str) -> Any:
        before = set(self._present)
        try:
            return find(self, key)
        finally:
            self._present = before

    patch.setattr(TransactionTables, "find", forgetful)


@finding("guards", "F11")
def versions_are_those_of_now(patch: Patch) -> None:
    """Inside a transaction the versions of a table are those that there are at the moment."""
    patch.setattr(VersionsUpTo, "all", lambda self: self._inner.all())


@finding("idle", "F10")
def a_collected_base_is_a_missing_file(patch: Patch) -> None:
    """What a reader meets when its version was collected is told as it comes."""

    @contextlib.contextmanager
    def untyped(*_: Any, **__: Any) -> Generator[None]:
        yield

    everywhere(patch, "version_in_use", snapshots.version_in_use, untyped)


# ---------------------------------------------------------------------------------- merges of branches


@finding(HISTORIES, "I2")
def renamed_tables_keep_their_old_rows(patch: Patch) -> None:
    """A table that one side changed and renamed gets its new name, and the rows from before."""
    content = merge_plan._Planner._content

    def old(self: Any, identity: str) -> Any:
        base, source = self._base.get(identity), self._source.get(identity)
        is_renamed = base is not None and source is not None and base.name != source.name
        return "target" if is_renamed and identity in self._target else content(self, identity)

    patch.setattr(merge_plan._Planner, "_content", old)


@finding(HISTORIES, "I3")
def columns_of_another_type_are_others(patch: Patch) -> None:
    """A column that one side gave another type is not compared, nor carried over."""
    matched = branch_columns.matched

    def strictly(before: Any, after: Any) -> Any:
        return [(None if old is not None and old.type != new.type else old, new) for old, new in matched(before, after)]

    everywhere(patch, "matched", matched, strictly)


@finding(HISTORIES, "I4")
def an_older_base_will_do(patch: Patch) -> None:
    """A deleted branch is collected although it has a merge base, and then an older state takes the place of that."""
    opened = ancestry._opened

    def that_are_left(branched: Any, shared: Any, sides: Any) -> Iterator[Any]:
        for name, side in opened(branched, shared, sides):
            if side is None:
                del shared[name]
            else:
                yield name, side

    def tolerant(branched: Any, shared: Any, sides: Any) -> Any:
        return list(that_are_left(branched, shared, sides))

    def living(of: Any) -> list[Any]:
        return [line for line in lines_of(of) if line.is_living]

    lines_of = reachability.lines_of
    everywhere(patch, "lines_of", lines_of, living)
    patch.setattr(ancestry, "_opened", tolerant)


@finding(HISTORIES, "I5")
def names_are_decided_one_by_one(patch: Patch) -> None:
    """Whether two tables would get one name is not looked at."""
    patch.setattr(merge_plan._Planner, "settle_collisions", lambda self: None)


@finding(HISTORIES, "I6", "I12")
def no_nan_equals_another(patch: Patch) -> None:
    """Floating point numbers are compared as Python does, as keys and inside of lists."""
    same = keys._same_where_valid

    def unequal(one: Any, other: Any, both: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        found = same(one, other, both)
        if pa.types.is_floating(one.type):
            found &= ~np.isnan(one.to_numpy(zero_copy_only=False))
        return found

    patch.setattr(keys, "_same_where_valid", unequal)


@finding(HISTORIES, "I10")
def dictionaries_are_read_where_they_are_not(patch: Patch) -> None:
    """A branch that has not written a table gets a folder at the first read only for indices."""
    patch.setattr(catalog, "_is_looked_up", lambda seen: bool(seen.indices))


@finding(HISTORIES, "I7")
def a_table_made_on_a_branch_is_in_the_main_folder(patch: Patch) -> None:
    """A branch of a branch looks for the files of a table whose manifest names no branch in the table's own folder."""
    as_branch = branch_storage.as_branch

    def by_manifest(own: str, branch: str, folder: str, manifest: Any) -> Any:
        return as_branch(own, branch, folder if manifest.head.branch else folder.partition("/tree/")[0], manifest)

    patch.setattr(branch_storage, "as_branch", by_manifest)


@finding(HISTORIES, "I13")
def a_table_that_is_brought_back_is_another_one(patch: Patch) -> None:
    """A table that a merge brings back to the target gets a new identity."""

    def renewed(target: Any, source: Row) -> Row:
        row = brought(target, source)
        return row.with_notes({**row.notes, ROW_INCARNATION: str(target.environment.new_uuid())})

    brought = folders.brought_row
    everywhere(patch, "brought_row", brought, renewed)


@finding(HISTORIES, "I14")
def what_does_not_fit_is_no_conflict(patch: Patch) -> None:
    """Whether the rows of one side fit the columns and the key of the other is not looked at."""
    for rows in (branch_rows.KeyedRows, branch_rows.PlacedRows):
        patch.setattr(rows, "problem", None)


@finding(HISTORIES, "I16")
def metadata_is_not_merged(patch: Patch) -> None:
    """Of what is set for a table only its configuration is compared and carried over."""
    settings_of = contents.settings_of

    def config_of(pinned: Any, base: Any) -> Any:
        return {place: value for place, value in settings_of(pinned, base).items() if place[0] == "config"}

    patch.setattr(contents, "settings_of", config_of)


@finding(HISTORIES, "I8")
def any_folder_is_free(patch: Patch) -> None:
    """A table that a merge brings to a branch is read in the branch's folder, also if that has versions of its own."""
    patch.setattr(folders, "_is_free", lambda *_: True)


@finding(HISTORIES, "I17")
def a_new_name_is_no_change(patch: Patch) -> None:
    """A table that the target renamed and the source dropped is dropped without a conflict."""

    def differs(base: Any, side: Any) -> bool:
        return base.content == merge_plan.UNKNOWN or base.content != side.content

    patch.setattr(merge_plan, "_differs", differs)
