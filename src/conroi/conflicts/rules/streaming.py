"""Conflicts of streaming progress (MemWAL): for each shard, how far its rows are in the table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from conroi.conflicts import facts
from conroi.conflicts.rule import Finding, Rule, found
from conroi.conflicts.staged import Staged
from conroi.format import lance_pb2 as pb
from conroi.operations import CreateIndex
from conroi.operations.base import Operation, copied
from conroi.operations.indices import MEM_WAL


def _same_shard(mine: Staged, theirs: Operation) -> Finding | None:
    my_marks = {mark.shard_id.uuid: mark.generation for mark in facts.progress(mine.operation)}
    for mark in facts.progress(theirs):
        my_generation = my_marks.get(mark.shard_id.uuid)
        if my_generation is not None:
            return found("memwal/superseded" if mark.generation >= my_generation else "memwal/behind")
    return None


def _index_meets_progress(mine: Staged, theirs: Operation) -> Finding:
    """The index that holds the marks takes the further one of each shard; no other index change is allowed."""
    operation = mine.operation
    if not isinstance(operation, CreateIndex) or MEM_WAL not in facts.names_of(operation.new_indices):
        return found("index/memwal")
    indices = tuple(_joined(index, facts.progress(theirs)) for index in operation.new_indices)
    rebased = replace(operation, new_indices=indices)
    return found("index/memwal-joined", names=[MEM_WAL], operation=rebased)


def _joined(index: pb.IndexMetadata, marks: Iterable[pb.CompactedSsTable]) -> pb.IndexMetadata:
    if index.name != MEM_WAL:
        return index
    details = pb.MemWalIndexDetails.FromString(index.index_details.value)
    own = {mark.shard_id.uuid: mark for mark in details.compacted_sstables}
    for mark in marks:
        known = own.get(mark.shard_id.uuid)
        if known is None:
            details.compacted_sstables.append(mark)
        elif mark.generation > known.generation:
            known.generation = mark.generation
    joined = copied(index)
    joined.index_details.value = details.SerializeToString(deterministic=True)
    return joined


def _schema_under_index(mine: Staged, theirs: Operation) -> Finding | None:
    """One of the two is a change of columns, the other an index change, which may be the streaming index."""
    indices = (*facts.new_indices(mine.operation), *facts.new_indices(theirs))
    return found("index/memwal-schema") if MEM_WAL in facts.names_of(indices) else None


SAME_SHARD = Rule(
    "Compatible for different shards. For one shard: retried if the other did not go as far as you do, else"
    " incompatible.",
    ("memwal/superseded", "memwal/behind"),
    _same_shard,
)
INDEX_MEETS_PROGRESS = Rule(
    "The streaming index takes the further mark of each shard; any other index change is incompatible.",
    ("index/memwal", "index/memwal-joined"),
    _index_meets_progress,
    can_pass=False,
)
SCHEMA_UNDER_INDEX = Rule(
    "Retried if the index is the streaming index, which is checked against the columns.",
    ("index/memwal-schema",),
    _schema_under_index,
)
