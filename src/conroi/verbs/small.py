"""Metadata-only verbs: they change the manifest and no data."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from conroi.commit.snapshot import Snapshot
from conroi.data.pinned import Pinned
from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.operations import CreateIndex, ReserveFragments, Restore, UpdateBases, UpdateMemWalState
from conroi.stores.bases import allow_bases
from conroi.verbs.index import no_such_index
from conroi.verbs.plan import IfMoved, Plan, must_not_move


def restore(pinned: Pinned, target: Snapshot, *, if_moved: IfMoved = "fail") -> Plan:
    """Make an older version the newest again; the versions in between stay in the history."""
    staged = pinned.staged(Restore(version=target.version))
    return Plan(staged, must_not_move=must_not_move(if_moved, pinned.root), restored=target)


def reserve_fragments(pinned: Pinned, count: int) -> Plan:
    """Reserve ids for fragments that must know theirs before they are committed."""
    if not 0 < count < 1 << 31:
        raise InvalidInputError(
            f"{count} fragment ids cannot be reserved.", table=pinned.root, hint="Give a number from 1 to 2147483647."
        )
    return Plan(pinned.staged(ReserveFragments(num_fragments=count)))


def add_base(pinned: Pinned, path: str, *, name: str | None = None, is_table_root: bool = False) -> Plan:
    """Add another storage location for files of this table."""
    if not path.strip():
        raise InvalidInputError(
            "A base needs a path.", table=pinned.root, hint="Give an absolute path or a URI such as s3://bucket/folder."
        )
    allow_bases(pinned.files.objects, [path])
    base = pb.BasePath(id=0, name=name, is_dataset_root=is_table_root, path=path)
    return Plan(pinned.staged(UpdateBases(new_bases=(base,))))


def update_mem_wal_state(pinned: Pinned, compacted: Mapping[str | UUID, int]) -> Plan | None:
    """Record the newest generation of each shard of a write-ahead log that is in the table."""
    tables: list[pb.CompactedSsTable] = []
    for shard, generation in compacted.items():
        try:
            shard_id = shard if isinstance(shard, UUID) else UUID(shard)
        except (ValueError, AttributeError, TypeError):
            raise InvalidInputError(
                f"{shard!r} is not the id of a shard.", table=pinned.root, hint="Give its UUID."
            ) from None
        if isinstance(generation, bool) or not isinstance(generation, int) or not 0 < generation < 1 << 64:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInputError(
                f"{generation!r} is not a generation.", table=pinned.root, hint="They count from 1."
            )
        tables.append(pb.CompactedSsTable(shard_id=pb.UUID(uuid=shard_id.bytes), generation=generation))
    return Plan(pinned.staged(UpdateMemWalState(compacted_sstables=tuple(tables)))) if tables else None


def drop_index(pinned: Pinned, name: str) -> Plan:
    """Drop an index; its files stay until they are collected."""
    gone = tuple(index for index in pinned.manifest.indices if index.name == name)
    if not gone:
        raise no_such_index(pinned, name)
    return Plan(pinned.staged(CreateIndex(new_indices=(), removed_indices=gone)))
