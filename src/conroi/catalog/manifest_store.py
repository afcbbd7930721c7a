"""Catalog store on the `__manifest` table.

One version of `__manifest` is one version of the lake. A publication is one Update of it, rebuilt on the newest state
at each attempt. Its conditional put succeeds only if there was no concurrent publication.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import takewhile

from pyroaring import BitMap

from conroi import history, operations
from conroi.catalog.manifest_rows import check_columns, key_filter, load_rows, write_deletions, write_fragment
from conroi.catalog.rows import Row
from conroi.catalog.state import (
    Changes,
    CommitMetadata,
    LakeState,
    Member,
    decode_members,
    decode_records,
    encode_members,
    encode_records,
    lay_out_rows,
)
from conroi.catalog.store import DependenciesOf, Published, Seen, Task
from conroi.commit.conditional_put import Putting
from conroi.commit.fairness import PriorityToken, Turns
from conroi.environment import LONG_AGO, moment, seconds_since, utc_time
from conroi.errors import ConroiError, NotFoundError, VersionExpired
from conroi.format import lance_pb2 as pb
from conroi.format.manifest_file import lay_out
from conroi.format.naming import version_after
from conroi.format.on_disk import IDEMPOTENCY_DIR, TRANSACTIONS_DIR, WRITER_PROPERTY
from conroi.format.transaction import Transaction, encode_transaction
from conroi.operations import Step, Update
from conroi.snapshots.snapshot import Snapshot, TableStorage, load_snapshot, load_transaction
from conroi.storage.parallel import ProcessLock, together
from conroi.version import WRITER
from conroi.versions.folder import ManifestRef
from conroi.versions.retention import ages, watermark

READ_AHEAD = 16
"""Number of versions that a client that is far behind reads in parallel."""
FOLLOW_AT_MOST = 64
"""Number of new versions above which the rows are read instead of the commits."""


class ManifestStore:
    """The states of one lake, in its `__manifest` table."""

    def __init__(self, files: TableStorage, view: Callable[[LakeState], LakeState] | None = None) -> None:
        self.turns = files.kept(Turns)
        self._files = files
        self._view = view
        """How a branch sees rows that are not its own."""
        self._snapshots: dict[int, Snapshot] = {}
        """The manifests of the states that were seen last, by version: the next one is built on them."""
        self._newest = 0
        """The newest version that was seen."""
        self._looked_at = moment(files.environment)
        self._lock = ProcessLock()

    def priority_token(self) -> PriorityToken:
        return PriorityToken(self._files.objects, self._files.environment, self.turns.me)

    # ------------------------------------------------------------------------ looking

    def newest(self, known: LakeState | None) -> Seen:
        if known is None or known.version not in self._snapshots:
            return Seen(self._load_newest(), is_complete=known is None)
        asked_at, state, commits = moment(self._files.environment), known, list[Published]()
        ahead = 1
        while found := self._following(state.version, ahead):
            for snapshot in found:
                following = self._follow(state, snapshot)
                if following is None or state.version - known.version >= FOLLOW_AT_MOST:
                    return self._seen_anew(commits, self._collected_until(is_following=bool(commits)))
                state, published = following
                commits += published
            if len(found) < ahead and state.version >= self._newest:
                break
            ahead = 1 if self._files.objects.is_local else min(state.version - known.version, READ_AHEAD)
        mark = self._collected_until(is_following=bool(commits))
        if (commits and mark > known.version) or self._is_superseded(state.version, mark):
            return self._seen_anew(commits, mark)
        self._looked_at = asked_at
        self._files.versions.saw(self._snapshots[state.version].located, asked_at)
        return Seen(state, tuple(commits))

    def follow_known(self, state: LakeState) -> Seen:
        commits: list[Published] = []
        while (snapshot := self._snapshots.get(state.version + 1)) is not None and not self._is_look_old():
            following = self._follow(state, snapshot)
            if following is None:
                break
            state, published = following
            commits += published
        return Seen(state, tuple(commits))

    def _seen_anew(self, commits: Sequence[Published], mark: int) -> Seen:
        sure = tuple(each for each in commits if each.version > mark)
        return Seen(self._load_newest(), sure, is_complete=False)

    def _collected_until(self, *, is_following: bool) -> int:
        """The watermark of our own collectors; 0 where none of the versions that were followed can be below it.

        A paused writer puts its version under a name that was collected, and may die before it sees the watermark: what
        is there is no part of the history. Asked after the versions were read. On local disk the watermark costs no
        request; elsewhere it is skipped within the grace period after the last look.
        """
        if self._files.objects.is_local or (is_following and self._is_look_old()):
            return watermark(self._files.objects)
        return 0

    def _is_look_old(self) -> bool:
        return seconds_since(self._files.environment, self._looked_at) >= ages().version_s / 2

    def _is_superseded(self, version: int, mark: int) -> bool:
        """Whether newer versions exist although the next one does not: it was collected.

        The watermark tells, without a clock. Elsewhere than on local disk a look at the newest version costs a request,
        which is skipped within the grace period after the last look, when nothing can have been collected.
        """
        if version < self._newest or mark >= version:
            return True
        if not self._is_look_old():
            return False
        located = self._files.versions.latest()
        return located is not None and located.version > version

    def has_moved(self, known: LakeState, versions: int) -> bool:
        if not self._files.objects.is_local:
            return False
        naming = self._snapshots[known.version].naming
        return self._files.objects.head(naming.path(known.version + versions)) is not None

    def _following(self, version: int, ahead: int) -> list[Snapshot]:
        """The versions after this one, at most so many, up to the first that is not there.

        A reader that is far behind reads more and more of them in one round trip, so that it catches up with writers
        that are faster than its requests.
        """
        if ahead == 1:
            met = self._snapshots.get(version + 1)
            if met is not None:
                return [met]
            located = self._located(version + 1, like=version)
            is_there = not self._files.objects.is_local or self._files.objects.head(located.path) is not None
            read = self._read(located) if is_there else None
            snapshot = read or self._snapshots.get(version + 1)  # another thread may have seen or made it meanwhile
            return [] if snapshot is None else [self._remember(snapshot)]
        found = dict[int, Snapshot | None]()

        def look(each: int) -> None:
            found[each] = self._snapshots.get(each) or self._read(self._located(each, like=version))

        together([partial(look, version + step) for step in range(1, ahead + 1)], is_local=False)
        read_ahead = [found[version + step] for step in range(1, ahead + 1)]
        return [self._remember(each) for each in takewhile(lambda each: each is not None, read_ahead) if each]

    def _located(self, version: int, *, like: int) -> ManifestRef:
        naming = self._snapshots[like].naming
        return ManifestRef(version, naming.path(version), naming)

    def _read(self, located: ManifestRef) -> Snapshot | None:
        try:
            return load_snapshot(self._files.objects, located)
        except NotFoundError:
            return None

    def _follow(self, state: LakeState, snapshot: Snapshot) -> tuple[LakeState, list[Published]] | None:
        """The state after this commit, by what it says itself; None if it does not say."""
        transaction = load_transaction(self._files.objects, snapshot)
        if transaction is None:
            return None
        self.turns.saw(snapshot.version, transaction, snapshot.timestamp_ns)
        properties = transaction.properties
        records = decode_records(properties)
        if records is None or transaction.read_version != state.version:
            return None
        changes, kind = records
        layout = lay_out_rows(state, changes, kind)
        fragment = snapshot.manifest.head.max_fragment_id
        following = state.following(snapshot.version, snapshot.timestamp_ns, changes, layout, fragment)
        return following, _published(snapshot, transaction, properties, changes)

    def _load_newest(self) -> LakeState:
        asked_at = moment(self._files.environment)
        state = self._state(self._files.head())
        self._looked_at = asked_at
        return state

    def _state(self, snapshot: Snapshot) -> LakeState:
        """The state by reading all rows."""
        check_columns(snapshot.manifest, self._files.root)
        state = load_rows(self._files, self._remember(snapshot))
        return state if self._view is None else self._view(state)

    def _remember(self, snapshot: Snapshot) -> Snapshot:
        with self._lock:
            self._snapshots[snapshot.version] = snapshot
            self._newest = max(self._newest, snapshot.version)
            while len(self._snapshots) > 2 * FOLLOW_AT_MOST:
                self._snapshots.pop(min(self._snapshots))
        return snapshot

    # ------------------------------------------------------------------------ publishing

    compares_in_put = False
    """The put compares the version of the whole lake."""

    def build(
        self,
        base: LakeState,
        changes: Changes,
        notes: CommitMetadata,
        uuid: str,
        dependencies: DependenciesOf,  # noqa: ARG002
    ) -> ManifestAttempt:
        head = self._snapshots.get(base.version) or self._remember(history.find(self._files, base.version))
        return ManifestAttempt(self, self._files, head, base, [Member(uuid, notes, changes)])

    def build_group(self, base: LakeState, members: Sequence[Member]) -> ManifestAttempt:
        head = self._snapshots.get(base.version) or self._remember(history.find(self._files, base.version))
        return ManifestAttempt(self, self._files, head, base, members)

    def lost_to(self, snapshot: Snapshot | None) -> None:
        """Cache a version that was committed before ours."""
        if snapshot is not None:
            self._remember(snapshot)

    def look_anew(self) -> None:
        """Discard the cached newest version: it may have been collected."""
        self._looked_at = LONG_AGO

    def landed(self, snapshot: Snapshot, transaction: Transaction) -> None:
        """Cache a version that we committed."""
        self._remember(snapshot)
        self.turns.saw(snapshot.version, transaction)

    # ------------------------------------------------------------------------ the past

    def at(self, version: int) -> LakeState:
        try:
            found = history.find(self._files, version)
            history.refuse_reused(self._files, found.located)
            return self._state(found)
        except VersionExpired:
            raise
        except NotFoundError:
            raise NotFoundError(
                f"There is no version {version} of the lake.",
                version=version,
                hint="It never existed, or it expired and was collected; lake.history() lists the versions.",
            ) from None

    def as_of(self, moment: datetime | str) -> LakeState:
        try:
            return self._state(history.find(self._files, as_of=moment))
        except VersionExpired:
            raise
        except NotFoundError:
            raise NotFoundError(
                "The lake has no version that old.", hint="lake.history() lists what there is."
            ) from None

    def history(self, newest: int, limit: int | None) -> Iterator[Published]:
        left = limit
        for snapshot in history.snapshots(self._files, limit, newest):
            found = _published_by(snapshot, load_transaction(self._files.objects, snapshot))
            yield from found[::-1][:left]
            left = None if left is None else left - len(found)
            if left is not None and left <= 0:
                return

    # ------------------------------------------------------------------------ idempotency keys

    def published_as(self, key: str) -> Published | None:
        for path in self._files.objects.list_names(_key_folder(key)):
            name = path.rpartition("/")[2]
            # A file that is being written, or was left by a crashed writer, has another kind of name.
            located = self._files.versions.locate(int(name)) if name.isdecimal() else None
            if located is None:
                continue
            snapshot = load_snapshot(self._files.objects, located)
            for published in _published_by(snapshot, load_transaction(self._files.objects, snapshot)):
                if published.notes.idempotency_key == key:
                    return published
        return None

    def will_try(self, key: str, version: int) -> None:
        self._files.objects.put(f"{_key_folder(key)}/{version}", b"{}")


def _key_folder(key: str) -> str:
    return f"{IDEMPOTENCY_DIR}/{hashlib.sha256(key.encode()).hexdigest()[:40]}"


def _published_by(snapshot: Snapshot, transaction: Transaction | None) -> list[Published]:
    properties = {} if transaction is None else transaction.properties
    records = decode_records(properties)
    return _published(snapshot, transaction, properties, None if records is None else records[0])


def _published(
    snapshot: Snapshot, transaction: Transaction | None, properties: Mapping[str, str], changes: Changes | None
) -> list[Published]:
    """The commits of a version, in their order: one, unless it was a group commit."""
    timestamp = utc_time(snapshot.timestamp_ns)
    operation = "Unknown" if transaction is None else transaction.operation_name
    members = decode_members(properties, changes)
    if members is not None:
        found = [(each.uuid, each.notes, None if changes is None else each.changes) for each in members]
        return [Published(snapshot.version, timestamp, notes, uuid, own, operation) for uuid, notes, own in found]
    uuid = None if transaction is None else transaction.uuid
    return [Published(snapshot.version, timestamp, CommitMetadata.of(properties), uuid, changes, operation)]


class ManifestAttempt:
    """The next version of `__manifest`, built on one state: its rows, transaction and manifest.

    It has one publication, or those of several threads of this process: see conroi.catalog.group_commit.
    """

    def __init__(
        self,
        heads: ManifestStore,
        files: TableStorage,
        head: Snapshot,
        base: LakeState,
        members: Sequence[Member],
    ) -> None:
        uuid = members[0].uuid if len(members) == 1 else str(files.environment.new_uuid())
        changes: Changes = members[0].changes
        if len(members) > 1:
            changes = {key: row for member in members for key, row in member.changes.items()}
        self._heads = heads
        self._files = files
        self._head = head
        self._base = base
        self._changes = changes
        self._layout = lay_out_rows(base, changes)
        self._version = version_after(base.version)
        self._putting = Putting(files, uuid)
        operation, writes = self._operation()
        self._transaction = operations.transaction(
            operation,
            read_version=base.version,
            uuid=uuid,
            properties={
                **(members[0].notes.to_properties() if len(members) == 1 else encode_members(members)),
                **encode_records(changes, self._layout.kind),
                WRITER_PROPERTY: heads.turns.me,
            },
        )
        encoded = encode_transaction(self._transaction)
        manifest = operations.build(
            head.manifest,
            self._transaction,
            operation,
            Step(version=self._version, read=head.manifest),
            timestamp_ns=max(files.environment.now_ns(), base.timestamp_ns + 1),
            writer_version=WRITER,
        )
        self._data, self._file = lay_out(manifest, encoded)
        # An attempt before this one, on the same state, has left the same name with other content.
        path = f"{TRANSACTIONS_DIR}/{self._transaction.file_name}"
        self.tasks: list[Task] = [partial(files.objects.put, path, encoded)]
        for path, data in writes:
            self.tasks.append(partial(files.objects.put_unique, path, data))

    def _operation(self) -> tuple[Update, list[tuple[str, bytes]]]:
        """The change of `__manifest`, and the files that are to be put before it."""
        base, head = self._base, self._head.manifest
        updated: list[pb.DataFragment] = []
        new: list[pb.DataFragment] = []
        writes: list[tuple[str, bytes]] = []
        arriving: list[Row] = []
        rows: list[Row] = []
        for object_id in self._layout.written:
            row = self._changes.get(object_id)
            rows.append(row or base.rows[object_id])
            if row is not None and object_id not in base.rows:
                arriving.append(row)
        if rows:
            fragment, file = write_fragment(self._files, head, rows)
            new.append(fragment)
            writes += [] if file is None else [file]
        for number, offsets in self._layout.deleted.items():
            fragment, file = self._with_deletions(number, offsets)
            updated.append(fragment)
            writes.append(file)
        operation = Update(
            removed_fragment_ids=self._layout.removed,
            updated_fragments=tuple(updated),
            new_fragments=tuple(new),
            fields_for_preserving_frag_bitmap=tuple(field.id for field in head.fields),
            inserted_rows=key_filter(head, arriving) if arriving else None,
        )
        return operation, writes

    def _with_deletions(self, number: int, offsets: BitMap) -> tuple[pb.DataFragment, tuple[str, bytes]]:
        """A fragment without these rows, and its deletion file."""
        fragment = pb.DataFragment()
        fragment.CopyFrom(self._head.manifest.fragments_by_id[number])
        gone = self._base.dead.get(number, BitMap()) | offsets
        file, written = write_deletions(self._files.environment, number, self._base.version, gone)
        fragment.deletion_file.CopyFrom(file)
        return fragment, written

    def put(self) -> LakeState | None:
        naming = self._head.naming
        located = ManifestRef(self._version, naming.path(self._version), naming)
        try:
            snapshot = self._putting.put(located, self._data, self._file)
        except ConroiError:
            self._heads.look_anew()
            raise
        if snapshot is None:
            self._heads.lost_to(self._putting.taken)
            return None
        self._heads.landed(snapshot, self._transaction)
        fragment = snapshot.manifest.head.max_fragment_id
        return self._base.following(self._version, snapshot.timestamp_ns, self._changes, self._layout, fragment)
