"""Work that others did and we commit by its wire form: which rows, which files, which fragment ids."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from uuid import uuid4

import lance
import pyarrow as pa
import pytest
from lance.lance import DatasetBasePath

import conroi
from conroi.format import decode_transaction
from conroi.format import lance_pb2 as pb
from conroi.testing import SeededEnvironment
from tests.interop.test_commit import transactions_after, without_versions_after
from tests.support.arrow import column_values
from tests.support.pylance import has_empty_vector_indices

pytestmark = pytest.mark.contract("T27")

ROWS = pa.table({"id": list(range(10)), "v": [0] * 10})


def by_pylance(root: Path, name: str, verb: Any) -> conroi.LanceTransaction:
    """What pylance would commit on the newest version; its files are in the table, its version is not."""
    copy = root.with_name(name)
    shutil.copytree(root, copy)
    before = lance.dataset(str(copy)).version
    verb(lance.dataset(str(copy)))
    (data,) = transactions_after(copy, before)
    for folder in ("data", "_deletions", "_indices"):
        if (copy / folder).exists():
            shutil.copytree(copy / folder, root / folder, dirs_exist_ok=True)
    return decode_transaction(data)


def ids(root: Path) -> list[int]:
    return sorted(column_values(lance.dataset(str(root)).to_table()["id"]))


# ------------------------------------------------------------------------------- which rows


@pytest.mark.parametrize("stable_row_ids", [False, True])
@pytest.mark.parametrize("other", ["delete", "update", "verb"])
def test_changes_of_different_rows_of_one_fragment_both_land(tmp_path: Path, stable_row_ids: bool, other: str) -> None:
    """G7: the second was a RetryableConflict, because the wire does not say which rows."""
    root = tmp_path / "t"
    lance.write_dataset(ROWS, str(root), enable_stable_row_ids=stable_row_ids)
    mine = by_pylance(root, "mine", lambda d: d.delete("id in (1, 2)"))
    if other == "verb":
        conroi.open_table(root).delete("id = 7")
    else:
        work = (lambda d: d.delete("id = 7")) if other == "delete" else lambda d: d.update({"id": "107"}, "id = 7")
        conroi.commit(root, by_pylance(root, "theirs", work))
    result = conroi.commit(root, mine)
    assert result.rebased_over == (2,)
    assert ids(root) == [0, 3, 4, 5, 6, 8, 9] + ([107] if other == "update" else [])


@pytest.mark.parametrize("work", ["delete", "update"])
def test_changes_of_the_same_row_do_not(tmp_path: Path, work: str) -> None:
    root = tmp_path / "t"
    lance.write_dataset(ROWS, str(root))
    verb = (lambda d: d.delete("id in (1, 2)")) if work == "delete" else lambda d: d.update({"v": "1"}, "id in (1, 2)")
    mine = by_pylance(root, "mine", verb)
    conroi.commit(root, by_pylance(root, "theirs", lambda d: d.update({"id": "102"}, "id = 2")))
    with pytest.raises(conroi.RetryableConflict) as refused:
        conroi.commit(root, mine)
    assert refused.value.reason is not None
    assert refused.value.reason.rule == "rows/same-rows"
    assert ids(root) == [0, 1, 3, 4, 5, 6, 7, 8, 9, 102]


# --------------------------------------------------------------------- which fragment ids


def compacted(root: Path, *, new_id: int, read_version: int) -> conroi.LanceTransaction:
    """A Rewrite of fragments 0 and 1 into one with this id, which is not reserved."""
    dataset = lance.dataset(str(root))
    old = conroi.open_table(root)._pinned.manifest.fragments
    file = lance.fragment.write_fragments(dataset.to_table(), str(root), mode="append")[0].files[0]
    new = pb.DataFragment(id=new_id, physical_rows=sum(f.physical_rows for f in old))
    new.files.add(
        path=file.path,
        fields=file.fields,
        column_indices=file.column_indices,
        file_major_version=file.file_major_version,
        file_minor_version=file.file_minor_version,
    )
    group = pb.Transaction.Rewrite.Group(old_fragments=old, new_fragments=[new])
    rewrite = pb.Transaction.Rewrite(groups=[group])
    return conroi.LanceTransaction(pb.Transaction(read_version=read_version, uuid=str(uuid4()), rewrite=rewrite))


@pytest.fixture
def two_fragments(tmp_path: Path) -> Path:
    root = tmp_path / "t"
    lance.write_dataset(ROWS, str(root), max_rows_per_file=5)
    return root


def test_a_rewrite_may_not_take_an_id_that_is_not_reserved(two_fragments: Path) -> None:
    """G12."""
    with pytest.raises(conroi.InvalidInputError, match="id 5, which was not reserved: the highest so far is 1"):
        conroi.commit(two_fragments, compacted(two_fragments, new_id=5, read_version=1))
    assert ids(two_fragments) == list(range(10))


def test_nor_the_id_of_a_fragment_that_it_replaces(two_fragments: Path) -> None:
    with pytest.raises(conroi.InvalidInputError, match="ids 1, which are or were in use"):
        conroi.commit(two_fragments, compacted(two_fragments, new_id=1, read_version=1))


def test_nor_one_that_an_index_covers_and_no_fragment_has(tmp_path: Path) -> None:
    """The rows would be looked for in an index that does not have them."""
    root = tmp_path / "t"
    lance.write_dataset(ROWS, str(root))
    dataset = lance.write_dataset(pa.table({"id": [20, 21], "v": [0, 0]}), str(root), mode="append")
    dataset.create_scalar_index("id", "BTREE")
    dataset.delete("id >= 20")  # fragment 1 is gone, but the index still says that it covers it
    version = lance.dataset(str(root)).version
    with pytest.raises(conroi.InvalidInputError, match="ids 1, which are or were in use"):
        conroi.commit(root, compacted(root, new_id=1, read_version=version))
    assert lance.dataset(str(root)).to_table(filter="id = 3").num_rows == 1


def test_a_reserved_id_is_taken(two_fragments: Path) -> None:
    """The negative control."""
    conroi.open_table(two_fragments).reserve_fragments(1)
    conroi.commit(two_fragments, compacted(two_fragments, new_id=2, read_version=1))
    assert ids(two_fragments) == list(range(10))
    assert [fragment.fragment_id for fragment in lance.dataset(str(two_fragments)).get_fragments()] == [2]


# --------------------------------------------------------------------------- which files


@pytest.mark.parametrize("is_root", [True, False])
def test_files_under_another_base_are_looked_for_there(tmp_path: Path, is_root: bool) -> None:
    """B3: they were looked for below the table's own root, and the commit was refused as if it had taken too long."""
    root, other = tmp_path / "t", tmp_path / "other"
    (other / "data").mkdir(parents=True)
    base = DatasetBasePath(str(other), name="other", is_dataset_root=is_root)
    lance.write_dataset(ROWS, str(root), initial_bases=[base])
    lance.write_dataset(pa.table({"id": [10], "v": [1]}), str(root), mode="append", target_bases=["other"])
    (data,) = transactions_after(root, 1)
    without_versions_after(root, 1, conroi.ManifestNaming.V2)
    with pytest.raises(conroi.InvalidInputError, match="allow_bases"):
        conroi.commit(root, decode_transaction(data))
    conroi.commit(root, decode_transaction(data), allow_bases=[other])
    assert ids(root) == list(range(11))


