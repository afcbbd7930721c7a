"""Conflicts of index changes with each other and with changes of the rows they cover."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from conroi.conflicts import facts
from conroi.conflicts.facts import Staged
from conroi.conflicts.rules import Finding, Rule, found
from conroi.format import lance_pb2 as pb
from conroi.operations import CreateIndex, DataReplacement, Update
from conroi.operations.base import Operation
from conroi.operations.indices import FRAGMENT_REUSE, MEM_WAL, covered_fragments, without_changed_fields


def _index_meets_update(mine: Staged, theirs: Operation) -> Finding | None:
    """A fragment with new values in an indexed column leaves the index's coverage; a query then scans it."""
    if not isinstance(mine.operation, CreateIndex) or not isinstance(theirs, Update):
        return None
    changed = dict.fromkeys(facts.updated_fragments(theirs), theirs.fields_modified)
    old = mine.operation.new_indices
    pruned = tuple(without_changed_fields(old, changed))
    stale = [index for index, kept in zip(old, pruned, strict=True) if kept is not index]
    if not stale:
        return None
    rebased = replace(mine.operation, new_indices=pruned)
    return found("index/coverage-reduced", changed, facts.names_of(stale), operation=rebased)


def _index_meets_index(mine: Staged, theirs: Operation) -> Finding | None:
    my_new, their_new = facts.new_indices(mine.operation), facts.new_indices(theirs)
    both = facts.names_of(my_new) & facts.names_of(their_new)
    if system := both & {FRAGMENT_REUSE, MEM_WAL}:
        return found("index/same-system-index", names=system)
    if both:
        return found("index/same-name", names=both)
    my_gone, their_gone = facts.removed_indices(mine.operation), facts.removed_indices(theirs)
    torn = _extended(my_new, my_gone) & facts.names_of(their_gone)
    torn |= _extended(their_new, their_gone) & facts.names_of(my_gone)
    if torn:
        return found("index/extended-and-dropped", names=torn)
    twice = _removed_by_both(my_gone, their_gone) & facts.names_of([*my_new, *their_new])
    return found("index/replaced-twice", names=twice) if twice else None


def _extended(new: Iterable[pb.IndexMetadata], gone: Iterable[pb.IndexMetadata]) -> frozenset[str]:
    """Names to which a segment is added without replacing one."""
    return facts.names_of(new) - facts.names_of(gone)


def _removed_by_both(mine: Sequence[pb.IndexMetadata], theirs: Sequence[pb.IndexMetadata]) -> frozenset[str]:
    """The names, on either side, of the segments that both remove."""
    shared = {index.uuid.uuid for index in mine} & {index.uuid.uuid for index in theirs}
    return frozenset(index.name for index in (*mine, *theirs) if index.uuid.uuid in shared)


def points_at(indices: Iterable[pb.IndexMetadata], fragments: frozenset[int]) -> Finding | None:
    """Whether one of the indices points to rows of these fragments, which have moved."""
    for index in indices:
        covered = covered_fragments(index)
        if covered is None:
            return found("index/coverage-unknown", names=[index.name])
        if hit := fragments.intersection(covered):
            return found("index/rows-moved", hit, [index.name])
    return None


def _indexed_column_replaced(mine: Staged, theirs: Operation) -> Finding | None:
    """One of the two is an index change, the other a replacement of column files, in either order."""
    operations = (mine.operation, theirs)
    replaced = {
        field
        for operation in operations
        if isinstance(operation, DataReplacement)
        for field in facts.replaced_columns(operation)
    }
    indexed = {field for operation in operations for index in facts.new_indices(operation) for field in index.fields}
    common = replaced & indexed
    return found("index/column-replaced", names=facts.column_names(mine.base.fields, common)) if common else None


INDEX_MEETS_UPDATE = Rule(
    "Compatible, but a fragment that got new values in an indexed column leaves the index's coverage.",
    ("index/coverage-reduced",),
    _index_meets_update,
)
INDEX_MEETS_INDEX = Rule(
    "Different names never conflict. Retried if both build an index of one name, if one extends what the other"
    " drops, or if"
    " both replace the same part; two plain drops agree.",
    ("index/same-name", "index/same-system-index", "index/extended-and-dropped", "index/replaced-twice"),
    _index_meets_index,
)
COLUMN_REPLACED = Rule("Retried if a replaced column is indexed.", ("index/column-replaced",), _indexed_column_replaced)
