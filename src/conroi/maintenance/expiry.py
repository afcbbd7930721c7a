"""Expiry of old versions of a table: which may expire, and which tags, branches and leases keep."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from conroi.environment import Environment
from conroi.errors import CorruptionError, InvalidInputError, NotFoundError
from conroi.format.json import decode_document
from conroi.format.naming import ManifestNaming, parse_manifest_name
from conroi.format.on_disk import BRANCH_REFS_DIR, CLOCK_PREFIX, REFS_DIR
from conroi.maintenance.reports import Duration, Expired, seconds_of
from conroi.snapshots.snapshot import TableStorage
from conroi.snapshots.tags import Tags
from conroi.storage.objects import Objects
from conroi.versions.external import ExternalVersions
from conroi.versions.folder import ManifestRef
from conroi.versions.listing import manifest_files
from conroi.versions.retention import Forgetting, LeaseInfo, ages, being_restored, leased, leases

OLDER_THAN = "7d"
KEEP = 10


def expire_table(
    files: TableStorage, *, older_than: Duration = OLDER_THAN, keep: int = KEEP, dry_run: bool = True
) -> Expired:
    """Expire versions of a standalone table."""
    refuse_lake_table(files, "expire")
    older_ns = oldest_ns(older_than)
    files.versions.latest()  # a store may have one that is not complete
    now_ns = files.environment.now_ns() if dry_run else store_now_ns(files.objects, files.environment)
    versions = listed_versions(files.objects)
    going = chosen(versions, now_ns - older_ns, checked_keep(keep), held_by_refs(files, now_ns))
    if going and not dry_run:
        going = forget(files.objects, going, lambda: held_by_refs(files, now_ns), files.environment)
    if not dry_run and isinstance(files.versions, ExternalVersions):
        files.versions.forget_missing()
    gone = {aged.version for aged in going}
    return Expired(
        removed=tuple(sorted(gone)),
        kept=tuple(aged.version for aged in versions if aged.version not in gone),
        bytes=sum(aged.size for aged in going),
        is_dry_run=dry_run,
        paths=tuple(aged.path for aged in going),
    )


def oldest_ns(older_than: Duration) -> int:
    """Minimum age of a version to expire, in nanoseconds; never less than the grace period."""
    return round(max(seconds_of(older_than, "older_than"), ages().version_s) * 1e9)


def chosen(versions: Sequence[Aged], cutoff_ns: int, keep: int, held: Set[int]) -> list[Aged]:
    """The versions to expire: old, not among the newest, and not held."""
    spared = {aged.version for aged in versions[-keep:]} | held
    return [aged for aged in old_ones(versions, cutoff_ns) if aged.version not in spared]


def refuse_lake_table(files: TableStorage, verb: str) -> None:
    """The versions of a lake's table are retained by the lake."""
    if files.is_managed:
        raise InvalidInputError(
            f"This table belongs to a lake, whose versions need its versions, so {verb}() is not done for it alone.",
            table=files.root,
            hint=f"Call lake.{verb}(): it does it for all tables.",
        )


_log = logging.getLogger(__name__)

BATCH = 1000
"""Number of files that are deleted with one request, where the storage supports that."""


@dataclass(frozen=True, slots=True)
class Aged:
    """A version and its manifest, with the timestamp of the storage."""

    version: int
    modified_ns: int
    path: str = ""
    size: int = 0
    naming: ManifestNaming = ManifestNaming.V2

    @property
    def located(self) -> ManifestRef:
        return ManifestRef(self.version, self.path, self.naming)


def listed_versions(objects: Objects) -> list[Aged]:
    """All versions under their final names, ascending."""
    found: list[Aged] = []
    for info in manifest_files(objects):
        parsed = parse_manifest_name(info.path.rpartition("/")[2])
        if parsed is not None and not parsed.is_detached:
            found.append(Aged(parsed.version, info.modified_ns, info.path, info.size, parsed.naming))
    return sorted(found, key=lambda aged: aged.version)


