"""Garbage-collection safety: before the put of a long-running commit, verify that nothing it needs was collected.

A fast commit needs no check: files younger than the grace period are never collected (see conroi.versions.retention).
A slow commit writes its transaction file again, which names the files it needs, and then reads the sweep watermark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from conroi import operations
from conroi.environment import Moment
from conroi.errors import InvalidInputError, RetryableConflict
from conroi.format.lance_pb2 import BasePath, DataFragment
from conroi.format.on_disk import DATA_DIR, RESTORING_DIR, TRANSACTIONS_DIR
from conroi.format.references import Reference, name_of, names_in_manifest, references_in_transaction
from conroi.format.transaction import Transaction, encode_transaction
from conroi.snapshots.branch_storage import holder_of
from conroi.snapshots.snapshot import Snapshot, TableStorage, took_too_long
from conroi.storage.base_paths import base_objects
from conroi.storage.objects import ObjectInfo
from conroi.storage.parallel import in_parallel
from conroi.versions.retention import Retention, collected_until_ns, is_recent_for_files, retention_of, watermark

_AT_ONCE = 32


def refuse_collected_between(files: TableStorage, seen: Snapshot) -> None:
    """After catching up from a version that was read long ago: the versions since must be unchanged."""
    newest = watermark(files.objects)
    if newest > seen.version:
        raise RetryableConflict(
            f"Versions up to {newest} were collected before this commit, which is based on {seen.version}, could be "
            "checked against them.",
            table=files.root,
            version=newest,
            base_version=seen.version,
            hint="Run the work again on the newest version.",
        )


def refuse_unless_retained(files: TableStorage, restored: Snapshot) -> None:
    """A version to restore must not have expired since it was read, nor be expiring.

    First the writer records that it must stay, then it checks; a collector does the same in the opposite order.
    """
    final = restored.naming.path(restored.version)
    folder = holder_of(files.objects, final)
    folder.put(f"{RESTORING_DIR}/{restored.version}-{files.environment.new_uuid()}", b"{}")
    is_there = any(folder.head(path) is not None for path in {restored.located.path, final})
    if not is_there or retention_of(folder, restored.version) is not Retention.RETAINED:
        raise RetryableConflict(
            f"Version {restored.version} was just collected as an old version.",
            table=files.root,
            version=restored.version,
            hint="Choose a newer version; versions() lists those that stay.",
        )


def confirm_written(files: TableStorage, fragments: Sequence[DataFragment], since: Moment | None) -> None:
    """Files that were written before the verb began: RetryableConflict unless all of them stay for its commit.

    A collector keeps the files that a young transaction names. So a transaction is written first, and then the files
    are checked.
    """
    if not fragments or is_recent_for_files(files.environment, since):
        return
    uuid = str(files.environment.new_uuid())
    named = operations.transaction(
        operations.Append(fragments=tuple(fragments)), read_version=0, uuid=uuid, properties={}
    )
    files.objects.put(f"{TRANSACTIONS_DIR}/{named.file_name}", encode_transaction(named))
    refuse_collected_files(files, named, None, (), is_given=False)


def refuse_collected_files(
    files: TableStorage, transaction: Transaction, seen: Snapshot | None, bases: Sequence[BasePath], *, is_given: bool
) -> None:
    """The files that this change adds must exist, and be younger than the sweep watermark.

    `bases` are those of the next version. Files under one of them belong to another table, which keeps them: those must
    only exist. `is_given` says that the caller wrote the files: if no collector ever ran, they never existed.
    """
    swept_ns, references = collected_until_ns(files.objects), list(_staged(transaction, seen))
    places = {base.id: base for base in bases}
    found = in_parallel(partial(_found, files, places), references, _AT_ONCE)
    for reference, info in zip(references, found, strict=True):
        if info is None and reference.may_be_empty:
            continue
        if info is None and is_given and not swept_ns:
            raise InvalidInputError(
                f"The change references {reference.path}, which does not exist.",
                table=files.root,
                hint="Write all files before the commit, below the root of the table or of the base they name.",
            )
        if info is None or (reference.base_id is None and info.modified_ns < swept_ns):
            raise took_too_long(files.objects, reference.path)


def _staged(transaction: Transaction, seen: Snapshot | None) -> Iterator[Reference]:
    """The files that the change names and the newest version does not."""
    known = set[str]() if seen is None else set(names_in_manifest(seen.manifest))
    for reference in references_in_transaction(transaction.wire):
        if name_of(reference.path) not in known:
            yield reference


def _found(files: TableStorage, places: Mapping[int, BasePath], reference: Reference) -> ObjectInfo | None:
    objects, path = files.objects, reference.path
    if reference.base_id is not None:
        base = places.get(reference.base_id)
        if base is None:
            raise InvalidInputError(
                f"The change names {path} under the base {reference.base_id}, which the table does not have.",
                table=files.root,
                hint="Add the base with add_base() first.",
            )
        objects = base_objects(files.objects, base.path)
        path = path if base.is_dataset_root else path.removeprefix(f"{DATA_DIR}/")
    if not path.endswith("/"):
        return objects.head(path)
    return min(objects.list(path.rstrip("/")), key=lambda info: info.modified_ns, default=None)