def test_an_index_without_files_is_committed(tmp_path: Path) -> None:
    root = tmp_path / "t"
    vectors = pa.table({"v": pa.array([], pa.list_(pa.float32(), 8))})
    dataset = lance.write_dataset(vectors, str(root))
    if not has_empty_vector_indices():  # then there is no index without files
        with pytest.raises(NotImplementedError):
            dataset.create_index("v", "IVF_FLAT", num_partitions=1)
        return
    dataset.create_index("v", "IVF_FLAT", num_partitions=1)
    (data,) = transactions_after(root, 1)
    assert not decode_transaction(data).wire.create_index.new_indices[0].files
    without_versions_after(root, 1, conroi.ManifestNaming.V2)
    conroi.commit(root, decode_transaction(data))
    assert [index.name for index in lance.dataset(str(root)).describe_indices()] == ["v_idx"]


def test_a_file_that_never_was_is_bad_input_and_not_to_be_tried_again(tmp_path: Path) -> None:
    root = tmp_path / "t"
    lance.write_dataset(ROWS, str(root))
    mine = by_pylance(root, "mine", lambda d: d.insert(pa.table({"id": [10], "v": [1]})))
    (root / "data" / mine.wire.append.fragments[0].files[0].path).unlink()
    with pytest.raises(conroi.InvalidInputError, match="which does not exist"):
        conroi.commit(root, mine)
    assert ids(root) == list(range(10))


class Slow(SeededEnvironment):
    """Its clock moves when the test says so."""


def test_a_long_merge_of_main_into_a_branch_lands(tmp_path: Path) -> None:
    """I15: files of main, which the branch names by a base path, were looked for in the branch's own folder."""
    lake = conroi.connect(str(tmp_path / "lake"))
    lake.create_table("t", [{"id": 1, "v": 1}])
    lake.branches.create("dev")
    lake.branch("dev")["t"].append([{"id": 2, "v": 2}])
    lake["t"].append([{"id": 3, "v": 3}])
    world = Slow(3)
    slow = conroi.connect(lake.uri, environment=world, branch="dev")
    monotonic = world.monotonic
    world.monotonic = lambda: (world.sleep(3600), monotonic())[1]  # type: ignore[method-assign]
    slow.merge("main")
    assert sorted(row["id"] for row in lake.branch("dev")["t"].to_arrow().to_pylist()) == [1, 2, 3]
