from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import lance
import pyarrow as pa
import pytest
from lance.dataset import LanceOperation

from conroi.errors import InvalidInputError
from conroi.format.row_ids import constant_versions, decode_row_ids, decode_versions, fresh_row_ids
from conroi.operations import Merge
from tests.operations.tables import (
    built,
    covered,
    data_file,
    field,
    fragment,
    ids,
    index,
    manifest,
    pylance_table,
    rows,
)
from tests.support.parity import assert_replayed, versions_of

SCHEMA = (field(0, "id", nullable=False), field(1, "v"), field(2, "w"))


def test_a_column_is_added_beside_the_others() -> None:
    merged = fragment(0, 10, data_file("0.lance"), data_file("w.lance", [2]))
    after = built(manifest(fragment(0)), Merge((merged,), SCHEMA, {"a": b"b"}))
    assert [each.name for each in after.fields] == ["id", "v", "w"]
    assert dict(after.head.schema_metadata) == {"a": b"b"}
    assert [file.path for file in after.fragments[0].files] == ["0.lance", "w.lance"]


def test_only_rows_with_new_data_count_as_changed() -> None:
    old = [fragment(n, 2, row_ids=fresh_row_ids(2 * n, 2)) for n in range(2)]
    for each in old:
        each.inline_created_at_versions = each.inline_last_updated_at_versions = constant_versions(1, 2)
    base = manifest(*old, version=4, stable_row_ids=True, next_row_id=4)
    merged = fragment(1, 2, data_file("1.lance"), data_file("w.lance", [2]), row_ids=fresh_row_ids(2, 2))
    merged.inline_created_at_versions = merged.inline_last_updated_at_versions = constant_versions(1, 2)
    resized = fragment(0, 2, data_file("0.lance", size=7), row_ids=fresh_row_ids(0, 2))
    resized.inline_created_at_versions = resized.inline_last_updated_at_versions = constant_versions(1, 2)
    after = built(base, Merge((resized, merged), SCHEMA))
    changed = [decode_versions(each.inline_last_updated_at_versions).tolist() for each in after.fragments]
    assert changed == [[1, 1], [5, 5]]
    assert decode_versions(after.fragments[1].inline_created_at_versions).tolist() == [1, 1]


def test_new_fragments_come_last_and_get_ids() -> None:
    old = fragment(0, 2, row_ids=fresh_row_ids(0, 2))
    base = manifest(old, stable_row_ids=True, next_row_id=2)
    after = built(base, Merge((old, fragment(0, 3)), SCHEMA))
    assert ids(after) == [0, 1]
    assert decode_row_ids(after.fragments[1].inline_row_ids).tolist() == [2, 3, 4]
    assert after.head.next_row_id == 5


def test_an_index_loses_fragments_whose_column_comes_from_another_file() -> None:
    indices = [index("id", [0], [0, 1], number=1), index("v", [1], [0, 1], number=2)]
    base = manifest(fragment(0), fragment(1), indices=indices)
    rewritten = fragment(1, 10, data_file("1.lance", [0, -2]), data_file("new.lance", [1]))
    after = built(base, Merge((fragment(0), rewritten), SCHEMA))
    assert [covered(each) for each in after.indices] == [[0, 1], [0]]


def test_an_index_on_a_column_that_left_goes() -> None:
    base = manifest(fragment(0), indices=[index("id", [0], [0]), index("v", [1], [0], number=2)])
    after = built(base, Merge((fragment(0),), SCHEMA[:1]))
    assert [each.name for each in after.indices] == ["id"]


def test_a_file_without_live_columns_is_dropped() -> None:
    merged = fragment(0, 10, data_file("old.lance", [-2, -2]), data_file("new.lance", [0, 1]))
    after = built(manifest(fragment(0)), Merge((merged,), SCHEMA))
    assert [file.path for file in after.fragments[0].files] == ["new.lance"]


