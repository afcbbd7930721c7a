"""Conflict rules of settings, metadata and streaming state (MemWAL)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from conroi.conflicts import facts
from conroi.conflicts.facts import Staged
from conroi.conflicts.rules import Finding, Rule, found
from conroi.format import lance_pb2 as pb
from conroi.operations import CreateIndex, Overwrite, UpdateBases, UpdateConfig
from conroi.operations.base import Operation, copied
from conroi.operations.indices import MEM_WAL


def _config_set(operation: Operation) -> frozenset[str]:
    """The config keys that get a value."""
    if isinstance(operation, Overwrite):
        return frozenset(operation.config_upsert_values)
    return _keys(operation.config, has_value=True) if isinstance(operation, UpdateConfig) else frozenset()


def _config_deleted(operation: Operation) -> frozenset[str]:
    return _keys(operation.config, has_value=False) if isinstance(operation, UpdateConfig) else frozenset()


def _keys(updates: pb.UpdateMap | None, *, has_value: bool) -> frozenset[str]:
    entries = updates.update_entries if updates is not None else ()
    return frozenset(entry.key for entry in entries if entry.HasField("value") == has_value)


def _same_config(mine: Operation, theirs: Operation) -> frozenset[str]:
    """Keys that one sets and the other sets or deletes; two deletions agree."""
    one, other = _config_set(mine), _config_set(theirs)
    return (one & other) | (one & _config_deleted(theirs)) | (other & _config_deleted(mine))


def changes_schema(operation: Operation) -> bool:
    """Whether metadata of the schema or of a column is really changed."""
    if not isinstance(operation, UpdateConfig):
        return False
    updates = [operation.schema_metadata, *operation.field_metadata.values()]
    return any(update.replace or update.update_entries for update in updates if update is not None)


def columns_described(operation: Operation) -> Iterable[int]:
    """The columns whose metadata the operation changes."""
    return operation.field_metadata.keys() if isinstance(operation, UpdateConfig) else ()


def _same_setting(mine: Staged, theirs: Operation) -> Finding | None:
    one = mine.operation
    if not isinstance(one, UpdateConfig) or not isinstance(theirs, UpdateConfig):
        return None
    names = set(_same_config(one, theirs)) | _same_table_metadata(one, theirs)
    if one.schema_metadata is not None and theirs.schema_metadata is not None:
        names.add("the schema's metadata")
    columns = one.field_metadata.keys() & theirs.field_metadata.keys()
    names.update(f"metadata of column {name}" for name in facts.column_names(mine.base.fields, columns))
    return found("settings/same-key", names=names) if names else None


def _same_table_metadata(one: UpdateConfig, other: UpdateConfig) -> set[str]:
    mine, theirs = one.table_metadata, other.table_metadata
    if mine is None or theirs is None:
        return set()
    common = {entry.key for entry in mine.update_entries} & {entry.key for entry in theirs.update_entries}
    return common or ({"the table's metadata"} if mine.replace or theirs.replace else set())


def _overwrite_meets_settings(mine: Staged, theirs: Operation) -> Finding | None:
    same = _same_config(mine.operation, theirs)
    return found("settings/same-key", names=same) if same else None


def _overwrite_meets_overwrite(mine: Staged, theirs: Operation) -> Finding:
    return _overwrite_meets_settings(mine, theirs) or found("table/overwritten-twice")


def _settings_meet_overwrite(mine: Staged, theirs: Operation) -> Finding | None:
    """Metadata of schema and columns hangs on a schema that is no longer there; even to name it is refused."""
    one = mine.operation
    if isinstance(one, UpdateConfig) and (one.schema_metadata is not None or one.field_metadata):
        return found("settings/replaced-table")
    return _overwrite_meets_settings(mine, theirs)


def _settings_meet_restore(mine: Staged, theirs: Operation) -> Finding | None:
    """One of the two is a restore, which brings its own metadata of schema and columns."""
    return found("settings/replaced-table") if changes_schema(mine.operation) or changes_schema(theirs) else None


def _same_base(mine: Staged, theirs: Operation) -> Finding | None:
    if not isinstance(mine.operation, UpdateBases) or not isinstance(theirs, UpdateBases):
        return None
    same = _clashing_bases(mine.operation.new_bases, theirs.new_bases)
    return found("settings/base-paths", names=same) if same else None


def _clashing_bases(mine: Iterable[pb.BasePath], theirs: Iterable[pb.BasePath]) -> set[str]:
    others = list(theirs)
    ids = {base.id for base in others} - {0}  # 0 asks for any free id
    names = {base.name for base in others if base.HasField("name")}
    paths = {base.path for base in others}
    return {
        base.path
        for base in mine
        if base.id in ids or base.path in paths or (base.HasField("name") and base.name in names)
    }


SAME_SETTING = Rule(
    "Incompatible if both set the same config key, table metadata key, schema metadata or column metadata; else"
    " compatible.",
    ("settings/same-key",),
    _same_setting,
)
OVERWRITE_MEETS_SETTINGS = Rule(
    "Incompatible if the overwrite sets the same config key.", ("settings/same-key",), _overwrite_meets_settings
)
OVERWRITE_MEETS_OVERWRITE = Rule(
    "Retried, so that you can look first; incompatible if both set the same config key.",
    ("settings/same-key", "table/overwritten-twice"),
    _overwrite_meets_overwrite,
    can_pass=False,
)
SETTINGS_MEET_OVERWRITE = Rule(
    "Incompatible if you change metadata of the schema or a column, or set a config key that the overwrite sets.",
    ("settings/replaced-table", "settings/same-key"),
    _settings_meet_overwrite,
)
SETTINGS_MEET_RESTORE = Rule(
    "Incompatible if metadata of the schema or a column is changed; other settings do not matter.",
    ("settings/replaced-table",),
    _settings_meet_restore,
)
SAME_BASE = Rule("Incompatible if both register the same id, name or path.", ("settings/base-paths",), _same_base)


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