def old_ones(versions: Sequence[Aged], cutoff_ns: int) -> list[Aged]:
    """The versions that were superseded before this time.

    Not those that were created before it: the one that was the newest at that time is still needed. And the timestamp
    of a manifest may be that of its writing, before it became visible; that of the next one is always later.
    """
    return [older for older, newer in pairwise(versions) if newer.modified_ns <= cutoff_ns]


def checked_keep(keep: int) -> int:
    """Validate the number of versions to keep."""
    if isinstance(keep, bool) or not isinstance(keep, int) or keep < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInputError(f"keep={keep!r} versions cannot be kept.", hint="The newest one always stays: give 1.")
    return keep


def store_now_ns(objects: Objects, environment: Environment) -> int:
    """The time by the storage's own clock, which is the one that its files have."""
    path = f"{CLOCK_PREFIX}{environment.new_uuid()}"
    objects.put(path, b"{}")
    try:
        info = objects.head(path)
    finally:
        objects.delete([path])
    return environment.now_ns() if info is None else info.modified_ns


def live_leases(objects: Objects, environment: Environment) -> list[LeaseInfo]:
    """The active leases, by version."""
    found = [lease for lease in leases(objects, store_now_ns(objects, environment)) if lease.seconds_left > 0]
    return sorted(found, key=lambda lease: (lease.version, lease.path))


# ------------------------------------------------------------------------------ what holds them


def held_by_refs(files: TableStorage, now_ns: int, *, without: str | None = None) -> set[int]:
    """The versions of the main branch that a tag or a branch point names, that are being restored, or leased.

    Of a tag that is just being moved, both its versions. `without` tags whose names begin so. `now_ns` is a time by the
    storage's clock.
    """
    objects, tags = files.objects, Tags(files, 0).list()
    of_main = [tag for tag in tags if tag.branch in (None, "main")]
    tagged = {tag.version for tag in of_main if without is None or not tag.name.startswith(without)}
    return {*tagged, *_named(objects, without), *being_restored(objects), *leased(objects, now_ns)}


def _named(objects: Objects, without: str | None) -> Iterator[int]:
    for path in objects.list_names(REFS_DIR):
        is_branch = path.startswith(f"{BRANCH_REFS_DIR}/")
        is_left_out = without is not None and not is_branch and path.rpartition("/")[2].startswith(without)
        if not path.endswith(".json") or is_left_out:
            continue
        of, version = ("parentBranch", "parentVersion") if is_branch else ("branch", "version")
        content = _read(objects, path)
        if content is not None and content.get(of) in (None, "main"):
            found = content.get(version)
            if not isinstance(found, int):
                raise _unreadable(objects, path)
            yield found


def _read(objects: Objects, path: str) -> dict[str, Any] | None:
    try:
        data = objects.get(path)
        return decode_document(data, path).content if data else None
    except NotFoundError:
        return None
    except CorruptionError as error:
        raise _unreadable(objects, path) from error


def _unreadable(objects: Objects, path: str) -> CorruptionError:
    return CorruptionError(
        f"{path} cannot be read, so it is unknown which version it holds; nothing was deleted.",
        table=objects.root,
        hint="Delete the tag or branch, and make it again.",
    )


# ------------------------------------------------------------------------------ forgetting


def forget(
    objects: Objects, going: Sequence[Aged], held: Callable[[], Set[int]], environment: Environment
) -> list[Aged]:
    """Announce the expiry, then delete the manifests, except those that are found to be `held` after that."""
    note = Forgetting(objects, [aged.version for aged in going], str(environment.new_uuid()))
    stays = held()
    gone = [aged for aged in going if aged.version not in stays]
    if len(gone) < len(going):
        note.only([aged.version for aged in gone])
    for aged in gone:
        _log.info("expiring version %d of %s: %s", aged.version, objects.root, aged.path)
    delete_in_batches(objects, [aged.path for aged in gone])
    note.done()
    return gone


def delete_in_batches(objects: Objects, paths: Sequence[str]) -> None:
    """Delete files, many with one request."""
    for start in range(0, len(paths), BATCH):
        objects.delete(paths[start : start + BATCH])
