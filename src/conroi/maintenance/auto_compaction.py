"""Automatic compaction: with the setting `conroi.auto_compact`, the commit that adds one fragment too many compacts.

The setting is the maximum number of small fragments of about the same size, say 32. Fragments are grouped into size
tiers of that factor: up to 31 rows, up to 1,023, and so on. When a commit brings a tier above the number, its writer
merges those fragments into larger ones, right after its commit, before the call returns. So each row is rewritten once
per tier, however long the table grows, and one commit in 32 takes a little longer.

Fragments of which an index would lose the rows, because it cannot follow them, are left to an explicit compact(), which
brings the index up to date.

Of several concurrent writers exactly one compacts: versions are linear, so exactly one commit exceeds the number. If
that writer fails or crashes, the commit that exceeds twice the number compacts.
"""

from __future__ import annotations

import logging
from collections import Counter

from conroi import operations
from conroi.commit.change import CommitResult, Plan
from conroi.commit.execution import run
from conroi.data.table_version import TableVersion
from conroi.data.writer import ROWS_PER_FILE
from conroi.errors import ConroiError
from conroi.format import lance_pb2 as pb
from conroi.format.naming import is_detached
from conroi.format.on_disk import AUTO_COMPACT_SETTING
from conroi.operations import Append, Rewrite, Update
from conroi.snapshots.snapshot import Snapshot, TableStorage
from conroi.verbs.compact import CompactOptions, compact
from conroi.verbs.settings import reserve_fragments

_log = logging.getLogger(__name__)

MESSAGE = "automatic compaction"
NEVER = 1.0
"""Threshold for deleted rows. They alone trigger nothing: rewriting a big fragment is left to an explicit compact()."""


def compact_after(files: TableStorage, result: CommitResult) -> None:
    """Compact if this commit exceeded the limit of small fragments. Never raises: the commit has succeeded."""
    limit = result.snapshot.manifest.head.config.get(AUTO_COMPACT_SETTING)
    if limit is None or is_detached(result.version) or result.is_shared:
        return
    newest: CommitResult | None = result
    try:
        while newest is not None and (step := _stepped_over(newest, int(limit))) is not None:
            newest = _merged(files, newest.snapshot, int(limit) ** (step + 1))
    except (ConroiError, ValueError) as error:
        _log.warning("%s was not compacted: %s", files.root, error)


def _stepped_over(result: CommitResult, limit: int) -> int | None:
    """The size tier whose limit this commit exceeded; None if there is none."""
    added = Counter(_step(fragment, limit) for fragment in _added(result))
    if not added:
        return None
    there = Counter(_step(fragment, limit) for fragment in result.snapshot.manifest.fragments)
    for step in sorted(step for step in added if step is not None):
        before = there[step] - added[step]
        if there[step] // (limit + 1) > before // (limit + 1):
            return step
    return None


def _added(result: CommitResult) -> list[pb.DataFragment]:
    operation = operations.of(result.transaction)
    if isinstance(operation, Append):
        return list(operation.fragments)
    if isinstance(operation, Update):
        return list(operation.new_fragments)
    if isinstance(operation, Rewrite):
        return [fragment for group in operation.groups for fragment in group.new_fragments]
    return []


def _step(fragment: pb.DataFragment, limit: int) -> int | None:
    """Size tier of a fragment: how often its rows can be divided by the limit; None if it is full-sized."""
    rows, step = fragment.physical_rows, 0
    if rows >= ROWS_PER_FILE:
        return None
    while rows >= limit:
        rows, step = rows // limit, step + 1
    return step


def _merged(files: TableStorage, known: Snapshot, rows: int) -> CommitResult | None:
    options = CompactOptions(rows_per_fragment=min(rows, ROWS_PER_FILE), deleted_share=NEVER, spares_indices=True)

    def reserved(count: int) -> range:
        done = run(files, known, lambda head: reserve_fragments(TableVersion(files, head), count), {"message": MESSAGE})
        last = done.snapshot.manifest.head.max_fragment_id
        return range(last - count + 1, last + 1)

    def verb(head: Snapshot) -> Plan | None:
        return compact(TableVersion(files, head), options, reserved)

    return run(files, known, verb, {"message": MESSAGE}).result
