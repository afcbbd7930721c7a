from __future__ import annotations

from pathlib import Path

import lance
import pytest

from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.operations import Clone, Step
from tests.operations.tables import built, data_file, fragment, index, manifest, pylance_append, pylance_table
from tests.support.parity import assert_replayed, versions_of


def elsewhere(base_id: int) -> pb.DataFile:
    file = data_file("elsewhere.lance")
    file.base_id = base_id
    return file


def bases(made: pb.DataFragment) -> list[int | None]:
    return [file.base_id if file.HasField("base_id") else None for file in made.files]


SHALLOW = Clone(is_shallow=True, ref_version=5, ref_path="/source")


def test_a_shallow_clone_finds_the_files_of_the_source_at_a_new_base() -> None:
    source = manifest(fragment(0, 10, data_file(), elsewhere(0)), version=5, indices=[index("a", [0], [0])])
    head = source.editable_head()
    head.base_paths.add(id=0, path="/first")
    head.base_paths.add(id=2, path="/third")
    made = built(None, SHALLOW, Step(version=5, source=source.changed(head=head)))
    assert made.version == 5
    assert bases(made.fragments[0]) == [1, 0]
    assert made.indices[0].base_id == 1
    assert made.head.base_paths[2] == pb.BasePath(id=1, is_dataset_root=True, path="/source")
    assert (made.head.reader_feature_flags, made.head.writer_feature_flags) == (16, 16)


def test_the_first_base_has_id_zero_and_says_so() -> None:
    made = built(None, SHALLOW, Step(version=5, source=manifest(fragment(0, deleted=1), version=5)))
    assert bases(made.fragments[0]) == [0]
    assert made.fragments[0].deletion_file.HasField("base_id")


def test_a_branch_knows_its_name_and_a_clone_of_a_branch_is_none() -> None:
    branch = Clone(is_shallow=True, ref_version=5, ref_path="/source", branch_name="work", ref_name="main")
    made = built(None, branch, Step(version=5, source=manifest(version=5)))
    assert made.head.branch == "work"
    assert made.head.base_paths[0].name == "main"
    again = built(None, SHALLOW, Step(version=5, source=made))
    assert not again.head.HasField("branch")


def test_a_deep_clone_has_all_files_in_its_own_folder() -> None:
    source = built(
        None, SHALLOW, Step(version=5, source=manifest(fragment(0), version=5, indices=[index("a", [0], [0])]))
    )
    deep = Clone(is_shallow=False, ref_version=5, ref_path="/source")
    made = built(None, deep, Step(version=5, source=source))
    assert bases(made.fragments[0]) == [None]
    assert not made.indices[0].HasField("base_id")
    assert not made.head.base_paths
    assert made.head.reader_feature_flags == 0


def test_marks_and_row_ids_go_along() -> None:
    source = manifest(version=5, stable_row_ids=True, next_row_id=40, max_fragment_id=7)
    made = built(None, SHALLOW, Step(version=5, source=source))
    assert (made.head.next_row_id, made.head.max_fragment_id, made.has_stable_row_ids) == (40, 7, True)


@pytest.mark.parametrize("step", [Step(version=5), Step(version=5, source=manifest(version=4))])
def test_the_manifest_of_the_source_is_needed(step: Step) -> None:
    with pytest.raises(InvalidInputError, match="version 5 of the source"):
        built(None, SHALLOW, step)


def test_a_clone_does_not_go_over_a_table() -> None:
    with pytest.raises(InvalidInputError, match="where there is no table"):
        built(manifest(version=4), SHALLOW, Step(version=5, source=manifest(version=5)))


@pytest.mark.contract("T5")
@pytest.mark.parametrize("stable", [False, True])
def test_as_pylance_does(tmp_path: Path, stable: bool) -> None:
    root, clone, second = tmp_path / "t", tmp_path / "clone", tmp_path / "second"
    table = pylance_table(root, stable_row_ids=stable)
    table.create_scalar_index("id", "BTREE")
    table.delete("id < 2")
    table.update_config({"a": "b"})
    table.shallow_clone(str(clone), 3)
    lance.dataset(str(clone)).delete("id < 4")
    pylance_append(clone, 0, 3).update_config({"c": "d"})
    assert assert_replayed(clone, source=versions_of(root)[3].manifest) == ["Clone", "Delete", "Append", "UpdateConfig"]
    lance.dataset(str(clone)).shallow_clone(str(second), 5)
    assert assert_replayed(second, source=versions_of(clone)[5].manifest) == ["Clone"]


@pytest.mark.contract("T5")
@pytest.mark.parametrize("stable", [False, True])
def test_as_pylance_does_for_branches(tmp_path: Path, stable: bool) -> None:
    table = pylance_table(tmp_path, stable_row_ids=stable)
    table.create_scalar_index("id", "BTREE")
    branch = table.create_branch("work", 2)
    branch.delete("id < 2")
    assert assert_replayed(tmp_path / "tree/work", source=versions_of(tmp_path)[2].manifest) == ["Clone", "Delete"]
    table.checkout_version(("work", 3)).create_branch("work/more")
    of_branch = versions_of(tmp_path / "tree/work")[3].manifest
    assert assert_replayed(tmp_path / "tree/work/more", source=of_branch) == ["Clone"]


@pytest.mark.contract("T5")
def test_as_pylance_does_for_deep_clones(tmp_path: Path) -> None:
    root, clone, deep, deeper = (tmp_path / name for name in ("t", "clone", "deep", "deeper"))
    table = pylance_table(root)
    table.create_scalar_index("id", "BTREE")
    table.delete("id < 2")
    table.deep_clone(str(deep), 3)
    assert assert_replayed(deep, source=versions_of(root)[3].manifest) == ["Clone"]
    table.shallow_clone(str(clone), 3)
    pylance_append(clone, 0, 3).deep_clone(str(deeper), 4)
    assert assert_replayed(deeper, source=versions_of(clone)[4].manifest) == ["Clone"]
