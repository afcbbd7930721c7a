"""External manifests: a manifest built by other software (pylance) is located, read and validated before the lake
publishes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from conroi.errors import InvalidInputError, NotFoundError
from conroi.format.flags import require_writable
from conroi.format.manifest import validate_manifest
from conroi.format.manifest_file import with_other_indices
from conroi.format.naming import ManifestNaming, parse_staged_name
from conroi.format.on_disk import VERSIONS_DIR
from conroi.format.transaction import Transaction
from conroi.operations.indices import coverage, without_gained
from conroi.snapshots.pin import Pin, refuse_cleanup
from conroi.snapshots.snapshot import Snapshot, load_snapshot, load_transaction, with_checked_coverage
from conroi.storage.location import CloudLocation, parse_location
from conroi.storage.objects import Objects
from conroi.versions.folder import ManifestRef


@dataclass(frozen=True)
class ExternalManifest:
    """A version that other software built: its content, its transaction, and its staged location."""

    snapshot: Snapshot
    transaction: Transaction
    pin: Pin

    @property
    def version(self) -> int:
        return self.pin.version

    @property
    def final_snapshot(self) -> Snapshot:
        """The version, once it is finalized."""
        return replace(self.snapshot, located=self.pin.final, is_final=True)


def key_in_store(objects: Objects, path: str = "") -> str:
    """The path of a table's file as pylance's stores spell it: from the root of the disk, or of the bucket."""
    location = parse_location(objects.root)
    root = location.key if isinstance(location, CloudLocation) else location.folder.lstrip("/")
    return "/".join(part for part in (root, path) if part)


def read_staged(objects: Objects, version: int, key: str) -> ExternalManifest:
    """The staged manifest under this key, to become this version; InvalidInputError if it cannot."""
    located = _located(objects, version, key)
    try:
        snapshot = load_snapshot(objects, located, is_unchecked=True)  # it is compared with its base when that is known
    except NotFoundError:
        raise InvalidInputError(
            f"There is no staged manifest {located.path}.",
            table=objects.root,
            version=version,
            hint="Write the manifest to its staged name before asking for the version.",
        ) from None
    foreign = _foreign(objects, snapshot)
    _check(objects, foreign)
    return foreign


def read_final(objects: Objects, version: int, naming: ManifestNaming) -> ExternalManifest | None:
    """The version that was written out of band, by the table's path; None if there is none."""
    try:
        snapshot = load_snapshot(objects, ManifestRef(version, naming.path(version), naming))
    except NotFoundError:
        return None
    return _foreign(objects, snapshot)


def without_gained_coverage(objects: Objects, base: Snapshot, foreign: ExternalManifest) -> ExternalManifest:
    """A staged manifest with invalid index coverage removed, in the same file; itself if there is none.

    The file keeps its name, its size and every offset in it, so it is still the one that its writer has in memory.
    """
    manifest = foreign.snapshot.manifest
    if not manifest.has_stable_row_ids:
        return foreign
    if foreign.transaction.operation_name == "Restore":  # which brings back what indices covered before the base
        indices = with_checked_coverage(objects, foreign.snapshot.located, manifest).indices
    else:
        indices = without_gained(manifest.indices, coverage(base.indices))
    if indices is manifest.indices:
        return foreign
    path = foreign.pin.manifest
    objects.put(path, with_other_indices(objects.get(path), indices))
    return replace(foreign, snapshot=replace(foreign.snapshot, manifest=manifest.changed(indices=indices)))


def delete_manifests(objects: Objects, versions: Iterable[ManifestRef]) -> None:
    """Delete old, unreferenced versions."""
    objects.delete([located.path for located in versions])


def _located(objects: Objects, version: int, key: str) -> ManifestRef:
    folder, _, name = key.lstrip("/").rpartition("/")
    parsed = parse_staged_name(name)
    if folder != key_in_store(objects, VERSIONS_DIR) or parsed is None:
        raise InvalidInputError(
            f"{key!r} is not a staged manifest of this table.",
            table=objects.root,
            version=version,
            hint=f"Stage it in {VERSIONS_DIR} of the table's folder, as its final name with -{{uuid}} behind. If the "
            "table was dropped and created again, it has another folder now: open it again.",
        )
    if parsed[0].version != version or parsed[0].is_detached:
        raise InvalidInputError(
            f"The staged manifest {name} has the name of another version than {version}.",
            table=objects.root,
            version=version,
            hint="Name it after the version to be created.",
        )
    return ManifestRef(version, f"{VERSIONS_DIR}/{name}", parsed[0].naming)


def _foreign(objects: Objects, snapshot: Snapshot) -> ExternalManifest:
    transaction = load_transaction(objects, snapshot)
    if transaction is None:
        raise InvalidInputError(
            f"Version {snapshot.version} has no transaction, inside or beside it, so no writer could rebase over it.",
            table=objects.root,
            version=snapshot.version,
            hint="Write the transaction into the manifest, or its file, first.",
        )
    pin = Pin(snapshot.version, snapshot.located.path, transaction.uuid)
    if pin.is_staged:
        snapshot = Snapshot(snapshot.manifest, snapshot.located, snapshot.inline_transaction, is_final=False)
    return ExternalManifest(snapshot, transaction, pin)


def _check(objects: Objects, foreign: ExternalManifest) -> None:
    """Validate it: its facts must be consistent, and every path must be inside the table or one of its bases."""
    manifest = foreign.snapshot.manifest
    require_writable(manifest.head)
    validate_manifest(manifest)
    refuse_cleanup(manifest, objects.root)