GOOD = Merge((fragment(0), fragment(3)), SCHEMA)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (replace(GOOD, fragments=(fragment(0),)), "every fragment"),
        (replace(GOOD, fragments=(fragment(0), fragment(0), fragment(3))), "every fragment"),
        (replace(GOOD, fragments=(fragment(0), fragment(9), fragment(3))), "every fragment"),
        (replace(GOOD, fragments=(fragment(0), fragment(3, 11))), "10 rows of fragment 3 into 11"),
        (replace(GOOD, fragments=(fragment(0), fragment(3, 10, data_file("x", version=(2, 1))))), "file version"),
        (replace(GOOD, schema=(field(1, "id"),)), "gives id 1, which is column 'v', to column 'id'"),
        (replace(GOOD, schema=(field(0, "id"), field(1, "v", parent=0))), "gives id 1"),
        (replace(GOOD, schema=(field(0, "id"), field(0, "v"))), "distinct"),
    ],
)
def test_bad_merges_are_refused(bad: Merge, why: str) -> None:
    with pytest.raises(InvalidInputError, match=why):
        built(manifest(fragment(0), fragment(3)), bad)


def test_the_id_of_a_dropped_column_is_not_used_again() -> None:
    base = manifest(fragment(0, 10, data_file(fields=[0, 1, 2])))
    with pytest.raises(InvalidInputError, match="ids up to 2"):
        built(base, Merge((fragment(0),), SCHEMA))


def test_row_ids_may_not_get_lost() -> None:
    base = manifest(fragment(0, 2, row_ids=fresh_row_ids(0, 2)), stable_row_ids=True)
    with pytest.raises(InvalidInputError, match="row ids of fragment 0"):
        built(base, Merge((fragment(0, 2),), SCHEMA))


@pytest.mark.contract("T5")
@pytest.mark.parametrize("stable", [False, True])
def test_as_pylance_does(tmp_path: Path, stable: bool) -> None:
    table = pylance_table(tmp_path, stable_row_ids=stable)
    table.create_scalar_index("v", "BTREE")
    table.delete("id = 3")
    table.add_columns({"w": "v * 2"})
    table.add_columns(pa.schema([pa.field("n", pa.int32()), pa.field("st", pa.struct([pa.field("q", pa.int8())]))]))
    table.alter_columns(cast("Any", {"path": "w", "data_type": pa.int32()}))
    lance.dataset(str(tmp_path)).merge(pa.table({"id": pa.array([1, 2], pa.int64()), "joined": ["a", "b"]}), "id")
    names = assert_replayed(tmp_path, stable_row_ids=stable)
    assert names == ["Overwrite", "CreateIndex", "Delete", "Merge", "Merge", "Merge", "Merge"]


@pytest.mark.contract("T5")
@pytest.mark.parametrize("stable", [False, True])
def test_as_pylance_does_with_new_rows(tmp_path: Path, stable: bool) -> None:
    table = pylance_table(tmp_path, stable_row_ids=stable)
    new = lance.fragment.write_fragments(rows(90, 97), table)
    operation = LanceOperation.Merge([each.metadata for each in table.get_fragments()] + new, table.lance_schema)
    lance.LanceDataset.commit(str(tmp_path), operation, read_version=1)
    assert assert_replayed(tmp_path, stable_row_ids=stable) == ["Overwrite", "Merge"]


@pytest.mark.contract("T5")
@pytest.mark.parametrize("stable", [False, True])
def test_as_pylance_does_when_an_indexed_column_is_rewritten(tmp_path: Path, stable: bool) -> None:
    table = pylance_table(tmp_path, stable_row_ids=stable)
    table.create_scalar_index("id", "BTREE", name="id")
    table.create_scalar_index("v", "BTREE", name="v")
    fragments = [each.metadata for each in table.get_fragments()]
    data = pa.table({"_rowid": pa.array([5, 6], pa.uint64()), "v": pa.array([1, 2], pa.int64())})
    if not stable:
        data = data.set_column(0, "_rowid", pa.array([1 << 32, (1 << 32) + 1], pa.uint64()))
    fragments[1], _ = table.get_fragments()[1].update_columns(data)
    operation = LanceOperation.Merge(fragments, table.lance_schema, preserves_nullability=True)
    lance.LanceDataset.commit(str(tmp_path), operation, read_version=3)
    assert assert_replayed(tmp_path, stable_row_ids=stable)[-1] == "Merge"
    assert [covered(each) for each in versions_of(tmp_path)[4].manifest.indices] == [[0, 1, 2, 3], [0, 2, 3]]
