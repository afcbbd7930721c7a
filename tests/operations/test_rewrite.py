from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.dataset import LanceOperation
from lance.optimize import Compaction

from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.row_ids import fresh_row_ids
from conroi.operations import Rewrite
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


def group(old: list[int], *new: pb.DataFragment) -> pb.Transaction.Rewrite.Group:
    return pb.Transaction.Rewrite.Group(old_fragments=[fragment(each) for each in old], new_fragments=new)


def remapped(old: pb.IndexMetadata, number: int) -> pb.Transaction.Rewrite.RewrittenIndex:
    new = index("", [], None, number=number)
    return pb.Transaction.Rewrite.RewrittenIndex(
        old_id=old.uuid, new_id=new.uuid, new_index_files=[pb.IndexFile(path="new", size_bytes=3)]
    )


def test_groups_are_replaced_by_fragments_with_reserved_or_new_ids() -> None:
    base = manifest(*(fragment(n) for n in range(5)), max_fragment_id=9)
    after = built(base, Rewrite((group([1, 2], fragment(7)), group([4], fragment(rows=3), fragment(rows=4)))))
    assert [(each.id, each.physical_rows) for each in after.fragments] == [(0, 10), (3, 10), (7, 10), (10, 3), (11, 4)]
    assert after.head.max_fragment_id == 11


def test_a_group_may_leave_nothing() -> None:
    after = built(manifest(fragment(0), fragment(1)), Rewrite((group([0]),)))
    assert ids(after) == [1]


def test_a_remapped_index_has_another_id_other_files_and_the_new_fragments() -> None:
    old = [index("a", [0], [0, 1], number=1), index("b", [1], [2], number=2)]
    old[0].files.add(path="old", size_bytes=1)
    base = manifest(*(fragment(n) for n in range(3)), indices=old)
    after = built(base, Rewrite((group([0, 1], fragment()),), (remapped(old[0], 9),)))
    assert [(each.name, each.uuid.uuid[-1], covered(each)) for each in after.indices] == [("a", 9, [3]), ("b", 2, [2])]
    assert [file.path for file in after.indices[0].files] == ["new"]


def test_without_stable_row_ids_an_index_that_is_not_remapped_stays_as_it_was() -> None:
    base = manifest(fragment(0), fragment(1), indices=[index("a", [0], [0, 1])])
    after = built(base, Rewrite((group([0, 1], fragment()),)))
    assert [covered(each) for each in after.indices] == [[0, 1]]


def test_with_stable_row_ids_an_index_follows_by_row_id_unless_it_finds_addresses() -> None:
    old = [fragment(n, 2, row_ids=fresh_row_ids(2 * n, 2)) for n in range(3)]
    indices = [
        index("tree", [0], [0, 1, 2], number=1),
        index("zones", [0], [0, 1, 2], number=2, kind="ZoneMap"),
        index("bloom", [0], [0, 1, 2], number=3, kind="BloomFilter"),
        index("elsewhere", [0], [2], number=4),
    ]
    base = manifest(*old, indices=indices, stable_row_ids=True, next_row_id=6)
    after = built(base, Rewrite((group([0, 1], fragment(rows=4, row_ids=fresh_row_ids(0, 4))),)))
    assert [covered(each) for each in after.indices] == [[2, 3], [2], [2], [2]]
    assert after.head.next_row_id == 6


@pytest.mark.parametrize("stable", [False, True])
def test_a_group_half_inside_an_index_is_refused(stable: bool) -> None:
    old = index("a", [0], [0])
    base = manifest(fragment(0), fragment(1), indices=[old], stable_row_ids=stable)
    rewritten = () if stable else (remapped(old, 9),)
    with pytest.raises(InvalidInputError, match="indexed and not indexed"):
        built(base, Rewrite((group([0, 1], fragment()),), rewritten))


def test_the_reuse_index_takes_the_place_of_the_one_before() -> None:
    old = index("__lance_frag_reuse", [], [0], number=1)
    new = index("__lance_frag_reuse", [], [1], number=2)
    base = manifest(fragment(0), fragment(1), indices=[old, index("a", [0], [0], number=3)])
    operation = Rewrite((group([0], fragment()),), fragment_reuse_index=new)
    assert [each.uuid.uuid[-1] for each in built(base, operation).indices] == [3, 2]
    assert operation.to_wire() == Rewrite(operation.groups).to_wire()


OLD = index("a", [0], [0])
UNKNOWN_COVERAGE = index("b", [0], None, number=2)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (Rewrite((group([7], fragment()),)), "does not have: 7"),
        (Rewrite((group([0], fragment()), group([0], fragment()))), "of their own"),
        (Rewrite((group([], fragment()),)), "of their own"),
        (Rewrite((group([0], fragment(rows=0)),)), "how many rows"),
        (Rewrite((group([0], fragment()),), (remapped(OLD, 8), remapped(OLD, 9))), "twice"),
        (Rewrite((group([0], fragment()),), (remapped(UNKNOWN_COVERAGE, 8),)), "does not say which fragments"),
    ],
)
def test_bad_rewrites_are_refused(bad: Rewrite, why: str) -> None:
    with pytest.raises(InvalidInputError, match=why):
        built(manifest(fragment(0), fragment(1), indices=[OLD, UNKNOWN_COVERAGE]), bad)


