"""Reachability in one table folder: which of its files its manifests reference, and which are unreferenced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain

from conroi.catalog.folders import MARK
from conroi.commit.fairness import BATON_PATH
from conroi.errors import ConroiError, CorruptionError, NotFoundError, UnsupportedError
from conroi.format.flags import require_writable
from conroi.format.manifest import Manifest
from conroi.format.manifest_file import decode_manifest_file
from conroi.format.naming import (
    DATA_DIR,
    DELETIONS_DIR,
    INDICES_DIR,
    TRANSACTIONS_DIR,
    parse_manifest_name,
    parse_staged_name,
)
from conroi.format.references import name_of, names_in_manifest, names_in_transaction
from conroi.format.transaction import decode_transaction
from conroi.storage.objects import ObjectInfo, Objects
from conroi.storage.parallel import in_parallel
from conroi.versions.leases import LEASES_DIR, has_ended
from conroi.versions.listing import TEMPORARY_PREFIX, TREE_DIR, is_in_manifest_folder, manifest_files, manifest_name
from conroi.versions.retention import FORGOTTEN_DIR, RESTORING_DIR, SWEPT_DIR, ages, is_running

AT_ONCE = 16
KINDS = {DATA_DIR: "data", DELETIONS_DIR: "deletion", TRANSACTIONS_DIR: "transaction", INDICES_DIR: "index"}
KEYS_DIR = "_conroi/keys"
OWN_DIR = "_conroi"
MARKS = (FORGOTTEN_DIR, SWEPT_DIR)
"""What stays in the folder of a dropped table, so that a paused writer detects that its work was wasted."""


class Names:
    """Set of referenced file names, as hashes: a collision retains one file too many, never one too few.

    >>> names = Names()
    >>> names.update(["a", "b"])
    >>> "a" in names, "c" in names
    (True, False)
    """

    def __init__(self) -> None:
        self._numbers: set[int] = set()

    def update(self, names: Iterable[str]) -> None:
        self._numbers.update(map(hash, names))

    def __contains__(self, name: str) -> bool:
        return hash(name) in self._numbers


@dataclass(frozen=True)
class Horizon:
    """Which files are old enough to be deleted, in the storage's own time."""

    files_ns: int
    """Files that were written before this may be deleted."""

    @property
    def staged_ns(self) -> int:
        """What a writer that is still at work may be about to publish was written after this.

        It made sure of its files less than this margin ago; if it did so earlier, it finds its version taken: see
        docs/decisions/0018-garbage-collection.md.
        """
        return self.files_ns - round(ages().file_s * 1e9)


@dataclass(frozen=True)
class Place:
    """One folder like that of a table: a table, a branch of one, or `__manifest`."""

    name: str
    objects: Objects
    pinned: frozenset[str] = frozenset()
    """Staged manifests that a version of the lake pins."""
    keys_of: frozenset[int] | None = None
    """For `__manifest`: the versions whose idempotency keys are still valid."""
    whole: bool = False
    """Whether all of it is garbage: the folder of a dropped table."""
    left_alone: str | None = None
    """Why nothing in it is deleted, although the lake does not list it; its references are retained too."""


# ------------------------------------------------------------------------------ what is needed


@dataclass
class Needs:
    """The names that the manifests of a place need; `problem` says why they may need more than these."""

    names: list[str]
    problem: str | None = None


def needs_of(place: Place, horizon: Horizon) -> Needs:
    """The references of its manifests. An unreadable one is a CorruptionError: it may reference anything."""
    paths = [info.path for info in manifest_files(place.objects) if _is_root(place, info, horizon)]
    found = Needs([])
    for manifest in in_parallel(partial(_manifest, place), paths, AT_ONCE):
        if manifest is not None:
            found.names.extend(names_in_manifest(manifest))
            found.problem = found.problem or _problem(manifest)
    return found


def _is_root(place: Place, info: ObjectInfo, horizon: Horizon) -> bool:
    name = info.path.rpartition("/")[2]
    if parse_manifest_name(name) is not None:
        return True
    is_staged = parse_staged_name(name) is not None
    return is_staged and (info.path in place.pinned or info.modified_ns >= horizon.staged_ns)


def _manifest(place: Place, path: str) -> Manifest | None:
    try:
        return decode_manifest_file(place.objects.get(path)).manifest
    except NotFoundError:  # it was finalized or expired since it was listed
        return None
    except CorruptionError as error:
        if parse_manifest_name(path.rpartition("/")[2]) is None and path not in place.pinned:
            return None  # it is being written, or its writer crashed
        raise CorruptionError(
            f"{path} cannot be read, so it is unknown which files it needs; nothing was deleted. {error.message}",
            table=place.objects.root,
            hint="Run doctor on it, and collect again when it is healthy.",
        ) from error


