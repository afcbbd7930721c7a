"""Conflict rules of Rewrite (compaction), and how indices follow rows through the fragment-reuse index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyroaring import BitMap

from conroi.conflicts import facts
from conroi.conflicts.facts import Staged
from conroi.conflicts.rules import Finding, Rule, found
from conroi.conflicts.rules.indices import points_at
from conroi.format import lance_pb2 as pb
from conroi.operations import CreateIndex, Rewrite
from conroi.operations.base import Operation, copied
from conroi.operations.indices import covered_fragments, with_coverage


def _rewrite_meets_row_change(mine: Staged, theirs: Operation) -> Finding | None:
    """Deletions on what I copied can be translated to my copies; new values in place cannot."""
    shared = facts.modified_fragments(mine.operation) & facts.modified_fragments(theirs)
    if not shared:
        return None
    if not mine.rewrite_keeps_order:
        return found("rewrite/same-fragments", shared)
    base, newer = mine.base.fragments_by_id, facts.updated_fragments(theirs)
    if any(newer[number].files != base[number].files for number in shared & newer.keys()):
        return found("rewrite/same-fragments", shared)
    return found("rewrite/translated", shared, contested=shared)


def _rewrite_meets_rewrite(mine: Staged, theirs: Operation) -> Finding | None:
    if shared := facts.modified_fragments(mine.operation) & facts.modified_fragments(theirs):
        return found("rewrite/same-fragments", shared)
    if facts.reuse_index(mine.operation) is not None and facts.reuse_index(theirs) is not None:
        return found("reuse/both")
    return None


def _rewrite_meets_change(mine: Staged, theirs: Operation) -> Finding | None:
    shared = facts.modified_fragments(mine.operation) & facts.modified_fragments(theirs)
    return found("rewrite/same-fragments", shared) if shared else None


def _index_meets_rewrite(mine: Staged, theirs: Operation) -> Finding | None:
    moved = facts.modified_fragments(theirs)
    their_reuse = facts.reuse_index(theirs)
    if their_reuse is None:
        return points_at(facts.new_indices(mine.operation), moved)
    # With a fragment-reuse index readers find the moved rows, except through an n-gram index.
    ngrams = [index for index in facts.new_indices(mine.operation) if _is_ngram(index)]
    for index in ngrams:
        if hit := moved.intersection(covered_fragments(index) or ()):
            return found("index/ngram-moved", hit, [index.name])
    if facts.reuse_index(mine.operation) is None or not isinstance(mine.operation, CreateIndex):
        return None
    return joined(mine.operation, their_reuse)


def _is_ngram(index: pb.IndexMetadata) -> bool:
    return index.index_details.type_url.endswith("NGramIndexDetails")


def _rewrite_meets_index(mine: Staged, theirs: Operation) -> Finding | None:
    rewrite = mine.operation
    if not isinstance(rewrite, Rewrite):
        return None
    my_reuse, their_reuse = facts.reuse_index(rewrite), facts.reuse_index(theirs)
    if their_reuse is not None:
        if len(facts.new_indices(theirs)) != 1 or len(facts.removed_indices(theirs)) != 1:
            return found("reuse/mixed")
        return trimmed(rewrite, their_reuse) if my_reuse is not None else None
    if my_reuse is None:
        return points_at(facts.new_indices(theirs), facts.modified_fragments(rewrite))
    return _straddled(rewrite, theirs)


def _straddled(rewrite: Rewrite, theirs: Operation) -> Finding | None:
    """A group that an index covers only in part would leave it covering half of a new fragment."""
    for index in facts.new_indices(theirs):
        covered = covered_fragments(index)
        if covered is None:
            return found("index/coverage-unknown", names=[index.name])
        for group in rewrite.groups:
            old = {fragment.id for fragment in group.old_fragments}
            if 0 < len(old.intersection(covered)) < len(old):
                return found("reuse/straddles", old, [index.name])
    return None


REWRITE_MEETS_ROW_CHANGE = Rule(
    "Different fragments never conflict. Deletions on fragments that you compact are marked in your new ones, if"
    " you kept"
    " the order"
    " of the rows; otherwise, or if values were changed in place, retried.",
    ("rewrite/same-fragments", "rewrite/translated"),
    _rewrite_meets_row_change,
)
REWRITE_MEETS_REWRITE = Rule(
    "Retried if both compact a common fragment, or if both add to the fragment-reuse index.",
    ("rewrite/same-fragments", "reuse/both"),
    _rewrite_meets_rewrite,
)
REWRITE_MEETS_CHANGE = Rule(
    "Retried if a fragment that you compact was changed.", ("rewrite/same-fragments",), _rewrite_meets_change
)
INDEX_MEETS_REWRITE = Rule(
    "Retried if a new index covers a fragment that was compacted; compatible if the compaction left a"
    " fragment-reuse index.",
    (
        "index/rows-moved",
        "index/coverage-unknown",
        "index/ngram-moved",
        "reuse/extended",
        "reuse/external",
        "reuse/mixed",
    ),
    _index_meets_rewrite,
)
REWRITE_MEETS_INDEX = Rule(
    "Retried if a new index covers a fragment that you compact; with a fragment-reuse index only if it covers a group"
    " in part.",
    (
        "index/rows-moved",
        "index/coverage-unknown",
        "reuse/straddles",
        "reuse/trimmed",
        "reuse/external",
        "reuse/mixed",
    ),
    _rewrite_meets_index,
)


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
