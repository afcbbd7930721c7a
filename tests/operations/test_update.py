from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.dataset import LanceOperation, MergeInsertBuilder
from pyroaring import BitMap

from conroi.errors import InvalidInputError, UnsupportedError
from conroi.format import lance_pb2 as pb
from conroi.format.row_ids import (
    constant_versions,
    decode_row_ids,
    decode_versions,
    encode_row_ids,
    encode_versions,
    fresh_row_ids,
)
from conroi.operations import Update
from conroi.operations.update import REWRITE_COLUMNS
from tests.operations.tables import (
    built,
    covered,
    data_file,
    fragment,
    ids,
    index,
    manifest,
    pylance_append,
    pylance_table,
    rows,
)
from tests.support.parity import assert_replayed, versions_of


def numbers(*values: int) -> np.ndarray:
    return np.array(values, np.uint64)


def with_versions(made: pb.DataFragment, created: list[int], changed: list[int]) -> pb.DataFragment:
    made.inline_created_at_versions = encode_versions(numbers(*created))
    made.inline_last_updated_at_versions = encode_versions(numbers(*changed))
    return made


def test_fragments_go_change_and_come() -> None:
    base = manifest(fragment(0), fragment(1), fragment(2))
    after = built(base, Update((0,), (fragment(2, deleted=3),), (fragment(rows=4),)))
    assert [(each.id, each.physical_rows) for each in after.fragments] == [(1, 10), (2, 10), (3, 4)]
    assert after.head.reader_feature_flags == 1


def test_moved_rows_keep_their_ids_and_the_version_of_their_creation() -> None:
    old = [
        with_versions(fragment(0, 3, row_ids=fresh_row_ids(0, 3)), [1, 1, 2], [1, 1, 2]),
        with_versions(fragment(1, 3, row_ids=fresh_row_ids(3, 3)), [3, 3, 4], [3, 3, 4]),
    ]
    base = manifest(*old, version=6, stable_row_ids=True, next_row_id=6)
    moved = fragment(rows=4, row_ids=encode_row_ids(numbers(5, 2, 0)))  # and one inserted row without an id
    after = built(base, Update((), (), (moved,)))
    assert decode_row_ids(after.fragments[2].inline_row_ids).tolist() == [5, 2, 0, 6]
    assert decode_versions(after.fragments[2].inline_created_at_versions).tolist() == [4, 2, 1, 7]
    assert decode_versions(after.fragments[2].inline_last_updated_at_versions).tolist() == [7, 7, 7, 7]
    assert after.head.next_row_id == 7
    assert after.fragments[:2] == tuple(old)


def test_a_row_moved_twice_was_created_when_it_was_first_there() -> None:
    old = [
        with_versions(fragment(0, 2, deleted=1, row_ids=fresh_row_ids(0, 2)), [1, 1], [1, 1]),
        with_versions(fragment(1, 1, row_ids=encode_row_ids(numbers(1))), [3], [4]),  # its writer got that wrong
        with_versions(fragment(2, 1, row_ids=encode_row_ids(numbers(2))), [4], [4]),
    ]
    base = manifest(*old, version=6, stable_row_ids=True, next_row_id=3)
    after = built(base, Update((1, 2), (), (fragment(rows=2, row_ids=encode_row_ids(numbers(1, 2))),)))
    assert decode_versions(after.fragments[1].inline_created_at_versions).tolist() == [1, 4]


def test_a_row_without_a_recorded_creation_counts_as_made_in_the_first_version() -> None:
    base = manifest(fragment(0, 2, row_ids=fresh_row_ids(0, 2)), version=6, stable_row_ids=True, next_row_id=2)
    after = built(base, Update((), (), (fragment(rows=1, row_ids=encode_row_ids(numbers(1))),)))
    assert decode_versions(after.fragments[1].inline_created_at_versions).tolist() == [1]


def test_creation_versions_that_the_writer_knows_are_kept() -> None:
    base = manifest(fragment(0, 2, row_ids=fresh_row_ids(0, 2)), version=6, stable_row_ids=True, next_row_id=2)
    known = fragment(rows=1, row_ids=encode_row_ids(numbers(1)))
    known.inline_created_at_versions = constant_versions(5, 1)
    after = built(base, Update((), (), (known,)))
    assert decode_versions(after.fragments[1].inline_created_at_versions).tolist() == [5]
    assert decode_versions(after.fragments[1].inline_last_updated_at_versions).tolist() == [7]


