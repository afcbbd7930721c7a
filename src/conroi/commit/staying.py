"""What a commit that took long must know before its put: that nobody collected what it leans on.

A quick one knows it without asking: nobody collects what is so young (see conroi.stores.ages). A slow one leaves its
transaction anew, which says which files it needs, and only then looks how far a collector has swept.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from conroi.commit.files import TableFiles
from conroi.commit.snapshot import Snapshot
from conroi.environment import Moment, seconds_since
from conroi.errors import RetryableConflict
from conroi.format.references import name_of, names_in_manifest, paths_in_transaction
from conroi.format.transaction import Transaction
from conroi.stores.ages import ages
from conroi.stores.forgotten import RESTORING_DIR, Fate, fate, watermark
from conroi.stores.objects import ObjectInfo
from conroi.stores.swept import swept_until_ns

_AT_ONCE = 32


def is_recent_for_files(files: TableFiles, then: Moment | None) -> bool:
    """Whether nothing that was written since can have been collected."""
    return then is not None and seconds_since(files.environment, then) < ages().file_s / 2


def is_recent_for_versions(files: TableFiles, then: Moment | None) -> bool:
    """Whether no version that was made since can have been collected."""
    return then is not None and seconds_since(files.environment, then) < ages().version_s / 2


def refuse_collected_between(files: TableFiles, seen: Snapshot) -> None:
    """After catching up from a version that was read long ago: all that came after it must be what it was then."""
    newest = watermark(files.objects)
    if newest > seen.version:
        raise RetryableConflict(
            f"Versions up to {newest} were collected before this commit, which was made on {seen.version}, could be "
            "checked against them.",
            table=files.root,
            version=newest,
            base_version=seen.version,
            hint="Run the work again on the newest version.",
        )


def refuse_forgotten(files: TableFiles, restored: Snapshot) -> None:
    """A version that is to come back must not have been collected since it was read, nor be on its way.

    First we say that it must stay, then we look: a collector does the same the other way round.
    """
    files.objects.put(f"{RESTORING_DIR}/{restored.version}-{files.environment.new_uuid()}", b"{}")
    paths = {restored.located.path, restored.naming.path(restored.version)}
    is_there = any(files.objects.head(path) is not None for path in paths)
    if not is_there or fate(files.objects, restored.version) is not Fate.STAYS:
        raise RetryableConflict(
            f"Version {restored.version} was just collected as an old version.",
            table=files.root,
            version=restored.version,
            hint="Choose a newer version; versions() lists those that stay.",
        )


def refuse_swept(files: TableFiles, transaction: Transaction, seen: Snapshot | None) -> None:
    """The files that this change brings in must be younger than what a collector has swept."""
    swept_ns, paths = swept_until_ns(files.objects), list(_staged(transaction, seen))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for path, info in zip(paths, pool.map(partial(_found, files), paths), strict=True):
            if info is None or info.modified_ns < swept_ns:
                raise RetryableConflict(
                    f"This work took so long that {path}, which it wrote, may have been collected meanwhile.",
                    table=files.root,
                    hint="Run the work again, in less time; or let gc() spare younger files: a larger min_age.",
                )


def _staged(transaction: Transaction, seen: Snapshot | None) -> Iterator[str]:
    """What the change names that the newest version has not."""
    known = set[str]() if seen is None else set(names_in_manifest(seen.manifest))
    for path in paths_in_transaction(transaction.wire):
        if name_of(path) not in known:
            yield path


def _found(files: TableFiles, path: str) -> ObjectInfo | None:
    if not path.endswith("/"):
        return files.objects.head(path)
    return min(files.objects.list(path.rstrip("/")), key=lambda info: info.modified_ns, default=None)
