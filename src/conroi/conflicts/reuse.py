"""Fragment-reuse index: readers use it to find rows that a compaction moved before the indices were rebuilt.

There is one per table, so a compaction that adds to it and a clean-up that drops its old entries must be merged. Its
entries are inside the index's metadata, unless there are many: then they are in a file, and a merge would need I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyroaring import BitMap

from conroi.conflicts.rule import Finding, found
from conroi.format import lance_pb2 as pb
from conroi.operations import CreateIndex, Rewrite
from conroi.operations.base import copied
from conroi.operations.indices import with_coverage


def joined(mine: CreateIndex, their_reuse: pb.IndexMetadata) -> Finding:
    """My tidied index, with the entry that their compaction added meanwhile."""
    if len(mine.new_indices) != 1 or len(mine.removed_indices) != 1:
        return found("reuse/mixed")
    (index,) = mine.new_indices
    entries, theirs = _entries(index), _entries(their_reuse)
    if entries is None or not theirs:
        return found("reuse/external")
    newest = max(theirs, key=lambda entry: entry.dataset_version)
    return found("reuse/extended", operation=replace(mine, new_indices=(_with_entries(index, [*entries, newest]),)))


def trimmed(mine: Rewrite, their_reuse: pb.IndexMetadata) -> Finding | None:
    """My compaction's index, without the old entries that their tidying dropped."""
    index = mine.fragment_reuse_index
    if index is None:
        return None
    entries, theirs = _entries(index), _entries(their_reuse)
    if not entries or theirs is None:
        return found("reuse/external")
    # Nothing left over there means that everything but my own, newest entry was dropped.
    oldest_kept = min(entry.dataset_version for entry in theirs) if theirs else max(e.dataset_version for e in entries)
    kept = [entry for entry in entries if entry.dataset_version >= oldest_kept]
    return found("reuse/trimmed", operation=replace(mine, fragment_reuse_index=_with_entries(index, kept)))


def _entries(index: pb.IndexMetadata) -> Sequence[pb.FragmentReuseVersion] | None:
    """The entries of the index; None if they are in a file, or in a form this version does not know."""
    details = pb.FragmentReuseIndexDetails.FromString(index.index_details.value)
    if index.index_version != 0 or details.WhichOneof("content") == "external":
        return None
    return list(details.inline.versions)


def _with_entries(index: pb.IndexMetadata, entries: Sequence[pb.FragmentReuseVersion]) -> pb.IndexMetadata:
    changed = copied(index)
    details = pb.FragmentReuseIndexDetails(inline=pb.FragmentReuseInline(versions=entries))
    changed.index_details.value = details.SerializeToString(deterministic=True)
    digests = (digest for entry in entries for group in entry.groups for digest in group.new_fragments)
    return with_coverage(changed, BitMap(digest.id for digest in digests))
