"""Retention of a standalone table: expire its old versions."""

from __future__ import annotations

from collections.abc import Sequence, Set

from conroi.commit.files import TableFiles
from conroi.errors import InvalidInputError
from conroi.maintenance.durations import Duration, seconds_of
from conroi.maintenance.reports import Expired
from conroi.maintenance.versions import (
    Aged,
    checked_keep,
    forget,
    held_by_refs,
    listed_versions,
    old_ones,
    store_now_ns,
)
from conroi.stores.ages import ages
from conroi.stores.external_versions import ExternalVersions

OLDER_THAN = "7d"
KEEP = 10


def expire_table(
    files: TableFiles, *, older_than: Duration = OLDER_THAN, keep: int = KEEP, dry_run: bool = True
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


def refuse_lake_table(files: TableFiles, verb: str) -> None:
    """The versions of a lake's table are retained by the lake."""
    if files.publisher is not None:
        raise InvalidInputError(
            f"This table belongs to a lake, whose versions need its versions, so {verb}() is not done for it alone.",
            table=files.root,
            hint=f"Call lake.{verb}(): it does it for all tables.",
        )
