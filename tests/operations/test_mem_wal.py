"""UpdateMemWalState, and what other operations do to the record of a write-ahead log."""

from __future__ import annotations

import uuid
from pathlib import Path

import lance
import lance.mem_wal
import pyarrow as pa
import pytest

from conroi import operations
from conroi.errors import CorruptionError, InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.operations import CreateIndex, ReserveFragments, Step, Update, UpdateMemWalState
from tests.operations.tables import built, fragment, index, manifest
from tests.support.parity import assert_replayed
from tests.support.wire import plant, planted

ONE, TWO = uuid.UUID(int=1), uuid.UUID(int=2)


def compacted(shard: uuid.UUID, generation: int) -> pb.CompactedSsTable:
    return pb.CompactedSsTable(shard_id=pb.UUID(uuid=shard.bytes), generation=generation)


def log(details: pb.MemWalIndexDetails) -> pb.IndexMetadata:
    made = index("__lance_mem_wal", [], None, number=50, kind="MemWal")
    made.index_details.value = details.SerializeToString()
    return made


def details(made: Manifest) -> pb.MemWalIndexDetails:
    (found,) = (each for each in made.indices if each.name == "__lance_mem_wal")
    return pb.MemWalIndexDetails.FromString(found.index_details.value)


def generations(entries: list[pb.CompactedSsTable]) -> dict[int, int]:
    return {uuid.UUID(bytes=entry.shard_id.uuid).int: entry.generation for entry in entries}


def caught_up(made: Manifest) -> dict[str, dict[int, int]]:
    return {entry.index_name: generations(list(entry.caught_up_generations)) for entry in details(made).index_catchup}


def with_log(*indices: pb.IndexMetadata, progress: list[pb.CompactedSsTable] | None = None) -> Manifest:
    record = pb.MemWalIndexDetails(compacted_sstables=progress or [])
    plant(record, b"shards and the like")
    return manifest(fragment(0), fragment(1), version=4, indices=[log(record), *indices])


def test_newer_generations_are_recorded_and_the_rest_stays() -> None:
    base = with_log(progress=[compacted(ONE, 3)])
    after = built(base, UpdateMemWalState((compacted(ONE, 5), compacted(TWO, 1))))
    assert generations(list(details(after).compacted_sstables)) == {1: 5, 2: 1}
    assert planted(details(after)) == [b"shards and the like"]
    assert after.indices[0].dataset_version == 5
    assert after.indices[0].created_at == 1_700_000_000_123
    assert after.indices[0].uuid != base.indices[0].uuid


def test_the_new_id_is_the_same_for_the_same_commit_and_another_for_another() -> None:
    base = with_log()
    first = built(base, UpdateMemWalState((compacted(ONE, 5),)))
    again = built(base, UpdateMemWalState((compacted(ONE, 5),)))
    next_one = built(first, UpdateMemWalState((compacted(ONE, 6),)))
    assert first.indices[0].uuid == again.indices[0].uuid
    assert first.indices[0].uuid != next_one.indices[0].uuid


@pytest.mark.parametrize("stale", [3, 2])
def test_a_generation_that_is_not_newer_is_refused(stale: int) -> None:
    with pytest.raises(InvalidInputError, match="not newer"):
        built(with_log(progress=[compacted(ONE, 3)]), UpdateMemWalState((compacted(ONE, stale),)))


def test_a_shard_may_be_named_once() -> None:
    with pytest.raises(InvalidInputError, match="twice"):
        built(with_log(), UpdateMemWalState((compacted(ONE, 3), compacted(ONE, 4))))


def test_a_table_without_a_log_has_no_progress() -> None:
    with pytest.raises(InvalidInputError, match="has none"):
        built(manifest(fragment(0)), UpdateMemWalState((compacted(ONE, 3),)))


def test_an_update_records_what_it_copied() -> None:
    after = built(with_log(), Update((), (), (fragment(),), compacted_sstables=(compacted(ONE, 3),)))
    assert generations(list(details(after).compacted_sstables)) == {1: 3}


def test_an_index_that_covers_what_the_transaction_read_has_caught_up_with_it() -> None:
    base = with_log(progress=[compacted(ONE, 3)])
    after = built(base, CreateIndex((index("all", [0], [0, 1]), index("half", [0], [1], number=2))))
    assert caught_up(after) == {"all": {1: 3}}


