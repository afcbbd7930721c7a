from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import lance
import numpy as np
import pyarrow as pa
import pytest

from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.operations import CreateIndex
from tests.operations.tables import built, fragment, index, manifest, pylance_append, pylance_table, rows
from tests.support.parity import assert_replayed


def names(indices: tuple[pb.IndexMetadata, ...]) -> list[tuple[str, int]]:
    return [(each.name, each.uuid.uuid[-1]) for each in indices]


def test_an_index_is_added_after_the_others() -> None:
    base = manifest(fragment(0), indices=[index("a", [0], [0], number=1)])
    after = built(base, CreateIndex((index("b", [1], [0], number=2),)))
    assert names(after.indices) == [("a", 1), ("b", 2)]


def test_removal_is_by_id_and_not_by_name() -> None:
    segments = [index("a", [0], [0], number=1), index("a", [0], [1], number=2)]
    base = manifest(fragment(0), fragment(1), indices=segments)
    after = built(base, CreateIndex((index("a", [0], [2], number=3),), (segments[1],)))
    assert names(after.indices) == [("a", 1), ("a", 3)]


def test_an_index_with_an_id_that_is_there_takes_its_place() -> None:
    base = manifest(fragment(0), indices=[index("a", [0], [0], number=1), index("b", [0], [0], number=2)])
    after = built(base, CreateIndex((index("a", [1], [0], number=1),)))
    assert names(after.indices) == [("b", 2), ("a", 1)]


def test_an_index_that_carries_columns_sets_the_flag_and_dropping_it_clears_it() -> None:
    carrying = index("a", [0, 1], [0])
    carrying.covering_fields.append(1)
    after = built(manifest(fragment(0)), CreateIndex((carrying,)))
    assert (after.head.reader_feature_flags, after.head.writer_feature_flags) == (128, 128)
    dropped = built(after, CreateIndex((), (carrying,)))
    assert (dropped.head.reader_feature_flags, dropped.head.writer_feature_flags) == (0, 0)


def _carrying(fields: list[int], carried: list[int]) -> pb.IndexMetadata:
    made = index("a", fields, [0])
    made.covering_fields.extend(carried)
    return made


@pytest.mark.parametrize(
    "bad",
    [pb.IndexMetadata(name="a"), index("", [0], [0]), _carrying([0], [0]), _carrying([0, 1], [0]), _carrying([0], [7])],
)
def test_bad_indices_are_refused(bad: pb.IndexMetadata) -> None:
    with pytest.raises(InvalidInputError):
        built(manifest(fragment(0)), CreateIndex((bad,)))


@pytest.mark.contract("T5")
@pytest.mark.parametrize("stable", [False, True])
def test_as_pylance_does(tmp_path: Path, stable: bool) -> None:
    table = pylance_table(tmp_path, stable_row_ids=stable)
    table.create_scalar_index("id", "BTREE")
    table.create_scalar_index("v", "BITMAP", name="v")
    table.create_scalar_index("id", "BTREE", replace=True)
    table = pylance_append(tmp_path, 20, 40)
    table.optimize.optimize_indices(num_indices_to_merge=0)
    pylance_append(tmp_path, 40, 50).optimize.optimize_indices()
    lance.dataset(str(tmp_path)).drop_index("v")
    names = assert_replayed(tmp_path, stable_row_ids=stable)
    assert names == ["Overwrite"] + ["CreateIndex"] * 3 + ["Append", "CreateIndex"] * 2 + ["CreateIndex"]


@pytest.mark.contract("T5")
def test_as_pylance_does_for_every_kind_of_index(tmp_path: Path) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(8 * 300, dtype="f4")), 8)
    table = rows(0, 300).append_column("vector", vectors).append_column("labels", pa.array([[n] for n in range(300)]))
    dataset = lance.write_dataset(table, str(tmp_path), max_rows_per_file=100)
    for column, kind in [
        ("v", "ZONEMAP"),
        ("v", "BLOOMFILTER"),
        ("s", "INVERTED"),
        ("s", "NGRAM"),
        ("labels", "LABEL_LIST"),
    ]:
        dataset.create_scalar_index(column, cast("Any", kind), name=kind)
    dataset.create_index("vector", "IVF_FLAT", num_partitions=1, name="flat")
    dataset.create_index("vector", "IVF_PQ", num_partitions=1, num_sub_vectors=2, name="pq")
    assert assert_replayed(tmp_path) == ["Overwrite"] + ["CreateIndex"] * 7


@pytest.mark.contract("T5")
def test_as_pylance_does_with_segments_built_apart(tmp_path: Path) -> None:
    table = pylance_table(tmp_path)
    segments: list[Any] = [
        table.create_index_uncommitted("id", "BTREE", name="apart", fragment_ids=some) for some in ([0, 1], [2, 3])
    ]
    table.commit_existing_index_segments("apart", "id", segments)
    assert assert_replayed(tmp_path) == ["Overwrite", "CreateIndex"]
