"""The index `__lance_mem_wal`: how far the rows of a write-ahead log have been copied into the table.

For each shard of the log it records the newest generation that was compacted into the table and, for each index, how
much of that the index has caught up with. The owner of the log deletes what both declare safe, so neither may claim too
much.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from google.protobuf.message import DecodeError
from pyroaring import BitMap

from conroi.errors import CorruptionError, InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.operations.base import Step, copied, unknown_fields
from conroi.operations.indices import MEM_WAL, covered_fragments, is_system

_UUIDS = uuid.UUID("6f0f2c1c-7b0e-5c0e-9a53-0d1f4c6f2a11")


def with_compacted(
    indices: Sequence[pb.IndexMetadata], compacted: Sequence[pb.CompactedSsTable], step: Step
) -> Sequence[pb.IndexMetadata]:
    """The indices after these generations were copied into the table; each must be newer than the recorded one."""
    if not compacted:
        return indices
    at = _position(indices)
    if at is None:
        raise InvalidInputError(
            "The operation records progress of a write-ahead log, but the table has none.",
            hint="Initialize it first (pylance: initialize_mem_wal).",
        )
    details = _details(indices[at])
    recorded = {entry.shard_id.uuid: entry for entry in details.compacted_sstables}
    for shard in _each_once(compacted):
        known = recorded.get(shard.shard_id.uuid)
        if known is None:
            details.compacted_sstables.append(shard)
        elif shard.generation > known.generation:
            known.generation = shard.generation
        else:
            raise InvalidInputError(
                f"Generation {shard.generation} of shard {uuid.UUID(bytes=shard.shard_id.uuid)} is not newer than "
                f"generation {known.generation}, which the table already has.",
                hint="A concurrent writer compacted this shard; read its state again.",
            )
    return _replaced(indices, at, details, step)


def with_catch_up(
    before: Sequence[pb.IndexMetadata], after: Sequence[pb.IndexMetadata], read: Manifest | None, step: Step
) -> Sequence[pb.IndexMetadata]:
    """The indices with a true record of how far each has caught up with the log.

    An index that covers every fragment of the version the transaction read has every row that was compacted by then.
    One that did not change keeps what it had. For any other there is no record, which means: not caught up.
    """
    at = _position(after)
    if at is None or _position(before) is None:
        return after
    details = _details(after[at])
    if not details.compacted_sstables and not details.index_catchup:
        return after
    old = {entry.index_name: entry for entry in details.index_catchup}
    segments_before = _segments(before)
    new: dict[str, pb.IndexCatchupProgress] = {}
    for name, segments in sorted(_segments(after).items()):
        carried = old.get(name) if segments_before.get(name) == segments else None
        progress = _progress(name, details, carried, read, segments)
        if any(entry.generation for entry in progress.caught_up_generations):
            new[name] = progress
    if new == old:
        return after
    del details.index_catchup[:]
    details.index_catchup.extend(new.values())
    return _replaced(after, at, details, step)


_Segments = Sequence[tuple[bytes, BitMap | None]]


def _progress(
    name: str,
    details: pb.MemWalIndexDetails,
    carried: pb.IndexCatchupProgress | None,
    read: Manifest | None,
    segments: _Segments,
) -> pb.IndexCatchupProgress:
    """The better of what is proven and what an unchanged index had before, but never more than was compacted."""
    most = _generations(details.compacted_sstables)
    prior = _generations(carried.caught_up_generations if carried else ())
    credit = _generations(_details_of(read).compacted_sstables if read else ())
    # The proof looks at all fragments, so it is made only where it would prove something new.
    would_gain = any(min(credit.get(shard, 0), most[shard]) > prior.get(shard, 0) for shard in most)
    if not (would_gain and _covers(segments, read)):
        credit = {}
    progress = pb.IndexCatchupProgress(index_name=name)
    for shard, generation in most.items():
        reached = min(max(prior.get(shard, 0), credit.get(shard, 0)), generation)
        progress.caught_up_generations.add(shard_id=pb.UUID(uuid=shard), generation=reached)
    return progress


def _covers(segments: _Segments, read: Manifest | None) -> bool:
    if read is None or not read.fragments:  # no fragments proves nothing: the log may be the last copy
        return False
    covered = BitMap()
    for _, bitmap in segments:
        if bitmap is None:
            return False
        covered |= bitmap
    return BitMap(fragment.id for fragment in read.fragments) <= covered


def _segments(indices: Iterable[pb.IndexMetadata]) -> dict[str, list[tuple[bytes, BitMap | None]]]:
    """Per index name what decides its coverage: an update may shrink it without giving it a new id."""
    segments: defaultdict[str, list[tuple[bytes, BitMap | None]]] = defaultdict(list)
    for index in indices:
        if not is_system(index):
            segments[index.name].append((index.uuid.uuid, covered_fragments(index)))
    return {name: sorted(found, key=lambda segment: segment[0]) for name, found in segments.items()}


def _generations(entries: Iterable[pb.CompactedSsTable]) -> dict[bytes, int]:
    return {entry.shard_id.uuid: entry.generation for entry in entries}


def _each_once(compacted: Sequence[pb.CompactedSsTable]) -> Sequence[pb.CompactedSsTable]:
    if len({shard.shard_id.uuid for shard in compacted}) < len(compacted):
        raise InvalidInputError(
            "One operation advances the same shard of the write-ahead log twice.",
            hint="Name each shard once, with the newest generation.",
        )
    return compacted


def _position(indices: Sequence[pb.IndexMetadata]) -> int | None:
    return next((at for at, index in enumerate(indices) if index.name == MEM_WAL), None)


def _details_of(manifest: Manifest) -> pb.MemWalIndexDetails:
    at = _position(manifest.indices)
    return pb.MemWalIndexDetails() if at is None else _details(manifest.indices[at])


def _details(index: pb.IndexMetadata) -> pb.MemWalIndexDetails:
    try:
        return pb.MemWalIndexDetails.FromString(index.index_details.value)
    except DecodeError as error:
        raise CorruptionError(
            f"The details of the index {MEM_WAL} are not a valid message ({error}).",
            hint="The manifest is damaged; open an older version of the table.",
        ) from error


def _replaced(
    indices: Sequence[pb.IndexMetadata], at: int, details: pb.MemWalIndexDetails, step: Step
) -> Sequence[pb.IndexMetadata]:
    """The indices with new details; readers cache them by id, so the index gets a new one."""
    index = copied(indices[at])
    index.uuid.uuid = uuid.uuid5(_UUIDS, f"{step.transaction_uuid}/{step.version}").bytes
    index.dataset_version = step.version
    index.index_details.value = details.SerializeToString(deterministic=True)
    index.created_at = step.timestamp_ns // 1_000_000
    return [*indices[:at], index, *indices[at + 1 :]]


@dataclass(frozen=True, slots=True)
class UpdateMemWalState:
    """Record the newest generation of each shard that is in the table."""

    name: ClassVar[str] = "UpdateMemWalState"

    compacted_sstables: tuple[pb.CompactedSsTable, ...]
    unknown: bytes = b""

    def to_wire(self) -> pb.Transaction:
        message = pb.Transaction.UpdateMemWalState(compacted_sstables=self.compacted_sstables)
        message.MergeFromString(self.unknown)
        return pb.Transaction(update_mem_wal_state=message)

    @classmethod
    def from_wire(cls, message: pb.Transaction.UpdateMemWalState) -> UpdateMemWalState:
        return cls(compacted_sstables=tuple(message.compacted_sstables), unknown=unknown_fields(message))

    def apply(self, base: Manifest, step: Step) -> Manifest:
        return base.changed(indices=with_compacted(base.indices, self.compacted_sstables, step))
