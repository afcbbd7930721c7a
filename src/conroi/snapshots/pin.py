"""Versions published by a lake: resolve a pin to its staged manifest, and finalize it under its final name."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property

from conroi.environment import Environment, moment, seconds_since
from conroi.errors import (
    CorruptionError,
    ForkedTableError,
    InvalidInputError,
    NotFoundError,
    StoreError,
    StoreUnavailable,
)
from conroi.format.manifest import Manifest
from conroi.format.naming import parse_manifest_name
from conroi.format.on_disk import VERSIONS_DIR
from conroi.snapshots.snapshot import Snapshot, expired, load_snapshot, load_transaction
from conroi.storage.objects import ObjectExists, Objects
from conroi.versions.external import FinalPut
from conroi.versions.folder import ManifestRef
from conroi.versions.retention import ages, watermark

_log = logging.getLogger(__name__)

UUID_LENGTH = 36
CLEANUP_CONFIG = "lance.auto_cleanup."
"""Settings by which writers delete old versions by themselves, which a lake may still need."""
FINAL_ATTEMPTS = 4
"""Maximum number of puts to a final name that is reported as taken while no file has it."""
FINAL_PAUSE_S = 0.02
"""Upper bound of the first pause between two such puts, in seconds; it doubles."""


@dataclass(frozen=True)
class Pin:
    """The version of a table that the lake has: its number, its published manifest, and its author."""

    version: int
    manifest: str
    """`_versions/….manifest-{uuid}` where it was staged, or its final name if it was adopted."""
    transaction: str

    @property
    def published(self) -> ManifestRef:
        """The location of the manifest at its publication."""
        return ManifestRef(self.version, self.manifest, self.final.naming)

    @property
    def is_staged(self) -> bool:
        """Whether it was published under a staged name."""
        return not self.manifest.endswith(".manifest")

    @cached_property
    def final(self) -> ManifestRef:
        """Where the manifest is once it is finalized."""
        name = self.manifest.removeprefix(f"{VERSIONS_DIR}/")
        if self.is_staged:
            name = name[: -UUID_LENGTH - 1]
        parsed = parse_manifest_name(name)
        if parsed is None or parsed.version != self.version:
            raise CorruptionError(
                f"The lake pins version {self.version} of a table at {self.manifest!r}, which is no manifest of it.",
                hint="Open an older version of the lake with lake.at(version=…).",
            )
        return ManifestRef(self.version, f"{VERSIONS_DIR}/{name}", parsed.naming)


def staged_pin(final: ManifestRef, transaction: str, environment: Environment) -> Pin:
    """The pin of a version that is about to be published. Its manifest is staged under its final name with a random
    uuid behind, until it is finalized.
    """
    pin = Pin(final.version, f"{final.path}-{environment.new_uuid()}", transaction)
    pin.__dict__["final"] = final
    return pin


def pin_of(objects: Objects, snapshot: Snapshot) -> Pin:
    """The pin of a version under its final name, such as one that other software wrote."""
    uuid = snapshot.manifest.head.transaction_file.partition("-")[2].removesuffix(".txn")
    if not uuid:
        transaction = load_transaction(objects, snapshot)
        uuid = "" if transaction is None else transaction.uuid
    return Pin(snapshot.version, snapshot.located.path, uuid)


def load_pinned(objects: Objects, pin: Pin) -> Snapshot:
    """Load the pinned version: under its final name if that is the same commit, else from its staged name."""
    snapshot = _final(objects, pin)
    if snapshot is not None:
        return snapshot
    if pin.is_staged:
        try:
            staged = load_snapshot(objects, pin.published)
            return Snapshot(staged.manifest, staged.located, staged.inline_transaction, is_final=False)
        except NotFoundError:
            snapshot = _final(objects, pin)  # it was finalized while we looked
            if snapshot is not None:
                return snapshot
    raise expired(objects, pin.version)


def _final(objects: Objects, pin: Pin) -> Snapshot | None:
    try:
        snapshot = load_snapshot(objects, pin.final)
    except NotFoundError:
        return None
    return snapshot if is_made_by(objects, snapshot, pin.transaction) else None


def is_made_by(objects: Objects, snapshot: Snapshot, uuid: str) -> bool:
    """Whether this transaction created the version."""
    if uuid and snapshot.manifest.head.transaction_file.endswith(f"-{uuid}.txn"):
        return True
    transaction = load_transaction(objects, snapshot)
    if transaction is None:  # very old software left none, and the pin says so
        return not uuid and not snapshot.manifest.head.transaction_file
    return transaction.uuid == uuid


def finalize(objects: Objects, pin: Pin, environment: Environment, data: bytes | None = None) -> bool:
    """Put a published manifest under its final name, unless that is done; `data` are its bytes, if known.

    True if this call did it, False if it was done before. Never overwrites: ForkedTableError if another commit has the
    name.
    """
    if not pin.is_staged:
        return False
    final = pin.final
    started = moment(environment)
    try:
        if not _put_final(objects, pin, data, environment):
            return False
    except NotFoundError:  # a concurrent finalization has removed the staged copy
        load_pinned(objects, pin)
        return False
    if seconds_since(environment, started) > ages().version_s / 2 and watermark(objects) >= pin.version:
        objects.delete([final.path])  # this process was paused; others finalized it, continued, and collected it
        return False
    if not objects.is_local:  # there it was moved
        _tidy(objects, pin)
    return True


def _put_final(objects: Objects, pin: Pin, data: bytes | None, environment: Environment) -> bool:
    """Whether we put it; False if the name holds this very commit.

    A name that is reported as taken while no file has it is not a conflict: the storage was busy with another request
    for it, or a collector has deleted the version since. The put is repeated after a pause.
    """
    path = pin.final.path
    for attempt in range(1, FINAL_ATTEMPTS + 1):
        try:
            if objects.is_local:
                objects.rename_if_absent(pin.manifest, path)
            else:
                # A helping process looks first: the publisher has often done it, and some storage ignores conditions.
                if data is None and objects.head(path) is not None:
                    raise ObjectExists(path)
                FinalPut().put_new(objects, path, objects.get(pin.manifest) if data is None else data)
            return True
        except ObjectExists:
            if _final(objects, pin) is not None:
                return False
            if objects.head(path) is not None:
                raise forked(objects, pin) from None
            environment.sleep(environment.uniform(0.0, FINAL_PAUSE_S * (1 << attempt)))
    raise StoreUnavailable(
        f"Version {pin.version} could not get its final name: the storage says that {path} is taken, and no file is "
        "there.",
        table=objects.root,
        version=pin.version,
        hint="It is published all the same; the next writer gives it its final name.",
    )


def _tidy(objects: Objects, pin: Pin) -> None:
    """Best effort: delete the staged copy."""
    try:
        objects.delete([pin.manifest])
    except StoreError as error:
        _log.debug("version %d of %s is final, but not tidy: %s", pin.version, objects.root, error)


def forked(objects: Objects, pin: Pin) -> ForkedTableError:
    """The error for a version of the lake whose final name holds an out-of-band commit."""
    return ForkedTableError(
        f"The lake published version {pin.version} of this table, but an out-of-band writer (by path) took the name of "
        "that version first. Both exist; the lake reads its own.",
        table=objects.root,
        version=pin.version,
        hint="Run lake.mend(name): it rebases the other change onto the lake's. Then write this table only "
        "through the lake.",
    )


def refuse_cleanup(manifest: Manifest, table: str) -> None:
    """A table of a lake may not delete its old versions by itself."""
    for key in manifest.head.config:
        if key.startswith(CLEANUP_CONFIG):
            raise InvalidInputError(
                "The table would delete its old versions by itself, but other versions of the lake need them.",
                table=table,
                version=manifest.version,
                hint=f"Write it without auto_cleanup_options ({CLEANUP_CONFIG}* in its config; set_config() with None "
                "takes them out). lake.expire() expires old versions of all tables.",
            )
