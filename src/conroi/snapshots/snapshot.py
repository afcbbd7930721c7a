"""Snapshots: one version of a table, loaded, and the storage that its table is in.

A snapshot is a manifest, the transaction that created it, and its indices. The storage has the table's files, its
version store and its environment.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from pyroaring import BitMap

from conroi.environment import Environment, utc_time
from conroi.errors import (
    BaseVersionExpired,
    ConroiError,
    CorruptionError,
    NotFoundError,
    RetryableConflict,
    VersionExpired,
)
from conroi.format.flags import require_readable
from conroi.format.lance_pb2 import IndexMetadata
from conroi.format.manifest import Manifest, check_transaction_fits
from conroi.format.manifest_file import (
    ManifestFile,
    decode_inline_transaction,
    decode_manifest_file,
    transaction_at_front,
)
from conroi.format.naming import ManifestNaming
from conroi.format.on_disk import DATA_DIR, DELETIONS_DIR, TRANSACTIONS_DIR
from conroi.format.references import name_of, names_in_manifest, paths_in_manifest
from conroi.format.row_ids import decode_row_ids
from conroi.format.transaction import Transaction, decode_transaction
from conroi.operations.indices import coverage, covered_fragments, finds_addresses, is_system, without_gained
from conroi.snapshots.branch_storage import resolved
from conroi.storage.cache import BoundedCache
from conroi.storage.objects import Objects
from conroi.version import WRITER
from conroi.versions.folder import ManifestRef, VersionStore
from conroi.versions.retention import collected_at_ns, is_left_over

FRONT_BYTES = 8192
"""Number of bytes at the front of a manifest that are read for the transaction alone, where a second read is cheap."""


@dataclass(frozen=True)
class Snapshot:
    """A manifest and its location. `is_final` is False while it is staged and not visible to others."""

    manifest: Manifest
    located: ManifestRef
    inline_transaction: bytes | None = None
    is_final: bool = True
    is_private: bool = False
    """Whether it is a version inside a transaction, which never gets a file."""
    claims_too_much: bool = False
    """Whether an index in the file covers fragments that it cannot cover; `manifest` has it without them."""
    is_admitted: bool = field(default=False, compare=False, repr=False)
    """Whether it was validated before it came to this process, so that pylance may open it: see conroi.data.admission.
    """
    home: Objects | None = field(default=None, compare=False, repr=False)
    """Of a table of a lake: the storage that has this version. After a merge a table may continue in another folder."""

    @property
    def version(self) -> int:
        return self.manifest.head.version

    @property
    def naming(self) -> ManifestNaming:
        return self.located.naming

    @property
    def indices(self) -> tuple[IndexMetadata, ...]:
        return self.manifest.indices

    def count_row_ids(self, first: int, end: int) -> int:
        """How many rows, deleted ones included, have a stable id from `first` up to, excluding, `end`."""
        ids = (decode_row_ids(each.inline_row_ids, rows=each.physical_rows) for each in self.manifest.fragments)
        return sum(int(((each >= first) & (each < end)).sum()) for each in ids)

    @cached_property
    def timestamp_ns(self) -> int:
        stamp = self.manifest.head.timestamp
        return stamp.seconds * 1_000_000_000 + stamp.nanos

    @cached_property
    def writer(self) -> str:
        """The software that wrote it, such as `lance 14.0.2`."""
        writer = self.manifest.head.writer_version
        return f"{writer.library} {writer.version}".strip()


def load_snapshot(objects: Objects, located: ManifestRef, *, is_unchecked: bool = False) -> Snapshot:
    """Read the manifest file; CorruptionError if it is damaged, UnsupportedError if it needs an unknown feature.

    `is_unchecked`: with the index coverage of the file, valid or not.
    """
    file = _read_file(objects, located)
    require_readable(file.manifest.head)
    if file.manifest.version != located.version:
        raise CorruptionError(
            f"The manifest {located.path} says it is version {file.manifest.version}.",
            table=objects.root,
            version=located.version,
            hint="The file was renamed or copied over another one; restore it from a backup.",
        )
    manifest = resolved(objects.root, file.manifest)
    checked = manifest if is_unchecked else with_checked_coverage(objects, located, manifest)
    return Snapshot(checked, located, file.transaction, claims_too_much=checked is not manifest)


def with_checked_coverage(objects: Objects, located: ManifestRef, manifest: Manifest) -> Manifest:
    """The manifest without invalid index coverage; itself if there is none.

    Lance before 14 adds fragments to indices that answer with addresses (see `without_gained`). What conroi wrote was
    checked when it was built. For what others wrote, an index is compared with the oldest version that has it: about
    log2(versions) manifests are read, once for each index. Versions that were collected cannot be compared with.
    """
    if not manifest.has_stable_row_ids or manifest.head.writer_version.library == WRITER[0]:
        return manifest
    of_addresses = [index for index in manifest.indices if finds_addresses(index) and not is_system(index)]
    before = {index.uuid.uuid: _first_coverage(objects, located, index) for index in of_addresses}
    indices = without_gained(manifest.indices, {uuid: found for uuid, found in before.items() if found is not None})
    return manifest if indices is manifest.indices else manifest.changed(indices=indices)


_FIRST_COVERAGE: BoundedCache[BitMap] = BoundedCache(4 * 1024 * 1024)


def _first_coverage(objects: Objects, located: ManifestRef, index: IndexMetadata) -> BitMap | None:
    """What the index covered at the oldest existing version that has it; None if it does not say."""
    key = (objects.root, index.uuid.uuid)
    known = _FIRST_COVERAGE.get(key)
    if known is not None:
        return known
    found: BitMap | None = None
    below, above = index.dataset_version, located.version  # versions without it, or gone; and with it
    while below + 1 < above:
        middle = (below + above) // 2
        then = _coverage_at(objects, ManifestRef(middle, located.naming.path(middle), located.naming), index.uuid.uuid)
        if then is None:
            below = middle
        else:
            above, found = middle, then
    first = covered_fragments(index) if found is None else found
    if first is not None:
        _FIRST_COVERAGE.put(key, first, 64 + len(first.serialize()))
    return first


def _coverage_at(objects: Objects, located: ManifestRef, uuid: bytes) -> BitMap | None:
    try:
        manifest = _read_file(objects, located).manifest
    except NotFoundError:
        return None
    return coverage(manifest.indices).get(uuid)


def _read_file(objects: Objects, located: ManifestRef) -> ManifestFile:
    try:
        return decode_manifest_file(objects.get(located.path))
    except NotFoundError:
        raise VersionExpired(
            f"Version {located.version} does not exist any more.",
            table=objects.root,
            version=located.version,
            hint="It was collected as an old version; versions() lists those that can be opened.",
        ) from None
    except CorruptionError as error:
        raise CorruptionError(error.message, table=objects.root, version=located.version, hint=error.hint) from error


def load_transaction(objects: Objects, snapshot: Snapshot) -> Transaction | None:
    """The transaction that created the version: from the manifest, else from its file; None if neither exists."""
    if snapshot.inline_transaction is not None:
        return _fitting(snapshot, decode_transaction(snapshot.inline_transaction))
    name = snapshot.manifest.head.transaction_file
    if not name:
        return None
    try:
        return _fitting(snapshot, decode_transaction(objects.get(f"{TRANSACTIONS_DIR}/{name}")))
    except NotFoundError:
        return None


def _fitting(snapshot: Snapshot, transaction: Transaction) -> Transaction:
    """The transaction, if it is the one that the manifest names."""
    check_transaction_fits(snapshot.manifest, transaction)
    return transaction


def load_only_transaction(objects: Objects, located: ManifestRef) -> Transaction | None:
    """The transaction inside a manifest, without the rest: for versions that are only checked for conflicts."""
    if objects.is_local:
        front = transaction_at_front(objects.get_range(located.path, 0, FRONT_BYTES))
        if front is not None:
            return decode_transaction(front)
    inline = decode_inline_transaction(objects.get(located.path))
    return None if inline is None else decode_transaction(inline)


# ---------------------------------------------------------------------------- where the table is

Kept = TypeVar("Kept")


@dataclass(frozen=True)
class TableStorage:
    """Storage of one table: everything that a commit reads or writes."""

    objects: Objects
    versions: VersionStore
    environment: Environment
    is_managed: ClassVar[bool] = False
    """Whether a catalog commits its versions, together with those of other tables."""

    @cached_property
    def _kept(self) -> dict[object, Any]:
        return {}

    def kept(self, kind: Callable[[Environment], Kept]) -> Kept:
        """The one object of this class that belongs to this storage, such as its fairness state."""
        if kind not in self._kept:
            self._kept[kind] = kind(self.environment)
        return self._kept[kind]

    @property
    def root(self) -> str:
        return self.objects.root

    @property
    def name(self) -> str:
        """The table's name in errors: its address, or its name in a lake."""
        return self.root

    @property
    def may_branch(self) -> bool:
        """Whether its versions may be merged with those of a branch, where the same field id may mean another field.

        The next field id is the same on every branch, and the id of a dropped column is assigned again.
        """
        return False

    def refuse_past(self) -> None:
        """InvalidInputError if this is a table of a past lake version, which is read-only."""

    def current(self) -> TableStorage:
        """The storage of the table at its newest state."""
        return self

    def holding(self, snapshot: Snapshot) -> TableStorage:  # noqa: ARG002 (a table of a lake may go on in another folder)
        """The storage that has this version of the table."""
        return self

    def head(self) -> Snapshot:
        """The newest version, loaded."""
        located = self.versions.latest()
        if located is None:
            raise NotFoundError(
                f"There is no Lance table at {self.root}.",
                table=self.root,
                hint="Check the path, or make the table with conroi.create_table(uri, schema_or_data).",
            )
        return self._loaded(located)

    def newest(self, known: Snapshot) -> Snapshot:
        """The newest version; `known` itself, without reading it again, if it still is the newest."""
        located = self.versions.latest()
        if located is None or located.version < known.version:
            return self.head()
        is_same = located == known.located and located.stamp == known.located.stamp
        return known if is_same else self._loaded(located)

    def _loaded(self, located: ManifestRef) -> Snapshot:
        """This version, without reading it again if it is the last one of this process and its file is unchanged."""
        last: Snapshot | None = self._kept.get(Snapshot)
        if last is None or located != last.located or located.stamp != last.located.stamp:
            last = load_snapshot(self.objects, located)
            self.remember(last)
        return last

    def remember(self, snapshot: Snapshot) -> None:
        """Keep this version, which was committed or read just now; only where its stamp shows a change of its file."""
        if snapshot.located.stamp:
            self._kept[Snapshot] = snapshot


