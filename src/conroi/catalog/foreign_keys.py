"""Primary-key check of external manifests: one that would duplicate a key is rejected before it is published."""

from __future__ import annotations

from dataclasses import replace

from conroi.commit.files import TableFiles
from conroi.commit.foreign import ForeignManifest
from conroi.commit.snapshot import Snapshot
from conroi.data.keys import in_common, sample, scan_keys, shown
from conroi.data.pinned import Pinned
from conroi.errors import DuplicateKeyError
from conroi.format import lance_pb2 as pb
from conroi.format.fields import fields_by_path, key_columns
from conroi.format.manifest import Manifest
from conroi.verbs.keyed import named, refuse_repeated

SAME_ROWS = frozenset({"Rewrite", "CreateIndex", "ReserveFragments", "UpdateMemWalState", "UpdateBases"})
"""Operations that leave the rows, and so the keys, unchanged."""


def refuse_duplicate_keys(files: TableFiles, base: Snapshot | None, foreign: ForeignManifest) -> None:
    """DuplicateKeyError if a row that the version adds has the key of another row."""
    after = foreign.snapshot.manifest
    columns = key_columns(after.fields)
    if not columns or foreign.transaction.operation_name in SAME_ROWS:
        return
    new = _with_new_keys(None if base is None else base.manifest, after)
    if not new:
        return
    pinned = Pinned(files, replace(foreign.snapshot, is_private=True))
    arriving = scan_keys(pinned, columns, fragment_ids=new)
    keys = arriving.select([name for name in arriving.column_names if name != "_rowaddr"])
    refuse_repeated(keys, columns, files.root)
    others = [fragment.id for fragment in after.fragments if fragment.id not in set(new)]
    there = in_common(keys, scan_keys(pinned, columns, fragment_ids=others, among=keys)) if others else None
    if there is not None and there.num_rows:
        raise DuplicateKeyError(
            f"The table has rows with the same {named(columns)} already: {shown(there)}.",
            table=files.root,
            version=foreign.version,
            keys=sample(there, columns),
            hint="Use a merge to update rows that are there and insert the others.",
        )


def _with_new_keys(base: Manifest | None, after: Manifest) -> list[int]:
    """The fragments whose keys were not in the table before; all, if it had another key."""
    ids = _key_ids(after)
    known: set[tuple[str | bytes, ...]] = set()
    if base is not None and _key_ids(base) == ids:
        known = {_key_files(fragment, ids) for fragment in base.fragments}
    return [fragment.id for fragment in after.fragments if _key_files(fragment, ids) not in known]


def _key_ids(manifest: Manifest) -> frozenset[int]:
    fields = fields_by_path(manifest.fields)
    return frozenset(fields[column].id for column in key_columns(manifest.fields))


def _key_files(fragment: pb.DataFragment, ids: frozenset[int]) -> tuple[str | bytes, ...]:
    """The files that hold the key: file names are never reused, so equal names mean equal keys."""
    return (*(file.path for file in fragment.files if not ids.isdisjoint(file.fields)), *fragment.overlays)
