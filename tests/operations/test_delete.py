from __future__ import annotations

import json
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.dataset import LanceOperation

from conroi.errors import InvalidInputError
from conroi.operations import Delete
from tests.operations.tables import (
    built,
    covered,
    fragment,
    ids,
    index,
    manifest,
    pylance_append,
    pylance_table,
    rows,
)
from tests.support.parity import assert_replayed, versions_of


def test_post_images_replace_and_deleted_fragments_go() -> None:
    base = manifest(fragment(0), fragment(1), fragment(2))
    after = built(base, Delete((fragment(1, deleted=4),), (2,), "v < 3"))
    assert [(each.id, each.deletion_file.num_deleted_rows) for each in after.fragments] == [(0, 0), (1, 4)]
    assert after.head.max_fragment_id == 2


@pytest.mark.contract("T10")
def test_the_highest_id_stays_when_its_fragment_goes() -> None:
    after = built(manifest(fragment(0), fragment(1)), Delete((), (0, 1)))
    assert ids(after) == []
    assert after.head.max_fragment_id == 1


def test_the_deletion_flag_follows_the_fragments() -> None:
    base = manifest(fragment(0), fragment(1))
    with_vector = built(base, Delete((fragment(1, deleted=4),)))
    assert (with_vector.head.reader_feature_flags, with_vector.head.writer_feature_flags) == (1, 1)
    without = built(with_vector, Delete((), (1,)))
    assert (without.head.reader_feature_flags, without.head.writer_feature_flags) == (0, 0)


def test_a_fragment_whose_rows_are_all_deleted_is_dropped() -> None:
    after = built(manifest(fragment(0), fragment(1)), Delete((fragment(1, 10, deleted=10),)))
    assert ids(after) == [0]


@pytest.mark.parametrize("operation", [Delete((), (7,)), Delete((fragment(7, deleted=1),))])
def test_a_fragment_that_is_not_there_is_refused(operation: Delete) -> None:
    with pytest.raises(InvalidInputError, match="does not have: 7"):
        built(manifest(fragment(0)), operation)


def test_segments_that_cover_nothing_go_but_never_the_last_one() -> None:
    segments = [index("a", [0], [0], number=1), index("a", [0], [1], number=2), index("b", [1], [0], number=3)]
    base = manifest(fragment(0), fragment(1), fragment(2), indices=segments)
    after = built(base, Delete((), (0,)))
    assert [(each.name, covered(each)) for each in after.indices] == [("a", [1]), ("b", [0])]
    nothing_left = built(after, Delete((), (1,)))
    assert [(each.name, covered(each)) for each in nothing_left.indices] == [("a", [1]), ("b", [0])]


@pytest.mark.contract("T5")
@pytest.mark.parametrize("stable", [False, True])
def test_as_pylance_does(tmp_path: Path, stable: bool) -> None:
    table = pylance_table(tmp_path, stable_row_ids=stable)
    table.create_scalar_index("id", "BTREE")
    table = pylance_append(tmp_path, 20, 40)
    table.optimize.optimize_indices(num_indices_to_merge=0)
    for predicate in ("id < 5", "id = 10", "id < 21", "id >= 20 and id < 23", "false", "true"):
        lance.dataset(str(tmp_path)).delete(predicate)
    names = assert_replayed(tmp_path, stable_row_ids=stable)
    assert names == ["Overwrite", "CreateIndex", "Append", "CreateIndex"] + ["Delete"] * (len(names) - 4)
    segments = [len(version.manifest.indices) for version in versions_of(tmp_path).values()]
    assert segments[3] == 2
    assert segments[-1] == 1


@pytest.mark.contract("T5")
@pytest.mark.parametrize("stable", [False, True])
def test_as_pylance_does_when_all_segments_of_an_index_lose_their_rows(tmp_path: Path, stable: bool) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(4 * 300, "f4")), 4)
    first = rows(0, 300).append_column("vector", vectors)
    lance.write_dataset(first, str(tmp_path), max_rows_per_file=100, enable_stable_row_ids=stable)
    lance.dataset(str(tmp_path)).create_scalar_index("id", "BTREE")
    lance.dataset(str(tmp_path)).create_index("vector", "IVF_FLAT", num_partitions=1)
    lance.write_dataset(first, str(tmp_path), mode="append", max_rows_per_file=100)
    lance.dataset(str(tmp_path)).optimize.optimize_indices(num_indices_to_merge=0)
    lance.write_dataset(first.set_column(0, "id", pa.array(range(1000, 1300))), str(tmp_path), mode="append")
    lance.dataset(str(tmp_path)).delete("id < 1000")
    names = assert_replayed(tmp_path, stable_row_ids=stable)
    assert names[-1] == "Delete"
    versions = list(versions_of(tmp_path).values())
    assert [sorted(each.name for each in version.manifest.indices) for version in versions[-2:]] == [
        ["id_idx", "id_idx", "vector_idx", "vector_idx"],
        ["id_idx", "vector_idx"],
    ]


@pytest.mark.contract("T5")
def test_as_pylance_does_with_a_vector_of_all_rows(tmp_path: Path) -> None:
    table = pylance_table(tmp_path)
    image = table.get_fragments()[3].delete("id < 19")
    assert image is not None
    facts = image.to_json()
    facts["deletion_file"]["num_deleted_rows"] = 5
    image = lance.fragment.FragmentMetadata.from_json(json.dumps(facts))
    lance.LanceDataset.commit(str(tmp_path), LanceOperation.Delete([image], [], ""), read_version=1)
    assert assert_replayed(tmp_path) == ["Overwrite", "Delete"]
    assert ids(versions_of(tmp_path)[2].manifest) == [0, 1, 2]
