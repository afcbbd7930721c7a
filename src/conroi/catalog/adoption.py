"""Adoption of out-of-band commits: a version that was committed by the table's path, past the lake, is published.

The version keeps its manifest and its final name; the publication only pins it. From then on other writers rebase over
it, as over any concurrent commit. Such a version is found by a publication whose next final name is taken, by a client
of the namespace that asks for a later version, and by the doctor. Diverged tables, where the lake published another
commit under the same number, are repaired instead: see conroi.maintenance.repair.
"""

from __future__ import annotations

import logging

from conroi.catalog.names import shown
from conroi.catalog.participant import PublishRequest, TableChange
from conroi.catalog.rows import Row
from conroi.catalog.state import CommitMetadata, LakeState
from conroi.format.naming import ManifestNaming
from conroi.snapshots.external_manifest import read_final
from conroi.snapshots.snapshot import TableStorage

_log = logging.getLogger(__name__)


def adoption(
    base: LakeState, row: Row, files: TableStorage, version: int, naming: ManifestNaming
) -> PublishRequest | None:
    """The publication of the out-of-band commit that is the next version of the table; None if there is none."""
    foreign = read_final(files.objects, version, naming)
    if foreign is None:
        return None
    message = f"adopt version {version} of {shown(row.object_id)}, which was written past the lake"
    _log.warning("%s", message)
    change = TableChange(row.object_id, row.object_id, files, None, row, foreign)
    return PublishRequest(base, [change], notes=CommitMetadata(message))