def test_lineage_kept_in_data_files_is_refused_where_it_would_have_to_be_read() -> None:
    spilled = fragment(0, 2)
    spilled.column_row_ids.SetInParent()
    base = manifest(spilled, version=6, stable_row_ids=True, next_row_id=2)
    with pytest.raises(UnsupportedError, match="Fragment 0"):
        built(base, Update((), (), (fragment(rows=1, row_ids=encode_row_ids(numbers(1))),)))


def test_an_index_on_a_changed_field_loses_the_updated_fragments() -> None:
    indices = [index("id", [0], [0, 1]), index("v", [1], [0, 1], number=2), index("none", [1], None, number=3)]
    base = manifest(fragment(0), fragment(1), indices=indices)
    rewritten = fragment(1, 10, data_file("1.lance", [0, -2]), data_file("new.lance", [1]))
    after = built(base, Update((), (rewritten,), fields_modified=(1,), update_mode=REWRITE_COLUMNS))
    assert [covered(each) for each in after.indices] == [[0, 1], [0], None]


def test_no_index_claims_a_new_fragment() -> None:
    base = manifest(
        fragment(0, 2, row_ids=fresh_row_ids(0, 2)), indices=[index("id", [0], [0])], stable_row_ids=True, next_row_id=2
    )
    moved = fragment(rows=1, row_ids=fresh_row_ids(0, 1))
    after = built(base, Update((), (), (moved,), fields_for_preserving_frag_bitmap=(1,)))
    assert [covered(each) for each in after.indices] == [[0]]


@pytest.mark.parametrize("form", ["updated_fragment_offset_bitmaps", "updated_fragment_offsets"])
def test_rewritten_columns_change_only_the_named_rows(form: str) -> None:
    old = with_versions(fragment(0, 4, row_ids=fresh_row_ids(0, 4)), [1] * 4, [1, 2, 2, 3])
    base = manifest(old, version=6, stable_row_ids=True, next_row_id=4)
    named = {0: BitMap([0, 2]).serialize() if form.endswith("bitmaps") else (0, 2)}
    after = built(base, replace(Update((), (old,), update_mode=REWRITE_COLUMNS), **{form: named}))
    assert decode_versions(after.fragments[0].inline_last_updated_at_versions).tolist() == [7, 2, 7, 3]
    assert decode_versions(after.fragments[0].inline_created_at_versions).tolist() == [1] * 4


@pytest.mark.parametrize(
    ("named", "why"), [({3: (0,)}, "does not rewrite: \\[3\\]"), ({0: (4,)}, "Row 4 of fragment 0")]
)
def test_changed_rows_that_cannot_be_are_refused(named: dict[int, tuple[int, ...]], why: str) -> None:
    old = with_versions(fragment(0, 4, row_ids=fresh_row_ids(0, 4)), [1] * 4, [1] * 4)
    base = manifest(old, version=6, stable_row_ids=True, next_row_id=4)
    with pytest.raises(InvalidInputError, match=why):
        built(base, Update((), (old,), update_mode=REWRITE_COLUMNS, updated_fragment_offsets=named))


def test_a_concurrent_overlay_is_not_lost() -> None:
    current = fragment(0)
    current.overlays.append(b"overlay")
    after = built(manifest(current), Update((), (fragment(0, deleted=1),)))
    assert list(after.fragments[0].overlays) == [b"overlay"]


def test_a_fragment_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="does not have: 7, 8"):
        built(manifest(fragment(0)), Update((7,), (fragment(8),)))


@pytest.mark.contract("T5")
@pytest.mark.parametrize("stable", [False, True])
def test_as_pylance_does(tmp_path: Path, stable: bool) -> None:
    table = pylance_table(tmp_path, stable_row_ids=stable)
    pylance_append(tmp_path, 20, 30)
    table = lance.dataset(str(tmp_path))
    for column, kind in [("id", "BTREE"), ("v", "BITMAP"), ("s", "ZONEMAP")]:
        table.create_scalar_index(column, cast("Any", kind))
    table.update({"v": "v + 1"}, where="id in (3, 4, 21)")
    table.update({"v": "v + 1"}, where="id in (4, 5)")
    table.update({"id": "id + 1000"}, where="id in (4, 12)")
    table.update({"s": "'all'"})
    names = assert_replayed(tmp_path, stable_row_ids=stable)
    assert names == ["Overwrite", "Append"] + ["CreateIndex"] * 3 + ["Update"] * 4


