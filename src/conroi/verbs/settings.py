"""Config, metadata and other verbs that change only the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from conroi.commit.change import IfMoved, Plan, must_not_move
from conroi.data.table_version import TableVersion, find
from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.on_disk import AUTO_COMPACT_SETTING
from conroi.operations import CreateIndex, ReserveFragments, Restore, UpdateBases, UpdateConfig, UpdateMemWalState
from conroi.operations.update_config import update_map
from conroi.snapshots.snapshot import Snapshot
from conroi.storage.base_paths import allow_bases
from conroi.verbs.index import no_such_index

Values = Mapping[str, str | None]
"""New values by key; None deletes a key."""


def check_settings(values: Values, table: str) -> None:
    """Reject an invalid value of a conroi setting."""
    limit = values.get(AUTO_COMPACT_SETTING)
    if limit is not None and not (isinstance(limit, str) and limit.isdecimal() and int(limit) >= 2):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInputError(
            f"{AUTO_COMPACT_SETTING}={limit!r} is not a number of fragments.",
            table=table,
            hint='Give 2 or more as text, such as "32"; None switches it off.',
        )


def set_config(pinned: TableVersion, values: Values, *, replace: bool = False) -> Plan:
    """Configuration that Lance and conroi act on, such as `lance.*`."""
    check_settings(values, pinned.root)
    return Plan(pinned.staged(UpdateConfig(config=_update_map(pinned, values, replace))))


def set_metadata(
    pinned: TableVersion,
    *,
    table: Values | None = None,
    schema: Values | None = None,
    fields: Mapping[str, Values] | None = None,
    replace: bool = False,
) -> Plan:
    """Metadata of the table, its schema, or single columns."""
    if table is None and schema is None and not fields:
        raise InvalidInputError("No metadata was given.", table=pinned.root, hint="Pass table=, schema= or fields=.")
    operation = UpdateConfig(
        table_metadata=None if table is None else _update_map(pinned, table, replace),
        schema_metadata=None if schema is None else _update_map(pinned, schema, replace),
        field_metadata={
            find(pinned, column).id: _update_map(pinned, values, replace) for column, values in (fields or {}).items()
        },
    )
    return Plan(pinned.staged(operation))


def _update_map(pinned: TableVersion, values: Values, replace: bool) -> pb.UpdateMap:
    for key, value in values.items():
        is_text = isinstance(key, str) and isinstance(value, str | None)  # pyright: ignore[reportUnnecessaryIsInstance]
        if not key or not is_text:
            raise InvalidInputError(
                f"{key!r}: {value!r} cannot be stored.", table=pinned.root, hint="Keys and values are strings."
            )
    return update_map(values, replace=replace)


def restore(pinned: TableVersion, target: Snapshot, *, if_moved: IfMoved = "fail") -> Plan:
    """Make an older version the newest again; the versions in between stay in the history."""
    staged = pinned.staged(Restore(version=target.version))
    return Plan(staged, must_not_move=must_not_move(if_moved, pinned.root), restored=target)


def reserve_fragments(pinned: TableVersion, count: int) -> Plan:
    """Reserve ids for fragments that must know theirs before they are committed."""
    if not 0 < count < 1 << 31:
        raise InvalidInputError(
            f"{count} fragment ids cannot be reserved.", table=pinned.root, hint="Give a number from 1 to 2147483647."
        )
    return Plan(pinned.staged(ReserveFragments(num_fragments=count)))


def add_base(pinned: TableVersion, path: str, *, name: str | None = None, is_table_root: bool = False) -> Plan:
    """Add another storage location for files of this table."""
    if not path.strip():
        raise InvalidInputError(
            "A base needs a path.", table=pinned.root, hint="Give an absolute path or a URI such as s3://bucket/folder."
        )
    allow_bases(pinned.files.objects, [path])
    base = pb.BasePath(id=0, name=name, is_dataset_root=is_table_root, path=path)
    return Plan(pinned.staged(UpdateBases(new_bases=(base,))))


def update_mem_wal_state(pinned: TableVersion, compacted: Mapping[str | UUID, int]) -> Plan | None:
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


def drop_index(pinned: TableVersion, name: str) -> Plan:
    """Drop an index; its files stay until they are collected."""
    gone = tuple(index for index in pinned.manifest.indices if index.name == name)
    if not gone:
        raise no_such_index(pinned, name)
    return Plan(pinned.staged(CreateIndex(new_indices=(), removed_indices=gone)))
