"""Versions of one linear history: a scan of the manifests, newest first, and what is checked of each version.

The scan keeps of each version only what is compared later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import le

from google.protobuf.message import DecodeError

from conroi.doctor.subject import Subject
from conroi.errors import ConroiError, CorruptionError, NotFoundError, UnsupportedError
from conroi.format import lance_pb2 as pb
from conroi.format.fields import key_columns
from conroi.format.flags import require_readable, require_writable
from conroi.format.json import decode_document
from conroi.format.manifest import Manifest, check_transaction_fits
from conroi.format.manifest_file import ManifestFile, decode_manifest_file
from conroi.format.naming import transaction_path
from conroi.format.transaction import Transaction, decode_transaction
from conroi.snapshots.branch_storage import resolved
from conroi.snapshots.snapshot import Snapshot, TableStorage
from conroi.versions.folder import FolderVersions, ManifestRef
from conroi.versions.retention import watermark

SLOW_CLOCK_NS = 2 * 1_000_000_000
"""Nanoseconds of clock skew between hosts that are not reported."""
MOST_MISSING = 1000
"""Maximum number of missing versions that are looked up one by one."""
FAST_CLOCK_NS = 60 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class VersionFacts:
    """The facts that are kept of one version."""

    version: int
    path: str
    timestamp_ns: int
    uuid: str
    """The transaction that created it; '' if unknown."""
    key: tuple[str, ...]
    transaction: Transaction | None
    """Kept only where asked for."""


@dataclass(slots=True)
class FragmentUse:
    """A fragment exactly as it occurs in one or more versions."""

    fragment: pb.DataFragment
    version: int
    """The newest version that has it."""
    manifest_path: str
    bases: tuple[pb.BasePath, ...]
    versions: int = 1
    is_in_head: bool = False


@dataclass(slots=True)
class IndexUse:
    """An index and the newest version that has it."""

    index: pb.IndexMetadata
    version: int
    manifest_path: str
    bases: tuple[pb.BasePath, ...]


@dataclass(slots=True)
class Line:
    """All that the manifests of one line say."""

    facts: dict[int, VersionFacts] = field(default_factory=dict[int, VersionFacts])
    head: Snapshot | None = None
    fragments: dict[bytes, FragmentUse] = field(default_factory=dict[bytes, FragmentUse])
    """By their bytes: what many versions share is checked once."""
    indices: dict[bytes, IndexUse] = field(default_factory=dict[bytes, IndexUse])
    transactions: set[str] = field(default_factory=set[str])
    """The transaction files that are named."""
    is_sound: bool = True
    """Whether the manifest of the newest version is valid."""


class LineReader:
    """Reads the manifests of a subject."""

    def __init__(self, subject: Subject, *, keep_transactions: bool = False) -> None:
        self._subject = subject
        self._keep_transactions = keep_transactions
        self._keys: dict[bytes, tuple[str, ...]] = {}
        self._ids: dict[bytes, int] = {}
        self._counts: Counter[bytes] = Counter()
        self._in_head: set[bytes] = set()
        self._on_the_line: set[ManifestRef] = set()
        self._line = Line()

    def read(self) -> Line:
        """All versions; what cannot be read is a finding."""
        self._find_mixed_names()
        wanted = self._wanted()
        for located, data in zip(wanted, self._subject.each(self._get, wanted), strict=True):
            if data is not None:
                self._subject.examination.looked_at("manifests")
                with self._subject.going_on(f"Reading {located.path}"):
                    self._examine(located, data)
        for encoded, use in self._line.fragments.items():
            use.versions, use.is_in_head = self._counts[encoded], encoded in self._in_head
        return self._line

    def _wanted(self) -> list[ManifestRef]:
        manifests = self._subject.listed.manifests
        found = {version: named[0] for version, named in manifests.items()}
        head = self._subject.head
        if head is not None:
            found[head.version] = head  # which may be staged still
        self._on_the_line = set(found.values())
        ordered = [found[version] for version in sorted(found, reverse=True)]
        return [*ordered, *self._subject.listed.detached, *self._subject.also]

    def _get(self, located: ManifestRef) -> bytes | None:
        try:
            return self._subject.objects.get(located.path)
        except NotFoundError:  # finished or collected since it was listed; pins are looked at by themselves
            return None
        except CorruptionError as error:
            self._bad("manifest-unreadable", located, error.message)
            return None

    def _find_mixed_names(self) -> None:
        named = [each for found in self._subject.listed.manifests.values() for each in found]
        if len({located.naming for located in named}) > 1:
            self._subject.add("mixed-manifest-names", "Manifests are named by both schemes, V1 and V2.")

    # ------------------------------------------------------------------------ one manifest

    def _examine(self, located: ManifestRef, data: bytes) -> None:
        try:
            file = decode_manifest_file(data)
            encoded = pb.EncodedRun.FromString(file.manifest.message).encoded_fragments
        except (ConroiError, DecodeError) as error:
            text = error.message if isinstance(error, ConroiError) else f"The manifest is damaged ({error})."
            self._bad("manifest-unreadable", located, text)
            return
        manifest = resolved(self._subject.objects.root, file.manifest)
        if manifest.version != located.version:
            self._bad("manifest-misnamed", located, f"The manifest says that it is version {manifest.version}.")
            return
        if not self._examine_flags(located, manifest):
            return
        is_head = located == self._subject.newest
        problems = self._line_up(located, manifest, encoded)
        for kind, what in problems:
            self._bad(kind, located, what)
        self._remember(located, ManifestFile(manifest, file.transaction))
        if is_head:
            self._line.head = Snapshot(manifest, located, file.transaction, is_final=self._is_final(located))

    def _is_final(self, located: ManifestRef) -> bool:
        return located.path == located.naming.path(located.version)

    def _bad(self, kind: str, located: ManifestRef, what: str) -> None:
        self._subject.add(kind, what, version=located.version, path=located.path)
        if located == self._subject.newest:
            self._line.is_sound = False

    def _examine_flags(self, located: ManifestRef, manifest: Manifest) -> bool:
        try:
            require_readable(manifest.head)
            if located == self._subject.newest:
                require_writable(manifest.head)
        except CorruptionError as error:
            self._bad("flags-contradict", located, error.message)
        except UnsupportedError as error:
            is_reading = "cannot read" in error.message
            self._bad("unknown-reader-flags" if is_reading else "unknown-writer-flags", located, error.message)
            return not is_reading
        else:
            return True
        return False

    def _line_up(self, located: ManifestRef, manifest: Manifest, encoded: Sequence[bytes]) -> list[tuple[str, str]]:
        """Collect the fragments; each new one is decoded."""
        bases = tuple(manifest.head.base_paths)
        # A thousand appends repeat half a million fragments in their manifests: next to nothing is done for each.
        self._counts.update(encoded)
        if located == self._subject.newest:
            self._in_head = set(encoded)
        for each in encoded if None in map(self._ids.get, encoded) else ():
            if each not in self._ids:
                try:
                    fragment = pb.DataFragment.FromString(each)
                except DecodeError as error:
                    return [("manifest-unreadable", f"A fragment in the manifest is damaged ({error}).")]
                self._line.fragments[each] = FragmentUse(fragment, located.version, located.path, bases)
                self._ids[each] = fragment.id
        return list(_id_problems([self._ids[each] for each in encoded], optional_mark(manifest)))

    # ------------------------------------------------------------------------ what is kept of it

    def _remember(self, located: ManifestRef, file: ManifestFile) -> None:
        head = file.manifest.head
        for index in file.manifest.indices:
            use = IndexUse(index, located.version, located.path, tuple(head.base_paths))
            self._line.indices.setdefault(index.uuid.uuid, use)
        if head.transaction_file:
            self._line.transactions.add(transaction_path(head.transaction_file))
        transaction = self._transaction(located, file)
        if located not in self._on_the_line:
            return
        stamp = head.timestamp
        self._line.facts[located.version] = VersionFacts(
            located.version,
            located.path,
            stamp.seconds * 1_000_000_000 + stamp.nanos,
            transaction.uuid if transaction is not None else head.transaction_file.partition("-")[2][:-4],
            self._key(head),
            transaction if self._keep_transactions else None,
        )

    def _key(self, head: pb.ManifestHead) -> tuple[str, ...]:
        """Most versions have the same columns, whose key is worked out once."""
        columns = pb.ManifestHead(fields=head.fields).SerializeToString(deterministic=True)
        if columns not in self._keys:
            self._keys[columns] = key_columns(head.fields)
        return self._keys[columns]

    def _transaction(self, located: ManifestRef, file: ManifestFile) -> Transaction | None:
        """The transaction of a version, from inside it or from its file, compared with what the version says."""
        data = file.transaction if file.transaction is not None else self._transaction_file(located, file.manifest)
        if data is None:
            return None
        try:
            transaction = decode_transaction(data)
        except ConroiError as error:
            self._subject.add("transaction-unreadable", error.message, version=located.version, path=located.path)
            return None
        try:
            check_transaction_fits(file.manifest, transaction)
        except CorruptionError as error:
            self._subject.add("transaction-mismatch", error.message, version=located.version, path=located.path)
        return transaction

    def _transaction_file(self, located: ManifestRef, manifest: Manifest) -> bytes | None:
        name = manifest.head.transaction_file
        try:
            if name:
                return self._subject.objects.get(transaction_path(name))
        except NotFoundError:
            pass
        what = "The manifest has no transaction inside" + (
            f", and the file {name} is gone." if name else " or beside it."
        )
        self._subject.add("transaction-missing", what, version=located.version, path=located.path)
        return None


def optional_mark(manifest: Manifest) -> int | None:
    """The largest fragment id that the manifest says was ever used."""
    return manifest.head.max_fragment_id if manifest.head.HasField("max_fragment_id") else None


def _id_problems(ids: list[int], mark: int | None) -> Iterator[tuple[str, str]]:
    if not ids:
        return
    if any(map(le, ids[1:], ids)):
        repeated = sorted(each for each, count in Counter(ids).items() if count > 1)[:5]
        how = f"has fragment {', '.join(map(str, repeated))} twice" if repeated else "has its fragments out of order"
        yield "fragment-id-twice", f"The version {how}."
    if mark is not None and max(ids) > mark:
        yield (
            "fragment-id-over-mark",
            f"The version has fragment {max(ids)}, above the largest id it says was ever used ({mark}).",
        )


# ---------------------------------------------------------------------------- checks of the versions


def check_versions(subject: Subject, line: Line) -> None:
    """All of them."""
    _check_gaps(subject)
    _check_clocks(subject, line)
    if subject.is_gone:
        return
    _check_key(subject, line)
    _check_hint(subject)
    for located in subject.listed.detached:
        subject.add("detached-manifest", "A version is off the line.", version=located.version, path=located.path)


def _check_gaps(subject: Subject) -> None:
    """A version may be missing if only retained versions (tags and the like) exist below it.

    A table on a branch of a lake may have copies of versions from before it, with gaps between them. What its lake
    needs there is compared with what the lake pins.
    """
    if subject.is_branch and subject.is_in_lake:
        return
    head = subject.newest
    present = set(subject.listed.manifests) | ({head.version} if head is not None else set())
    ordered = sorted(present)
    for lower, upper in pairwise(ordered):
        if upper - lower > 1 and lower not in subject.kept:
            # One that came while we listed is there by now.
            # Of a gap as wide as numbers go, its ends.
            wide = range(lower + 1, upper)
            near = wide if len(wide) <= MOST_MISSING else [*wide[:MOST_MISSING], wide[-1]]
            gaps = [each for each in near if subject.objects.head(_path(subject, each)) is None]
            if gaps and gaps[-1] > watermark(subject.objects):  # else they were collected
                which = f"{gaps[0]}" if gaps[0] == gaps[-1] else f"{gaps[0]} to {gaps[-1]}"
                subject.add("version-gap", f"Version {which} is missing, although {lower} is there.", version=gaps[0])


def _path(subject: Subject, version: int) -> str:
    newest = subject.newest
    assert newest is not None
    return newest.naming.path(version)


def _check_clocks(subject: Subject, line: Line) -> None:
    facts = [line.facts[version] for version in sorted(line.facts)]
    latest = subject.examination.now_ns + FAST_CLOCK_NS
    for each in facts:
        if each.timestamp_ns > latest:
            ahead_s = (each.timestamp_ns - subject.examination.now_ns) // 1_000_000_000
            subject.add("clock-ahead", f"The version is dated {ahead_s:,} s ahead.", version=each.version)
    for earlier, later in pairwise(facts):
        back_ns = earlier.timestamp_ns - later.timestamp_ns
        if back_ns > SLOW_CLOCK_NS:
            what = f"The version is dated {back_ns / 1e9:,.0f} s before version {earlier.version}."
            subject.add("clock-backwards", what, version=later.version)


def _check_key(subject: Subject, line: Line) -> None:
    head = None if line.head is None else line.facts.get(line.head.version)
    had: list[VersionFacts] = [facts for facts in line.facts.values() if facts.key]
    if head is None or head.key or not had:
        return
    newest = max(had, key=lambda facts: facts.version)
    subject.add(
        "key-lost",
        f"In version {newest.version} the key was {', '.join(newest.key)}.",
        version=head.version,
        hint=f"Declare it again with table.declare_key({list(newest.key)!r}), which checks the rows.",
    )


def _check_hint(subject: Subject) -> None:
    path = subject.listed.hint
    if path is None or not subject.listed.manifests or _is_good_hint(subject, path):
        return
    newest = max(subject.listed.manifests)
    subject.add(
        "wrong-hint",
        "The hint for the newest version is garbage, or names a version that does not exist.",
        path=path,
        fix=lambda: _write_hint(subject.files, newest),
    )


def _is_good_hint(subject: Subject, path: str) -> bool:
    """The hint may lag behind briefly: only one that names no version is wrong."""
    try:
        version = decode_document(subject.objects.get(path), path).integer("version")
    except NotFoundError:
        return True
    except CorruptionError:
        return False
    newest = subject.newest
    if version in subject.listed.manifests or (newest is not None and newest.version == version):
        return True
    try:
        return 0 < version < 1 << 63 and subject.objects.head(_path(subject, version)) is not None
    except ConroiError:
        return False


def _write_hint(files: TableStorage, newest: int) -> None:
    FolderVersions(files.objects, environment=files.environment).write_hint(newest)