@pytest.mark.contract("T5")
@pytest.mark.parametrize("stable", [False, True])
def test_merge_insert_as_pylance_does(tmp_path: Path, stable: bool) -> None:
    table = pylance_table(tmp_path, stable_row_ids=stable)
    table.create_scalar_index("id", "BTREE")
    table.create_scalar_index("v", "BTREE")

    def merge() -> MergeInsertBuilder:
        return lance.dataset(str(tmp_path)).merge_insert("id")

    def some(*keys: int) -> pa.Table:
        return pa.table({"id": pa.array(keys, pa.int64()), "v": pa.array(keys, pa.int64()), "s": ["new"] * len(keys)})

    merge().when_not_matched_insert_all().execute(rows(18, 23))
    merge().when_matched_update_all().execute(rows(3, 8))
    merge().when_matched_update_all().when_not_matched_insert_all().execute(some(5, 6, 700, 701))
    merge().when_matched_update_all().when_not_matched_insert_all().execute(some(19, 5, 6, 700, 900))
    merge().when_matched_delete().execute(some(6, 8))
    everything = merge().when_matched_update_all().when_not_matched_insert_all()
    everything.when_not_matched_by_source_delete("id < 3").execute(rows(2, 4))
    names = assert_replayed(tmp_path, stable_row_ids=stable)
    assert names[3:] == ["Update"] * 6


@pytest.mark.contract("T5")
@pytest.mark.parametrize("stable", [False, True])
def test_merge_of_some_columns_as_pylance_does(tmp_path: Path, stable: bool) -> None:
    table = pylance_table(tmp_path, stable_row_ids=stable)
    table.create_scalar_index("id", "BTREE")
    table.create_scalar_index("v", "BTREE")
    for keys in ([1, 2], [1, 12], [3]):
        source = pa.table({"id": pa.array(keys, pa.int64()), "v": pa.array(keys, pa.int64())})
        lance.dataset(str(tmp_path)).merge_insert("id").when_matched_update_all().execute(source)
    assert assert_replayed(tmp_path, stable_row_ids=stable)[3:] == ["Update"] * 3
    modes = [version.transaction.wire.update.update_mode for version in list(versions_of(tmp_path).values())[3:]]
    assert modes == [REWRITE_COLUMNS] * 3


@pytest.mark.contract("T5")
def test_merge_on_a_declared_key_as_pylance_does(tmp_path: Path) -> None:
    mark = {"lance-schema:unenforced-primary-key": "true"}
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False, metadata=mark), pa.field("v", pa.int64())])
    lance.write_dataset(pa.table({"id": [1, 2, 3], "v": [1, 2, 3]}, schema=schema), str(tmp_path))
    merge = lance.dataset(str(tmp_path)).merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(pa.table({"id": [3, 4], "v": [1, 2]}, schema=schema))
    assert assert_replayed(tmp_path) == ["Overwrite", "Update"]
    assert versions_of(tmp_path)[2].transaction.wire.update.HasField("inserted_rows")


@pytest.mark.contract("T5")
@pytest.mark.parametrize("stable", [False, True])
def test_changed_rows_named_one_by_one_as_pylance_does(tmp_path: Path, stable: bool) -> None:
    table = pylance_table(tmp_path, stable_row_ids=stable)
    first = 5 if stable else 1 << 32
    data = pa.table({"_rowid": pa.array([first, first + 2], pa.uint64()), "v": pa.array([1, 2], pa.int64())})
    image, modified, changed = table.get_fragments()[1].update_columns(data, with_offsets=True)
    offsets = cast("Any", changed)  # declared as bytes; numbers are taken as well
    operation = LanceOperation.Update(
        updated_fragments=[image],
        fields_modified=modified,
        update_mode="rewrite_columns",
        updated_fragment_offsets={1: bytes(offsets) if isinstance(offsets, bytes) else BitMap(offsets).serialize()},
    )
    lance.LanceDataset.commit(str(tmp_path), operation, read_version=1)
    assert assert_replayed(tmp_path, stable_row_ids=stable) == ["Overwrite", "Update"]
    after = versions_of(tmp_path)[2]
    assert after.transaction.wire.update.updated_fragment_offset_bitmaps
    if stable:
        changed = decode_versions(after.manifest.fragments[1].inline_last_updated_at_versions)
        assert changed.tolist() == [2, 1, 2, 1, 1]
    assert ids(after.manifest) == [0, 1, 2, 3]