@contextmanager
def version_in_use(
    objects: Objects,
    snapshot: Snapshot | None,
    *,
    is_base: bool = False,
    staged: Callable[[], Snapshot | None] = lambda: None,
) -> Generator[None]:
    """Context manager around reads of a version: VersionExpired if the version was collected meanwhile.

    `is_base`: a transaction or a verb started from it, so the work can be done again on a newer version. `staged` is
    what a transaction has made of it: RetryableConflict if files of that were collected.
    """
    try:
        yield
    except BaseVersionExpired:
        raise
    except VersionExpired as error:
        if not is_base:
            raise
        raise expired(objects, error.version, is_base=True, table=error.table) from error
    except (CorruptionError, NotFoundError) as error:
        if snapshot is not None and not snapshot.is_private and _is_collected(objects, snapshot):
            raise expired(objects, snapshot.version, is_base=is_base, table=error.table) from error
        path = _missing(objects, snapshot, staged())
        if path is not None:
            raise took_too_long(objects, path) from error
        raise


def _missing(objects: Objects, base: Snapshot | None, staged: Snapshot | None) -> str | None:
    """A file of rows that was staged on the base and is not there any more."""
    known = set[str]() if base is None else set(names_in_manifest(base.manifest))
    paths = () if staged is None else paths_in_manifest(staged.manifest)
    of_rows = (path for path in paths if path.startswith((f"{DATA_DIR}/", f"{DELETIONS_DIR}/")))
    return next((path for path in of_rows if name_of(path) not in known and objects.head(path) is None), None)