@pytest.mark.contract("T5")
@pytest.mark.parametrize("stable", [False, True])
def test_as_pylance_does(tmp_path: Path, stable: bool) -> None:
    table = pylance_table(tmp_path, stable_row_ids=stable)
    table.update({"v": "v + 1"}, where="id < 7")
    pylance_append(tmp_path, 20, 31).delete("id in (21, 28, 29)")
    lance.dataset(str(tmp_path)).optimize.compact_files(target_rows_per_fragment=12)
    lance.dataset(str(tmp_path)).optimize.compact_files()
    names = assert_replayed(tmp_path, stable_row_ids=stable)
    assert names[4:] == ["ReserveFragments", "Rewrite"] * 2


@pytest.mark.contract("T5")
@pytest.mark.parametrize("stable", [False, True])
def test_as_pylance_does_with_every_kind_of_index(tmp_path: Path, stable: bool) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(8 * 400, dtype="f4")), 8)
    data = rows(0, 400).append_column("vector", vectors).append_column("labels", pa.array([[n] for n in range(400)]))
    table = lance.write_dataset(data, str(tmp_path), max_rows_per_file=50, enable_stable_row_ids=stable)
    kinds = [("id", "BTREE"), ("v", "BITMAP"), ("v", "ZONEMAP"), ("v", "BLOOMFILTER")]
    for column, kind in [*kinds, ("s", "INVERTED"), ("s", "NGRAM"), ("labels", "LABEL_LIST")]:
        table.create_scalar_index(column, cast("Any", kind), name=kind)
    table.create_index("vector", "IVF_PQ", num_partitions=1, num_sub_vectors=2)
    lance.write_dataset(data, str(tmp_path), mode="append", max_rows_per_file=50).delete("id % 7 = 0")
    lance.dataset(str(tmp_path)).update({"v": "v + 1"}, where="id < 10")
    lance.dataset(str(tmp_path)).optimize.compact_files(target_rows_per_fragment=120)
    names = assert_replayed(tmp_path, stable_row_ids=stable)
    assert names[-2:] == ["ReserveFragments", "Rewrite"]


@pytest.mark.contract("T5")
def test_as_pylance_does_when_indices_are_remapped_later(tmp_path: Path) -> None:
    pylance_table(tmp_path).create_scalar_index("id", "BTREE", name="id")
    lance.dataset(str(tmp_path)).create_scalar_index("v", "BTREE", name="v")
    lance.dataset(str(tmp_path)).delete("id = 3")
    lance.dataset(str(tmp_path)).optimize.compact_files(defer_index_remap=True, target_rows_per_fragment=10)
    assert [covered(each) for each in versions_of(tmp_path)[6].manifest.indices][:2] == [[0, 1, 2, 3]] * 2
    pylance_append(tmp_path, 40, 60)
    source = pa.table({"id": pa.array([6], pa.int64()), "v": pa.array([60], pa.int64())})
    lance.dataset(str(tmp_path)).merge_insert("id").when_matched_update_all().execute(source)
    lance.dataset(str(tmp_path)).delete("id = 5")
    lance.dataset(str(tmp_path)).optimize.compact_files(defer_index_remap=True, target_rows_per_fragment=100)
    lance.dataset(str(tmp_path)).update_config({"a": "b"})
    lance.dataset(str(tmp_path)).optimize.optimize_indices()
    names = assert_replayed(tmp_path)
    assert names.count("Rewrite") == 2


@pytest.mark.contract("T5")
@pytest.mark.parametrize("stable", [False, True])
def test_as_pylance_does_with_tasks_committed_apart(tmp_path: Path, stable: bool) -> None:
    table = pylance_table(tmp_path, stable_row_ids=stable)
    plan = Compaction.plan(table, {"target_rows_per_fragment": 10})
    Compaction.commit(table, [task.execute(table) for task in plan.tasks])
    assert assert_replayed(tmp_path, stable_row_ids=stable)[-1] == "Rewrite"


@pytest.mark.contract("T5")
def test_as_pylance_does_without_reserved_ids(tmp_path: Path) -> None:
    table = pylance_table(tmp_path)
    old = [each.metadata for each in table.get_fragments()]
    new = lance.fragment.write_fragments(table.to_table(), table)
    groups = [LanceOperation.RewriteGroup(old[1:3], new), LanceOperation.RewriteGroup([old[0]], new[:1])]
    lance.LanceDataset.commit(str(tmp_path), LanceOperation.Rewrite(groups, []), read_version=1)
    assert assert_replayed(tmp_path) == ["Overwrite", "Rewrite"]
    assert ids(versions_of(tmp_path)[2].manifest) == [3, 4, 5]