def _problem(manifest: Manifest) -> str | None:
    """Files of a kind that only newer software has may be referenced by formats that only it can read."""
    try:
        require_writable(manifest.head)
    except UnsupportedError as error:
        return error.message
    return None


def announced_names(place: Place, horizon: Horizon, known: Names) -> Iterator[str]:
    """The names in transactions that are in no manifest yet, but may be committed soon."""
    young = [
        info.path
        for info in place.objects.list(TRANSACTIONS_DIR)
        if info.modified_ns >= horizon.staged_ns and info.path.endswith(".txn")
    ]
    unknown = [path for path in young if path.rpartition("/")[2] not in known]
    found = in_parallel(partial(_names_in_transaction, place), unknown, AT_ONCE)
    for path, names in zip(unknown, found, strict=True):
        yield path.rpartition("/")[2]
        yield from names


def _names_in_transaction(place: Place, path: str) -> list[str]:
    try:
        return list(names_in_transaction(decode_transaction(place.objects.get(path)).wire))
    except ConroiError:  # gone, or truncated by a crash of its writer
        return []


# ------------------------------------------------------------------------------ what is not


def garbage(place: Place, horizon: Horizon, needed: Names, others: Names) -> Iterator[tuple[str, ObjectInfo]]:
    """Every unreferenced file past the grace period, with its kind, in listing order."""
    if place.whole:
        yield from (("dropped", info) for info in _whole(place, horizon, needed, others))
        return
    listings = (manifest_files(place.objects), *map(place.objects.list, (*KINDS, OWN_DIR)))
    for info in chain.from_iterable(listings):
        kind = _kind(place, info, horizon, needed, others)
        if kind is not None:
            yield kind, info


def _whole(place: Place, horizon: Horizon, needed: Names, others: Names) -> list[ObjectInfo]:
    """All files of a folder, in the order of their deletion; none while its youngest file is young.

    Manifests are deleted first, so that a collector that crashes leaves no version without its files. The ownership
    marker is deleted last, so that the next collector completes the work.
    """
    infos = [info for info in place.objects.list("") if not info.path.startswith(MARKS)]
    if any(info.modified_ns >= horizon.staged_ns or _is_lease(info, horizon) for info in infos):
        return []
    going = [info for info in infos if _base_name(info.path) not in needed and _base_name(info.path) not in others]
    return sorted(going, key=stage_of)


def _is_lease(info: ObjectInfo, horizon: Horizon) -> bool:
    return info.path.startswith(f"{LEASES_DIR}/") and not has_ended(info, horizon.files_ns)


def _base_name(path: str) -> str:
    """The name by which a file of a dropped table, or of a branch below it, may be needed."""
    below = path.removeprefix(f"{TREE_DIR}/").partition("/")[2] if path.startswith(f"{TREE_DIR}/") else path
    return name_of(below) or ""


def stage_of(info: ObjectInfo) -> int:
    """When a file of a folder that goes as a whole is deleted: all of one stage before any of the next."""
    if is_in_manifest_folder(info.path):
        return 0
    return 2 if info.path == MARK else 1


def _kind(place: Place, info: ObjectInfo, horizon: Horizon, needed: Names, others: Names) -> str | None:
    folder, _, name = info.path.rpartition("/")
    if info.modified_ns >= horizon.files_ns:
        return None
    if name.startswith(TEMPORARY_PREFIX) or info.path == BATON_PATH:
        return "temporary"
    if manifest_name(info.path) is not None:
        is_staged = parse_staged_name(name) is not None and info.path not in place.pinned
        return "staged" if is_staged and info.modified_ns < horizon.staged_ns else None
    if folder.startswith(OWN_DIR):
        return _own_kind(place, folder, name, info, horizon)
    wanted = name_of(info.path)
    if wanted is None or wanted in needed or wanted in others:
        return None
    return KINDS[info.path.partition("/")[0]]


def _own_kind(place: Place, folder: str, name: str, info: ObjectInfo, horizon: Horizon) -> str | None:
    """The kind of conroi's own records beside a table."""
    if folder.startswith(KEYS_DIR):
        is_known = place.keys_of is None or not name.isdecimal() or int(name) in place.keys_of
        return None if is_known else "key"
    if folder == LEASES_DIR:
        return "temporary" if has_ended(info, horizon.files_ns) else None
    if info.modified_ns >= horizon.staged_ns:
        return None
    is_passing = folder == OWN_DIR and name.startswith(("clock-", "probe-"))
    is_ended = folder == RESTORING_DIR or is_running(info.path)
    return "temporary" if is_passing or is_ended else None