def took_too_long(objects: Objects, path: str) -> RetryableConflict:
    """The error for a file that was collected before the work that wrote it was committed."""
    return RetryableConflict(
        f"This work took so long that {path}, which it needs, may have been collected meanwhile.",
        table=objects.root,
        hint="Run the work again, in less time; or let gc() spare younger files: a larger min_age.",
    )


def _is_collected(objects: Objects, snapshot: Snapshot) -> bool:
    """Whether the version was collected; a paused writer may have put a manifest under its number since."""
    located = snapshot.located
    return not is_there(objects, snapshot) or is_left_over(objects, located.version, located.path)


def is_there(objects: Objects, snapshot: Snapshot) -> bool:
    """Whether the version's manifest still exists, under its final or its staged name."""
    paths = {snapshot.located.path, snapshot.naming.path(snapshot.version)}
    return any(objects.head(path) is not None for path in sorted(paths))


def expired(
    objects: Objects, version: int | None, *, is_base: bool = False, table: str | None = None
) -> VersionExpired:
    """The error for an expired version."""
    try:
        moment_ns = None if version is None else collected_at_ns(objects, version)
    except ConroiError:  # only the time is lost by that
        moment_ns = None
    moment = None if moment_ns is None else utc_time(moment_ns)
    when = "" if moment is None else f", at {moment:%Y-%m-%d %H:%M:%S} UTC at the latest"
    what = "The version" if version is None else f"Version {version}"
    if is_base:
        return BaseVersionExpired(
            f"{what}, on which this work was begun, was collected as an old version{when}.",
            table=table or objects.root,
            version=version,
            base_version=version,
            collected_at=moment,
            hint="Do the work again on the newest version: lake.run(function) and conroi.retry do that. "
            'lake.begin(keep="1h") keeps the version for as long as the work takes.',
        )
    return VersionExpired(
        f"{what} was collected as an old version{when}.",
        table=table or objects.root,
        version=version,
        collected_at=moment,
        hint="Open a newer version: latest() gives the newest, versions() lists all. To hold a version for "
        'long, tag it, or open it with at(version, keep="1h").',
    )