def test_without_the_version_that_was_read_nothing_is_proven() -> None:
    moved_on = manifest(fragment(0), version=9, indices=with_log(progress=[compacted(ONE, 3)]).indices)
    operation = CreateIndex((index("all", [0], [0]),))
    stale = operations.transaction(operation, read_version=4, uuid="u")
    after = operations.build(
        moved_on, stale, operation, Step(version=10), timestamp_ns=1, writer_version=("conroi", "1")
    )
    assert caught_up(after) == {}
    read = with_log(progress=[compacted(ONE, 2)])
    after = operations.build(
        moved_on, stale, operation, Step(version=10, read=read), timestamp_ns=1, writer_version=("conroi", "1")
    )
    assert caught_up(after) == {}  # fragment 1, which the transaction read, is not covered


def test_an_unchanged_index_keeps_its_record_and_a_changed_one_loses_it() -> None:
    base = with_log(index("kept", [0], [1]), index("changed", [1], [0, 1], number=2), progress=[compacted(ONE, 3)])
    record = details(base)
    for name in ("kept", "changed"):
        record.index_catchup.add(index_name=name, caught_up_generations=[compacted(ONE, 2)])
    base = base.changed(indices=[log(record), *base.indices[1:]])
    image = fragment(0)
    after = built(base, Update((), (image,), (fragment(),), fields_modified=(1,)))
    assert caught_up(after) == {"kept": {1: 2}}


def test_a_record_is_never_above_what_was_compacted() -> None:
    base = with_log(index("kept", [0], [1]), progress=[compacted(ONE, 3)])
    record = details(base)
    record.index_catchup.add(index_name="kept", caught_up_generations=[compacted(ONE, 9)])
    after = built(base.changed(indices=[log(record), base.indices[1]]), ReserveFragments(1))
    assert caught_up(after) == {"kept": {1: 3}}


def test_nothing_is_written_while_nothing_was_compacted() -> None:
    base = with_log(index("all", [0], [0, 1]))
    assert built(base, ReserveFragments(1)).indices == base.indices


def test_damaged_details_are_noticed() -> None:
    broken = log(pb.MemWalIndexDetails())
    broken.index_details.value = b"\x4a\xff"
    with pytest.raises(CorruptionError):
        built(manifest(fragment(0), indices=[broken]), UpdateMemWalState((compacted(ONE, 3),)))


@pytest.mark.contract("T5")
def test_as_pylance_does(tmp_path: Path) -> None:
    mark = {"lance-schema:unenforced-primary-key": "true"}
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False, metadata=mark), pa.field("v", pa.int64())])
    table = lance.write_dataset(pa.table({"id": [1, 2, 3], "v": [1, 2, 3]}, schema=schema), str(tmp_path))
    table.create_scalar_index("id", "BTREE", name="id")
    table.create_scalar_index("v", "BTREE", name="v")
    table.initialize_mem_wal(maintained_indexes=["id"], bucket_column="id", num_buckets=4)

    def merge(keys: list[int], *progress: tuple[uuid.UUID, int]) -> None:
        builder = (
            lance.dataset(str(tmp_path)).merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        )
        builder.mark_sstables_as_compacted([lance.mem_wal.CompactedSsTable(str(s), g) for s, g in progress])
        builder.execute(pa.table({"id": keys, "v": [9] * len(keys)}, schema=schema))

    merge([2, 10], (ONE, 1))
    merge([3, 11], (ONE, 5), (TWO, 2))
    lance.dataset(str(tmp_path)).optimize.optimize_indices()
    merge([3, 12], (ONE, 6))
    lance.dataset(str(tmp_path)).update_config({"a": "b"})
    lance.dataset(str(tmp_path)).optimize.optimize_indices()
    lance.dataset(str(tmp_path)).delete("id = 3")
    lance.dataset(str(tmp_path)).drop_columns(["v"])
    lance.dataset(str(tmp_path)).optimize.compact_files()
    lance.dataset(str(tmp_path), version=6).restore()
    lance.dataset(str(tmp_path)).update_config({"a": "c"})
    lance.write_dataset(pa.table({"id": [1], "v": [1]}, schema=schema), str(tmp_path), mode="overwrite")
    names = assert_replayed(tmp_path)
    assert names[:6] == ["Overwrite", "CreateIndex", "CreateIndex", "CreateIndex", "Update", "Update"]
